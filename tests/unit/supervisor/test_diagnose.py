"""What a diagnosis of the log changes: words, and which nodes this job gets again."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prechecks.child import stat
from slurm_plugin.records import diagnoses
from slurm_plugin.supervisor.decide import Action, Attempt, Health, Wish, decide
from slurm_plugin.supervisor.diagnose import Checked, Failure, Reader, diagnose, finish
from slurm_plugin.supervisor.guard import barrier
from tests.fake_slurm import FakeSlurm
from tests.guarded import AGES
from tests.unit.supervisor.plans import plan
from tests.unit.supervisor.supervised import JOB, RUNNING, attempted
from tests.waiting import HANG_S, until

GONE = Health("unreachable", "does not answer")
OK, BAD, UNKNOWN = Health("ok"), Health("node_problem", "gpu-check: failed: 3 of 4 GPUs"), Health("unknown")
FAILS = """import sys
def step(batch):
    return batch["tokens"]
print("step 3", flush=True)
step({})
"""
LOST_GPU = {
    "class": "gpu_hw", "says": "a fault of an accelerator or its driver", "means": "", "whose": "node",
    "confidence": "sure", "ranks": [1], "of": 2, "nodes": {"n2": "exclude"}, "fix": [],
}  # fmt: skip
KEY_ERROR = {**LOST_GPU, "class": "user_code", "whose": "user", "nodes": {"n2": "clear"}}
HANG = {**LOST_GPU, "class": "rank_hang", "whose": "unknown", "confidence": "likely", "nodes": {"n2": "check"}}


@pytest.fixture(autouse=True)
def _no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of this machine's kernel may have lines of other tests."""
    monkeypatch.setattr(barrier, "kernel_lines", lambda *_: "")


class Reading:
    """A diagnosis that is done."""

    def __init__(self, form: Mapping[str, Any]) -> None:
        self.first = {**form, "nodes": dict(form["nodes"]), "verdicts": {"n1": "clear", **form["nodes"]}}

    def form(self) -> dict[str, Any]:
        """Return it."""
        return self.first

    def again(self, _nodes: Mapping[str, Health]) -> dict[str, Any]:
        """Return it."""
        return self.first


@pytest.mark.parametrize(
    ("form", "seen", "verdict", "condition", "kind"),
    [
        (LOST_GPU, OK, "exclude", "job_problem", "again"),  # our checks may not see what the program saw
        (LOST_GPU, BAD, "exclude", "node_problem", "again"),
        ({**LOST_GPU, "confidence": "unknown"}, OK, "clear", "ok", "fail"),
        (HANG, OK, "clear", "ok", "fail"),
        (HANG, BAD, "exclude", "node_problem", "again"),
        (HANG, UNKNOWN, "check", "unknown", "fail"),
        (KEY_ERROR, OK, "clear", "ok", "fail"),  # a fault of the program is no reason to restart
        ({**LOST_GPU, "whose": "network"}, OK, "clear", "ok", "fail"),
    ],
)
def test_after_checks(form: Mapping[str, Any], seen: Health, verdict: str, condition: str, kind: str) -> None:
    """With retries the nodes were checked anyway: the checks have the last word, but for evidence of the node."""
    found, nodes = diagnose(Reading(form), {"n1": OK, "n2": seen}, checked=True, look=None)  # type: ignore[arg-type]
    assert found is not None
    assert (found["nodes"]["n2"], nodes["n2"].condition, nodes["n1"]) == (verdict, condition, OK)
    assert found["verdicts"] == {"n1": "clear", "n2": verdict}
    assert decide(Attempt("program", 1, nodes), 2, Wish(1, 1)).kind == kind


def test_without_retries_a_suspect_is_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    """Once, and only where the log names a node."""
    looks: list[int] = []

    def look() -> Mapping[str, Health]:
        looks.append(1)
        return {"n1": OK, "n2": BAD}

    found, nodes = diagnose(Reading(HANG), {"n1": OK, "n2": OK}, checked=False, look=look)  # type: ignore[arg-type]
    assert found is not None
    assert (found["nodes"], nodes["n2"], looks) == ({"n2": "exclude"}, BAD, [1])
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "[slurm_plugin] looking at n2, which the log names"
    assert said[1].startswith("[slurm_plugin] likely cause: ")
    diagnose(Reading(KEY_ERROR), {"n1": OK, "n2": OK}, checked=False, look=look)  # type: ignore[arg-type]
    assert looks == [1]


