"""A site's policy on a real slurmctld: jobs and edits that it accepts, changes or refuses."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.lua import job_submit
from slurm_plugin.spec.policy_language import Policy
from tests.cluster import alone
from tests.cluster.conftest import restore
from tests.cluster.etc import Etc
from tests.cluster.jobs import Job, reasons, workdir
from tests.cluster.sites import deploy, site_file
from tests.waiting import until

pytestmark = pytest.mark.cluster

RULES = {
    "defaults": {"time": "20m"},
    "rules": [
        {
            "name": "small",
            "when": {"partition": ["debug"]},
            "limit": {"nodes": 2, "time": "1h", "retries": 1},
            "message": 'larger: "main", 100%',
        },
        {"name": "ours", "when": {"partition": ["private"]}, "allow": {"user": ["bob"]}},
    ],
}
SMALL = "slurm_plugin: rule small (partition debug): "
TAIL = '; larger: "main", 100%'
NODES = f"{SMALL}nodes: found 3; accepted: up to 2{TAIL}"
TIME = f"{SMALL}time: found 02:00:00; accepted: up to 01:00:00{TAIL}"
ALLOW = "slurm_plugin: rule ours (partition private): user: found alice; accepted: bob"


def lua(**more: object) -> str:
    """Return the job_submit.lua of a site with these rules."""
    return job_submit(SiteConfig(policy=msgspec.convert({**RULES, **more}, Policy, strict=False)))


@pytest.fixture
def etc(cluster: Sandbox, tmp_path: Path) -> Iterator[Etc]:
    """Yield the configuration with the rules and two more partitions. Restore it after the test."""
    files = Etc(cluster, tmp_path / "etc")
    files.lua(lua())
    for name in ("debug", "private"):
        cluster.run(["scontrol", "create", f"PartitionName={name}", "Nodes=ALL", "State=UP"], user="root")
    yield files
    restore(cluster)
    for name in ("debug", "private"):
        cluster.run(["scontrol", "delete", f"PartitionName={name}"], user="root")
    files.put_back()


def sbatch(box: Sandbox, *options: str, user: str = "alice") -> "subprocess.CompletedProcess[str]":
    """Submit a held job."""
    words = ["sbatch", "--parsable", "--hold", "--output=/dev/null", *options, "--wrap=true"]
    return box.run(words, user=user, check=False)


def shown(box: Sandbox, job_id: str, *names: str) -> list[str]:
    """Return fields of a job as scontrol shows them."""
    text = box.run(["scontrol", "-o", "show", "job", job_id]).stdout
    fields = dict(word.split("=", 1) for word in text.split() if "=" in word)
    return [fields.get(name, "").removesuffix("-" + fields.get(name, "").partition("-")[0]) for name in names]


def edit(box: Sandbox, job_id: str, *changes: str, user: str = "alice") -> "subprocess.CompletedProcess[str]":
    """Edit a job. An edit of its partition needs another association. Without slurmdbd there is none, and Slurm returns
    an errno of an earlier call (job_mgr.c, after _retrieve_new_assoc): EAGAIN, or none.
    """
    for _ in range(200):
        done = box.run(["scontrol", "update", f"JobId={job_id}", *changes], user=user, check=False)
        if "Resource temporarily unavailable" not in done.stderr:
            break
    return done


def test_accepted_and_changed(cluster: Sandbox, etc: Etc) -> None:
    """A job gets the defaults, and the limits of values that it does not give. Values within the limits are kept."""
    job = sbatch(cluster).stdout.strip()
    assert shown(cluster, job, "TimeLimit", "Partition", "NumNodes") == ["00:20:00", "main", "1"]
    job = sbatch(cluster, "-N3", "-t3:00:00").stdout.strip()
    assert shown(cluster, job, "TimeLimit", "NumNodes") == ["03:00:00", "3"]
    job = sbatch(cluster, "-pdebug", "-n2", "--comment=[sp1;retries=3]").stdout.strip()
    assert shown(cluster, job, "NumNodes", "AdminComment") == ["1-2", 'sp1:{"granted":1}']
    job = sbatch(cluster, "-pdebug", "-N2", "-t60", "--comment=mine").stdout.strip()
    assert shown(cluster, job, "TimeLimit", "NumNodes", "Comment") == ["01:00:00", "2", "mine"]


@pytest.mark.full  # 30 s
def test_a_users_own_environment(cluster: Sandbox, etc: Etc, tmp_path: Path) -> None:
    """She submits with the wheel in her home. The nodes run the site's program, and the site grants no restart."""
    alone.install(cluster, tmp_path)
    etc.lua(lua(rules=[{"name": "none", "limit": {"retries": 0}}]))
    job = alone.submit(cluster, "own-environment", retries=2, unconditional="yes", command="bash -c 'exit 5'")
    assert job.end() == "FAILED"
    assert (job.grant.granted, job.fields["Restarts"], len(job.attempts)) == (0, "0", 1), job.log


