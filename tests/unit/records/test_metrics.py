"""The counters of the hooks: what they survive, what they refuse, and the file for Prometheus."""

import fcntl
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import slurm_plugin
from prechecks import CHECKS, Report, Verdict
from prechecks.child import Child
from slurm_plugin.records import metrics
from slurm_plugin.records.metrics import CONTROLLER, DRAINS, NODE, OUT, RECOVERY, RESUMES, sample
from tests.waiting import HANG_S, until

DRAIN = metrics.drained("prolog", ["gpu-check", "disk-size shm"])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the settings of a site with metrics, with everything below the test's directory."""
    monkeypatch.setattr(metrics, "WRITE_S", HANG_S)
    monkeypatch.setattr(metrics, "LOCK_WAIT_S", HANG_S)
    (tmp_path / "spool").mkdir()
    (tmp_path / "textfile").mkdir()
    return {
        "metrics_directory": str(tmp_path / "textfile"),
        "spool_directory": str(tmp_path / "spool"),
        "prechecks": {"state": str(tmp_path / "run/state")},
        "drain_cap": 0.1,
    }


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines of the system log."""
    lines: list[str] = []
    monkeypatch.setattr(metrics.syslog, "syslog", lambda _, line: lines.append(line))
    return lines


def values(site: dict[str, Any], actor: str = NODE) -> dict[str, float]:
    """Return the samples in an actor's file."""
    text = Path(site["metrics_directory"], f"slurm_plugin_{actor}.prom").read_text()
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_counting(site: dict[str, Any], tmp_path: Path) -> None:
    """Counters add up, gauges are replaced, and each known series begins with 0: `increase()` needs a first value."""
    metrics.add(site, NODE, {})
    assert values(site)[sample(DRAINS, hook="prolog")] == 0
    assert values(site)[sample(metrics.DRAIN_ITEMS, item="disk-size.shm")] == 0
    metrics.add(site, NODE, DRAIN, {OUT: 1})
    metrics.add(site, NODE, {**DRAIN, RESUMES: 1}, {OUT: 0})
    found = values(site)
    assert (found[sample(DRAINS, hook="prolog")], found[sample(DRAINS, hook="periodic")]) == (2, 0)
    assert found[sample(metrics.DRAIN_ITEMS, item="disk-size.shm")] == 2
    assert (found[RESUMES], found[OUT], found[metrics.CAP]) == (1, 0, 0.1)
    assert found[sample(metrics.BUILD, actor="node", version=slurm_plugin.__version__)] == 1
    path = tmp_path / "textfile/slurm_plugin_node.prom"
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path / "textfile") == [path.name]  # noqa: PTH208 - no temporary file is left


def test_an_unknown_item_has_a_common_label() -> None:
    """The number of series is bounded, whatever a drain reason names."""
    found = metrics.drained("prolog", ["gpu-check", "of a later release", 'a"b\n'])
    assert set(found) == {
        sample(DRAINS, hook="prolog"),
        sample(metrics.DRAIN_ITEMS, item="gpu-check"),
        sample(metrics.DRAIN_ITEMS, item=metrics.OTHER),
    }
    assert sample("x", label='a"b\n\\') == r'x{label="a\"b\n\\"}'


def test_the_two_actors_may_share_a_directory(site: dict[str, Any], tmp_path: Path) -> None:
    """No series is in two files, and a name has the same HELP and TYPE in all: else node_exporter reports an error."""
    metrics.hook_ran(site, "prolog", metrics.OK, 0.5)
    metrics.hook_ran(site, "epilog_slurmctld", metrics.ERROR, 0.25)
    metrics.write(site, "slurm_plugin_prolog.prom", Report("n1", 7, "prolog", 1.0, ()).metrics())
    texts = [path.read_text() for path in (tmp_path / "textfile").iterdir()]
    assert len(texts) == 3
    lines = [line for text in texts for line in text.splitlines()]
    samples = [line.rsplit(" ", 1)[0] for line in lines if not line.startswith("#")]
    assert len(samples) == len(set(samples))
    about = {line for line in lines if line.startswith("#")}
    assert len(about) == len({tuple(line.split()[1:3]) for line in about})
    found = values(site, CONTROLLER)
    assert found[sample(metrics.HOOK_RUNS, hook="epilog_slurmctld", result="error")] == 1
    assert found[sample(metrics.HOOK_SECONDS, hook="epilog_slurmctld")] == 0.25
    assert not re.search(r"job=|user=|jobid=|uid=", "".join(texts))


