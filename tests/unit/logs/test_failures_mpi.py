"""Failures made for real under Open MPI, MPICH and Intel MPI, and the diagnosis of what they print."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.logs import library
from slurm_plugin.logs.diagnosis import of_files
from tests.failures import mpi
from tests.failures.mpi import Case

CACHE = Path(os.environ.get("SLURM_PLUGIN_CACHE", "/var/cache/slurm_plugin")) / "mpi"
HANG_S = 300.0
SIGNATURES = library.load()


def printed(launcher: str, case: Case, place: Path) -> Path:
    """What the launcher prints, in a file."""
    (place / "plain.py").write_text(mpi.PLAIN)
    (place / "mpi.py").write_text(mpi.WITH_MPI)
    (place / "hosts").write_text("nothere.invalid slots=4\n")
    (place / "bad-hosts").write_text("localhost slots=two\n")
    (place / "garbage").write_bytes(b"\x00no program\n")
    (place / "garbage").chmod(0o755)
    log = place / "slurm.out"
    command = [launcher, *(sys.executable if each == "PYTHON" else each for each in case.arguments)]
    known = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "OMPI_", "PMI"))}
    allowed = dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
    with log.open("w") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=place, start_new_session=True,
            env=known | allowed | {"OMPI_MCA_rmaps_base_oversubscribe": "1" if case.name != "slots" else "0"},
        )  # fmt: skip
        try:
            process.wait(HANG_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return log


def judged(launcher: str, case: Case, place: Path) -> None:
    """Compare the diagnosis with what the case must get."""
    log = printed(launcher, case, place)
    found = of_files([log], SIGNATURES).cause
    text, said = log.read_text(), (found.failure, found.whose, found.ranks)
    ranks = found.ranks if "show_help.c" in text and not found.ranks else case.ranks  # mpirun 4.1 lost its own message
    assert said == (case.failure, case.whose, ranks), text
    assert case.text in (found.event.text if found.event else ""), found
    assert found.verdict != "exclude"


@pytest.mark.full  # real launchers, which need luck under load
@pytest.mark.skipif(not shutil.which("mpirun"), reason="Open MPI is not installed")
@pytest.mark.parametrize("case", mpi.OPEN_MPI, ids=lambda case: case.name)
def test_open_mpi(case: Case, tmp_path: Path) -> None:
    """The class, whose it is, the rank that began it and the evidence."""
    if "mpi4py" in case.arguments:
        pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    judged("mpirun", case, tmp_path)


@pytest.mark.full  # as above
@pytest.mark.parametrize("library_name", ["mpich", "intelmpi"])
@pytest.mark.parametrize("case", mpi.HYDRA, ids=lambda case: case.name)
def test_hydra(case: Case, library_name: str, tmp_path: Path) -> None:
    """The same for MPICH's launcher and Intel's; theirs does not always say which rank it was."""
    launcher = CACHE / library_name / "bin/mpiexec"
    if not launcher.exists():
        pytest.skip(f"{launcher} is not there; fetch it with .ci/launchers")
    if library_name == "intelmpi" and case.ranks == () and case.failure in ("segfault", "unknown"):
        case = Case(case.name, case.arguments, case.failure, case.whose, (2,), case.text)
    judged(str(launcher), case, tmp_path)
