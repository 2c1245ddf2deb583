"""The hooks beside a program, on a real Slurm: a step of `job prestart`, then a step of the program."""

import json
import os
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import workdir
from tests.waiting import HANG_S

pytestmark = pytest.mark.cluster

VALUES = {"FOO": " a \"b\" 'c' $HOME \\ é \t", "EMPTY": "", "LONG": "x" * 20_000}
HOOK = """
export FOO=' a "b" '"'c'"' $HOME \\ é \t' EMPTY= LONG=$(printf %20000s | tr ' ' x)
export PATH=$PWD/bin:$PATH WHERE=$SLURMD_NODENAME RANK=99 SLURM_JOB_ID=0
unset GONE
echo "on $SLURMD_NODENAME"; echo "warned" >&2
[ $SLURMD_NODENAME != "$(cat fails)" ] || exit 3
sleep 9000 & # keeps the log open: srun would wait for it
"""
PROGRAM = """
import json, os
names = ("FOO", "EMPTY", "LONG", "WHERE", "RANK", "GONE", "KEPT", "SLURM_PLUGIN_LAUNCH")
with open(f"found.{os.uname().nodename}.json", "w") as file:
    json.dump({name: os.environ.get(name) for name in names}, file)
"""
SCRIPT = """#!/bin/bash
export GONE=1 KEPT=1
run=$SLURM_JOB_ID.0.0
# Without --kill-on-bad-exit=1: with it srun drops unread output, such as the line about the failure.
each="srun --overlap --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --export=ALL"
$each /etc/slurm/slurm_plugin/bin/slurm-plugin job prestart --run-directory /run/slurm_plugin --directory $run \\
  --python python3 -- $PWD/ma-pre-start.sh $PWD/ma-pre-start.py || exit
ls -d /run/slurm_plugin/jobs/$run /tmp/slurm_plugin.$run
echo 'printf "export RANK=%s\\n" "$SLURM_PROCID"' > own
$each bash -c "cat own >> \\$(ls -d /run/slurm_plugin/jobs/$run/user /tmp/slurm_plugin.$run 2>/dev/null)/task.sh"
SLURM_PLUGIN_LAUNCH=$run $each my-program
pgrep -u alice sleep && exit 9
exit 0
"""


def start(box: Sandbox, name: str, comment: str, *, fails: str = "none") -> tuple[int, Path, str]:
    """Run a job of two nodes with hooks and a program on the hook's PATH alone. Return code, directory and log."""
    directory = workdir(box, name)
    (directory / "bin").mkdir(exist_ok=True)
    (directory / "ma-pre-start.sh").write_text(HOOK)
    (directory / "ma-pre-start.py").write_text("import os; os.environ['WHERE'] += ', twice'\n")
    (directory / "bin/my-program").write_text("#!/usr/bin/python3" + PROGRAM)
    (directory / "bin/my-program").chmod(0o755)
    (directory / "fails").write_text(fails)
    for path in (directory / "bin", *directory.iterdir()):
        os.chown(path, directory.stat().st_uid, directory.stat().st_gid)
    words = ["sbatch", "--wait", "--nodes=2", "--nodelist=n[1-2]", f"--chdir=/home/alice/{name}", "--output=out"]
    done = box.run([*words, f"--comment={comment}"], input=SCRIPT, check=False, timeout=HANG_S)
    return done.returncode, directory, (directory / "out").read_text(encoding="utf-8")


@pytest.mark.parametrize("comment", ["[sp1;retries=0]", ""], ids=["prolog", "no-prolog"])
def test_hooks_change_what_every_task_finds(cluster: Sandbox, comment: str) -> None:
    """Byte for byte, even long values. Each node has its own; the mode's RANK stays. Also without our prolog."""
    code, directory, log = start(cluster, f"hooks-{bool(comment)}", comment)
    assert code == 0, log
    assert ("/run/slurm_plugin/jobs/" in log.replace("cannot access '/run", "")) == bool(comment), log
    for rank, node in enumerate(("n1", "n2")):
        found = json.loads((directory / f"found.{node}.json").read_text())
        own = {"WHERE": f"{node}, twice", "RANK": str(rank), "GONE": None, "KEPT": "1", "SLURM_PLUGIN_LAUNCH": None}
        assert found == {**VALUES, **own}
        of_node = [line for line in log.splitlines() if line.startswith(f"[slurm_plugin] {node} ma-pre-start.sh: ")]
        assert [line.split(": ", 1)[1].partition(" (0")[0] for line in of_node] == [
            "started",
            "not handed on: SLURM_JOB_ID (Slurm's and ours to set)",
            "ok: 7 variables changed: EMPTY, FOO, LONG, PATH, RANK, WHERE, GONE",
        ]
        assert f"on {node}" in log.splitlines()
    assert log.splitlines().count("warned") == 2


def test_a_failing_hook_ends_the_step(cluster: Sandbox) -> None:
    """It fails on one of two nodes: the step ends with its code and its line, and no program starts."""
    code, directory, log = start(cluster, "hooks-fail", "[sp1;retries=0]", fails="n2")
    assert "[slurm_plugin] n2 ma-pre-start.sh: failed: exit code 3" in log.splitlines()
    assert "srun: error: n2: task 1: Exited with exit code 3" in log.splitlines()
    assert code in (3, 143)  # srun returns the highest code: that of n1 if it was ended during its hook
    assert not list(directory.glob("found.*"))
