"""Large logs, and logs that change: what is read of them."""

import itertools
import math
from pathlib import Path

import pytest

from slurm_plugin.logs import library
from slurm_plugin.logs.diagnosis import Place, of_files
from slurm_plugin.logs.known import Known
from slurm_plugin.logs.scan import BLOCK, Source
from slurm_plugin.logs.source import WINDOWS, LogFile
from slurm_plugin.views import diagnosis as view
from tests.unit.logs.test_diagnosis import CLOSED, RAISED, diagnosed

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def test_a_large_log(tmp_path: Path) -> None:
    """Its beginning and its end are read; line numbers of the end are not known, and the cause is found."""
    (tmp_path / "a.log").write_text("fine\n" * 100_000 + RAISED + "fine\n" * 10)
    found = diagnosed(tmp_path, limit=4000)
    assert (found.cause.failure, found.place) == ("user_code", Place("/home/ada/model.py", 4, "step"))
    assert found.cause.event is not None
    assert (found.cause.event.number, found.cause.event.offset) == (
        0,
        500_000 + len(RAISED) - len("KeyError: 'tokens'\n"),
    )
    text = "\n".join(view.lines(found, on=False))
    assert f"a.log, near byte {found.cause.event.offset}\n" in text
    assert "> | KeyError: 'tokens'\n  | fine\n" in text
    (tmp_path / "a.log").write_text(
        RAISED.replace("KeyError: 'tokens'", "OSError: [Errno 28] No space left on device") + "fine\n" * 100_000
    )
    assert "a.log, line 9\n" in "\n".join(view.lines(diagnosed(tmp_path, limit=4000), on=False))


def test_the_first_error_in_the_middle_of_a_large_log(tmp_path: Path) -> None:
    """It is found within the limit of time; what follows it at the end of the log is a consequence."""
    fine, log = "fine\n" * 400_000, tmp_path / "a.log"
    log.write_text(fine + "[rank2]: " + RAISED.replace("\n", "\n[rank2]: ") + "\n" + fine + CLOSED)
    for deadline_s, failure, ranks in ((0.0, "user_code", (2,)), (600.0, "user_code", (2,)), (1e-9, "unknown", ())):
        found = of_files([log], library.load(), limit=4000, deadline_s=deadline_s, known=Known(code=1))
        assert (found.cause.failure, found.cause.ranks) == (failure, ranks)


@pytest.mark.parametrize("before", [0, BLOCK - 9, BLOCK, 3 * BLOCK - 1])
def test_places_of_errors(tmp_path: Path, before: int) -> None:
    """Also over the end of a block. They are few, none overlaps another one, and none comes after the deadline."""
    log = LogFile(tmp_path / "log", Source("log"))
    log.path.write_bytes(b"x" * 100 + b"x" * before + b"Traceback (most recent call last):" * 99 + b"x" * 300)
    found = list(log.first_errors(400, math.inf))
    assert found[0][0] <= 100 + before < sum(found[0])
    log.path.write_bytes((b"x" * BLOCK + b"CUDA error") * 9)
    found = list(log.first_errors(400, math.inf))
    assert len(found) == WINDOWS
    assert all(sum(one) <= two[0] for one, two in itertools.pairwise(found))
    assert list(log.first_errors(400, 0.0)) == []


@pytest.mark.parametrize("becomes", ["longer", "empty", "gone"])
def test_a_log_that_changes_meanwhile(tmp_path: Path, becomes: str) -> None:
    """What it gains is left out, what it loses is not there; the reading ends."""
    log = tmp_path / "a.log"
    log.write_text(OOM + "fine\n" * 500_000)

    def changed(_: int) -> None:
        if becomes == "gone":
            log.unlink(missing_ok=True)
        else:
            with log.open("a") as file:
                file.truncate(0) if becomes == "empty" else file.write("srun: error: Node failure on n1\n" * 9999)

    found = of_files([log], library.load(), told=changed)
    assert found.cause.failure == "gpu_oom"
