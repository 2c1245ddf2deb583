"""Keys of a spec that say what the program finds round it, on a real Slurm."""

import os
import shlex
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import ALICE_UID, submit, workdir

pytestmark = pytest.mark.cluster


def put(path: Path, text: str, mode: int = 0o600) -> None:
    """A file of alice's."""
    path.write_text(text)
    path.chmod(mode)
    os.chown(path, ALICE_UID, ALICE_UID)


def bash(text: str) -> str:
    """A command that bash runs."""
    return f"bash -c {shlex.quote(text)}"


def test_variables_of_a_file_reach_every_node(cluster: Sandbox) -> None:
    """With `env` above them, and no value in what Slurm keeps of the job; a file that is gone ends it in words."""
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
    assert "--env-file=/home/alice/keys-env/keys.env" in script
    assert "s3cr3t" not in script


def test_libraries_of_the_program_are_not_those_of_our_python(cluster: Sandbox) -> None:
    """One of a module's that does not fit would keep it from starting."""
    directory = workdir(cluster, "keys-libraries")
    put(directory / "libexpat.so.1", "no library\n")
    where = "/home/alice/keys-libraries"
    spec = {"mode": "single", "nodes": 1, "accelerators": {"gpu": 0}, "env": {"LD_LIBRARY_PATH": where}}
    command = bash("echo [$LD_LIBRARY_PATH] ${SLURM_PLUGIN_LIBRARIES-none}; python3 -c pass")
    job = submit(cluster, "keys-libraries", made=True, command=command, **spec)
    assert job.end() == "FAILED", job.log
    assert f"[{where}] none" in job.log.splitlines()
    assert "python3: error while loading shared libraries" in job.log


def test_data_is_on_every_nodes_own_disk(cluster: Sandbox) -> None:
    """Copied once and used again; a node without a place for it is left out; old copies go with the periodic check."""
    directory = workdir(cluster, "keys-data")
    (directory / "set").mkdir()
    put(directory / "set/a", "hello\n")
    os.chown(directory / "set", ALICE_UID, ALICE_UID)
    show = 'echo "$SLURMD_NODENAME $(cat "$SLURM_PLUGIN_DATA/set/a") $(stat -c %a:%U "$SLURM_PLUGIN_DATA/..")"'
    spec = {"launch": "task", "accelerators": {"gpu": 0}, "command": bash(show), "retries": 1}
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

    # Runs that tests of broken epilogs have left: root asks Slurm about them later, and until then she may be here.
    runs = f"find /run/slurm_plugin/jobs -mindepth 1 -maxdepth 1 ! -name '{job.id}.*' -exec rm -r {{}} +"
    cluster.run(["sh", "-c", runs], "root", "n1")

    def gone() -> bool:  # once the job's epilog has been there
        cluster.run(["env", "SLURMD_NODENAME=n1", "sh", "-c", ago], "root", "n1")
        return cluster.run(["ls", f"/scratch/{ALICE_UID}"], "root", "n1").stdout == ""

    job.until(gone, "the old copies gone")


def test_hooks_that_the_job_names(cluster: Sandbox) -> None:
    """Once on each node, before the program and after it, with how it ended; the one beside it is left out."""
    directory = workdir(cluster, "keys-hooks")
    put(directory / "startup-hook.sh", "echo found\n")
    put(directory / "before.sh", "export WHERE=$SLURMD_NODENAME\n")
    put(directory / "after.sh", 'echo "after $WHERE $SLURM_PLUGIN_EXIT_CODE"; exit 9\n')
    spec = {"accelerators": {"gpu": 0}, "launch": "task", "command": bash('echo "in $WHERE"; exit 5')}
    hooks = {"before": "before.sh", "after": ["after.sh"], "found": "no"}
    job = submit(cluster, "keys-hooks", made=True, hooks=hooks, **spec)
    assert (job.end(), job.exit_code) == ("FAILED", "5:0"), job.log
    assert {"in n1", "in n2", "after n1 5", "after n2 5"} <= set(job.log.splitlines()), job.log
    assert "found" not in job.log.splitlines()


def test_each_rank_or_node_has_its_log(cluster: Sandbox) -> None:
    """What its tasks write, and nothing else; stderr of the rest goes where `error` says."""
    directory = workdir(cluster, "keys-logs")
    spec = {"accelerators": {"gpu": 2}, "launch": "task", "error": "job.err"}
    spec["command"] = bash('echo "out $RANK $SLURMD_NODENAME"; echo "err $RANK" >&2')
    job = submit(cluster, "keys-logs", made=True, logs={"per": "rank"}, **spec)
    assert job.end() == "COMPLETED", job.log
    found = {path.name: sorted(path.read_text().splitlines()) for path in (directory / f"logs/{job.id}").iterdir()}
    ranks = {number: f"n{1 + number // 2}" for number in range(4)}
    assert found == {f"rank-{number}.log": [f"err {number}", f"out {number} {node}"] for number, node in ranks.items()}
    assert "out 0 n1" not in job.log.splitlines()
    job = submit(cluster, "keys-logs", made=True, logs={"per": "node", "label": "yes"}, **spec)
    assert job.end() == "COMPLETED", job.log
    found = {path.name: sorted(path.read_text().splitlines()) for path in (directory / f"logs/{job.id}").iterdir()}
    assert found["node-n2.log"] == ["2: err 2", "2: out 2 n2", "3: err 3", "3: out 3 n2"]
    assert set(found) == {"node-n1.log", "node-n2.log"}
    job = submit(cluster, "keys-logs", made=True, logs={"label": "yes"}, **spec)
    assert job.end() == "COMPLETED", job.log
    assert "3: out 3 n2" in job.log.splitlines()
    assert "3: err 3" in (directory / "job.err").read_text().splitlines()
