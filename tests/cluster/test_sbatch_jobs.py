"""Jobs of `slurm-plugin sbatch` on a real Slurm: restarts for a script, and specs that are batch scripts."""

import json
import shlex
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job, workdir
from tests.cluster.sites import deploy, kept
from tests.cluster.syslog import Syslog
from tests.waiting import until

pytestmark = pytest.mark.cluster

OURS = "/etc/slurm/slurm_plugin/bin/slurm-plugin"


@pytest.fixture(scope="module")
def link(sandbox: Sandbox) -> None:
    """Make a link of alice's to our command, named sbatch."""
    sandbox.run(["sh", "-c", f"mkdir -p bin && ln -sf {OURS} bin/sbatch"])


def submitted(box: Sandbox, name: str, script: str, *words: str) -> Job:
    """Submit a script of alice's through our sbatch, in a new directory."""
    path = workdir(box, name)
    (path / "job.sh").write_text(script)
    line = shlex.join(["--parsable", "--output=job.out", "job.sh", *words])
    said = box.run(["sh", "-c", f'cd {name}; PATH="$HOME/bin:$PATH"; sbatch {line}'])
    return Job(box, int(said.stdout), path)


def test_a_script_restarts_when_its_node_loses_a_gpu(cluster: Sandbox, link: None) -> None:
    """On another node, with its arguments. It learns that it is a restart, and its log goes on."""
    script = """#!/bin/bash
#SBATCH --gres=gpu:4
#PLUGIN retries=2 checkpoint=ck
echo "$(hostname) runs $SLURM_PLUGIN_ATTEMPT of $2 $SLURM_PLUGIN_RESTART $SLURM_PLUGIN_CHECKPOINT ${0##*/}"
while [ -c /dev/fakegpu3 ]; do
  [ -e done.$SLURM_PLUGIN_ATTEMPT ] && exit 0
  sleep 0.1
done
exit 5
"""
    job = submitted(cluster, "restarts", script, "a", "b c")
    job.until(lambda: "runs 0 of b c 0 /home/alice/restarts/ck slurm_script.0" in job.log, "the first run")
    (first,) = job.nodes
    (job.directory / "done.1").touch()
    cluster.break_node(first, "gpu-missing")
    assert job.end() == "COMPLETED", job.log
    assert "runs 1 of b c 1 /home/alice/restarts/ck slurm_script.1" in job.log
    assert first not in job.nodes
    assert (job.grant.granted, job.grant.requeues) == (2, 1)


@pytest.mark.full  # over 5 s
def test_a_spare_of_a_script(cluster: Sandbox, link: None) -> None:
    """The job has one more node. The script's steps run on the requested number, and the spare replaces a bad node."""
    script = """#!/bin/bash
#SBATCH --nodes=2 --gres=gpu:4
#PLUGIN retries=1 spares=1 mode=pytorch
echo "world $WORLD_SIZE nodes $SLURM_JOB_NUM_NODES attempt $SLURM_PLUGIN_ATTEMPT"
srun -lK --nodelist="$SLURM_JOB_NODELIST" bash -c 'echo rank on $(hostname); while [ -c /dev/fakegpu3 ]; do
  [ -e done.$SLURM_PLUGIN_ATTEMPT ] && exit 0; sleep 0.1; done; exit 5'
"""
    job = submitted(cluster, "spare", script)
    job.until(lambda: job.log.count("rank on ") == 2, "the ranks")
    (job.directory / "done.1").touch()
    cluster.break_node("n2", "gpu-missing")
    assert job.end() == "COMPLETED", job.log
    assert "world 2 nodes 2 attempt 0" in job.log
    assert "world 2 nodes 2 attempt 1" in job.log
    assert job.log.count("rank on n2") == 1
    assert job.log.count("rank on n3") == 1


BY_COMMAND = """#!/bin/bash
%s
me=$(scontrol show job "$SLURM_JOB_ID" | awk -F= '/Command=/{print $2}'); . "$(dirname "$me")/lib.sh"; hi
"""


