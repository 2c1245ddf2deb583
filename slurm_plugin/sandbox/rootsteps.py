"""The steps that fill a root directory: Debian's base system, Slurm's packages, pyslurm.

Every tool runs in a separate mount and PID namespace, which ends with the tool or with this process. So its mounts are
never visible on this machine, and the kernel kills the processes that it leaves.
"""

import os
import platform
import re
import shutil
import signal
import subprocess
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from slurm_plugin.errors import MissingError, SlurmPluginError
from slurm_plugin.sandbox import daemons

# unshare ends with its caller, and the namespaces end with the child of unshare.
ALONE: Final = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount-proc", "--pid", "--fork", "--kill-child")
# The child is not the tool itself: apt-get changes its user, which clears its death signal (prctl(2)).
CHILD: Final = ("sh", "-c", '"$@"; exit $?', "sh")
SCRIPTS: Final = Path("/usr/share/debootstrap/scripts")
CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
TRUST: Final = "tmp/certificates.crt"  # in the root
HEADERS: Final = "tmp/pyslurm-headers"
PACKAGES: Final = (
    "slurm-wlm", "munge", "python3", "procps", "iproute2",
    "python3-click", "python3-jinja2", "python3-msgspec", "python3-rich", "python3-yaml",
)  # fmt: skip
BUILD_PACKAGES: Final = ("libslurm-dev", "python3-dev", "python3-venv", "gcc", "libc6-dev")
PYSLURM: Final = "25.11.2"
VENV: Final = "/opt/pyslurm"
# pyslurm 25.11 needs the headers of Slurm 25.11. With SLURM_BACKWARD_COMPAT the headers of 26.05 have that interface,
# except for the name of one function and the number of one error (slurm_errno.h of 25.11).
PYSLURM_RELEASE: Final = "0x190b00"
PYSLURM_CFLAGS: Final = (
    "-O0 -g0 -DSLURM_BACKWARD_COMPAT -Dslurm_free_ctl_conf=slurm_free_conf -DESLURM_ERROR_ON_DESC_TO_RECORD_COPY=2095"
)
# An expired Release file does no harm here. If a crash damages a root, `sandbox root` builds it again.
APT_CONF: Final = """\
Acquire::Check-Valid-Until "false";
APT::Install-Recommends "false";
Dpkg::Options { "--force-unsafe-io"; };
"""
NO_SERVICES: Final = "#!/bin/sh\nexit 101\n"  # policy-rc.d: "action forbidden by policy"
NO_QUESTIONS: Final = {"DEBIAN_FRONTEND": "noninteractive"}
PASSED_ON: Final = re.compile(r"(https?|ftp|no|all)_proxy|PIP_(EXTRA_)?INDEX_URL", re.IGNORECASE)
DEBOOTSTRAP_DEADLINE_S: Final = 1200.0
APT_DEADLINE_S: Final = 1200.0
PYSLURM_DEADLINE_S: Final = 1800.0
SHORT_DEADLINE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Root:
    """A root directory that is being built, and the open log of the tools."""

    directory: Path
    log: IO[bytes]

    def inside(self, argv: Sequence[str], deadline_s: float, env: Mapping[str, str] | None = None) -> None:
        """Run a command in the root, with a separate /proc."""
        self._run([f"--root={self.directory}", "--wd=/"], argv, deadline_s, env or {})

    def outside(self, argv: Sequence[str], deadline_s: float) -> None:
        """Run a command of this machine, with a separate /proc."""
        self._run([], argv, deadline_s, {})

    def _run(self, where: Sequence[str], argv: Sequence[str], deadline_s: float, env: Mapping[str, str]) -> None:
        """Run a command in new namespaces. `where`: options of unshare.

        Raises SlurmPluginError with the end of the log if the command fails or exceeds its deadline.
        """
        own = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
        own |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
        process = subprocess.Popen(
            [*ALONE, *where, *CHILD, *argv], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env=own | dict(env), start_new_session=True, cwd="/", umask=0o022,
        )  # fmt: skip
        said = ""
        try:
            code = process.wait(deadline_s)
            said = "" if code == 0 else f"exit {code}"
        except subprocess.TimeoutExpired:
            said = f"not done after {deadline_s:.0f} s"
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(SHORT_DEADLINE_S)
        if said:
            tail = textwrap.indent(daemons.tail(Path(self.log.name)), "    ")
            raise SlurmPluginError(
                f"{argv[0]}: {said}; {self.log.name} ends with\n{tail}\n  run the same command again"
            )


def host_mirror() -> str:
    """Return the mirror of this machine's release in the configuration of apt. Raise MissingError if there is none."""
    name, listed = "", ""
    with suppress(OSError):  # not Debian, or no apt
        name = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
        asked = ["apt-get", "update", "--print-uris"]  # reads only the configuration
        listed = subprocess.run(asked, capture_output=True, text=True, timeout=SHORT_DEADLINE_S, check=False).stdout
    # Security updates and other vendors have other suites. debootstrap supports only these URL schemes.
    found = re.search(rf"^'((?:https?://|file:)\S+)/dists/{re.escape(name)}/InRelease'", listed, re.MULTILINE)
    if found is None:
        raise MissingError(f"apt has no mirror of {name or 'a Debian release'}\n  run it with --mirror URL")
    return found[1]


