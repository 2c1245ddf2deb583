"""`slurm-plugin site install` on a real Slurm with the site's own hooks and job_submit.lua."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import jobs
from tests.cluster.conftest import new_directory, restore, running
from tests.cluster.etc import Etc
from tests.cluster.jobs import Job, reasons
from tests.cluster.plain import release_of
from tests.waiting import until

pytestmark = pytest.mark.cluster

OWN_LUA = """
function slurm_job_submit(job, partitions, uid)
  if job.comment and string.find(job.comment, "forbidden", 1, true) then
    slurm.log_user("the site does not want this job")
    return slurm.ERROR
  end
  job.admin_comment = "account=a"
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
  return slurm.SUCCESS
end
"""


class Site:
    """A site before the installation. Its hooks write that they ran."""

    def __init__(self, box: Sandbox, etc: Etc) -> None:
        self.box, self.etc = box, etc
        self.at = box.directory / "etc/slurm"
        self.log = box.directory / "log/own-hooks"
        box.run(["slurm-plugin", "site", "uninstall", "--apply"], user="root")  # what `sandbox up` installed
        etc.reconfigure()
        self.call("uninstall", "--apply")
        (self.at / "own").mkdir()
        say = f'echo "$0 $SLURMD_NODENAME" >>{self.log}'
        refuse = 'case "$SLURM_JOB_COMMENT" in *sick*) exit 3 ;; esac'
        self.log.touch()
        etc.settings(
            Prolog=etc.program("own/prolog", f"{say}\n{refuse}"),
            Epilog=etc.program("own/epilog", say),
            TaskProlog=etc.program("own/task_prolog", "printf 'export OWN=yes'"),
            EpilogSlurmctld=etc.program("own/epilog_slurmctld", "exit 0"),
            SchedulerParameters="batch_sched_delay=0,sched_min_interval=0,bf_interval=1",
            PrologFlags="Alloc",
            SlurmdTimeout="300",  # as on a site: longer than the guards need
            HealthCheckInterval="",
            HealthCheckNodeState="",
            JobSubmitPlugins="all_partitions,lua",
        )
        (self.at / "job_submit.lua").write_text(OWN_LUA)
        (self.at / "slurm.conf.before-slurm_plugin").unlink()
        etc.restart()
        self.before = self.files()

    def files(self) -> dict[str, bytes]:
        """Return all files of /etc/slurm, except the site file."""
        paths = [path for path in self.at.rglob("*") if path.is_file() and path.name != "slurm_plugin.yaml"]
        return {str(path.relative_to(self.at)): path.read_bytes() for path in paths}

    def call(self, *words: str, code: int = 0) -> dict[str, Any]:
        """Run `slurm-plugin site ... --json` as root on the controller, and return the object that it prints."""
        done = self.box.run(["slurm-plugin", "site", *words, "--json"], user="root", check=False)
        assert done.returncode == code, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def ran(self) -> set[str]:
        """Return what the site's hooks wrote since the last call: hook and node."""
        said = {line.removeprefix("/etc/slurm/own/") for line in self.log.read_text().splitlines()}
        self.log.write_text("")
        return said

    def tell(self) -> None:
        """Return the last lines of `site install`."""
        self.etc.restart()
        self.etc.reconfigure()


@pytest.fixture(scope="module")
def own() -> Iterator[Sandbox]:
    """Yield a cluster for these tests alone: other tests change theirs."""
    with running(new_directory()) as box:
        yield box


@pytest.fixture
def site(own: Sandbox, tmp_path: Path) -> Iterator[Site]:
    """Yield the site without slurm_plugin."""
    restore(own)
    etc = Etc(own, tmp_path / "etc")
    spool = own.directory / "spool"
    try:
        yield Site(own, etc)
    finally:
        (spool / "lock").unlink(missing_ok=True)
        etc.put_back()
        (own.directory / "log/own-hooks").unlink()


def run(site: Site, name: str) -> Job:
    """Run a job of slurm_plugin on both nodes. It prints what TaskProlog gave it."""
    return jobs.submit(site.box, name, command="sh -c 'echo own $OWN rank $RANK'", launch="task", retries=1)


@pytest.mark.full  # 29 s
def test_installed_beside_a_sites_own_and_taken_back(site: Site) -> None:
    """Only --apply changes anything. Then both verdicts count, the site's first. Uninstall restores the site."""
    plan = site.call("install")
    assert site.files() == site.before
    assert not plan["by_hand"]
    assert {change["action"] for change in plan["changes"]} == {"make", "change"}
    site.call("install", "--apply")
    site.tell()
    assert site.call("check")["changes"] == []

    job = run(site, "installed")
    assert job.end() == "COMPLETED", job.log
    hooks = {f"{hook} {node}" for hook in ("prolog", "epilog") for node in job.nodes}
    job.until(
        lambda: hooks <= {line.removeprefix("/etc/slurm/own/") for line in site.log.read_text().splitlines()}, "epilog"
    )
    assert sorted(line for line in job.log.splitlines() if line.startswith("own")) == [
        f"own yes rank {rank}" for rank in range(8)
    ]
    assert "AdminComment=account=a sp1:" in site.box.run(["scontrol", "show", "job", str(job.id)]).stdout

    refused = site.box.run(["sbatch", "--comment=forbidden", "--wrap=true"], check=False)
    assert refused.returncode == 1
    assert "the site does not want this job" in refused.stderr

    site.box.break_node("n1", "gpu-missing")
    job = run(site, "ours")
    assert job.end() == "COMPLETED"
    assert "n1" not in job.nodes
    assert reasons(site.box)["n1"].startswith("slurm_plugin: gpu-check")
    site.box.heal_node("n1", resume=True)

    site.call("uninstall", "--apply")
    site.etc.reconfigure()
    site.call("uninstall", "--apply")
    after = site.files()
    assert after.pop("slurm.conf.before-slurm_plugin")
    assert after == site.before
    assert not (site.at / "slurm_plugin").exists()
    site.ran()
    assert site.box.run(["srun", "-N1", "-w", "n2", "sh", "-c", "echo $OWN"]).stdout == "yes\n"
    assert "prolog n2" in site.ran()


