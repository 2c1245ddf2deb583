"""The sh round the hooks, run as slurmd runs it: root, a bare environment, strings that users chose."""

import os
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.policy.language import Policy
from slurm_plugin.site import render_site
from slurm_plugin.siteconfig import Prechecks, SiteConfig
from tests.unit.hooks.running import USER, run

ASKS = "my run [sp1;retries=3]"
GUARDS = ("prolog", "epilog", "epilog_slurmctld")
STARTED = 'echo "$*" >> {0}/started; '  # what every fake interpreter does first

START = (
    '-I -S -c import os, sys; sys.argv[0] = "{0}/slurm_plugin.pyz"; '
    "fd = os.open(sys.argv[0], os.O_RDONLY); fd == 9 or os.dup2(fd, 9, False); "
    'sys.path.insert(0, "/proc/self/fd/9"); from slurm_plugin.__main__ import main; os._exit(main()) hook {1}'
)


class Site:
    """A rendered site whose interpreter is a shell script."""

    def __init__(
        self, directory: Path, interpreter: str | None, *, mandatory: bool = False, checks: tuple[str, ...] = ()
    ) -> None:
        self.root, self.run, self._directory = directory / "site", directory / "run", directory
        python = directory / "python"
        python.write_text("#!/bin/sh\n" + STARTED.format(directory) + (interpreter or ""))
        python.chmod(0o755)
        config = SiteConfig(
            python=str(python),
            run_directory=str(self.run),
            spool_directory=str(directory / "spool"),
            prechecks=Prechecks(mandatory=("dns",) if mandatory else ()),
            policy=Policy(checks=checks),
        )
        render_site(config, self.root, root=str(self.root))
        (directory / "started").unlink()  # it was asked to compile the code
        (self.run / "jobs" / "7.0.0").mkdir(parents=True)
        if interpreter is None:
            python.unlink()

    def hook(self, name: str, comment: str | None = ASKS, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a hook on job 7."""
        given = {"SLURM_JOB_ID": "7", **({} if comment is None else {"SLURM_JOB_COMMENT": comment}), **environ}
        return run(self.root / "hooks" / name, given, self._directory)

    @property
    def started(self) -> list[str]:
        """The arguments of each start of the interpreter."""
        file = self._directory / "started"
        return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize("hook", GUARDS)
@pytest.mark.parametrize("code", [0, 75])
def test_what_passes(tmp_path: Path, hook: str, code: int) -> None:
    """0, and 75 for a bad node, are handed on; nothing is said."""
    site = Site(tmp_path, f"exit {code}")
    result = site.hook(hook)
    assert (result.returncode, result.stdout, result.stderr) == (code, "", "")
    assert site.started == [START.format(site.root, hook)]


OUR_FAILURES = {
    "no interpreter": (None, 127),
    "traceback": ("exit 1", 1),
    "wrong usage": ("exit 2", 2),
    "no permission": ("exit 126", 126),
    "killed for memory": ("kill -9 $$", 137),
    "segmentation fault": ("kill -11 $$", 139),
    "nearly 75": ("exit 76", 76),
    "the largest": ("exit 255", 255),
}


@pytest.mark.parametrize("hook", GUARDS)
@pytest.mark.parametrize(("interpreter", "code"), OUR_FAILURES.values(), ids=OUR_FAILURES.keys())
def test_our_own_failure(tmp_path: Path, hook: str, interpreter: str | None, code: int) -> None:
    """Whatever else happens becomes 0, and one line names the hook, the code and the job: Slurm drains nothing."""
    result = Site(tmp_path, interpreter).hook(hook)
    assert result.returncode == 0
    ours = [line for line in result.stderr.splitlines() if line.startswith("slurm_plugin: ")]
    assert ours == [f"slurm_plugin: the {hook} hook itself failed (exit {code}) on job 7; nothing was drained"]


def test_the_real_interpreter_fails(tmp_path: Path) -> None:
    """A broken deployment is logged with its traceback, and exits 0."""
    render_site(SiteConfig(run_directory=str(tmp_path / "run")), tmp_path / "site", root=str(tmp_path / "site"))
    (tmp_path / "site" / "compiled.json").write_text('{"v": 2}')
    result = run(tmp_path / "site/hooks/prolog", {"SLURM_JOB_ID": "7", "SLURM_JOB_COMMENT": ASKS}, tmp_path)
    assert result.returncode == 0
    assert "compiled.json: not a version 1 file; run: slurm-plugin site install --apply" in result.stderr
    assert result.stderr.splitlines()[-1].endswith("prolog hook itself failed (exit 1) on job 7; nothing was drained")


@pytest.mark.parametrize("hook", GUARDS)
@pytest.mark.parametrize("place", ["deep/site/slurm_plugin.pyz", "deep/site/compiled.json", "deep/site", "deep"])
@pytest.mark.parametrize("whose", ["writable", "a user's"])
def test_files_that_others_can_change(tmp_path: Path, hook: str, place: str, whose: str) -> None:
    """Nothing of ours runs from there: our own failure, with the path and what to do."""
    (tmp_path / "run/jobs/7.0.0").mkdir(parents=True)
    root = tmp_path / "deep/site"
    render_site(SiteConfig(run_directory=str(tmp_path / "run")), root, root=str(root))
    path = tmp_path / place
    if whose == "writable":
        path.chmod(path.stat().st_mode | 0o020)
    else:
        os.chown(path, USER, USER)
    result = run(root / "hooks" / hook, {"SLURM_JOB_ID": "7", "SLURM_JOB_COMMENT": ASKS}, tmp_path)
    assert result.returncode == 0
    said, last = result.stderr.splitlines()[-2:]
    mend = f"chown root:root {path} && chmod go-w {path}"
    assert said == f"PermissionError: others than root can change {path}; run: {mend}"
    assert last == f"slurm_plugin: the {hook} hook itself failed (exit 1) on job 7; nothing was drained"
    assert [*(tmp_path / "run/jobs/7.0.0").iterdir()] == []


def test_a_link_that_others_can_change(tmp_path: Path) -> None:
    """What stands above the name that a guard knows counts as well as what that leads to."""
    root = tmp_path / "open/link"
    render_site(SiteConfig(), tmp_path / "site", root=str(root))
    root.parent.mkdir()
    root.symlink_to(tmp_path / "site")
    given = {"SLURM_JOB_ID": "7", "SLURM_JOB_COMMENT": ASKS}
    root.parent.chmod(0o777)
    assert f"can change {tmp_path}/open;" in run(root / "hooks/prolog", given, tmp_path).stderr
    root.parent.chmod(0o755)
    assert "can change" not in run(root / "hooks/prolog", given, tmp_path).stderr


def test_verbs_of_users_look_at_no_owner(tmp_path: Path) -> None:
    """They run with the rights of whoever calls them."""
    render_site(SiteConfig(), tmp_path / "site", root=str(tmp_path / "site"))
    (tmp_path / "site/slurm_plugin.pyz").chmod(0o666)
    argv = [tmp_path / "site/bin/slurm-plugin", "hosts", "openmpi", "--nodelist=n[1-2]", "--slots=1"]
    assert subprocess.run(argv, capture_output=True, timeout=30, check=True).stdout == b"n1 slots=1\nn2 slots=1\n"


@pytest.mark.parametrize("hook", GUARDS)
def test_disabled(tmp_path: Path, hook: str) -> None:
    """The kill switch keeps the interpreter from being started at all, also where checks are mandatory."""
    site = Site(tmp_path, "exit 75", mandatory=True)
    (site.root / "DISABLED").touch()
    result = site.hook(hook)
    assert (result.returncode, result.stdout, result.stderr, site.started) == (0, "", "", [])


@pytest.mark.parametrize("hook", ["prolog", "epilog_slurmctld"])
@pytest.mark.parametrize("comment", [None, "", "my run", "sp1;retries=3", "[sp2;retries=3]", "[sp1]"])
def test_job_that_asks_nothing(tmp_path: Path, hook: str, comment: str | None) -> None:
    """A job without our mark starts no interpreter: it costs one sh."""
    site = Site(tmp_path, "exit 75")
    result = site.hook(hook, comment)
    assert (result.returncode, result.stdout, result.stderr, site.started) == (0, "", "", [])


def test_the_end_of_any_job_while_the_spool_holds_entries(tmp_path: Path) -> None:
    """A worker that was killed is missed at the end of the next job, whoever's it is; a lock alone is no entry."""
    site = Site(tmp_path, "exit 0")
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "lock").touch()
    (tmp_path / "spool" / "7.1.bad").touch()
    assert (site.hook("epilog_slurmctld", "my run").returncode, site.started) == (0, [])
    (tmp_path / "spool" / "9.1.json").touch()
    assert site.hook("epilog_slurmctld", "my run").returncode == 0
    assert len(site.started) == 1


