"""The cap, on a real Slurm of a hundred hosts that all fail in the same second."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import reasons, submit
from tests.cluster.looks import HOOK

pytestmark = pytest.mark.cluster

HOSTS, MAY_BE_OUT = 100, 10
TOO_SMALL = "slurm_plugin: memory: "


@pytest.fixture
def hundred(tmp_path: Path) -> Iterator[Sandbox]:
    """A hundred hosts, with the default cap."""
    box = Sandbox(tmp_path / "hundred")
    box.up(HOSTS, 0)
    site = box.directory / "etc/slurm/slurm_plugin/compiled.json"
    settings = json.loads(site.read_text())
    settings["drain_cap"] = 0.1
    site.write_text(json.dumps(settings))
    try:
        yield box
    finally:
        box.down()


def fail_everywhere(box: Sandbox) -> None:
    """A threshold that no node meets: a mistake in the site file, say."""
    site = box.directory / "etc/slurm/slurm_plugin/compiled.json"
    settings = json.loads(site.read_text())
    settings["prechecks"]["memory"]["total"] = 1 << 60
    site.write_text(json.dumps(settings))


def look(box: Sandbox, node: str) -> int:
    argv = ["env", "-i", f"SLURMD_NODENAME={node}", HOOK]
    return box.run(argv, user="root", node=node, timeout=150.0).returncode


@pytest.mark.timeout(420)
def test_all_fail_at_once(hundred: Sandbox) -> None:
    """A job's prologs on all hosts, then the periodic checks of all: never more than a tenth are out, at any time."""
    fail_everywhere(hundred)
    job = submit(hundred, "wide", mode="script", nodes=HOSTS, accelerators={}, retries=1, command="true")
    most = 0
    deadline = time.monotonic() + 120
    while "memory: failed" not in job.log and job.state in ("PENDING", "RUNNING") and not most:
        most = max(most, len(reasons(hundred)))
        assert time.monotonic() < deadline, (job.state, job.log)
    hundred.run(["scancel", str(job.id)], check=False)
    with ThreadPoolExecutor(HOSTS) as pool:
        waiting = [pool.submit(look, hundred, f"n{number}") for number in range(1, HOSTS + 1)]
        while not all(each.done() for each in waiting):
            most = max(most, len(reasons(hundred)))
            time.sleep(0.1)
    assert {each.result() for each in waiting} == {0}
    out = reasons(hundred)
    assert max(most, len(out)) <= MAY_BE_OUT
    assert all(words.startswith(TOO_SMALL) for words in out.values()), out
    said = [path.read_text() for path in (hundred.directory / "log").glob("n*.syslog")]
    kept = sum("stays in service" in text or "could not drain" in text for text in said)
    assert kept >= HOSTS - MAY_BE_OUT
    for number in range(1, HOSTS + 1):  # one after the other there is room for ten
        look(hundred, f"n{number}")
        if len(reasons(hundred)) == MAY_BE_OUT:
            break
    for number in range(1, HOSTS + 1, HOSTS // 5):  # and for no more
        look(hundred, f"n{number}")
    assert len(reasons(hundred)) == MAY_BE_OUT