def test_the_kernels_of_suspects_are_read() -> None:
    """Their lines come with the checks, and the logs are diagnosed again with them."""
    asked: list[Mapping[str, Health]] = []

    class Again(Reading):
        def again(self, nodes: Mapping[str, Health]) -> dict[str, Any]:
            asked.append(nodes)
            return {**LOST_GPU, "nodes": {"n1": "exclude"}}

    checked = {"n1": OK, "n2": Health("ok", kernel="[1.5] NVRM: Xid (PCI:0000:5f:00): 79")}
    found, nodes = diagnose(Again(HANG), {"n1": OK, "n2": OK}, checked=False, look=lambda: checked)  # type: ignore[arg-type]
    assert (found or {})["nodes"] == {"n1": "exclude"}
    assert (nodes["n1"].condition, asked) == ("job_problem", [checked])


def test_a_fault_that_the_checks_find_may_be_the_cause() -> None:
    """The logs are diagnosed again with it."""

    class Again(Reading):
        def again(self, nodes: Mapping[str, Health]) -> dict[str, Any]:
            return {**LOST_GPU, "nodes": {"n2": "exclude"}} if nodes["n2"] == BAD else self.first

    look = {"n1": OK, "n2": BAD}
    found, _ = diagnose(Again(HANG), {"n1": OK, "n2": OK}, checked=False, look=lambda: look)  # type: ignore[arg-type]
    assert ((found or {})["class"], (found or {})["nodes"]) == ("gpu_hw", {"n2": "exclude"})


def test_a_cause_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    """The log says so, with the last line of the program."""
    last = {"evidence": None, "last": {"file": "job.out", "lines": ["step 3"]}, "beside": "exit code 137"}
    killed = {**HANG, "class": "unknown", "says": "the program was ended", "confidence": "unknown", **last}
    diagnose(Reading(killed), {"n1": OK, "n2": OK}, checked=True, look=None)  # type: ignore[arg-type]
    assert capsys.readouterr().out.splitlines() == [
        "[slurm_plugin] likely cause: unknown; the program was ended",
        "[slurm_plugin]   began with: rank 1 of 2 on n2",
        "[slurm_plugin]   job.out, its last line: step 3",
        "[slurm_plugin]   exit code 137",
        "[slurm_plugin]   verdict: n2: clear",
    ]


def test_nothing_is_known_of_nodes_that_nobody_looked_at() -> None:
    """The verdict stays what the log says."""
    found, nodes = diagnose(Reading(HANG), {"n1": OK, "n2": OK}, checked=False, look=None)  # type: ignore[arg-type]
    assert found is not None
    assert (found["nodes"], nodes) == ({"n2": "check"}, {"n1": OK, "n2": OK})


def run_of(srun: Path, capfd: pytest.CaptureFixture[str], *command: str) -> tuple[Action, str]:
    """Run the supervisor with its output in job.out. Return its last action and the file's text."""
    log, own = srun / "job.out", os.dup(1)
    log.write_text("RuntimeError: CUDA error: an illegal memory access was encountered\n")
    with log.open("a") as file, capfd.disabled():
        os.dup2(file.fileno(), 1)
        error = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            found = attempted(srun, FakeSlurm(RUNNING), plan(command))
            sys.stdout.flush()
        finally:
            os.dup2(own, 1)
            os.dup2(error, 2)
    return found, log.read_text()