@pytest.mark.full  # 9 s
def test_a_script_finds_its_files_by_command(cluster: Sandbox, link: None) -> None:
    """Also if only the site requests features. If its directory is not writable, a line says that there is no Command;
    the site's features are then left out.
    """
    path = workdir(cluster, "by-command")
    (path / "own.sh").write_text(BY_COMMAND % "#PLUGIN retries=1")
    (path / "sites.sh").write_text(BY_COMMAND % "")
    (path / "lib.sh").write_text("hi() { echo hi $SLURM_PLUGIN_ATTEMPT; }\n")
    compiled = cluster.directory / "etc/slurm/slurm_plugin/compiled.json"
    before = compiled.read_text()
    names = sorted(each.name for each in path.iterdir())

    def by_ours(name: str, mode: int, said: str = "") -> Job:
        path.chmod(mode)
        line = f"PATH=$HOME/bin:$PATH; sbatch --parsable --output=by-command-%j.out by-command/{name}.sh"
        done = cluster.run(["sh", "-c", line])
        assert done.stderr == said
        until(lambda: sorted(each.name for each in path.iterdir()) == names)
        return Job(cluster, int(done.stdout), path)

    why = "slurm-plugin: /home/alice/by-command: Permission denied: Slurm gets no Command of the job\n"
    said = f"{why}  if the script finds its files by that, make the directory writable\n"
    jobs = [(by_ours("own", 0o755), "hi 0\n"), (by_ours("own", 0o555, said), "")]
    compiled.write_text(json.dumps({**json.loads(before), "sbatch": {"retries": "1"}}))
    try:
        jobs += [(by_ours("sites", 0o755), "hi 0\n"), (by_ours("sites", 0o555), "hi\n")]
    finally:
        compiled.write_text(before)
    for job, printed in jobs:
        job.end()
        assert not printed or (path.parent / f"by-command-{job.id}.out").read_text() == printed


@pytest.mark.full  # over 5 s
def test_a_job_of_a_script_submits_another(cluster: Sandbox, link: None) -> None:
    """From a node, with the same command. The new job has none of the first job's features."""
    script = """#!/bin/bash
#PLUGIN retries=1
[ "$1" = inner ] && { echo "inner $SLURM_PLUGIN_ATTEMPT"; exit 0; }
PATH=/home/alice/bin:$PATH sbatch -W --output=inner.out job.sh inner
"""
    job = submitted(cluster, "nested-in-script", script)
    assert job.end() == "COMPLETED", job.log
    assert "inner 0" in (job.directory / "inner.out").read_text()


@pytest.mark.full  # 10 s
def test_a_directory_that_cannot_hold_a_program(cluster: Sandbox, link: None, tmp_path: Path) -> None:
    """The user's script runs from memory. A wish of the site's is dropped with a line in syslog, or at submission."""
    path, log, jobs = workdir(cluster, "unfit"), Syslog(cluster), {}
    (path / "users.sh").write_text("#!/bin/sh\n#PLUGIN retries=1\necho $PWD $0 ${SLURM_PLUGIN_ATTEMPT-plain}\n")
    (path / "sites.sh").write_text("#!/bin/sh\necho $PWD $0 ${SLURM_PLUGIN_ATTEMPT-plain}\n")
    with kept(cluster, tmp_path):
        deploy(cluster, tmp_path, sbatch={"retries": 1})
        try:
            for option in ("noexec", "ro"):
                (path / option).mkdir()
                mount = ["mount", "-t", "tmpfs", "-o", f"{option},mode=1777", "unfit", f"/home/alice/unfit/{option}"]
                cluster.run(mount, user="root", node="n1")
                for name in ("users", "sites"):
                    line = f"sbatch --parsable -w n1 -D $PWD/{option} -o $PWD/{name}.{option} {name}.sh"
                    said = cluster.run(["sh", "-c", f'cd unfit; PATH="$HOME/bin:$PATH"; {line}'])
                    jobs[name, option] = Job(cluster, int(said.stdout), path)
            line = "sbatch --parsable -w n1 -m arbitrary -o sites.arbitrary sites.sh"
            said = cluster.run(["sh", "-c", f'cd unfit; PATH="$HOME/bin:$PATH"; {line}'])
            jobs["sites", "arbitrary"] = Job(cluster, int(said.stdout), path)
            for (name, option), job in jobs.items():
                assert (job.end(), job.exit_code) == ("COMPLETED", "0:0"), (name, option)
        finally:
            for option in ("noexec", "ro"):
                cluster.run(["umount", f"/home/alice/unfit/{option}"], user="root", node="n1", check=False)
    for name, option in jobs:
        lines = (path / f"{name}.{option}").read_text().splitlines()
        (where, program, attempt) = next(line for line in lines if not line.startswith("[slurm_plugin] ")).split()
        assert where == ("/home/alice/unfit" if option == "arbitrary" else f"/home/alice/unfit/{option}")
        assert program.startswith("/proc/") == (option != "arbitrary")
        assert attempt == ("0" if name == "users" else "plain")
    unsupervised = [line for line in log.of("n1").splitlines() if "runs unsupervised" in line]
    found = {line.partition("job ")[2].split()[0] for line in unsupervised}
    assert (len(unsupervised), found) == (2, {str(jobs["sites", option].id) for option in ("noexec", "ro")})


