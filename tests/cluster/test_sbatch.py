"""`slurm-plugin sbatch` beside the real one, on a real Slurm: the same jobs, the same words; restarts for a script."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job, workdir

pytestmark = pytest.mark.cluster

Said = tuple[int, str, str]
OURS = "/etc/slurm/slurm_plugin/bin/slurm-plugin"
SCRIPT = """\
#!/bin/bash
#SBATCH --comment="a comment # of mine" -t 30 --mail-type=END
# SBATCH --nodes=9
#SBATCH --output=from-script-%%j.out # what follows is none
%s
echo "$@"
#SBATCH --nodes=9
"""
LINES = (
    "job.sh",
    "job.sh a 'b c' --nodes=7 -- -N8",
    "-N2 job.sh",
    "-n 4 --ntasks-per-node=2 job.sh",
    "-JX -t10 job.sh",
    "--job-name name --time=1:00:00 --time-min=5 job.sh",
    "--part=main --acco none job.sh",
    "--gres=gpu:1 -N 2 job.sh",
    "--gpus-per-node=2 job.sh",
    "-c2 --mem=100M job.sh",
    "--array=1-4%2 job.sh",
    "--dependency=singleton --kill-on-invalid-dep=yes job.sh",
    "--begin=2035-01-01T00:00:00 --deadline=2036-01-01T00:00:00 job.sh",
    "--nice=5 job.sh",
    "-x n1 job.sh",
    "-w n2 job.sh",
    "--comment 'a b' job.sh",
    "--mail-type=FAIL --mail-user=bob job.sh",
    "--export=NONE job.sh",
    "--export=A=1,PATH job.sh",
    "--exclusive=user -O -n3 job.sh",
    "--requeue -k job.sh",
    "--signal=B:USR2@60 --open-mode=append job.sh",
    "-o %x-%j.log -e err -i /etc/hostname job.sh",
    "-D /home/alice/sbatch/other elsewhere.sh",
    "-D/tmp /home/alice/sbatch/job.sh",
    "-D other ./job.sh",
    "-D other ../sbatch/job.sh",
    "--contiguous --use-min-nodes -N1-2 job.sh",
    "--wrap 'echo $HOME; hostname'",
    "--nodes=2 --wrap=hostname --",
    "-- job.sh",
    "< job.sh",
    "-N2 /dev/stdin x < job.sh",
    "--cpus-per-task=2 --hint=nomultithread --switches=1@1:00 job.sh",
)
WITH_VARIABLES = ("SBATCH_JOB_NAME=v SBATCH_TIMELIMIT=5 SBATCH_SIGNAL=USR1", "SBATCH_REQUEUE= SBATCH_OPEN_MODE=t")
CHANGES = {"JobId", "ArrayJobId", "SubmitTime", "EligibleTime", "AccrueTime", "LastSchedEval", "Priority", "StartTime"}
WITH_FEATURES = {"Comment", "AdminComment", "Command", "SubmitLine", "Requeue"}
SAID = (
    "--nonsense",
    "-N",
    "-N x job.sh",
    "--part=none job.sh",
    "none.sh",
    "--wrap=a job.sh",
    "dos.sh",
    "nul.sh",
    "bare.sh",
    "< /dev/null",
    "--version",
    "--help",
    "--usage",
    "-Q -H job.sh",
    "-H job.sh",
    "-H --parsable < job.sh",
    "-W --output=/dev/null --wrap 'exit 3'",
    "--test-only job.sh",
    "--test-only -N99 job.sh",
)


@pytest.fixture(scope="module")
def directory(sandbox: Sandbox) -> Iterator[Path]:
    """Alice's scripts, and a link and a copy of ours under sbatch's name."""
    path = workdir(sandbox, "sbatch")
    for name, line in (("job.sh", ""), ("features.sh", "#PLUGIN retries=1")):
        (path / name).write_text(SCRIPT % line)
    (path / "dos.sh").write_text("#!/bin/sh\r\necho\r\n")
    (path / "nul.sh").write_text("#!/bin/sh\necho \0\n")
    (path / "bare.sh").write_text("echo\n")
    sandbox.run(["sh", "-c", f"cd sbatch && mkdir bin copy other && ln -s {OURS} bin/sbatch && cp {OURS} copy/sbatch"])
    sandbox.run(["sh", "-c", "cd sbatch && cp job.sh other/elsewhere.sh && cp features.sh other/features.sh"])
    yield path
    sandbox.run(["scancel", "--user=alice"], user="root", check=False)


def real(box: Sandbox, line: str, variables: str = "") -> Said:
    """Exit code, stdout and stderr of a line to the real sbatch."""
    done = box.run(["sh", "-c", f"cd sbatch; export _= {variables}; sbatch {line}"], check=False)
    return done.returncode, done.stdout, done.stderr


def ours(box: Sandbox, line: str, variables: str = "") -> Said:
    """The same to ours, found as users find it: as the first sbatch on the PATH, with a copy of it behind."""
    path = 'PATH="$HOME/sbatch/bin:$HOME/sbatch/copy:$PATH"'
    done = box.run(["sh", "-c", f"cd sbatch; export {path} {variables}; sbatch {line}"], check=False)
    return done.returncode, done.stdout, done.stderr


def shown(box: Sandbox, said: Said) -> dict[str, str]:
    """What slurmctld says of a job that was submitted, without its number, by field."""
    assert said[0] == 0, said
    number = said[1].strip()
    text = box.run(["scontrol", "show", "job", number]).stdout
    box.run(["scancel", number])
    fields = re.findall(
        r"(?:^|\s)([A-Z][A-Za-z:/]*)=((?:(?!\s[A-Z][A-Za-z:/]*=).)*)", text.split("\n\n", maxsplit=1)[0], re.DOTALL
    )
    masked = {name: value.replace(number, "N") for name, value in fields if name in ("StdOut", "StdErr")}
    return {name: value for name, value in {**dict(fields), **masked}.items() if name not in CHANGES}


@pytest.mark.parametrize(
    ("line", "variables"), [*((line, "") for line in LINES), *(("job.sh", each) for each in WITH_VARIABLES)]
)
def test_the_same_job(sandbox: Sandbox, directory: Path, line: str, variables: str) -> None:
    """Field by field; and with features, but for those that are theirs."""
    theirs = shown(sandbox, real(sandbox, f"-H --parsable {line}", variables))
    assert shown(sandbox, ours(sandbox, f"-H --parsable {line}", variables)) == theirs
    assert len(theirs) > 30
    if "job.sh" not in line:
        return
    said = ours(sandbox, f"-H --parsable {line.replace('job.sh', 'features.sh')}", variables)
    features = shown(sandbox, said)
    differ = {name for name in theirs if features.get(name, "").replace("features.sh", "job.sh") != theirs[name]}
    assert differ <= WITH_FEATURES
    assert features["Requeue"] == "1"
    comment = "a b" if "--comment" in line else "a comment # of mine"
    assert features["Comment"].strip() == f"{comment} [sp1;retries=1;ib=auto]"


@pytest.mark.parametrize("line", SAID)
def test_the_same_words(sandbox: Sandbox, directory: Path, line: str) -> None:
    """Exit code, stdout and stderr to the byte, but for the numbers of jobs and the times in them."""
    own = ours(sandbox, line)
    assert plain(line, own) == plain(line, real(sandbox, line))
    assert any(own) or "-Q" in line


def plain(line: str, said: Said) -> Said:
    """What was said; where a job was submitted, without its number."""
    code, out, err = said
    if "job.sh" in line or "--wrap" in line:
        out, err = (re.sub(r"[0-9]+", "N", text) for text in (out, err))
    return code, out, err


def test_problems_are_told_and_nothing_is_submitted(sandbox: Sandbox, directory: Path) -> None:
    """All of them, with their lines."""
    (directory / "wrong.sh").write_text("#!/bin/sh\n#PLUGIN retris=2\n#PLUGIN grace=soon\nhostname\n")
    code, out, err = ours(sandbox, "-H wrong.sh")
    assert (code, out) == (2, "")
    assert "  line 2: retris: unknown key" in err
    assert "  line 3: grace: found 'soon'" in err
    assert sandbox.run(["squeue", "-h", "--name=wrong.sh"]).stdout == ""


def submitted(box: Sandbox, name: str, script: str, *words: str) -> Job:
    """A script of alice's, submitted through ours, with a directory of its own."""
    path = workdir(box, name)
    (path / "job.sh").write_text(script)
    line = shlex.join(["--parsable", "--output=job.out", "job.sh", *words])
    said = box.run(["sh", "-c", f'cd {name}; PATH="$HOME/sbatch/bin:$PATH"; sbatch {line}'])
    return Job(box, int(said.stdout), path)