def test_a_suspect_is_looked_at_in_every_mode(srun: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also where the launch needs no guards."""
    found, text = run_of(srun, capfd, "sh", "-c", "echo 'srun: error: Node failure on n1'; exit 3")
    assert (found.kind, found.code) == ("fail", 3)
    assert "[slurm_plugin] looking at n1, which the log names\n" in text


def test_of_a_real_run(srun: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Only the part of the log that this attempt wrote is read. The cause is logged and recorded in diagnosis.json."""
    (srun / "work/fails.py").write_text(FAILS)
    found, text = run_of(srun, capfd, sys.executable, "fails.py")
    assert (found.kind, found.code) == ("fail", 1)
    said = [line for line in text.splitlines() if "likely cause" in line or line.startswith("[slurm_plugin]   ")]
    assert said[0] == (
        "[slurm_plugin] likely cause: the program raised an exception"
        " (user_code, likely; the program's or its request's)"
    )
    assert said[1].endswith("fails.py, line 3, in step")
    assert said[2].endswith("KeyError: 'tokens'")
    form = diagnoses.read(srun / f"work/.slurm_plugin/{JOB}")[0]
    assert (form["class"], form["place"]["line"], form["evidence"]["text"]) == ("user_code", 3, "KeyError: 'tokens'")


@pytest.mark.parametrize(
    ("cause", "nodes", "failure", "verdicts"),
    [
        ("hang", {}, "rank_hang", {}),
        ("nodes", {"n2": GONE}, "node_down", {"n2": "exclude"}),
        ("nodes", {"n2": GONE, "n3": GONE}, "net_fabric", {"n1": "exclude"}),  # it is this node that is cut off
        ("nodes", {"n2": BAD}, "gpu_hw", {"n2": "exclude"}),
        ("itself", {}, "cancelled", {}),
    ],
)
def test_a_program_that_the_supervisor_ended(
    cause: Any,
    nodes: Mapping[str, Health],
    failure: str,
    verdicts: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What torchrun writes of the supervisor's SIGTERM is not the cause."""
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    (tmp_path / "log").write_text("torch.distributed.elastic.SignalException: Process 26 got signal: 15\n")
    reader = Reader(failed(tmp_path, 143, cause))
    reader.tell(nodes, isolated=GONE in nodes.values())
    found = reader.form()
    assert found is not None
    assert (found["class"], found["nodes"]) == (failure, verdicts)


def failed(directory: Path, code: int, cause: Any, deadline_s: float = 60.0) -> Failure:
    """Return an attempt on three nodes that failed, with its log in this directory."""
    hosts = [SimpleNamespace(name=name) for name in ("n1", "n2", "n3")]
    run = SimpleNamespace(allocation=SimpleNamespace(hosts=hosts), nodes=("n1", "n2", "n3"), job_id=7, attempt=0)
    preparation: Any = SimpleNamespace(
        run=run, plan=SimpleNamespace(logs=""), slots=[2, 2, 2], launch_level="node", directory=directory, began=0.0
    )
    return Failure(preparation, {str(directory / "log"): 0}, code, cause, deadline_s)


def test_a_restart_is_prepared_while_the_logs_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That is if our checks explain the failure: the logs then change nothing but words."""
    (tmp_path / "log").write_text("")
    real, prepared, checks = Failure.read, tmp_path / "prepared", {"n1": OK, "n2": BAD}

    def read(*given: Any) -> dict[str, Any]:
        until(prepared.exists, "the restart")
        return real(*given)

    monkeypatch.setattr(Failure, "read", read)
    diagnosis, nodes = finish(Reader(failed(tmp_path, 1, "itself")), checks, checked=True, look=None)
    assert (capsys.readouterr().out, nodes) == ("", checks)
    prepared.touch()
    assert (diagnosis() or {})["nodes"] == {"n2": "exclude"}
    assert "likely cause: a fault of an accelerator" in capsys.readouterr().out


def test_the_logs_are_read_while_the_nodes_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long that takes; what the checks found then counts too."""
    (tmp_path / "log").write_text("step 3\n")
    read, files = tmp_path / "read", Failure.read

    def judged(self: Failure, checked: Callable[[], Checked]) -> dict[str, Any]:
        def after() -> Checked:
            read.touch()
            return checked()

        return files(self, after)

    monkeypatch.setattr(Failure, "read", judged)
    reader = Reader(failed(tmp_path, 1, "itself"))
    until(read.exists, "the end of the reading")
    reader._child.start -= AGES
    (tmp_path / "log").unlink()
    reader.tell({"n1": OK, "n2": BAD})
    found = reader.form() or {}
    assert (found["class"], found["nodes"]) == ("gpu_hw", {"n2": "exclude"})


def test_a_child_whose_supervisor_is_gone(tmp_path: Path) -> None:
    """It ends, because no result of checks will come."""
    told, answer = os.pipe()
    if not (supervisor := os.fork()):
        reader = Reader(failed(tmp_path, 1, "itself"))
        os.write(answer, str(reader._child.pid).encode())
        os._exit(0)
    child = int(os.read(told, 20))
    os.waitpid(supervisor, 0)
    until(lambda: not stat(child)[0], "the end of the child")


def test_a_file_that_cannot_be_read_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file server does not answer: the job goes on without a diagnosis."""
    monkeypatch.setattr(Failure, "read", lambda *_: time.sleep(AGES))
    began = time.monotonic()
    reader = Reader(failed(tmp_path, 1, "program", deadline_s=0.5))
    reader.tell({})
    assert reader.form() is None
    assert 0.5 <= time.monotonic() - began < HANG_S


def test_a_fault_that_the_checks_found_explains_the_failure() -> None:
    """The log then keeps the job off no further node: a job that leaves out too many nodes never runs again."""
    found, nodes = diagnose(Reading(LOST_GPU), {"n1": BAD, "n2": OK}, checked=True, look=None)  # type: ignore[arg-type]
    assert found is not None
    assert (found["nodes"], nodes) == ({"n2": "clear"}, {"n1": BAD, "n2": OK})
