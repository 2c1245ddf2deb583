"""Urgent jobs as a QOS of a real slurmdbd: the owner asks SlurmUser, an operator changes the job himself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.etc import Etc
from tests.cluster.jobs import Job, submit
from tests.cluster.sites import deploy
from tests.waiting import until

pytestmark = pytest.mark.cluster

SITE = {"priorities": {"urgent": {"qos": "rush", "per_account": 1}, "very-urgent": {"qos": "top"}}}
FEW = {"nodes": 1, "accelerators": {"gpu": 0}, "mode": "single", "command": "true", "begin": "2030-01-01"}


@pytest.fixture
def site(accounting: Sandbox, tmp_path: Path) -> Iterator[Sandbox]:
    """Deploy a site whose urgent jobs have a QOS that alice may use; bob is an operator."""
    files = Etc(accounting, tmp_path / "etc")
    files.lua((deploy(accounting, tmp_path, **SITE) / "job_submit.lua").read_text())
    manage = (("add", "qos", "rush", "top"), ("modify", "user", "alice", "set", "qos+=rush,top"))
    for words in (*manage, ("modify", "user", "bob", "set", "AdminLevel=Operator")):
        accounting.run(["sacctmgr", "-i", *words], user="root")
    shown = ["scontrol", "show", "assoc_mgr", "flags=qos"]
    until(lambda: "QOS=top(" in accounting.run(shown, user="root").stdout, "slurmctld to hear of the QOS")
    yield accounting
    accounting.run(["scancel", "--user=alice"], user="root")
    accounting.run(["sacctmgr", "-i", "modify", "user", "bob", "set", "AdminLevel=None"], user="root")
    files.put_back()


def call(box: Sandbox, job: Job, word: str, user: str = "alice") -> tuple[int, str, list[str]]:
    """Return the exit code and the output of `priority`, and the QOS of the job."""
    done = box.run(["slurm-plugin", "priority", str(job.id), word], user=user, check=False)
    return done.returncode, done.stdout + done.stderr, job.show("q")


@pytest.mark.full  # over 5 s
def test_urgent_by_qos(site: Sandbox) -> None:
    """An account has one urgent job. alice's association has the QOS, but no edit or submission of hers takes it."""
    first, second = (submit(site, f"qos-{number}", **FEW) for number in (1, 2))
    assert call(site, first, "urgent") == (0, f"job {first.id}: it is urgent, it was normal (QOS=rush)\n", ["rush"])
    code, said, qos = call(site, second, "urgent")
    assert (code, qos) == (1, ["normal"]), said
    assert f"account lab has 1 urgent job queued or running, and the site allows 1: {first.id}" in said
    site.run(["scontrol", "update", f"JobId={second.id}", "QOS=rush"])
    assert second.show("q") == ["normal"]
    refused = site.run(["sbatch", "--qos=rush", "--wrap=true"], check=False)
    assert "qos rush is for urgent jobs" in refused.stderr
    code, said, qos = call(site, second, "very-urgent")
    assert (code, qos) == (1, ["normal"]), said
    assert "only operators make a job very-urgent" in said
    code, said, qos = call(site, second, "very-urgent", user="bob")
    assert (code, qos) == (0, ["top"]), said
    assert call(site, first, "normal")[::2] == (0, ["normal"])
