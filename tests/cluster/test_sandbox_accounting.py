"""`sandbox up --accounting`: a real slurmdbd, so that sacct, associations and QOS work as on a site."""

from pathlib import Path

import pytest

from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.sandbox import Sandbox, daemons, machine
from tests.waiting import until

pytestmark = pytest.mark.cluster


@pytest.mark.full  # over 5 s
def test_sacct_knows_jobs_that_have_ended(accounting: Sandbox) -> None:
    """sacct shows a job of another user, its account and its GPUs, after it has ended."""
    job = accounting.run(["sbatch", "--parsable", "--wait", "-N2", "--gres=gpu:2", "--wrap", "exit 3"], check=False)
    number = job.stdout.strip()
    asked = ["sacct", "-nXP", "-j", number, "-o", "user,account,state,exitcode,alloctres"]
    row = until(lambda: accounting.run(asked, user="root").stdout.strip().partition("||")[0]).split("|")
    assert row[:4] == ["alice", "lab", "FAILED", "3:0"]
    assert "gres/gpu=4" in row[4]


@pytest.mark.full  # over 5 s
def test_a_qos_is_enforced(accounting: Sandbox) -> None:
    """alice may use a QOS that root gave her, and bob may not."""
    for words in (("add", "qos", "urgent", "priority=100"), ("modify", "user", "alice", "set", "qos+=urgent")):
        accounting.run(["sacctmgr", "-i", *words], user="root")
    submit = ["sbatch", "--parsable", "--qos=urgent", "--wrap", "true"]
    until(lambda: accounting.run(submit, check=False).returncode == 0, "slurmctld to hear of the QOS")
    refused = accounting.run(submit, user="bob", check=False)
    assert refused.returncode == 1
    assert "Invalid qos" in refused.stderr


@pytest.mark.full  # over 5 s
def test_a_user_without_an_account_is_refused(accounting: Sandbox) -> None:
    """Slurm enforces associations."""
    done = accounting.run(["sbatch", "--wrap", "true"], user="slurm", check=False)
    assert done.returncode == 1
    assert "Invalid account" in done.stderr


@pytest.mark.full  # over 5 s
@pytest.mark.parametrize("dead", ["slurmdbd", "mariadbd", "machine"])
def test_restart_brings_accounting_back_with_its_records(accounting: Sandbox, dead: str) -> None:
    """`restart ctl` starts what does not run, and sacct shows the jobs from before."""
    job = accounting.run(["sbatch", "--parsable", "--wait", "--wrap", "true"]).stdout.strip()
    asked = ["sacct", "-nXP", "-j", job, "-o", "state"]
    until(lambda: accounting.run(asked).stdout == "COMPLETED\n")
    ctl = machine.find(accounting.directory)["ctl"]
    if dead == "machine":
        machine.end(ctl)
    else:
        daemons.stop(ctl, dead)
    assert accounting.restart(["ctl"]) == ("ctl",)
    assert accounting.run(asked).stdout == "COMPLETED\n"


@pytest.mark.full  # over 5 s
def test_up_again_names_the_difference(accounting: Sandbox) -> None:
    """The same sandbox without accounting is another one; its database is not removed."""
    root = Path(accounting_root(accounting))
    assert accounting.up(5, 4, root, accounting=True) is False
    with pytest.raises(SlurmPluginError, match="our hooks, with accounting; its homes"):
        accounting.up(5, 4, root)
    assert (accounting.directory / "database/mysql").is_dir()


def accounting_root(box: Sandbox) -> str:
    """Return the root directory of the machines."""
    return machine.load_spec(box.directory, "ctl").base