def test_a_histogram(site: dict[str, Any]) -> None:
    """Buckets are cumulative and in order, and the sum and the count fit them."""
    for value in (1.0, 4.0, 99999.0):
        metrics.add(site, CONTROLLER, metrics.observed(RECOVERY, value))
    found = {name: value for name, value in values(site, CONTROLLER).items() if name.startswith(RECOVERY)}
    assert list(found.values()) == [1, *[2] * (len(metrics.BUCKETS) - 1), 3, 100004, 3]
    assert list(found)[-3:] == [f'{RECOVERY}_bucket{{le="+Inf"}}', f"{RECOVERY}_sum", f"{RECOVERY}_count"]


def test_every_item_of_a_node_is_counted(site: dict[str, Any]) -> None:
    """The file of a node is bounded by the number of checks."""
    metrics.add(site, NODE, metrics.drained("prolog", [check.item.replace(".", " ") for check in CHECKS]))
    names = [name for name in values(site) if name.startswith(metrics.DRAIN_ITEMS)]
    assert len(names) == len(CHECKS)
    assert Path(site["prechecks"]["state"], metrics.STATE).stat().st_size < metrics.MAX_BYTES / 10


@pytest.mark.parametrize("text", ["", "{", "[]", '{"slurm_plugin_resumes_total": "x"}', '{"a": {}}', "[" * 100_000])
def test_counters_that_cannot_be_read(site: dict[str, Any], text: str) -> None:
    """Counting begins anew, as after a restart."""
    metrics.add(site, NODE, {RESUMES: 5})
    Path(site["prechecks"]["state"], metrics.STATE).write_text(text)
    metrics.add(site, NODE, {RESUMES: 1})
    assert values(site)[RESUMES] == 1


def test_samples_of_another_release(site: dict[str, Any]) -> None:
    """A series that this release does not know is dropped."""
    metrics.add(site, NODE, {RESUMES: 5})
    Path(site["prechecks"]["state"], metrics.STATE).write_text(f'{{"{RESUMES}":5,"slurm_plugin_gone_total":7}}')
    metrics.add(site, NODE, {RESUMES: 1})
    assert values(site)[RESUMES] == 6
    assert "slurm_plugin_gone_total" not in values(site)


def test_counters_of_another_user(site: dict[str, Any], tmp_path: Path) -> None:
    """A file that another user made, or a link, is not read; it is replaced."""
    (tmp_path / "own").write_text(f'{{"{RESUMES}":99}}')
    metrics.add(site, NODE, {})
    state = Path(site["prechecks"]["state"], metrics.STATE)
    os.chown(state, 27182, -1)
    metrics.add(site, NODE, {RESUMES: 1})
    assert (values(site)[RESUMES], state.stat().st_uid) == (1, 0)
    state.unlink()
    state.symlink_to(tmp_path / "own")
    metrics.add(site, NODE, {RESUMES: 1})
    assert values(site)[RESUMES] == 1
    assert not state.is_symlink()


def test_a_directory_that_others_may_write_to(site: dict[str, Any], tmp_path: Path, said: list[str]) -> None:
    """What others put in the way is replaced or stops the write. Nothing is written through a link."""
    place, target = tmp_path / "textfile", tmp_path / "shadow"
    place.chmod(0o1777)
    target.write_text("untouched")
    (place / "slurm_plugin_node.prom").symlink_to(target)
    metrics.add(site, NODE, {RESUMES: 1})
    assert (values(site)[RESUMES], target.read_text(), said) == (1, "untouched", [])
    (place / "slurm_plugin_node.prom").unlink()
    (place / "slurm_plugin_node.prom").mkdir()
    metrics.add(site, NODE, {RESUMES: 1})
    assert said[0].startswith(f"{place}/slurm_plugin_node.prom cannot be written: ")
    place.rename(tmp_path / "moved")
    place.symlink_to(target.parent)
    metrics.add(site, NODE, {RESUMES: 1})
    assert len(said) == 2
    assert not (tmp_path / "slurm_plugin_node.prom").exists()


