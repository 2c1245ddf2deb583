"""`slurm-plugin doctor` on a real Slurm: no finding on a correct site, and one finding for each fault."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.slurm import releases

pytestmark = pytest.mark.cluster

FINDINGS = 25
HURRIED = "SlurmdTimeout=10\n"
PYSLURM = Path(os.environ.get("SLURM_PLUGIN_TEST_ROOT", "/"), "opt/pyslurm")


@pytest.fixture(scope="module", autouse=True)
def patient(sandbox: Sandbox) -> Iterator[None]:
    """Raise SlurmdTimeout to a site's value: the sandbox's nodes go DOWN after 10 s."""
    conf = sandbox.directory / "etc/slurm/slurm.conf"
    hurried = conf.read_text()
    rewrite(conf, hurried.replace(HURRIED, "SlurmdTimeout=300\n"))
    sandbox.run(["scontrol", "reconfigure"], user="root")
    yield
    rewrite(conf, hurried)
    sandbox.run(["scontrol", "reconfigure"], user="root")


@pytest.fixture
def etc(cluster: Sandbox, tmp_path: Path) -> Iterator[Path]:
    """Yield /etc/slurm of all machines. Restore it and its times after the test, in slurmctld, too."""
    slurm = cluster.directory / "etc/slurm"
    shutil.copytree(slurm, tmp_path / "etc")
    yield slurm
    for path in slurm.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    shutil.copytree(tmp_path / "etc", slurm, dirs_exist_ok=True)
    cluster.run(["scontrol", "reconfigure"], user="root")


def doctor(box: Sandbox, *options: str, user: str = "root", node: str = "ctl") -> tuple[int, dict[str, dict[str, str]]]:
    """Return the exit code, and the findings by name."""
    done = box.run(["slurm-plugin", "doctor", "--json", *options], user=user, node=node, check=False)
    found = json.loads(done.stdout)["findings"]
    assert len({finding["name"] for finding in found}) == len(found), done.stdout
    return done.returncode, {finding["name"]: finding for finding in found}


def others(found: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the verdicts of the findings that are not ok."""
    return {name: finding["verdict"] for name, finding in found.items() if finding["verdict"] != "ok"}


def rewrite(path: Path, text: str) -> None:
    """Change a file and keep its time: slurm.conf must not be newer than slurmctld's start."""
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_all_fine(cluster: Sandbox) -> None:
    """A site that is set up as in docs/how-to/install.md has no wrong finding, for root and for users."""
    for user in ("root", "alice"):
        code, found = doctor(cluster, user=user)
        assert (code, others(found), len(found)) == (0, {}, FINDINGS + (user != "root"))  # a user's own settings
    said = cluster.run(["slurm-plugin", "doctor"], user="root").stdout.splitlines()
    assert len(said) == FINDINGS
    assert all(line.startswith("ok           ") for line in said)


def test_on_a_node(cluster: Sandbox) -> None:
    """Nothing is wrong there. Findings that only a controller can judge are `cannot tell`."""
    code, found = doctor(cluster, node="n1")
    release = releases.of(found["Slurm version"]["message"])
    assert release
    known = {"EpilogSlurmctld"} if release.reconfigure_starts_epilog_slurmctld else set()
    unknown = {"EpilogSlurmctld", "job_submit.lua", "spool directory"} - known
    assert (code, others(found)) == (2, dict.fromkeys(unknown, "cannot tell"))


def test_lines_that_are_missing(cluster: Sandbox, etc: Path) -> None:
    """Exactly the missing lines are findings, and a SlurmdTimeout that is too short: a job might start elsewhere while
    its old nodes still write. The remedies, written into slurm.conf, correct all of them.
    """
    conf = etc / "slurm.conf"
    missing = ("PrologFlags", "Prolog", "Epilog", "TaskProlog")
    whole = conf.read_text().replace("SlurmdTimeout=300\n", HURRIED)
    rewrite(conf, "".join(line for line in whole.splitlines(keepends=True) if line.partition("=")[0] not in missing))
    cluster.run(["scontrol", "reconfigure"], user="root")
    code, found = doctor(cluster)
    assert (code, others(found)) == (1, dict.fromkeys((*missing, "SlurmdTimeout"), "wrong"))
    remedies = [found[name]["remedy"].removeprefix("slurm.conf: ") for name in (*missing, "SlurmdTimeout")]
    rewrite(conf, conf.read_text().replace(HURRIED, "") + "".join(f"{line}\n" for line in remedies))
    cluster.run(["scontrol", "reconfigure"], user="root")
    assert others(doctor(cluster)[1]) == {}


