"""Judging a deployment: every wrong finding has a remedy."""

from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.doctor import judge
from slurm_plugin.site.doctor.judge import Differences, Finding, Owned, exit_code
from slurm_plugin.site.lua import chain, job_submit

ROOT, INSTALL = "/etc/slurm/slurm_plugin", "slurm-plugin site install --apply"
SPOOL = "/var/spool/slurm_plugin"
OURS = job_submit(SiteConfig(), ROOT)
OWN = OURS.replace("-- slurm_plugin", "-- our site's script; from slurm_plugin", 1)


def files(found: Differences | None, *, site_file: bool = True) -> dict[str, tuple[str, str]]:
    """Return the findings that are not ok: name -> verdict and remedy."""
    all_of_them = judge.files(ROOT, found, INSTALL, site_file=site_file)
    return {finding.name: (finding.verdict, finding.remedy) for finding in all_of_them if finding.verdict != "ok"}


def judged(text: str | None, *, ours: str | None = OURS, controller: bool = True, there: bool | None = True) -> Finding:
    """Judge this script beside slurm.conf."""
    where = "/etc/slurm/job_submit.lua", f"{ROOT}/job_submit.lua"
    return judge.job_submit(where[0], text, ours, where[1], INSTALL, controller=controller, there=there)


def test_exit_code() -> None:
    """`wrong` outweighs `cannot tell`."""
    for verdicts, code in [((), 0), (("ok", "ok"), 0), (("ok", "cannot tell"), 2), (("cannot tell", "wrong", "ok"), 1)]:
        assert exit_code([Finding("a", verdict, "") for verdict in verdicts]) == code, verdicts  # type: ignore[arg-type]


def test_files() -> None:
    """Each kind of difference is one finding, with the command that corrects it."""
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
    """The message has the first names and the number of the others."""
    found = judge.files(ROOT, Differences(changed=tuple("abcdefgh")), INSTALL, site_file=True)[0]
    assert found.message == f"below {ROOT}: a, b, c, d, e, f and 2 more other than this version renders"


def test_without_a_site_file_settings_cannot_be_judged() -> None:
    """Another machine may have the site file: only the code is compared."""
    changed = ("compiled.json", "hooks/prolog")
    assert files(Differences(changed=changed), site_file=False).keys() == {"compiled.json"}
    assert files(Differences(changed=changed), site_file=False)["compiled.json"][0] == "cannot tell"
    assert files(Differences(changed=(*changed, "slurm_plugin.pyz")), site_file=False)["files"][0] == "wrong"
    assert files(Differences(changed=("hooks/prolog",)), site_file=False)["files"][0] == "wrong"


def test_job_submit() -> None:
    """The script must be ours, or one of the site's own with our functions unchanged."""
    again = f"run: {INSTALL}"
    assert judged(OURS).verdict == "ok"
    assert judged(OURS + "\n").remedy == again
    assert (judged(None, there=False).verdict, judged(None, there=False).remedy) == ("wrong", again)
    assert judged(None, there=None).verdict == "cannot tell"
    assert judged(OURS, ours=None).verdict == "cannot tell"
    assert judged(None, controller=False).verdict == "cannot tell"
    assert judged(OWN).verdict == "ok"
    assert judged(OWN.replace("max_retries = 128", "max_retries = 3")).verdict == "wrong"
    assert judged(OWN.replace("#token > 200", "#token > 300")).verdict == "wrong"
    own = judged("function slurm_job_submit() return slurm.SUCCESS end\n")
    assert (own.verdict, own.remedy) == ("wrong", f"{again}; it has Slurm call the site's own first, then ours")


def test_kill_switch() -> None:
    """A kill switch is a wrong finding."""
    assert judge.kill_switch("/x/DISABLED", there=False).verdict == "ok"
    assert judge.kill_switch("/x/DISABLED", there=None).verdict == "cannot tell"
    found = judge.kill_switch("/x/DISABLED", there=True)
    assert (found.verdict, found.remedy) == ("wrong", "run: rm /x/DISABLED")


