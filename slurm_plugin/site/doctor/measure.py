"""Measure a machine: files, owners, times, output of programs. The module `judge` interprets the results."""

import calendar
import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Final

from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.records.site_settings import ARCHIVE
from slurm_plugin.site import archive
from slurm_plugin.site.doctor.judge import Differences, Owned
from slurm_plugin.site.files import DIRECTORY, Entry, fit_interpreter, trusted_interpreter
from slurm_plugin.slurm import HOOK_COMMANDS, Node, Slurm
from slurm_plugin.slurm.process import run

DEADLINE_S: Final = 10.0
ENROOT_MOUNTS: Final = "/etc/enroot/mounts.d"


def differences(root: Path, wanted: Mapping[str, Entry]) -> Differences:
    """Compare the deployed files with the rendered files."""
    missing, changed, closed, exposed = [], [], [], []
    for name, should in {".": DIRECTORY, **wanted}.items():
        path = root / name
        try:
            found = path.stat()
            content = None if path.is_dir() else path.read_bytes()
        except PermissionError:
            closed.append(name)
            continue
        except OSError:
            missing.append(name)
            continue
        if not archive.same(content, should.content) if name == ARCHIVE else content != should.content:
            changed.append(name)
        if should.mode & ~found.st_mode & 0o555:
            closed.append(name)
        if found.st_uid != 0 or found.st_mode & 0o022:
            exposed.append(name)
    return Differences(tuple(missing), tuple(changed), tuple(closed), tuple(exposed))


def leads(programs: Sequence[str], ours: str) -> bool | None:
    """Return whether one of these programs or patterns is a link to `ours` or a script that names it.

    Return None if no readable program does and some program cannot be read or found.
    """
    paths = [Path(path) for program in programs for path in glob(program)]  # noqa: PTH207 - absolute patterns
    unread = not paths
    for path in paths:
        try:
            if path.resolve() == Path(ours).resolve() or ours in path.read_text(encoding="utf-8", errors="replace"):
                return True
        except OSError:
            unread = True
    return None if unread else False


def is_controller(hosts: Iterable[str], host: str) -> bool:
    """Return whether this host is among the values of SlurmctldHost, such as `ctl(10.0.0.1)`."""
    names = {each.partition("(")[0].partition(".")[0] for each in hosts}
    return host.partition(".")[0] in names


def config(slurm: Slurm) -> Mapping[str, str]:
    """Return the settings of slurmctld; empty if it does not answer or Slurm's commands are missing."""
    try:
        return slurm.config()
    except SlurmPluginError:
        return {}


def nodes(slurm: Slurm) -> Mapping[str, Node]:
    """Return all nodes; empty if slurmctld does not answer or Slurm's commands are missing."""
    try:
        return slurm.nodes(())
    except SlurmPluginError:
        return {}


def boot(config: Mapping[str, str]) -> int | None:
    """Return the start of slurmctld in seconds since the epoch; None if unknown. Slurm's commands run with TZ=UTC."""
    try:
        return calendar.timegm(time.strptime(config.get("BOOT_TIME", ""), "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None


def changed_at(path: str) -> int | None:
    """Return the modification time of a file in whole seconds since the epoch; None if it cannot be read."""
    try:
        return int(Path(path).stat().st_mtime)
    except OSError:
        return None


def there(path: str) -> bool | None:
    """Return whether a file exists; None if this user may not see it."""
    try:
        Path(path).stat()
    except PermissionError:
        return None
    except OSError:
        return False
    return True


def text(path: str) -> str | None:
    """Return a file's text; None if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def pyxis(config: Mapping[str, str]) -> bool:
    """Return whether plugstack.conf on this machine loads pyxis (spank(7))."""
    path = config.get("PlugStackConfig") or str(
        Path(config.get("SLURM_CONF") or "/etc/slurm/x").with_name("plugstack.conf")
    )
    lines = (text(path) or "").splitlines()
    included = [line.split(None, 1)[1].strip() for line in lines if re.match(r"\s*include\s", line)]
    for pattern in included:
        for found in glob(str(Path(path).parent / pattern)):  # noqa: PTH207 - an absolute pattern
            lines += (text(found) or "").splitlines()
    return any("pyxis" in line.partition("#")[0] for line in lines)


def enroot_mounts() -> str | None:
    """Return the mounts of every enroot container on this machine; None if enroot is not installed."""
    if not there(ENROOT_MOUNTS):
        return None
    return "".join(text(path) or "" for path in sorted(glob(f"{ENROOT_MOUNTS}/*.fstab")))  # noqa: PTH207


def owned(path: str) -> Owned | str | None:
    """Return the owner of a directory; None if there is no such directory; the error as text if it cannot be seen."""
    try:
        found = Path(path).stat()
    except PermissionError as error:
        return str(error.strerror)
    except OSError:
        return None
    return Owned(found.st_uid, found.st_mode & 0o7777) if Path(path).is_dir() else None


def interpreter(python: str) -> tuple[int, int] | str:
    """Return the version of the hooks' interpreter, or why hooks cannot use it and what to do."""
    try:
        trusted_interpreter(Path(python))
        return fit_interpreter(python)
    except SlurmPluginError as error:
        return str(error)


def has_psutil(python: str) -> bool:
    """Return whether an interpreter can import psutil."""
    try:
        return run([python, "-I", "-c", "import psutil"], deadline_s=DEADLINE_S, environ={}).code == 0
    except OSError:
        return False


def missing_commands(directory: str) -> tuple[str, ...]:
    """Return the commands of the hooks that `directory` lacks."""
    return tuple(name for name in HOOK_COMMANDS if not os.access(Path(directory, name), os.X_OK))


def munge(config: Mapping[str, str]) -> str | None:
    """Encode and decode a credential. Return the error, empty if there is none; None if munge is not installed."""
    encode, decode = shutil.which("munge"), shutil.which("unmunge")
    if not encode or not decode:
        return None
    found = re.search(r"(?:^|,)socket=([^,]+)", config.get("AuthInfo", ""))
    socket = ["--socket", found[1]] if found else []
    done = run([encode, "--no-input", *socket], deadline_s=DEADLINE_S, environ=os.environ)
    if done.code == 0:
        done = run([decode, *socket], deadline_s=DEADLINE_S, environ=os.environ, text=done.out)
    if done.code == 0:
        return ""
    said = (done.err or done.out).strip().splitlines()
    return said[0] if said else f"no answer in {DEADLINE_S:g} s"