def test_mandatory_checks(tmp_path: Path) -> None:
    """Where the site makes checks mandatory, the prolog runs for every job; the controller's hook still does not."""
    site = Site(tmp_path, "exit 75", mandatory=True)
    assert site.hook("prolog", None).returncode == 75
    assert site.hook("epilog_slurmctld", None).returncode == 0
    assert len(site.started) == 1


@pytest.mark.parametrize("partition", ["gpu", "big's", "a|b*", "g", "", None])
def test_partitions_whose_jobs_are_checked(tmp_path: Path, partition: str | None) -> None:
    """There the prolog runs for every job, elsewhere for those with our mark; the names are no patterns."""
    checked = ("gpu", "big's", "a|b*")
    site = Site(tmp_path, "exit 75", checks=checked)
    environ = {} if partition is None else {"SLURM_JOB_PARTITION": partition}
    assert site.hook("prolog", "my run", **environ).returncode == (75 if partition in checked else 0)
    assert site.hook("prolog", "my run", SLURM_JOB_PARTITION="a|bc").returncode == 0
    assert site.hook("prolog", **environ).returncode == 75
    assert site.hook("epilog_slurmctld", "my run", SLURM_JOB_PARTITION="gpu").returncode == 0


def test_epilog_follows_the_prolog(tmp_path: Path) -> None:
    """The epilog runs where our prolog left a directory of this job, whatever the comment has become, else not."""
    site = Site(tmp_path, "exit 0")
    site.hook("epilog", None)
    assert len(site.started) == 1
    for other in ("8", "70", "7.0.0"):
        site.hook("epilog", SLURM_JOB_ID=other)
    assert len(site.started) == 1