def test_a_slurm_conf_that_is_newer_than_slurmctld(cluster: Sandbox, etc: Path) -> None:
    """On 22.05 Slurm may show an EpilogSlurmctld that it does not run. The remedy is a restart."""
    later = (etc / "slurm.conf").stat().st_mtime + 3600
    os.utime(etc / "slurm.conf", (later, later))
    code, found = doctor(cluster)
    release = releases.of(found["Slurm version"]["message"])
    assert release
    if release.reconfigure_starts_epilog_slurmctld:
        assert (code, others(found)) == (0, {})
    else:
        assert (code, others(found)) == (2, {"EpilogSlurmctld": "cannot tell"})
        assert "systemctl restart slurmctld" in found["EpilogSlurmctld"]["remedy"]


def test_a_hook_that_was_edited(cluster: Sandbox, etc: Path) -> None:
    """The finding names it, with the command that writes it again."""
    hook = etc / "slurm_plugin/hooks/prolog"
    hook.write_text(hook.read_text() + "# mine\n")
    code, found = doctor(cluster)
    assert (code, others(found)) == (1, {"files": "wrong"})
    assert "hooks/prolog" in found["files"]["message"]
    cluster.run(["sh", "-c", found["files"]["remedy"].removeprefix("run: ")], user="root")
    assert others(doctor(cluster)[1]) == {}


@pytest.mark.full  # 9 s
def test_faults_in_files(cluster: Sandbox, etc: Path) -> None:
    """Each fault alone is the only finding. Together all are found."""
    site, expected = etc / "slurm_plugin", set[str]()

    def now(*names: str) -> None:
        expected.update(names)
        assert others(doctor(cluster)[1]) == dict.fromkeys(expected, "wrong")

    (site / "DISABLED").touch()
    now("kill switch")
    os.chown(site / "hooks/epilog", 20001, 20001)
    now("owner")
    lua = etc / "job_submit.lua"
    lua.write_text(lua.read_text().replace("slurm_plugin 0", "slurm_plugin 9", 1))
    now("job_submit.lua")
    with (etc / "slurm_plugin.yaml").open("a") as file:
        file.write("infiniband_partitions: [main]\n")
    now("compiled.json")
    spool = cluster.directory / "spool"
    before = spool.stat()
    os.chown(spool, 0, 0)
    try:
        now("spool directory")
    finally:
        os.chown(spool, before.st_uid, before.st_gid)


def test_a_partition_that_slurm_does_not_have(cluster: Sandbox, etc: Path) -> None:
    """It would silently disable a check: doctor names it, and `site install` changes nothing."""
    with (etc / "slurm_plugin.yaml").open("a") as file:
        file.write("infiniband_partitions: [mian]\n")
    _, found = doctor(cluster)
    assert others(found) == {"names": "wrong", "compiled.json": "wrong"}
    said = "infiniband_partitions names mian: Slurm has no such partition; did you mean main?"
    assert found["names"]["message"] == said
    done = cluster.run(["slurm-plugin", "site", "install", "--apply"], user="root", check=False)
    assert (done.returncode, f"by hand   the site file: {said}" in done.stdout) == (1, True)
    assert doctor(cluster)[1] == found


def test_without_slurms_commands(cluster: Sandbox) -> None:
    """Exit 3, with the packages to install."""
    argv = ["env", "PATH=/nonexistent", "/sandbox/bin/slurm-plugin", "doctor"]
    done = cluster.run(argv, user="root", check=False)
    assert done.returncode == 3
    assert "scontrol was not found" in done.stderr


@pytest.mark.parametrize("backend", ["cli", "pyslurm"])
def test_the_back_end_that_is_asked_for(cluster: Sandbox, backend: str) -> None:
    """If it works, a finding names it. If pyslurm is not installed, that is wrong, and Slurm's commands are used."""
    env = {"SLURM_PLUGIN_BACKEND": backend}
    done = cluster.run(["slurm-plugin", "doctor", "--json"], user="root", check=False, env=env)
    found = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    if backend == "pyslurm" and not PYSLURM.exists():
        assert (done.returncode, others(found)) == (1, {"back end": "wrong"})
        assert "pyslurm cannot be imported" in found["back end"]["message"]
    else:
        assert (done.returncode, others(found)) == (0, {})
        assert found["back end"]["message"].startswith("pyslurm 2" if backend == "pyslurm" else "Slurm's commands")
    assert done.stderr == ""
