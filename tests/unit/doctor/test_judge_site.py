"""What is deployed on a machine, judged: every wrong finding says what to do."""

import pytest

from slurm_plugin.doctor import judge_site, measure
from slurm_plugin.doctor.finding import Differences, Finding, Owned, exit_code
from slurm_plugin.install import chain
from slurm_plugin.siteconfig import SiteConfig

ROOT, INSTALL = "/etc/slurm/slurm_plugin", "slurm-plugin site install --apply"
SPOOL = "/var/spool/slurm_plugin"
OURS = (measure.rendered(SiteConfig(), ROOT)["job_submit.lua"].content or b"").decode()
OWN = OURS.replace("-- slurm_plugin", "-- our site's script; from slurm_plugin", 1)


def files(found: Differences | None, *, site_file: bool = True) -> dict[str, tuple[str, str]]:
    """Findings that are not fine: name -> verdict and remedy."""
    all_of_them = judge_site.files(ROOT, found, INSTALL, site_file=site_file)
    return {finding.name: (finding.verdict, finding.remedy) for finding in all_of_them if finding.verdict != "ok"}


def lua(text: str | None, *, ours: str | None = OURS, controller: bool = True, there: bool | None = True) -> Finding:
    """What is said of this script beside slurm.conf."""
    where = "/etc/slurm/job_submit.lua", f"{ROOT}/job_submit.lua"
    return judge_site.job_submit(where[0], text, ours, where[1], INSTALL, controller=controller, there=there)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [((), 0), (("ok", "ok"), 0), (("ok", "cannot tell"), 2), (("cannot tell", "wrong", "ok"), 1)],
)
def test_exit_code(verdicts: tuple[str, ...], code: int) -> None:
    """Something wrong counts more than something that could not be told."""
    assert exit_code([Finding("a", verdict, "") for verdict in verdicts]) == code  # type: ignore[arg-type]


def test_files() -> None:
    """Each kind of difference is one finding, with the command that mends it."""
    again = f"run: {INSTALL}"
    assert files(Differences()) == {}
    assert files(Differences(missing=("hooks/prolog",))) == {"files": ("wrong", again)}
    assert files(Differences(changed=("hooks/prolog",))) == {"files": ("wrong", again)}
    assert files(Differences(closed=("hooks/prolog",))) == {"files": ("wrong", again)}
    assert files(Differences(changed=("compiled.json",))) == {"compiled.json": ("wrong", again)}
    assert files(Differences(missing=("compiled.json",))) == {"files": ("wrong", again)}
    chown = f"run: chown -R root:root {ROOT}/ && chmod -R go-w {ROOT}/"
    assert files(Differences(exposed=("hooks",))) == {"owner": ("wrong", chown)}
    assert files(Differences(missing=(".", "hooks"))) == {"files": ("wrong", again)}
    assert {verdict for verdict, _ in files(None).values()} == {"cannot tell"}


def test_files_are_named() -> None:
    """The first few, and how many more."""
    found = judge_site.files(ROOT, Differences(changed=tuple("abcdefgh")), INSTALL, site_file=True)[0]
    assert found.message == f"below {ROOT}: a, b, c, d, e, f and 2 more other than this version renders"


def test_without_a_site_file_settings_cannot_be_judged() -> None:
    """It may be on another machine: only the code must be the same."""
    changed = ("compiled.json", "hooks/prolog")
    assert files(Differences(changed=changed), site_file=False).keys() == {"compiled.json"}
    assert files(Differences(changed=changed), site_file=False)["compiled.json"][0] == "cannot tell"
    assert files(Differences(changed=(*changed, "slurm_plugin.pyz")), site_file=False)["files"][0] == "wrong"
    assert files(Differences(changed=("hooks/prolog",)), site_file=False)["files"][0] == "wrong"


def test_job_submit() -> None:
    """Ours, or one of the site's own that holds our functions as they are and calls them."""
    again = f"run: {INSTALL}"
    assert lua(OURS).verdict == "ok"
    assert lua(OURS + "\n").remedy == again
    assert (lua(None, there=False).verdict, lua(None, there=False).remedy) == ("wrong", again)
    assert lua(None, there=None).verdict == "cannot tell"
    assert lua(OURS, ours=None).verdict == "cannot tell"
    assert lua(None, controller=False).verdict == "cannot tell"
    assert lua(OWN).verdict == "ok"
    assert lua(OWN.replace("max_retries = 128", "max_retries = 3")).verdict == "wrong"
    assert lua(OWN.replace("#token > 200", "#token > 300")).verdict == "wrong"
    own = lua("function slurm_job_submit() return slurm.SUCCESS end\n")
    assert (own.verdict, own.remedy) == ("wrong", f"{again}; it has Slurm call the site's own first, then ours")