HOSTILE = [
    "$(touch x)",
    "`touch x`",
    "'; touch x; '",
    '"; touch x; "',
    "\ntouch x\n",
    "|touch x",
    "& touch x &",
    "*) touch x ;; esac",
    "\\",
    "-e",
    "%s%n",
    "\x1b]0;x\x07",
    "*?[a]~",
]


@pytest.mark.parametrize("hook", GUARDS)
@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("code", [0, 1])
def test_hostile_comment(tmp_path: Path, hook: str, text: str, code: int) -> None:
    """No comment is ever run, nor printed."""
    site = Site(tmp_path, f"exit {code}")
    result = site.hook(hook, f"{text}[sp1;retries=3]{text}")
    assert result.returncode == 0
    assert site.started == [START.format(site.root, hook)]
    assert not (tmp_path / "x").exists()
    assert "touch" not in result.stdout + result.stderr


def test_nothing_on_stdin(tmp_path: Path) -> None:
    """The program behind a guard cannot wait for input."""
    assert Site(tmp_path, "read line && exit 75\nexit 0").hook("prolog").returncode == 0


def test_periodic(tmp_path: Path) -> None:
    """It knows no job; whatever happens is 0 for Slurm, and one line says that it was us."""
    site = Site(tmp_path, "exit 1")
    result = run(site.root / "hooks/periodic", {"SLURMD_NODENAME": "n1"}, tmp_path)
    assert (result.returncode, len(site.started)) == (0, 1)
    assert result.stderr.endswith("slurm_plugin: the periodic hook itself failed (exit 1); nothing was drained\n")
    (site.root / "DISABLED").touch()
    result = run(site.root / "hooks/periodic", {"SLURMD_NODENAME": "n1"}, tmp_path)
    assert (result.returncode, result.stderr, len(site.started)) == (0, "", 1)
