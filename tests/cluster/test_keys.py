"""Keys of a spec that change the program's surroundings, on a real Slurm."""

import json
import os
import shlex
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import ALICE_UID, submit, workdir
from tests.waiting import until

pytestmark = pytest.mark.cluster


def put(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file of alice's."""
    path.write_text(text)
    path.chmod(mode)
    os.chown(path, ALICE_UID, ALICE_UID)


def bash(text: str) -> str:
    """Return a command that bash runs."""
    return f"bash -c {shlex.quote(text)}"


def test_variables_of_a_file_reach_every_node(cluster: Sandbox) -> None:
    """`env` overrides them, and Slurm's record of the job has no value. A missing file ends the job with a message."""
    put(workdir(cluster, "keys-env") / "keys.env", "TOKEN=s3cr3t \nLR=0.1\n")
    both = "touch said.$SLURM_PROCID; until [ -e said.0 ] && [ -e said.1 ]; do sleep 0.1; done"
    command = bash(f'echo "$SLURMD_NODENAME <$TOKEN> $LR"; {both}; rm -f keys.env; exit 1')
    spec = {"env": {"LR": "0.2"}, "retries": 1, "unconditional": "yes", "command": command, "accelerators": {"gpu": 0}}
    job = submit(cluster, "keys-env", made=True, env_file="keys.env", launch="task", **spec)
    assert job.end() == "FAILED"
    assert {"n1 <s3cr3t > 0.2", "n2 <s3cr3t > 0.2"} <= set(job.log.splitlines()), job.log
    why = "env_file: /home/alice/keys-env/keys.env: found No such file or directory; accepted: "
    assert f"[slurm_plugin] error,exiting: attempt 1: {why}" in job.log
    script = cluster.run(["scontrol", "write", "batch_script", str(job.id), "-"]).stdout
    assert '"env_files": ["/home/alice/keys-env/keys.env"]' in script
    assert "s3cr3t" not in script


def test_libraries_of_the_program_are_not_those_of_our_python(cluster: Sandbox) -> None:
    """A library of a module that does not fit would keep our Python from starting."""
    directory = workdir(cluster, "keys-libraries")
    put(directory / "libexpat.so.1", "no library\n")
    where = "/home/alice/keys-libraries"
    spec = {"mode": "single", "nodes": 1, "accelerators": {"gpu": 0}, "env": {"LD_LIBRARY_PATH": where}}
    command = bash("echo [$LD_LIBRARY_PATH] ${SP_LIBRARIES-none}; python3 -c pass")
    job = submit(cluster, "keys-libraries", made=True, command=command, **spec)
    assert job.end() == "FAILED", job.log
    assert f"[{where}] none" in job.log.splitlines()
    assert "python3: error while loading shared libraries" in job.log


@pytest.mark.full  # 13 s
def test_data_is_on_every_nodes_own_disk(cluster: Sandbox) -> None:
    """Copied once and used again. A node with a wrong directory is excluded. The periodic check removes old copies."""
    directory = workdir(cluster, "keys-data")
    (directory / "set").mkdir()
    put(directory / "set/a", "hello\n")
    os.chown(directory / "set", ALICE_UID, ALICE_UID)
    show = 'echo "$SLURMD_NODENAME $(cat "$SLURM_PLUGIN_DATA/set/a") $(stat -c %a:%U "$SLURM_PLUGIN_DATA/..")"'
    spoil = 'rm -rf "$SLURM_PLUGIN_DATA"/set/*; { echo >"$SLURM_PLUGIN_DATA/set/a"; }'
    command = bash(f"{show}; {spoil}; true")
    spec = {"launch": "task", "accelerators": {"gpu": 0}, "command": command, "retries": 1}
    spec |= {"stage_in": [{"from": "set"}]}
    for what in ("copied", "there already"):
        job = submit(cluster, "keys-data", made=True, nodelist="n[1-2]", **spec)
        assert job.end() == "COMPLETED", job.log
        for node in ("n1", "n2"):
            assert f"{node} hello 700:alice" in job.log.splitlines(), job.log
            assert f"[slurm_plugin] {node} stage-in: ok: set: 1 files, 6 B, {what} (" in job.log
        assert not [*directory.glob(f".slurm_plugin/{job.id}/stage-in.*")]
        (directory / "job.out").unlink()
    cluster.run(["chmod", "755", "/scratch"], "root", "n2")
    try:
        job = submit(cluster, "keys-data", made=True, exclude="n4", **spec)
        assert job.end() == "COMPLETED", job.log
    finally:
        cluster.run(["chmod", "1777", "/scratch"], "root", "n2")
    assert job.nodes == {"n1", "n3"}
    assert (job.attempts[0]["phase"], list(job.attempts[0]["verdicts"])) == ("stage_in", ["n2"])
    assert "n2 stage-in: /scratch: is not root's and open to all with the sticky bit" in job.attempts[0]["cause"]
    ago = f"find /scratch/{ALICE_UID} -name .used -exec touch -d @1 {{}} +; exec /etc/slurm/slurm_plugin/hooks/periodic"

    # Tests of broken epilogs have left runs. Until root has asked Slurm about them, their user counts as present.
    runs = f"find /run/slurm_plugin/jobs -mindepth 1 -maxdepth 1 ! -name '{job.id}.*' -exec rm -r {{}} +"
    cluster.run(["sh", "-c", "umount --lazy /run/slurm_plugin/jobs/*/user"], "root", "n1", check=False)
    cluster.run(["sh", "-c", runs], "root", "n1")

    def gone() -> bool:  # when the job's epilog has run
        cluster.run(["env", "SLURMD_NODENAME=n1", "sh", "-c", ago], "root", "n1")
        return cluster.run(["ls", f"/scratch/{ALICE_UID}"], "root", "n1").stdout == ""

    job.until(gone, "the old copies gone")


def test_another_user_blocks_no_place_for_data(cluster: Sandbox) -> None:
    """Another user makes her directory again and again: root's prolog makes it, and she needs no restart."""
    mine = f"/scratch/{ALICE_UID}"
    cluster.run(["rm", "-rf", mine], "root", "n1")
    loop = f"while :; do mkdir {mine} && touch {mine}/x /scratch/up; sleep 0.01; done"
    cluster.run(["sbatch", "-n1", "-w", "n1", "-o/dev/null", f"--wrap={loop}"], "bob")
    until(lambda: not cluster.run(["ls", "/scratch/up"], "root", "n1", check=False).returncode)
    put(workdir(cluster, "keys-blocked") / "set", "hello\n")
    spec = {"mode": "single", "nodes": 1, "nodelist": "n1", "accelerators": {"gpu": 0}, "retries": 1}
    job = submit(
        cluster,
        "keys-blocked",
        made=True,
        command=bash('cat "$SLURM_PLUGIN_DATA/set"'),
        stage_in=[{"from": "set"}],
        **spec,
    )
    assert job.end() == "COMPLETED", job.log
    assert "hello" in job.log.splitlines()
    assert job.fields["Restarts"] == "0"
    cluster.run(["sh", "-c", f"rm -rf /scratch/up /scratch/.{ALICE_UID}.*"], "root", "n1")


# Both ranks print before the first one's exit makes Slurm end the other.
SAYS_WHERE = (
    """echo "in $WHERE"; touch in.$WHERE; until [ -e in.n1 ] && [ -e in.n2 ]; do sleep 0.1; done; sleep 1; exit 5"""
)


def test_hooks_that_the_job_names(cluster: Sandbox) -> None:
    """Once on each node, before the program and after it, with its exit code. Hooks beside the program do not run."""
    directory = workdir(cluster, "keys-hooks")
    put(directory / "startup-hook.sh", "echo found\n")
    put(directory / "before.sh", "export WHERE=$SLURMD_NODENAME\n")
    put(directory / "after.sh", 'echo "after $WHERE $SLURM_PLUGIN_EXIT_CODE"; exit 9\n')
    spec = {"accelerators": {"gpu": 0}, "launch": "task", "command": bash(SAYS_WHERE)}
    hooks = {"before": "before.sh", "after": ["after.sh"], "found": "no"}
    job = submit(cluster, "keys-hooks", made=True, hooks=hooks, **spec)
    assert (job.end(), job.exit_code) == ("FAILED", "5:0"), job.log
    assert {"in n1", "in n2", "after n1 5", "after n2 5"} <= set(job.log.splitlines()), job.log
    assert "found" not in job.log.splitlines()


@pytest.mark.full  # 11 s
def test_input_variables_of_srun_reach_the_program(cluster: Sandbox) -> None:
    """As with sbatch, and by `env`; inside a job without the variables that this job sets."""
    directory = workdir(cluster, "keys-slurm")
    see = "env | grep -E '^SLURM_(MPI_TYPE|KILL_BAD_EXIT|CPU_BIND|STEP_ID)='"
    for name, env in (("said.yaml", {"SLURM_CPU_BIND": "none"}), ("plain.yaml", {})):
        spec = {"name": "a", "mode": "script", "output": f"{name}.out", "command": see, "env": env}
        put(directory / name, json.dumps(spec))
    inherited = "SLURM_KILL_BAD_EXIT=1 SLURM_MPI_TYPE=none"
    submit = f"cd ~/keys-slurm && {inherited} slurm-plugin submit --wait"
    cluster.run(["sh", "-c", f"{submit} said.yaml"])
    cluster.run(["srun", "--nodes=1", "--cpu-bind=none", "sh", "-c", f"{submit} plain.yaml"])
    found = {name: (directory / f"{name}.out").read_text().split() for name in ("said.yaml", "plain.yaml")}
    assert set(inherited.split()) <= {*found["said.yaml"]} & {*found["plain.yaml"]}, found
    assert "SLURM_CPU_BIND=none" in found["said.yaml"]
    assert not [each for each in found["plain.yaml"] if each.startswith("SLURM_CPU_BIND")]
    steps = [[each for each in found[name] if each.startswith("SLURM_STEP_ID")] for name in found]
    assert steps[0] == steps[1]  # from 26.05 on Slurm gives one to the batch script