@pytest.mark.full  # 16 s
def test_installed_beside_files_that_slurm_conf_includes(site: Site) -> None:
    """At any depth, and with the cluster's name. Both hooks run once, and lists have the words of both."""
    conf = site.at / "slurm.conf"
    moved = {line.partition("=")[0]: line for line in conf.read_text().splitlines()}
    names = ("Prolog", "PrologFlags", "TaskProlog")
    site.etc.settings(**dict.fromkeys(names, ""))
    (site.at / "own/more.conf").write_text("include %c.conf\n")
    cluster = moved["ClusterName"].partition("=")[2]
    place = f"{cluster}.conf" if release_of(site.box).includes_beside_slurm_conf else f"own/{cluster}.conf"
    (site.at / place).write_text("".join(f"{moved[name]}\n" for name in names))
    conf.write_text(f"{conf.read_text()}include own/more.conf\n")
    before = conf.read_text()
    plan = site.call("install", "--apply")
    assert not plan["by_hand"]
    assert any(f"/etc/slurm/{place} sets PrologFlags" in each for each in plan["notices"])
    site.tell()
    site.ran()
    job = run(site, "included")
    assert job.end() == "COMPLETED", job.log
    assert sorted(line for line in job.log.splitlines() if line.startswith("own")) == [
        f"own yes rank {rank}" for rank in range(8)
    ]
    prologs = [line.split()[1] for line in site.log.read_text().splitlines() if "/prolog " in line]
    assert sorted(prologs) == sorted(job.nodes)
    assert "PrologFlags             = Alloc,DeferBatch\n" in site.box.run(["scontrol", "show", "config"]).stdout
    site.call("uninstall", "--apply")
    assert conf.read_text() == before


@pytest.mark.full  # 18 s
def test_the_sites_prolog_says_no(site: Site) -> None:
    """Its exit code drains the node, and our hook does not run."""
    site.call("install", "--apply")
    site.tell()
    site.box.run(["srun", "-N1", "-w", "n1", "--comment=sick", "true"], check=False)
    until(lambda: reasons(site.box) == {"n1": "Prolog error"})
    site.box.heal_node("n1", resume=True)


@pytest.mark.full  # 24 s
def test_the_version_before(site: Site) -> None:
    """A canary installation, then the whole, back to the canary, and forward again. Jobs keep the files in place."""
    settings = site.at / "slurm_plugin/compiled.json"
    site.call("install", "--canary", "n[1-2]", "--apply")
    site.tell()
    trial = settings.read_bytes()
    assert json.loads(trial)["canary"] == "n[1-2]"
    found = site.call("check")
    assert {finding["verdict"] for finding in found["findings"]} == {"ok"}

    site.box.break_node("n3", "gpu-missing")
    site.box.break_node("n1", "gpu-missing")
    job = jobs.submit(site.box, "canary", nodes=5, command="sleep 9000", retries=1)
    job.until(lambda: "would be drained" in site.box.run(["scontrol", "show", "node", "n1"]).stdout, "the remark")
    assert reasons(site.box) == {}
    for node in ("n1", "n3"):
        site.box.heal_node(node)

    plan = site.call("install", "--apply")
    assert {Path(change["path"]).name for change in plan["changes"] if ".previous" not in change["path"]} == {
        "compiled.json"
    }
    whole = settings.read_bytes()
    assert b"canary" not in whole
    site.call("rollback", "--apply")
    assert settings.read_bytes() == trial
    site.call("rollback", "--apply")
    assert settings.read_bytes() == whole

    site.call("uninstall", "--apply")
    site.etc.reconfigure()
    (notice,) = site.call("uninstall", "--apply")["notices"]
    assert f"not ended yet: job {job.id} of slurm_plugin" in notice
    assert settings.exists()
    site.box.run(["scancel", str(job.id)])
    job.end()
    site.call("uninstall", "--apply")
    assert not settings.exists()


@pytest.mark.full  # 20 s
def test_a_restart_after_the_uninstallation(site: Site) -> None:
    """Within its nodes: the tasks of the next attempt have their ranks, too."""
    site.call("install", "--apply")
    site.tell()
    wait = "[ $SLURM_PLUGIN_ATTEMPT = 1 ] || { until [ -e gone ]; do sleep 0.1; done; exit 3; }"
    command = f"sh -c 'echo attempt $SLURM_PLUGIN_ATTEMPT own $OWN rank $RANK; {wait}'"
    job = jobs.submit(site.box, "gone", command=command, launch="task", retries=1, unconditional="yes")
    job.until(lambda: job.log.count("attempt 0 own yes rank ") == 8, "the first attempt")
    site.call("uninstall", "--apply")
    site.etc.reconfigure()
    (job.directory / "gone").touch()
    assert job.end() == "COMPLETED", job.log
    again = sorted(line for line in job.log.splitlines() if line.startswith("attempt 1"))
    assert again == [f"attempt 1 own yes rank {rank}" for rank in range(8)]
