"""`slurm-plugin doctor` on a real Slurm: a site set up by the page is fine, and each fault is the one finding."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.slurm import releases

pytestmark = pytest.mark.cluster

FINDINGS = 24
HURRIED = "SlurmdTimeout=10\n"
PYSLURM = Path(os.environ.get("SLURM_PLUGIN_TEST_ROOT", "/"), "opt/pyslurm")


@pytest.fixture(scope="module", autouse=True)
def patient(sandbox: Sandbox) -> Iterator[None]:
    """As a site's Slurm is: the sandbox's own gives nodes up after 10 s, so that nobody has to wait for a fault."""
    conf = sandbox.directory / "etc/slurm/slurm.conf"
    hurried = conf.read_text()
    rewrite(conf, hurried.replace(HURRIED, "SlurmdTimeout=300\n"))
    sandbox.run(["scontrol", "reconfigure"], user="root")
    yield
    rewrite(conf, hurried)
    sandbox.run(["scontrol", "reconfigure"], user="root")


@pytest.fixture
def etc(cluster: Sandbox, tmp_path: Path) -> Iterator[Path]:
    """/etc/slurm of all machines, with its times; as it was again after the test, in slurmctld too."""
    slurm = cluster.directory / "etc/slurm"
    shutil.copytree(slurm, tmp_path / "etc")
    yield slurm
    for path in slurm.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    shutil.copytree(tmp_path / "etc", slurm, dirs_exist_ok=True)
    cluster.run(["scontrol", "reconfigure"], user="root")


def doctor(box: Sandbox, *options: str, user: str = "root", node: str = "ctl") -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code, and the findings by name."""
    done = box.run(["slurm-plugin", "doctor", "--json", *options], user=user, node=node, check=False)
    found = json.loads(done.stdout)["findings"]
    assert len({finding["name"] for finding in found}) == len(found), done.stdout
    return done.returncode, {finding["name"]: finding for finding in found}


def others(found: dict[str, dict[str, str]]) -> dict[str, str]:
    """The findings that are not fine, with their verdicts."""
    return {name: finding["verdict"] for name, finding in found.items() if finding["verdict"] != "ok"}


def rewrite(path: Path, text: str) -> None:
    """Change a file and keep its time: slurm.conf then is no newer than slurmctld's start."""
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_all_fine(cluster: Sandbox) -> None:
    """What docs/install.md describes and the sandbox does has nothing wrong, for root and for a user."""
    for user in ("root", "alice"):
        code, found = doctor(cluster, user=user)
        assert (code, others(found), len(found)) == (0, {}, FINDINGS)
    said = cluster.run(["slurm-plugin", "doctor"], user="root").stdout.splitlines()
    assert len(said) == FINDINGS
    assert all(line.startswith("ok           ") for line in said)


def test_on_a_node(cluster: Sandbox) -> None:
    """What only a controller can say is left open there, and nothing is wrong."""
    code, found = doctor(cluster, node="n1")
    release = releases.of(found["Slurm version"]["message"])
    assert release
    known = {"EpilogSlurmctld"} if release.reconfigure_starts_epilog_slurmctld else set()
    unknown = {"EpilogSlurmctld", "job_submit.lua", "spool directory"} - known
    assert (code, others(found)) == (2, dict.fromkeys(unknown, "cannot tell"))


@pytest.mark.parametrize("name", ["PrologFlags", "Prolog", "Epilog", "TaskProlog"])
def test_a_line_that_is_missing(cluster: Sandbox, etc: Path, name: str) -> None:
    """Exactly that line is named, and its remedy, written into slurm.conf, mends it."""
    conf = etc / "slurm.conf"
    whole = conf.read_text()
    rewrite(conf, "".join(line for line in whole.splitlines(keepends=True) if not line.startswith(f"{name}=")))
    cluster.run(["scontrol", "reconfigure"], user="root")
    code, found = doctor(cluster)
    assert (code, others(found)) == (1, {name: "wrong"})
    rewrite(conf, conf.read_text() + found[name]["remedy"].removeprefix("slurm.conf: ") + "\n")
    cluster.run(["scontrol", "reconfigure"], user="root")
    assert others(doctor(cluster)[1]) == {}


def test_a_slurm_that_gives_nodes_up_too_soon(cluster: Sandbox, etc: Path) -> None:
    """A job might run elsewhere while such a node still writes; the line that is named is enough."""
    conf = etc / "slurm.conf"
    whole = conf.read_text()
    rewrite(conf, whole.replace("SlurmdTimeout=300\n", HURRIED))
    cluster.run(["scontrol", "reconfigure"], user="root")
    code, found = doctor(cluster)
    assert (code, others(found)) == (1, {"SlurmdTimeout": "wrong"})
    line = found["SlurmdTimeout"]["remedy"].removeprefix("slurm.conf: ")
    rewrite(conf, whole.replace("SlurmdTimeout=300", line))
    cluster.run(["scontrol", "reconfigure"], user="root")
    assert others(doctor(cluster)[1]) == {}


def test_a_slurm_conf_that_is_newer_than_slurmctld(cluster: Sandbox, etc: Path) -> None:
    """On 22.05 an EpilogSlurmctld that came after slurmctld's start may be shown and never run: what to do."""
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
    """It is named, with the command that writes it again."""
    hook = etc / "slurm_plugin/hooks/prolog"
    hook.write_text(hook.read_text() + "# mine\n")
    code, found = doctor(cluster)
    assert (code, others(found)) == (1, {"files": "wrong"})
    assert "hooks/prolog" in found["files"]["message"]
    cluster.run(["sh", "-c", found["files"]["remedy"].removeprefix("run: ")], user="root")
    assert others(doctor(cluster)[1]) == {}


def test_faults_in_files(cluster: Sandbox, etc: Path) -> None:
    """Each is the one finding; together they are all there."""
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


def test_without_slurms_commands(cluster: Sandbox) -> None:
    """Nothing can be said: exit 3, and what to install."""
    argv = ["env", "PATH=/nonexistent", "/bin/sh", "/sandbox/bin/slurm-plugin", "doctor"]
    done = cluster.run(argv, user="root", check=False)
    assert done.returncode == 3
    assert "scontrol was not found" in done.stderr


@pytest.mark.parametrize("backend", ["cli", "pyslurm"])
def test_the_back_end_that_is_asked_for(cluster: Sandbox, backend: str) -> None:
    """Named where it works; where pyslurm is not installed, that is what is wrong, and the commands answer."""
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