SPEC = """\
name: spec
mode: pytorch
nodes: 2
accelerators: {gpu: 4}
cpus: 2
memory: 64M
partition: main
time: 30m
retries: 1
env: {GREETING: "it's $HOME"}
output: job.out
command: bash -c 'echo "$GREETING rank $RANK of $WORLD_SIZE on $(hostname), $SLURM_PLUGIN_ATTEMPT"'
"""


def given_to_sbatch(box: Sandbox, name: str, *words: str) -> Job:
    """Render the spec as a batch script, and submit it with the real sbatch."""
    path = workdir(box, name)
    (path / "job.yaml").write_text(SPEC)
    # The first line would name the tests' environment, which has another path on the machines.
    ours = "1s:^.*$:#!/sandbox/bin/slurm-plugin run:"
    box.run(["sh", "-c", f"cd {name} && slurm-plugin render --batch job.yaml | sed '{ours}' > batch.yaml"])
    said = box.run(["sh", "-c", f"cd {name} && sbatch --parsable {shlex.join(words)} batch.yaml"])
    return Job(box, int(said.stdout), path)


@pytest.mark.full  # over 5 s
def test_a_spec_is_a_batch_script(cluster: Sandbox) -> None:
    """Plain sbatch runs it as `submit` would: checked, with its restart granted, and two ranks."""
    job = given_to_sbatch(cluster, "batch-spec")
    assert job.end() == "COMPLETED", job.log
    printed = sorted(line for line in job.log.splitlines() if not line.startswith("[slurm_plugin]"))
    assert printed == [f"it's $HOME rank {rank} of 2 on n{rank + 1}, 0" for rank in (0, 1)]
    assert "dns: ok on n[1-2]" in job.log
    assert (job.grant.granted, job.attempts[0]["action"]) == (1, "finish")
    assert job.show("j") == ["spec"]


@pytest.mark.full  # over 5 s
def test_a_spec_whose_allocation_is_another_ends(cluster: Sandbox) -> None:
    """The log names both values before anything starts."""
    words = ["--nodes=3", "--gres=gpu:2", "--time=20", "--comment=mine", "--no-requeue"]
    job = given_to_sbatch(cluster, "batch-spec-wrong", *words)
    assert (job.end(), job.exit_code) == ("FAILED", "2:0"), job.log
    assert "4 keys contradict what Slurm gave this job; it ends here" in job.log
    assert "`nodes: 2`, and Slurm gave 3: #SBATCH --nodes=2" in job.log
    assert "`accelerators: {gpu: 4}`, and Slurm gave 2: #SBATCH --gres=gpu:4" in job.log
    assert "`time: 30m`, and Slurm gave 00:20:00; the job runs all the same" in job.log  # the line asks for 30m
    assert "`retries: 1`, and the job's comment asks for nothing" in job.log
    assert "`retries: 1`, and Slurm may not requeue this job: #SBATCH --requeue" in job.log
    assert "rank" not in job.log
    assert not (job.directory / ".slurm_plugin").exists()
