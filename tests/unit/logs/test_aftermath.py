"""Errors that count only as the last words of a log: commands of a script print them, and the script goes on."""

from pathlib import Path

import pytest

from slurm_plugin.logs import library
from slurm_plugin.logs.diagnosis import of_files
from slurm_plugin.logs.known import Known

LAST = [each for each in library.load() if each.role == "last"]
COPY = "cp: cannot stat '/data/x.bin': No such file or directory\n"
MPIRUN = f"{'-' * 74}\nPrimary job  terminated normally, but 1 process returned\na non-zero exit code.\n{'-' * 74}\n"
SRUN = "srun: error: n2: task 1: Exited with exit code 1\nsrun: Terminating StepId=7.0\n"


def found(text: str, path: Path, known: Known | None = None) -> tuple[str, tuple[int, ...], str]:
    """The class of a log, the ranks that began it, and the line of evidence."""
    log = path / "job.out"
    log.write_text(text)
    cause = of_files([log], library.load(), known=known).cause
    return cause.failure, cause.ranks, cause.event.text if cause.event else ""


def test_an_example_alone_leads_to_its_class(tmp_path: Path) -> None:
    """As with the other signatures, of which none knows such a line; more lines of the program change it to none."""
    for each in LAST:
        log = f"step 1\n{each.example}\n"
        assert found(log, tmp_path) == (each.failure, (), each.example), each.id
        assert found(f"{log}step 2\n", tmp_path) == ("none", (), ""), each.id


@pytest.mark.parametrize(
    ("text", "failure", "ranks"),
    [
        (f"{COPY}make: *** [Makefile:2: run] Error 1\n", "missing_file", ()),
        (f"{COPY}\nreal\t0m0.2s\nuser\t0m0.1s\n", "missing_file", ()),
        (f"{COPY}{MPIRUN}", "missing_file", ()),
        (f"1: {COPY}0: step 2\n{SRUN}", "missing_file", (1,)),
        (f"[1,1]<stderr>:{COPY}{MPIRUN}", "missing_file", (1,)),
        (f"step 1\n{MPIRUN}", "unknown", ()),
        (f"0: {COPY}0: step 2\n{SRUN}", "unknown", (1,)),  # another task's, and that one went on
        (f"1: {COPY}srun: error: n2: task 1: Killed\n", "unknown", (1,)),  # a signal has another reason
        (f"KeyError: 'tokens'\n{COPY}", "user_code", ()),  # an exact line says more
        (f"{COPY}training complete, 0 errors\n", "none", ()),
    ],
)
def test_what_may_follow(text: str, failure: str, ranks: tuple[int, ...], tmp_path: Path) -> None:
    """Launchers' lines and further complaints, but no work of the program itself."""
    assert found(text, tmp_path)[:2] == (failure, ranks)


def test_a_program_that_is_known_to_have_failed(tmp_path: Path) -> None:
    """What it wrote into its buffer before may follow the error."""
    assert found(f"{COPY}step 1\nstep 2\n", tmp_path, Known(code=1))[0] == "missing_file"
    assert found(COPY + "step 1\n" * 99, tmp_path, Known(code=1))[0] == "unknown"
    assert found(COPY, tmp_path, Known(code=0))[0] == "none"