def test_a_script_restarts_when_its_node_loses_a_gpu(cluster: Sandbox, directory: Path) -> None:
    """On another node, with its arguments, told that it is a restart; its own log goes on."""
    script = """#!/bin/bash
#SBATCH --gres=gpu:4
#PLUGIN retries=2 checkpoint=ck
echo "$(hostname) runs $SLURM_PLUGIN_ATTEMPT of $2 $SLURM_PLUGIN_RESTART $SLURM_PLUGIN_CHECKPOINT ${0##*/}"
for i in $(seq 600); do
  [ -c /dev/fakegpu3 ] || exit 5
  [ -e done.$SLURM_PLUGIN_ATTEMPT ] && exit 0
  sleep 0.1
done
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


def test_a_spare_of_a_script(cluster: Sandbox, directory: Path) -> None:
    """The job has one node more, the script's steps run on as many as it asked for, and the spare takes over."""
    script = """#!/bin/bash
#SBATCH --nodes=2 --gres=gpu:4
#PLUGIN retries=1 spares=1 mode=pytorch
echo "world $WORLD_SIZE nodes $SLURM_JOB_NUM_NODES attempt $SLURM_PLUGIN_ATTEMPT"
srun -lK --nodelist="$SLURM_JOB_NODELIST" bash -c 'echo rank on $(hostname); for i in $(seq 600); do
  [ -c /dev/fakegpu3 ] || exit 5; [ -e done.$SLURM_PLUGIN_ATTEMPT ] && exit 0; sleep 0.1; done'
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


def test_a_job_of_a_script_submits_another(cluster: Sandbox, directory: Path) -> None:
    """From a node, through the same command, with nothing left of its own features."""
    script = """#!/bin/bash