def test_a_directory_that_hangs(
    site: dict[str, Any], monkeypatch: pytest.MonkeyPatch, said: list[str], tmp_path: Path
) -> None:
    """The hook goes on, and nothing more is written for a while, but counting goes on."""
    monkeypatch.setattr(metrics, "WRITE_S", 0.0)
    monkeypatch.setattr(metrics, "_replace", lambda *_: time.sleep(600))
    metrics.add(site, NODE, {RESUMES: 1})
    metrics.add(site, NODE, {RESUMES: 1})
    assert said == [f"{tmp_path}/textfile/slurm_plugin_node.prom cannot be written: not done after 0 s"]
    monkeypatch.undo()
    monkeypatch.setattr(metrics, "WRITE_S", HANG_S)
    monkeypatch.setattr(metrics.time, "time", lambda: time.clock_gettime(time.CLOCK_REALTIME) + 700)
    metrics.add(site, NODE, {RESUMES: 1})
    assert values(site)[RESUMES] == 3


def test_a_process_that_is_stuck(
    site: dict[str, Any], monkeypatch: pytest.MonkeyPatch, said: list[str], tmp_path: Path
) -> None:
    """While the process of a report's write is stuck, no other hook leaves one more."""
    started: list[Child] = []

    def kill(child: Child) -> None:
        started.append(child)
        until(lambda: os.getsid(child.pid) == child.pid)

    monkeypatch.setattr(metrics, "WRITE_S", 0.0)
    monkeypatch.setattr(metrics, "_replace", lambda *_: time.sleep(600))
    monkeypatch.setattr(Child, "kill", kill)
    try:
        assert not metrics.write(site, "a.prom", "x 1\n")
        assert not metrics.write(site, "b.prom", "x 1\n")
    finally:
        for child in started:
            os.kill(child.pid, signal.SIGKILL)
    assert len(started) == 1
    assert said[1].startswith(f"{tmp_path}/textfile/b.prom is not written: ")
    assert f"(process {started[0].pid}) of an earlier run is still stuck" in said[1]


def test_a_lock_that_another_hook_keeps(site: dict[str, Any], monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    """The event is not counted, and the log says so: two writers would lose other counts."""
    metrics.add(site, NODE, {RESUMES: 1})
    monkeypatch.setattr(metrics, "LOCK_WAIT_S", 0.0)
    with Path(site["prechecks"]["state"], metrics.LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        metrics.add(site, NODE, {RESUMES: 1})
    assert said[0].startswith("the metrics are not counted: ")
    metrics.add(site, NODE, {RESUMES: 1})
    assert values(site)[RESUMES] == 2


def test_hooks_at_the_same_time(site: dict[str, Any]) -> None:
    """No count is lost."""
    pids = []
    for _ in range(8):
        if not (pid := os.fork()):
            metrics.add(site, NODE, {RESUMES: 1})
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    assert values(site)[RESUMES] == 8


def test_without_a_metrics_directory(site: dict[str, Any], tmp_path: Path) -> None:
    """Nothing is counted and nothing is written."""
    metrics.add({**site, "metrics_directory": ""}, NODE, {RESUMES: 1})
    assert not (tmp_path / "run").exists()


def test_a_verdict_is_not_in_these_files() -> None:
    """The gauges of the checks have names of their own."""
    report = Report("n1", None, "periodic", 1.0, (Verdict("dns", "ok", "node_problem", "x"),))
    assert not set(re.findall(r"^# TYPE (\S+)", report.metrics(), re.MULTILINE)) & set(metrics.FAMILIES)
