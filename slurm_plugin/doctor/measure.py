"""What a machine of a site has: files, owners, times, answers. Judges nothing."""

import calendar
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from typing import Final

from slurm_plugin import archive, canary, compiled
from slurm_plugin.doctor.finding import Differences, Owned
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.site import fragment, render_site, trusted_interpreter
from slurm_plugin.siteconfig import SiteConfig, SiteFile
from slurm_plugin.slurm import HOOK_COMMANDS
from slurm_plugin.slurm.process import Result, run

DEADLINE_S: Final = 10.0
ENROOT_MOUNTS: Final = "/etc/enroot/mounts.d"
_VERSION = "import sys; print(*sys.version_info[:2])"


@dataclass(frozen=True, slots=True)
class Rendered:
    """A file or directory as this version renders it; a directory has no content."""

    content: bytes | None
    mode: int


def lines(site: SiteConfig, root: str) -> dict[str, str]:
    """The lines that slurm.conf needs, name -> value."""
    return dict(line.split("=", 1) for line in fragment(site, root).splitlines() if not line.startswith("#"))


def source(root: str, site_file: Path | None) -> SiteFile | None:
    """Where compiled.json should say that it comes from: the place that it names, with what the site file here holds.

    `site_file` is None where there is none here; then what it says is what it should.
    """
    try:
        known = compiled.read(root).get("site_file")
        said = SiteFile(**known) if known else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    if said is None or site_file is None:
        return said
    return said._replace(crc32=compiled.fingerprint(str(site_file)))


def canaries(root: str) -> str:
    """The nodes that the deployed site is on trial on; empty where it is not, or says nothing."""
    try:
        return canary.of(compiled.read(root))
    except (OSError, ValueError):
        return ""


def rendered(site: SiteConfig, root: str, site_file: SiteFile | None = None, canaries: str = "") -> dict[str, Rendered]:
    """The site directory as it should be, by name; itself is `.`. With `canaries` on trial on these nodes.

    Raises as render_site and on_trial do.
    """
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary, "site")
        render_site(canary.on_trial(site, canaries) if canaries else site, out, root=root, site_file=site_file)
        found = {
            str(path.relative_to(out)): Rendered(path.read_bytes() if path.is_file() else None, path.stat().st_mode)
            for path in (out, *sorted(out.rglob("*")))
        }
    if canaries:
        settings = found[compiled.FILE]
        found[compiled.FILE] = replace(settings, content=canary.marked(settings.content or b"", canaries))
    return found


def differences(root: Path, wanted: Mapping[str, Rendered]) -> Differences:
    """How the deployed directory differs from what it should be."""
    missing, changed, closed, exposed = [], [], [], []
    for name, should in wanted.items():
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
        if not _same(name, content, should.content):
            changed.append(name)
        if should.mode & ~found.st_mode & 0o555:
            closed.append(name)
        if found.st_uid != 0 or found.st_mode & 0o022:
            exposed.append(name)
    return Differences(tuple(missing), tuple(changed), tuple(closed), tuple(exposed))


def _same(name: str, found: bytes | None, should: bytes | None) -> bool:
    """Whether two files are the same; zips are where they hold the same code."""
    if name != compiled.ARCHIVE or found is None or should is None:
        return found == should
    return archive.code(found) == archive.code(should)


def leads(programs: Sequence[str], ours: str) -> bool | None:
    """Whether a link among these programs and patterns is ours, or a script names ours; None: not all can be read."""
    paths = [Path(path) for program in programs for path in glob(program)]  # noqa: PTH207 - absolute patterns
    unread = not paths
    for path in paths:
        try:
            if path.resolve() == Path(ours).resolve() or ours in path.read_text(encoding="utf-8", errors="replace"):
                return True
        except OSError:
            unread = True
    return None if unread else False


def is_controller(config: Mapping[str, str], host: str) -> bool:
    """Whether this host is one of `SlurmctldHost[0] = ctl(10.0.0.1)`, ..."""
    names = {value.partition("(")[0] for key, value in config.items() if key.startswith("SlurmctldHost")}
    return host in names or host.partition(".")[0] in {name.partition(".")[0] for name in names}


def boot(config: Mapping[str, str]) -> int | None:
    """When slurmctld started, in seconds of the epoch. The door asks for times in UTC."""
    try:
        return calendar.timegm(time.strptime(config.get("BOOT_TIME", ""), "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None


def changed_at(path: str) -> int | None:
    """When a file was changed last, in whole seconds of the epoch; None where it is not there."""
    try:
        return int(Path(path).stat().st_mtime)
    except OSError:
        return None


def there(path: str) -> bool | None:
    """Whether a file is there; None where that cannot be seen."""
    try:
        Path(path).stat()
    except PermissionError:
        return None
    except OSError:
        return False
    return True


def text(path: str) -> str | None:
    """A file's text; None where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def pyxis(config: Mapping[str, str]) -> bool:
    """Whether the plug-ins that srun and slurmd load here have pyxis among them (plugstack.conf, spank(7))."""
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
    """What every container of enroot mounts on this machine; None where it is not installed here."""
    if not there(ENROOT_MOUNTS):
        return None
    return "".join(text(path) or "" for path in sorted(glob(f"{ENROOT_MOUNTS}/*.fstab")))  # noqa: PTH207


def owned(path: str) -> Owned | str | None:
    """Who owns a directory; None where there is none, a text where it cannot be looked at."""
    try:
        found = Path(path).stat()
    except PermissionError as error:
        return str(error.strerror)
    except OSError:
        return None
    return Owned(found.st_uid, found.st_mode & 0o7777) if Path(path).is_dir() else None


def distrust(python: str) -> str:
    """Why root's hooks cannot trust this interpreter; empty where they can."""
    try:
        trusted_interpreter(Path(python))
    except SlurmPluginError as error:
        return str(error)
    return ""


def python_version(python: str) -> tuple[int, int] | None:
    """The version of an interpreter, run as hooks run it; None where it does not run."""
    try:
        said = _run([python, "-I", "-S", "-c", _VERSION])
    except OSError:
        return None
    found = re.fullmatch(r"(\d+) (\d+)\n", said.out)
    return (int(found[1]), int(found[2])) if found and said.code == 0 else None


def missing_commands(directory: str) -> tuple[str, ...]:
    """Which of the commands that hooks call are not in `directory`."""
    return tuple(name for name in HOOK_COMMANDS if not os.access(Path(directory, name), os.X_OK))


def munge(config: Mapping[str, str]) -> str | None:
    """Encode and decode once: empty where it works, what was said where not, None where munge is not installed."""
    encode, decode = shutil.which("munge"), shutil.which("unmunge")
    if not encode or not decode:
        return None
    found = re.search(r"(?:^|,)socket=([^,]+)", config.get("AuthInfo", ""))
    socket = ["--socket", found[1]] if found else []
    made = _run([encode, "--no-input", *socket])
    done = _run([decode, *socket], made.out) if made.code == 0 else made
    if done.code == 0:
        return ""
    said = (done.err or done.out).strip().splitlines()
    return said[0] if said else f"no answer in {DEADLINE_S:g} s"


def _run(argv: Sequence[str], given: str = "") -> Result:
    return run(argv, deadline_s=DEADLINE_S, environ=os.environ, text=given)
