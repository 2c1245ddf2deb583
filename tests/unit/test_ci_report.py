"""The report of .ci/report on a run: failures first, each with a message that names the fault."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
REPORT = ROOT / ".ci/report"
TESTS = """
def test_passes():
    pass

tries = []

def test_passes_later():
    tries.append(1)
    assert len(tries) == 2

def test_fails(record_property):
    record_property("job log", "first\\nsecond\\nthird\\nthe job ran on n2")
    tries.append(1)
    state = "PENDING" if len(tries) == 3 else "FAILED"
    assert state == "COMPLETED"
"""


def report(directory: Path) -> tuple[int, list[str]]:
    """Return its exit code and its lines."""
    done = subprocess.run([sys.executable, REPORT, directory], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def run_tests(directory: Path) -> None:
    """Return the record of a real pytest run with a passing test, a failing one, and one that needs a second try."""
    (directory / "test_of_ci.py").write_text(TESTS)
    (directory / "conftest.py").write_text("from tests.conftest import pytest_runtest_makereport")
    words = ["-q", "-p", "no:cacheprovider", "--rootdir=.", "--import-mode=importlib"]
    words += ["--reruns=1", f"--junitxml={directory}/test.xml", "test_of_ci.py"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=directory, capture_output=True, check=False, env=environ
    )
    assert done.returncode == 1, done.stdout


def test_a_failed_test(tmp_path: Path) -> None:
    """The first lines: its name, its assertion, the end of its job's log. At the end: second tries."""
    run_tests(tmp_path)
    (tmp_path / "stages").write_text("demo 0 60\ntest 1 90\n")
    (tmp_path / "test.out").write_text("FAILED test_of_ci.py::test_fails\n")
    code, lines = report(tmp_path)
    assert code == 1
    assert lines[0].startswith("FAILED test test_of_ci::test_fails: AssertionError: assert 'FAILED' == 'COMPLETED'")
    assert lines.pop(1).startswith("    an earlier try: AssertionError: assert 'PENDING' == 'COMPLETED'")
    assert lines[1:5] == ["    | first", "    | second", "    | third", "    | the job ran on n2"]
    assert lines[6:10] == ["minutes  stage", "    1.0  demo", "    1.5  test: exit 1", "    2.5  in all"]
    assert lines[11:13] == [" passed   failed   second try   tests", "      2        1            1   test"]
    assert lines[-2:] == [
        "2 passed, 1 failed, 1 passed at a later try",
        "RERUN test test_of_ci::test_passes_later: assert 1 == 2",
    ]
    assert lines.index("==== test: exit 1 ====") == lines.index("FAILED test_of_ci.py::test_fails") - 1


def test_a_stage_that_fails_without_a_test(tmp_path: Path) -> None:
    """The end of its output."""
    (tmp_path / "stages").write_text("packages 100 2\n")
    (tmp_path / "packages.out").write_text("E: no such mirror\n")
    code, lines = report(tmp_path)
    assert code == 1
    assert lines[:2] == ["FAILED stage packages: exit 100; its output ends with", "    | E: no such mirror"]


def test_a_run_that_was_ended(tmp_path: Path) -> None:
    """The stage that was under way."""
    (tmp_path / "under-way").write_text("unit\n")
    code, lines = report(tmp_path)
    assert (code, lines[0]) == (1, "FAILED the run was ended during the stage unit")


def test_all_passed(tmp_path: Path) -> None:
    """No line of a failure, and exit 0."""
    (tmp_path / "stages").write_text("demo 0 60\n")
    code, lines = report(tmp_path)
    assert (code, lines[-1]) == (0, "0 passed, 0 failed, 0 passed at a later try")
    assert not any(line.startswith("FAILED") for line in lines)
