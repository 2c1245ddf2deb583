"""The bash guards of the hooks, run as slurmd runs them: as root, with a bare environment and users' strings."""

import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.controller import requeue_worker
from slurm_plugin.controller.requeue_policy import Ended
from tests.unit.node.rendered import ASKS, Site
from tests.unit.node.running import run

NOBODY = 45454  # a user without processes
GUARDS = ("prolog", "epilog", "epilog_slurmctld")

START = (
    '-I -S -c import marshal, os, sys; sys.argv[0] = "{0}/slurm_plugin.pyz"; '
    "fd = os.open(sys.argv[0], os.O_RDONLY); own = fd if fd > 3 else "
    'next(n for n in range(4, 999) if not os.path.exists("/proc/self/fd/%d" % n)); '
    "fd == own or os.close(os.dup2(fd, own, False) and fd); "
    'sys.path.insert(0, "/proc/self/fd/%d" % own); head = os.pread(own, 65536, 39); '
    'head[:8] == sys.modules["_frozen_importlib_external"].MAGIC_NUMBER + '
    'os.fstat(own).st_size.to_bytes(4, "little") and (places := marshal.loads(head[8:])) and '
    '(exec(marshal.loads(os.pread(own, *places["slurm_plugin.node.archive_import"][:2]))) or '
    "sys.meta_path.insert(0, ArchiveImporter(own, places))); "
    "from slurm_plugin.__main__ import main; os._exit(main()) hook {1}"
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site of default settings, rendered once for all tests of this file."""
    return Site(tmp_path_factory.mktemp("plain"))


@pytest.fixture
def site(plain: Site) -> Iterator[Site]:
    """That site, as it was rendered."""
    yield plain
    (plain.root / "DISABLED").unlink(missing_ok=True)
    shutil.rmtree(plain.directory / "spool", ignore_errors=True)


@pytest.mark.parametrize("hook", GUARDS)
def test_what_passes(site: Site, hook: str) -> None:
    """The guard exits 0 or 75 like the hook, and prints nothing."""
    for code in (0, 75):
        site.interpreter(f"exit {code}")
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
def test_our_own_failure(site: Site, hook: str) -> None:
    """Any other exit code becomes 0, so Slurm drains nothing. One line names the hook, the code and the job."""
    for name, (interpreter, code) in OUR_FAILURES.items():
        site.interpreter(interpreter)
        result = site.hook(hook)
        assert result.returncode == 0, name
        ours = [line for line in result.stderr.splitlines() if line.startswith("slurm_plugin: ")]
        assert ours == [f"slurm_plugin: the {hook} hook itself failed (exit {code}) on job 7; nothing was drained"]


def no_processes() -> None:
    """Limit the user's processes, as under a pids limit. root has no limit."""
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


@pytest.mark.parametrize("shell", ["/bin/dash", pytest.param("/bin/bash", marks=pytest.mark.full)])  # 15 s
def test_no_process_can_be_made(site: Site, shell: str) -> None:
    """The shell ends with an error if it cannot fork, bash after 15 s. This becomes 0, with one line."""
    hooks = ("prolog", "epilog_slurmctld", "periodic")
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o711)  # unlike the directories of tests
        given = {"user": NOBODY, "env": {"SLURM_JOB_ID": "7", "SLURM_JOB_COMMENT": ASKS}, "preexec_fn": no_processes}
        for hook in hooks:
            Path(shutil.copy(site.root / "hooks" / hook, directory)).chmod(0o755)
        words = [[shell, f"{directory}/{hook}"] for hook in hooks]
        started = [subprocess.Popen(each, stderr=subprocess.PIPE, text=True, **given) for each in words]
        said = [each.communicate()[1] for each in started]
    for hook, done, text in zip(hooks, started, said, strict=True):
        assert done.returncode == 0, hook
        assert [line for line in text.splitlines() if f"the {hook} hook itself failed" in line]


@pytest.mark.parametrize("hook", [*GUARDS, "periodic"])
def test_few_files_can_be_opened(site: Site, hook: str) -> None:
    """dash cannot read a script then. A job without a token passes, and the program's 75 counts."""
    (site.directory / "python").write_text("#!/bin/bash\nexit 75\n")
    for most in (5, 10, 11):
        for comment, asks in ((ASKS, True), ("mine", hook in ("epilog", "periodic"))):
            words = ["/usr/bin/prlimit", f"--nofile={most}", site.root / "hooks" / hook]
            environ = {"SLURM_JOB_ID": "7", "SLURM_JOB_COMMENT": comment}
            done = subprocess.run(words, env=environ, check=False, capture_output=True)
            assert done.returncode == (75 if asks else 0), (most, comment, done.stderr)


def test_a_log_daemon_that_does_not_read(tmp_path: Path) -> None:
    """`logger` waits for it without a limit; the guard does not."""
    site = Site(tmp_path)
    site.interpreter("exit 1")
    hook, waits = site.root / "hooks/prolog", tmp_path / "logger"
    waits.write_text(f"#!/bin/sh\necho waits > {tmp_path}/waits\nexec sleep 3000\n")
    waits.chmod(0o755)
    hook.write_text(hook.read_text().replace("/usr/bin/logger", str(waits)))
    assert site.hook("prolog").returncode == 0
    assert (tmp_path / "waits").exists()


def test_the_end_of_a_run_is_told_twice(site: Site) -> None:
    """slurmctld calls its hook once for an end. If that was killed, the guard starts it again. Other hooks run once."""
    first = f"[ -e {site.directory}/killed ] || {{ touch {site.directory}/killed; kill -9 $$; }}\nexit 0"
    for hook, times in {"prolog": 1, "epilog": 1, "epilog_slurmctld": 2}.items():
        (site.directory / "killed").unlink(missing_ok=True)
        site.interpreter(first)
        assert site.hook(hook).returncode == 0
        assert len(site.started) == times, hook


