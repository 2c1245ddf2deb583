"""Options and order of the tests, and the job logs in the report of a failed test."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# The longest files, in the order to run them: a long file must not start last.
LONGEST = (
    "cluster/test_fencing",
    "unit/logs/test_failures",
    *(f"cluster/test_{name}" for name in ("in_place", "recovery_queue", "holds", "recovery_controller", "recovery")),
    *(f"cluster/test_{name}" for name in ("hosts", "hooks")),
)
TESTS = Path(__file__).parent
LOGS, LINES = 3, 15  # the most logs to show, and lines of each


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--seed N`, for tests that generate random command lines."""
    parser.addoption("--seed", type=int, default=8, help="of tests that make their lines by chance")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let the workers of pytest-rerunfailures send at once. Else the kernel holds a message back: 40 ms a test."""
    if sock := getattr(getattr(config, "failures_db", None), "sock", None):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return the seed: the option's value, else the same number in each run."""
    return int(request.config.getoption("--seed"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the cluster tests first, and of these the longest files first. Do not reorder the other tests."""

    def place(item: pytest.Item) -> int:
        name = str(item.path.relative_to(TESTS).with_suffix(""))
        if name in LONGEST:
            return LONGEST.index(name)
        return len(LONGEST) + (item.path.parent.name != "cluster")

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: "pytest.CallInfo[None]") -> Iterator[None]:
    """Add a failure and the ends of the logs of the test's jobs to its JUnit record, also if a second try passes."""
    report: Any = yield
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        item.user_properties.append(("failed", crash.message if crash else str(report.longrepr)))
    if report.failed and (boxes := sandboxes(item)):
        from slurm_plugin.sandbox.pool import slurms_view

        text = "".join(
            controller_log(box) + job_logs(box.home("alice"), call.start) + slurms_view(box) for box in boxes
        )
        report.sections.append(("job logs", text))
        item.user_properties.append(("job log", text))
    return report


def sandboxes(item: pytest.Item) -> list[Any]:
    """Return the sandboxes that a test uses."""
    found = {id(each): each for each in getattr(item, "funcargs", {}).values() if type(each).__name__ == "Sandbox"}
    return list(found.values())


def controller_log(box: Any) -> str:
    """Return the end of slurmctld's log."""
    log = box.directory / "log/slurmctld.log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return "".join(f"{line}\n" for line in lines[-LINES:])


def job_logs(home: Path, since: float) -> str:
    """Return the ends of the newest logs that were written after `since`, in seconds since the epoch."""
    found = [(path.stat().st_mtime, path) for path in home.glob("*/*out")]
    text = ""
    for _, path in sorted(each for each in found if each[0] >= since)[-LOGS:]:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        text += "".join(f"{line}\n" for line in [f"{path.relative_to(home)} ends with", *lines[-LINES:]])
    return text