def test_interpreter() -> None:
    """The finding has the version, or the error with its remedy."""
    fine = "/usr/bin/python3 is Python 3.11, and only root may change it"
    assert judge.interpreter("/usr/bin/python3", (3, 11), psutil=True).message == fine
    assert judge.interpreter("/usr/bin/python3", (3, 11), psutil=False).message.startswith(f"{fine}; without psutil (")
    found = judge.interpreter("/usr/bin/python3", "too old\n  install another", psutil=False)
    assert (found.verdict, found.message, found.remedy) == ("wrong", "too old", "install another")


def test_commands() -> None:
    """Hooks look for Slurm's commands in one directory."""
    assert judge.commands("/usr/bin", (), "/usr/bin").verdict == "ok"
    found = judge.commands("/usr/bin", ("squeue",), "/opt/slurm/bin")
    assert (found.verdict, found.remedy) == ("wrong", "site file: slurm_bin: /opt/slurm/bin")


def test_spool() -> None:
    """The spool directory must belong to SlurmUser, and only SlurmUser may write there."""
    cases = [
        (Owned(64030, 0o700), ""),
        (Owned(64030, 0o750), ""),
        (Owned(64030, 0o777), f"run: chmod go-w {SPOOL}"),
        (Owned(0, 0o700), f"run: chown slurm {SPOOL}"),
        (None, f"run: install -d -o slurm -m 0700 {SPOOL}"),
    ]
    for found, remedy in cases:
        said = judge.spool(SPOOL, "slurm(64030)", found, controller=True)
        assert (said.verdict, said.remedy) == ("wrong" if remedy else "ok", remedy), found


def test_spool_that_cannot_be_seen() -> None:
    """On another machine, without SlurmUser's number, or where the caller may not look."""
    fine = Owned(64030, 0o700)
    assert judge.spool(SPOOL, "slurm(64030)", fine, controller=False).verdict == "cannot tell"
    assert judge.spool(SPOOL, "", fine, controller=True).verdict == "cannot tell"
    assert judge.spool(SPOOL, "slurm(64030)", "Permission denied", controller=True).verdict == "cannot tell"


def test_munge() -> None:
    """Only a site that uses munge needs it."""
    cases = [
        ("auth/munge", "", "ok"),
        ("auth/munge", "munge: Error: ...", "wrong"),
        ("", "munge: Error: ...", "cannot tell"),
        ("auth/munge", None, "cannot tell"),
        ("auth/slurm", None, "ok"),
    ]
    for auth, failure, verdict in cases:
        assert judge.munge(auth, failure).verdict == verdict, auth


def test_a_chain_of_scripts() -> None:
    """If the site's own script was moved aside, only the chain is right."""
    chained = chain("/etc/slurm/job_submit.site.lua", f"{ROOT}/job_submit.lua", OURS.encode())

    def said(text: str) -> str:
        path = "/etc/slurm/job_submit.lua"
        found = judge.job_submit(path, text, OURS, f"{ROOT}/job_submit.lua", INSTALL, controller=True, chained=chained)
        return found.verdict

    assert [said(text) for text in (chained, OURS, f"{chained}-- mine", OWN)] == ["ok", "wrong", "wrong", "ok"]


def test_on_trial() -> None:
    """A canary installation is ok, and the message names the nodes."""
    found = judge.on_trial("n[1-4]")
    assert (found.verdict, "n[1-4] only" in found.message) == ("ok", True)


TASK_PROLOG = f"{ROOT}/hooks/task_prolog"


def test_task_prolog_in_the_containers_of_pyxis() -> None:
    """The remedy has the line and the file."""
    cases = [
        (f"# x\n{TASK_PROLOG} {TASK_PROLOG} none x-create=file,bind\n", "ok"),
        (f"{TASK_PROLOG}2 {TASK_PROLOG}2 none bind\n", "wrong"),
        ("", "wrong"),
        (None, "cannot tell"),
    ]
    for mounts, verdict in cases:
        found = judge.pyxis(TASK_PROLOG, mounts)
        assert (found.name, found.verdict) == ("pyxis", verdict), mounts
        assert (f".fstab on each node: {TASK_PROLOG} {TASK_PROLOG} none x-create=file" in found.remedy) == (
            verdict == "wrong"
        ), mounts