#PLUGIN retries=1
[ "$1" = inner ] && { echo "inner $SLURM_PLUGIN_ATTEMPT"; exit 0; }
PATH=/home/alice/sbatch/bin:$PATH sbatch -W --output=inner.out job.sh inner
"""
    job = submitted(cluster, "nested-in-script", script)
    assert job.end() == "COMPLETED", job.log
    assert "inner 0" in (job.directory / "inner.out").read_text()


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
    """The spec, made a batch script, given to the real sbatch."""
    path = workdir(box, name)
    (path / "job.yaml").write_text(SPEC)
    # The first line would name the environment of these tests, which is elsewhere on the machines.
    ours = "1s:^.*$:#!/sandbox/bin/slurm-plugin run:"
    box.run(["sh", "-c", f"cd {name} && slurm-plugin render --batch job.yaml | sed '{ours}' > batch.yaml"])
    said = box.run(["sh", "-c", f"cd {name} && sbatch --parsable {shlex.join(words)} batch.yaml"])
    return Job(box, int(said.stdout), path)


def test_a_spec_is_a_batch_script(cluster: Sandbox) -> None:
    """Plain sbatch runs it as `submit` would: checked, granted its restart, two ranks."""
    job = given_to_sbatch(cluster, "batch-spec")
    assert job.end() == "COMPLETED", job.log
    printed = sorted(line for line in job.log.splitlines() if not line.startswith("[slurm_plugin]"))
    assert printed == [f"it's $HOME rank {rank} of 2 on n{rank + 1}, 0" for rank in (0, 1)]
    assert ": ok: " in job.log
    assert (job.grant.granted, job.attempts[0]["action"]) == (1, "finish")
    assert job.show("j") == ["spec"]


def test_a_spec_whose_allocation_is_another_ends(cluster: Sandbox) -> None:
    """Both are named, before anything starts."""
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