def test_kill_switch() -> None:
    """Where it stands, nothing of ours acts: that is worth a line."""
    assert judge_site.kill_switch("/x/DISABLED", there=False).verdict == "ok"
    assert judge_site.kill_switch("/x/DISABLED", there=None).verdict == "cannot tell"
    found = judge_site.kill_switch("/x/DISABLED", there=True)
    assert (found.verdict, found.remedy) == ("wrong", "run: rm /x/DISABLED")


@pytest.mark.parametrize(
    ("distrust", "version", "verdict"),
    [("", (3, 11), "ok"), ("", (3, 13), "ok"), ("", (3, 10), "wrong"), ("", None, "wrong"), ("a\n  b", None, "wrong")],
)
def test_interpreter(distrust: str, version: tuple[int, int] | None, verdict: str) -> None:
    """3.11 or later, it runs, and only root may replace it."""
    found = judge_site.interpreter("/usr/bin/python3", distrust, version)
    assert found.verdict == verdict
    assert bool(found.remedy) == (verdict == "wrong")


def test_commands() -> None:
    """Hooks look for Slurm's commands in one directory."""
    assert judge_site.commands("/usr/bin", (), "/usr/bin").verdict == "ok"
    found = judge_site.commands("/usr/bin", ("squeue",), "/opt/slurm/bin")
    assert (found.verdict, found.remedy) == ("wrong", "site file: slurm_bin: /opt/slurm/bin")


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        (Owned(64030, 0o700), ""),
        (Owned(64030, 0o750), ""),
        (Owned(64030, 0o777), f"run: chmod go-w {SPOOL}"),
        (Owned(0, 0o700), f"run: chown slurm {SPOOL}"),
        (None, f"run: install -d -o slurm -m 0700 {SPOOL}"),
    ],
)
def test_spool(found: Owned | None, remedy: str) -> None:
    """SlurmUser's, and nobody else writes there."""
    said = judge_site.spool(SPOOL, "slurm(64030)", found, controller=True)
    assert (said.verdict, said.remedy) == ("wrong" if remedy else "ok", remedy)


def test_spool_that_cannot_be_seen() -> None:
    """On another machine, without SlurmUser's number, or where the caller may not look."""
    fine = Owned(64030, 0o700)
    assert judge_site.spool(SPOOL, "slurm(64030)", fine, controller=False).verdict == "cannot tell"
    assert judge_site.spool(SPOOL, "", fine, controller=True).verdict == "cannot tell"
    assert judge_site.spool(SPOOL, "slurm(64030)", "Permission denied", controller=True).verdict == "cannot tell"


@pytest.mark.parametrize(
    ("auth", "failure", "verdict"),
    [
        ("auth/munge", "", "ok"),
        ("auth/munge", "munge: Error: ...", "wrong"),
        ("", "munge: Error: ...", "cannot tell"),
        ("auth/munge", None, "cannot tell"),
        ("auth/slurm", None, "ok"),
    ],
)
def test_munge(auth: str, failure: str | None, verdict: str) -> None:
    """Only a site that uses munge needs it."""
    assert judge_site.munge(auth, failure).verdict == verdict


def test_a_chain_of_scripts() -> None:
    """Where the site's own was moved aside, what calls both is right, and nothing else of ours is."""
    chained = chain.lua("/etc/slurm/job_submit.site.lua", f"{ROOT}/job_submit.lua", OURS.encode())

    def said(text: str) -> str:
        path = "/etc/slurm/job_submit.lua"
        found = judge_site.job_submit(
            path, text, OURS, f"{ROOT}/job_submit.lua", INSTALL, controller=True, chained=chained
        )
        return found.verdict

    assert [said(text) for text in (chained, OURS, f"{chained}-- mine", OWN)] == ["ok", "wrong", "wrong", "ok"]


def test_on_trial() -> None:
    """An installation with canaries is fine, and says so."""
    found = judge_site.on_trial("n[1-4]")
    assert (found.verdict, "n[1-4] only" in found.message) == ("ok", True)


TASK_PROLOG = f"{ROOT}/hooks/task_prolog"


@pytest.mark.parametrize(
    ("mounts", "verdict"),
    [
        (f"# x\n{TASK_PROLOG} {TASK_PROLOG} none x-create=file,bind\n", "ok"),
        (f"{TASK_PROLOG}2 {TASK_PROLOG}2 none bind\n", "wrong"),
        ("", "wrong"),
        (None, "cannot tell"),
    ],
)
def test_task_prolog_in_the_containers_of_pyxis(mounts: str | None, verdict: str) -> None:
    """Whoever mends it is told the line, and where."""
    found = judge_site.pyxis(TASK_PROLOG, mounts)
    assert (found.name, found.verdict) == ("pyxis", verdict)
    assert (f".fstab on each node: {TASK_PROLOG} {TASK_PROLOG} none x-create=file" in found.remedy) == (
        verdict == "wrong"
    )