def test_the_entry_of_an_end_survives_every_kill(site: Site) -> None:
    """The guard itself writes it, in the form that the worker reads, before any process starts that may be killed.

    Other jobs, and an end without nodes, get none.
    """
    spool = site.directory / "spool"
    site.interpreter("kill -9 $$")
    of_run = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_RESTART_COUNT": "2"}
    assert site.hook("epilog_slurmctld", **of_run).returncode == 0  # there is no spool yet
    spool.mkdir()
    for comment, environ, expected in (
        (ASKS, of_run, [Ended(7, 2, ("n1", "n2", "n3"))]),
        ("[sp1;retries=3;ib=auto;run=1;x=0]", {"SLURM_JOB_NODELIST": "n1"}, [Ended(7, 0, ("n1",))]),
        (ASKS, {}, []),
        ("[sp1;retries=0;ib=auto]", of_run, []),
        ("[sp1;retries=0]", of_run, []),
        ("my run", of_run, []),
        (None, of_run, []),
    ):
        assert site.hook("epilog_slurmctld", comment, **environ).returncode == 0
        found = [*requeue_worker.entries(spool)]
        assert found == expected, comment
        for each in found:
            requeue_worker.remove(spool, each)
    assert [*spool.iterdir()] == []


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site that makes checks mandatory."""
    return Site(tmp_path_factory.mktemp("strict"), mandatory=True)


@pytest.mark.parametrize("hook", GUARDS)
def test_disabled(strict: Site, hook: str) -> None:
    """The kill switch starts no interpreter, even with mandatory checks."""
    strict.interpreter("exit 75")
    (strict.root / "DISABLED").touch()
    result = strict.hook(hook)
    (strict.root / "DISABLED").unlink()
    assert (result.returncode, result.stdout, result.stderr, strict.started) == (0, "", "", [])


@pytest.mark.parametrize("hook", ["prolog", "epilog_slurmctld"])
def test_job_that_asks_nothing(site: Site, hook: str) -> None:
    """A job without a token starts no interpreter. It costs one bash."""
    site.interpreter("exit 75")
    for comment in (None, "", "my run", "sp1;retries=3", "[sp2;retries=3]", "[sp1]"):
        result = site.hook(hook, comment)
        assert (result.returncode, result.stdout, result.stderr, site.started) == (0, "", "", []), comment


def test_the_end_of_any_job_while_the_spool_holds_entries(site: Site) -> None:
    """The end of any job starts a new worker after a kill. A lock alone is no entry."""
    site.interpreter("exit 0")
    spool = site.directory / "spool"
    spool.mkdir()
    (spool / "lock").touch()
    (spool / "7.1.bad").touch()
    assert (site.hook("epilog_slurmctld", "my run").returncode, site.started) == (0, [])
    (spool / "9.1.json").touch()
    assert site.hook("epilog_slurmctld", "my run").returncode == 0
    assert len(site.started) == 1


def test_mandatory_checks(strict: Site) -> None:
    """With mandatory checks the prolog runs for every job, but the controller's hook does not."""
    strict.interpreter("exit 75")
    assert strict.hook("prolog", None).returncode == 75
    assert strict.hook("epilog_slurmctld", None).returncode == 0
    assert len(strict.started) == 1


def test_partitions_whose_jobs_are_checked(tmp_path: Path) -> None:
    """There the prolog runs for every job, elsewhere for jobs with a token; the names are no patterns."""
    checked = ("gpu", "big's", "a|b*")
    site = Site(tmp_path, checks=checked)
    site.interpreter("exit 75")
    for partition in (*checked, "g", "a|bc", "", None):
        environ = {} if partition is None else {"SLURM_JOB_PARTITION": partition}
        assert site.hook("prolog", "my run", **environ).returncode == (75 if partition in checked else 0), partition
        assert site.hook("prolog", **environ).returncode == 75, partition
    assert site.hook("epilog_slurmctld", "my run", SLURM_JOB_PARTITION="gpu").returncode == 0


def test_epilog_follows_the_prolog(site: Site) -> None:
    """The epilog runs only if the prolog has made a directory for this job, whatever the comment is now."""
    site.interpreter("exit 0")
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
def test_hostile_comment(site: Site, hook: str) -> None:
    """No comment is ever executed or printed."""
    for text in HOSTILE:
        for code in (0, 1):
            site.interpreter(f"exit {code}")
            result = site.hook(hook, f"{text}[sp1;retries=3]{text}")
            assert result.returncode == 0, text
            assert set(site.started) == {START.format(site.root, hook)}, text
            assert not (site.directory / "x").exists(), text
            assert "touch" not in result.stdout + result.stderr, text


def test_nothing_on_stdin(site: Site) -> None:
    """The hook's program cannot wait for input."""
    site.interpreter("read line && exit 75\nexit 0")
    assert site.hook("prolog").returncode == 0


def test_periodic(site: Site) -> None:
    """It has no job; any exit code becomes 0, and one line names the failure."""
    site.interpreter("exit 1")
    result = run(site.root / "hooks/periodic", {"SLURMD_NODENAME": "n1"}, site.directory)
    assert (result.returncode, len(site.started)) == (0, 1)
    assert result.stderr.endswith("slurm_plugin: the periodic hook itself failed (exit 1); nothing was drained\n")
    (site.root / "DISABLED").touch()
    result = run(site.root / "hooks/periodic", {"SLURMD_NODENAME": "n1"}, site.directory)
    assert (result.returncode, result.stderr, len(site.started)) == (0, "", 1)
