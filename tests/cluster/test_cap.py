"""The cap on drained nodes, on a real Slurm: forty nodes fail in the same second."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import reasons, submit
from tests.cluster.looks import HOOK
from tests.waiting import HANG_S, until

pytestmark = pytest.mark.cluster

HOSTS, MAY_BE_OUT = 40, 4
TOO_SMALL = "slurm_plugin: memory: "


@pytest.fixture
def forty(tmp_path: Path) -> Iterator[Sandbox]:
    """Yield a sandbox of forty nodes with the default cap."""
    box = Sandbox(tmp_path / "forty")
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
    """Deploy a threshold that no node meets, like a mistake in the site file."""
    site = box.directory / "etc/slurm/slurm_plugin/compiled.json"
    settings = json.loads(site.read_text())
    settings["prechecks"]["memory"]["total"] = 1 << 60
    site.write_text(json.dumps(settings))


def look(box: Sandbox, node: str) -> int:
    argv = ["env", "-i", f"SLURMD_NODENAME={node}", HOOK]
    return box.run(argv, user="root", node=node, timeout=HANG_S).returncode


@pytest.mark.full  # 49 s
def test_all_fail_at_once(forty: Sandbox) -> None:
    """The prologs of a job fail on all nodes, then all periodic checks: never more than a tenth is out of service."""
    fail_everywhere(forty)
    job = submit(forty, "wide", mode="script", nodes=HOSTS, accelerators={}, retries=1, command="true")
    most = 0

    def refused() -> bool:
        nonlocal most
        most = max(most, len(reasons(forty)))
        return most > 0 or "memory: failed" in job.log or job.state not in ("PENDING", "RUNNING")

    until(refused, lambda: f"a node's refusal; the job is {job.state}\n{job.log}")
    forty.run(["scancel", str(job.id)], check=False)
    with ThreadPoolExecutor(HOSTS) as pool:
        waiting = [pool.submit(look, forty, f"n{number}") for number in range(1, HOSTS + 1)]
        while not all(each.done() for each in waiting):
            most = max(most, len(reasons(forty)))
            time.sleep(0.1)
    assert {each.result() for each in waiting} == {0}
    out = reasons(forty)
    assert max(most, len(out)) <= MAY_BE_OUT
    assert all(words.startswith(TOO_SMALL) for words in out.values()), out
    said = [path.read_text() for path in (forty.directory / "log").glob("n*.syslog")]
    kept = sum("stays in service" in text or "could not drain" in text for text in said)
    assert kept >= HOSTS - MAY_BE_OUT

    def all_are_out() -> bool:
        """Check node after node. Four may be drained when a claim of an unanswered check has expired."""
        return any(not look(forty, f"n{n}") and len(reasons(forty)) == MAY_BE_OUT for n in range(1, HOSTS + 1))

    until(all_are_out)
    for number in range(1, HOSTS + 1, HOSTS // 5):  # no more nodes are drained
        look(forty, f"n{number}")
    assert len(reasons(forty)) == MAY_BE_OUT