def test_refused(cluster: Sandbox, etc: Etc) -> None:
    """Each violated rule has a line; no rule applies to root. `submit` prints the same messages."""
    done = sbatch(cluster, "-pdebug,private", "-N3", "-t2:00:00")
    assert (done.returncode, done.stdout) == (1, "")
    both = [NODES, TIME, ALLOW]
    assert [line.removeprefix("sbatch: error: ") for line in done.stderr.splitlines()[:-1]] == both
    assert sbatch(cluster, "-pdebug", "-N3", user="root").returncode == 0
    assert sbatch(cluster, "-pprivate", user="bob").returncode == 0
    site = site_file(cluster)
    home = workdir(cluster, "policy-client")
    (home / "site.yaml").write_text(yaml.safe_dump({**site, "policy": RULES}))
    (home / "job.yaml").write_text("name: a\nmode: pytorch\nnodes: 3\ntime: 2h\ncommand: hostname\n")
    command = (
        "cd /home/alice/policy-client && SBATCH_PARTITION=debug exec slurm-plugin submit --config site.yaml job.yaml"
    )
    said = cluster.run(["sh", "-c", command], check=False)
    assert (said.returncode, said.stdout) == (1, "")
    assert [line.strip() for line in said.stderr.splitlines()[1:]] == [NODES, TIME]


@pytest.mark.full  # 7 s
def test_edited_afterwards(cluster: Sandbox, etc: Etc) -> None:
    """An edit may not set what a submission may not. Smaller values pass, and all edits by root or SlurmUser."""
    job = sbatch(cluster, "-pdebug", "-N2", "-t30").stdout.strip()
    for change, words in (("NumNodes=3-3", NODES), ("TimeLimit=120", TIME), ("Partition=private", ALLOW)):
        done = edit(cluster, job, change)
        assert done.returncode == 1, change
        told = words in done.stderr or words in (cluster.directory / "log/slurmctld.log").read_text()
        assert told, done.stderr  # 22.05 only logs the message of an edit
    assert shown(cluster, job, "TimeLimit", "NumNodes", "Partition", "AdminComment") == ["00:30:00", "2", "debug", ""]
    for change in ("TimeLimit=10", "Comment=[sp1;retries=9]", "JobName=other", "TimeLimit=60"):
        assert edit(cluster, job, change).returncode == 0, change
    assert shown(cluster, job, "AdminComment") == [""]
    loose = sbatch(cluster, "-n2").stdout.strip()  # it has no upper limit of nodes
    assert edit(cluster, loose, "Partition=debug").returncode == 0
    assert shown(cluster, loose, "NumNodes", "Partition") == ["1-2", "debug"]
    big = sbatch(cluster, "-N3", "-t2:00:00").stdout.strip()
    assert edit(cluster, big, "Partition=debug").returncode == 1
    job = sbatch(cluster, "-pdebug", "-N2", "-t30", "--comment=[sp1;retries=3]").stdout.strip()
    for user, change in (("slurm", "ExcNodeList=n5"), ("slurm", "TimeLimit=180"), ("root", "NumNodes=3-3")):
        assert edit(cluster, job, change, user=user).returncode == 0, change
    assert edit(cluster, job, "TimeLimit=170").returncode == 0  # still too much, but less than before
    assert edit(cluster, job, "NumNodes=4-4").returncode == 1
    assert shown(cluster, job, "TimeLimit", "NumNodes", "AdminComment") == ["02:50:00", "3", 'sp1:{"granted":1}']


