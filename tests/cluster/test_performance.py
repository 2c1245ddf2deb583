"""`performance` on a real Slurm: a slow job runs again on other nodes, or alerts its user."""

import json
from pathlib import Path

import pytest

from slurm_plugin.records import slow
from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import submit
from tests.cluster.sites import kept

pytestmark = pytest.mark.cluster

SLOW = "hardware time is 0.95 of e2e time in 20 iterations, above 0.8 (performance)"
# Be slow at first, and save before the end. Do nothing more on other nodes.
COMMAND = """echo "runs on $SLURM_JOB_NODELIST"
[ "$SLURM_PLUGIN_ATTEMPT" = 0 ] || exit 0
trap 'touch saved; exit 3' USR1
for n in {1..20}; do echo "this iteration hardware time is 95 and e2e time is 100.0 ms."; done
until [ -e done ]; do sleep 0.1; done
"""


@pytest.mark.full  # over 5 s
def test_a_slow_job_is_moved_and_its_user_alerted(cluster: Sandbox, tmp_path: Path) -> None:
    """It saves and runs again on none of its nodes, for one restart, if others are idle; with `alert` it only tells.

    The site's command runs as the user. No node is drained.
    """
    command, told = cluster.home("alice") / "notify-slow", cluster.home("alice") / "told-slow"
    command.write_text('#!/bin/sh\necho "$(id -un) $1 $2 $3" >>/home/alice/told-slow\n')
    command.chmod(0o755)
    with kept(cluster, tmp_path) as deployed:
        file = deployed / "compiled.json"
        settings = json.loads(file.read_text()) | {"notify": "/home/alice/notify-slow"}
        file.write_text(json.dumps(settings))
        asked = {"threshold": 0.8, "action": "reschedule"}
        moved = submit(cluster, "slow-moved", mode="script", command=COMMAND, performance=asked, retries=2, grace="30m")
        assert moved.end() == "COMPLETED", moved.log
        first, second = (line.split()[-1] for line in moved.log.splitlines() if line.startswith("runs on "))
        assert {first, second} == {"n[1-2]", "n[3-4]"}, moved.log
        assert (moved.directory / "saved").exists()
        assert moved.grant.requeues == 1
        assert (moved.attempts[0]["cause"], moved.attempts[0]["action"]) == ("the program was slow", "requeue")
        assert "attempt 0: the program was slow; the job runs again on other nodes\n" in moved.log
        stays = submit(cluster, "slow-stays", mode="script", command=COMMAND, performance={"threshold": 0.8}, nodes=1)
        stays.until(lambda: told.exists() and len(told.read_text().splitlines()) == 2, "both alerts")
        assert "attempt 0 was slow at " in cluster.run(["slurm-plugin", "why", str(stays.id)]).stdout
        (stays.directory / "done").touch()
        assert stays.end() == "COMPLETED", stays.log
        assert told.read_text().splitlines() == [
            f"alice slow {moved.id} {SLOW}; {slow.NO_SUSPECT}; it runs again on other nodes",
            f"alice slow {stays.id} {SLOW}; {slow.NO_SUSPECT}",
        ]
        assert "drain" not in cluster.run(["sinfo", "-h", "-N", "-o", "%T"]).stdout