def base_system(root: Root, suite: str, mirror: str) -> None:
    """Install Debian's smallest system, configured so that apt works and no service starts."""
    script = SCRIPTS / suite
    # The release may be newer than this machine's debootstrap. All releases of Debian use the script of sid.
    script = script if script.exists() else SCRIPTS / "sid"
    options = ["--variant=minbase", "--include=ca-certificates", "--force-check-gpg"]
    root.outside(
        ["debootstrap", *options, suite, str(root.directory), mirror, str(script)],
        DEBOOTSTRAP_DEADLINE_S,
    )
    policy = root.directory / "usr/sbin/policy-rc.d"
    policy.write_text(NO_SERVICES, encoding="utf-8")
    policy.chmod(0o755)
    (root.directory / "etc/apt/apt.conf.d/90slurm_plugin").write_text(APT_CONF, encoding="utf-8")
    for name in ("etc/resolv.conf", "etc/hosts"):
        shutil.copyfile(Path("/", name), root.directory / name)


def packages(root: Root, names: Sequence[str]) -> None:
    """Install packages with the root's own apt."""
    apt(root, "update")
    apt(root, "install", *names)
    apt(root, "clean")


def apt(root: Root, *words: str) -> None:
    """Run the root's own apt-get. Package names are exact, not patterns."""
    with trusted(root) as trust:
        options = ["-qy", "-oAPT::Cmd::Pattern-Only=true", *([f"-oAcquire::https::CAInfo={trust}"] if trust else [])]
        root.inside(["apt-get", *options, *words], APT_DEADLINE_S, NO_QUESTIONS)


def mend(root: Root) -> None:
    """Repair the packages after a killed apt-get. apt's lists must be up to date."""
    # This fails for packages that are not unpacked yet; apt unpacks them afterwards.
    root.inside(["sh", "-c", "dpkg --configure -a || true"], APT_DEADLINE_S, NO_QUESTIONS)
    apt(root, "--fix-broken", "install")


def pyslurm(root: Root) -> None:
    """Build pyslurm in a venv that also uses the root's own packages, so that slurm_plugin runs in it."""
    library = next((root.directory / "usr/lib").glob("*/libslurm.so"), None)
    if library is None:
        raise SlurmPluginError(f"{root.directory}/usr/lib holds no libslurm.so; libslurm-dev has it")
    libraries = "/" + str(library.parent.relative_to(root.directory))
    headers = root.directory / HEADERS
    shutil.copytree(root.directory / "usr/include/slurm", headers / "slurm", symlinks=True)
    version = headers / "slurm/slurm_version.h"
    version.write_text(as_release(version.read_text(encoding="utf-8"), PYSLURM_RELEASE), encoding="utf-8")
    root.inside(["python3", "-m", "venv", "--system-site-packages", VENV], SHORT_DEADLINE_S)
    env = {
        "SLURM_LIB_DIR": libraries,
        "SLURM_INCLUDE_DIR": f"/{HEADERS}",
        "PYSLURM_BUILD_JOBS": str(os.cpu_count() or 1),
        "LDFLAGS": f"-Wl,-rpath,{libraries}/slurm-wlm",
        "CFLAGS": PYSLURM_CFLAGS,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    pip = [f"{VENV}/bin/pip", "install", "--no-cache-dir", "--no-binary", "pyslurm", f"pyslurm=={PYSLURM}"]
    with trusted(root) as trust:
        root.inside(pip, PYSLURM_DEADLINE_S, env | ({"PIP_CERT": trust} if trust else {}))
    shutil.rmtree(headers)
    check = [f"{VENV}/bin/python3", "-c", "import pyslurm"]
    root.inside(check, SHORT_DEADLINE_S, {"PYSLURM_DISABLE_AUTO_INIT": "1"})  # the root has no slurm.conf


def slurm_version(root: Root) -> str:
    """Return the version that the root's slurmctld reports, such as `26.05.5`."""
    begin = root.log.seek(0, os.SEEK_END)
    root.inside(["slurmctld", "-V"], SHORT_DEADLINE_S)
    said = Path(root.log.name).read_bytes()[begin:].decode().split()
    if not said:
        raise SlurmPluginError("slurmctld -V prints nothing")
    return said[-1]


def as_release(header: str, number: str) -> str:
    """Return slurm_version.h with another release number. Raises SlurmPluginError if the header defines none."""
    text, count = re.subn(r"(#define\s+SLURM_VERSION_NUMBER\s+)0x[0-9a-f]+", rf"\g<1>{number}", header)
    if count != 1:
        raise SlurmPluginError("slurm_version.h of libslurm-dev defines no SLURM_VERSION_NUMBER")
    return text


@contextmanager
def trusted(root: Root) -> Iterator[str]:
    """Copy this machine's trusted certificates into the root, and yield their path there. Remove the copy at the end.

    The network of this machine may need more than Debian's. If this machine has none, yield an empty path.
    """
    if not CERTIFICATES.exists():
        yield ""
        return
    copy = root.directory / TRUST
    shutil.copyfile(CERTIFICATES, copy)
    try:
        yield f"/{TRUST}"
    finally:
        copy.unlink(missing_ok=True)