def test_a_reservation_brings_its_partition(cluster: Sandbox, etc: Etc) -> None:
    """A job that names only the reservation runs in its partition, and meets the rules of that."""
    words = [
        "ReservationName=booked",
        "PartitionName=debug",
        "Users=alice",
        "Nodes=ALL",
        "StartTime=now",
        "Duration=60",
    ]
    cluster.run(["scontrol", "create", *words], user="root")
    try:
        done = sbatch(cluster, "--reservation=booked", "-N3")
        assert done.stderr.startswith(f"sbatch: error: {NODES}"), done.stderr
        job = sbatch(cluster, "--reservation=booked", "-N2").stdout.strip()
        assert shown(cluster, job, "Partition") == ["debug"]
        cluster.run(["scancel", job], user="root")
    finally:
        cluster.run(["scontrol", "delete", "ReservationName=booked"], user="root")


def test_an_error_of_ours(cluster: Sandbox, etc: Etc) -> None:
    """If the policy fails, the site's setting decides about jobs, on every release."""
    broken = "local function judge(job)\n  error('gone')\n"
    for chosen in ("accept", "refuse"):
        etc.lua(lua(on_error=chosen).replace("local function judge(job)\n", broken))
        done = sbatch(cluster, "--comment=[sp1;retries=3]")
        assert (done.returncode != 0) is (chosen == "refuse"), done.stderr
        assert ("the site's policy failed" in done.stderr) is (chosen == "refuse")
        if chosen == "accept":
            assert shown(cluster, done.stdout.strip(), "AdminComment") == ['sp1:{"granted":3}']
            assert edit(cluster, done.stdout.strip(), "TimeLimit=10").returncode == 0


def test_a_new_file_that_is_broken(cluster: Sandbox, etc: Etc) -> None:
    """slurmctld keeps the rules that it has."""
    assert sbatch(cluster).returncode == 0  # slurmctld reads the file at a submission
    etc.lua(lua()[:-200])
    assert sbatch(cluster, "-pdebug", "-N3").stderr.startswith(f"sbatch: error: {NODES}")


@pytest.fixture
def checked(cluster: Sandbox, etc: Etc, tmp_path: Path) -> None:
    """Deploy a site whose partition debug gets the checks."""
    etc.lua((deploy(cluster, tmp_path, policy={"checks": ["debug"]}) / "job_submit.lua").read_text())


@pytest.mark.full  # 14 s
def test_a_partition_that_gets_checks(cluster: Sandbox, checked: None) -> None:
    """A job there without a token is checked like a job with one. In other partitions it is not."""
    cluster.break_node("n1", "gpu-missing")
    words = ["sbatch", "--parsable", "-wn1", "--gres=gpu:4", "--comment=mine", "--wrap=true"]
    home = workdir(cluster, "policy-checks")

    def given(partition: str) -> Job:
        argv = [*words, f"-p{partition}", f"--chdir=/home/alice/{home.name}"]
        return Job(cluster, int(cluster.run(argv).stdout), home)

    job = given("main")
    until(lambda: job.state == "COMPLETED")
    assert reasons(cluster) == {}
    job = given("debug")  # Slurm requeues a batch job
    until(lambda: "n1" in reasons(cluster))
    assert reasons(cluster)["n1"].startswith("slurm_plugin: gpu-check: ")
    until(lambda: job.state == "PENDING")
