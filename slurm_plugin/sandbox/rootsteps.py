"""The steps that fill a root directory: Debian's base system, Slurm's packages, pyslurm.

Every tool runs in a mount and PID namespace of its own, which ends with it: what it mounts is never seen on this
machine, what it leaves running is killed, and both also hold where this process is killed.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from slurm_plugin.errors import SlurmPluginError

# Ends with its caller; the namespaces end with its child.
ALONE: Final = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount-proc", "--pid", "--fork", "--kill-child")
# That child: not the tool itself, as apt-get changes its user for a moment and then outlives its parent (prctl(2)).
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
# pyslurm 25.11 wants the headers of its own release. Those of 26.05 keep that interface behind SLURM_BACKWARD_COMPAT,
# all but one function's name and one error's number, which slurm_errno.h of 25.11 has.
PYSLURM_RELEASE: Final = "0x190b00"
PYSLURM_CFLAGS: Final = (
    "-O0 -g0 -DSLURM_BACKWARD_COMPAT -Dslurm_free_ctl_conf=slurm_free_conf -DESLURM_ERROR_ON_DESC_TO_RECORD_COPY=2095"
)
# An old Release file is no reason to fail here, and a root that a crash spoils is built again.
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
TAIL_LINES: Final = 15


@dataclass(frozen=True, slots=True)
class Root:
    """A root directory in the making, and the open log of the tools that make it."""

    directory: Path
    log: IO[bytes]

    def inside(self, argv: Sequence[str], deadline_s: float, env: Mapping[str, str] | None = None) -> None:
        """Run a command in the root, with a /proc of its own."""
        self._run([f"--root={self.directory}", "--wd=/"], argv, deadline_s, env or {})

    def outside(self, argv: Sequence[str], deadline_s: float) -> None:
        """Run a command of this machine, with a /proc of its own."""
        self._run([], argv, deadline_s, {})

    def _run(self, where: Sequence[str], argv: Sequence[str], deadline_s: float, env: Mapping[str, str]) -> None:
        """Run a command in namespaces of its own; `where` are options of unshare.

        Raises SlurmPluginError with the end of the log when it fails or takes longer than its deadline.
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
            raise SlurmPluginError(
                f"{argv[0]}: {said}; {self.log.name} ends with\n{self.tail()}\n  run the same command again"
            )

    def tail(self) -> str:
        """The last lines of the log, indented."""
        lines = Path(self.log.name).read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in lines[-TAIL_LINES:])


def base_system(root: Root, suite: str, mirror: str) -> None:
    """Debian's smallest system, set up so that apt works in it and no service starts."""
    script = SCRIPTS / suite
    # A release younger than this machine's debootstrap; all of Debian's use the script of sid.
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
    """Run the root's own apt-get; a name means the package of that name, no pattern."""
    with trusted(root) as trust:
        options = ["-qy", "-oAPT::Cmd::Pattern-Only=true", *([f"-oAcquire::https::CAInfo={trust}"] if trust else [])]
        root.inside(["apt-get", *options, *words], APT_DEADLINE_S, NO_QUESTIONS)


def mend(root: Root) -> None:
    """Bring what an apt-get that was killed has left to its end; apt's lists must be up to date."""
    # It fails where something is not unpacked yet; that is apt's to do, and only after this.
    root.inside(["sh", "-c", "dpkg --configure -a || true"], APT_DEADLINE_S, NO_QUESTIONS)
    apt(root, "--fix-broken", "install")


def pyslurm(root: Root) -> None:
    """pyslurm in a venv that also sees the root's own packages, so that slurm_plugin runs in it."""
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
    root.inside(check, SHORT_DEADLINE_S, {"PYSLURM_DISABLE_AUTO_INIT": "1"})  # there is no slurm.conf here to read


def slurm_version(root: Root) -> str:
    """`26.05.5`: what the root's own slurmctld says it is."""
    begin = root.log.seek(0, os.SEEK_END)
    root.inside(["slurmctld", "-V"], SHORT_DEADLINE_S)
    said = Path(root.log.name).read_bytes()[begin:].decode().split()
    if not said:
        raise SlurmPluginError("slurmctld -V says nothing")
    return said[-1]


def as_release(header: str, number: str) -> str:
    """slurm_version.h that claims another release. Raises SlurmPluginError where it claims none."""
    text, count = re.subn(r"(#define\s+SLURM_VERSION_NUMBER\s+)0x[0-9a-f]+", rf"\g<1>{number}", header)
    if count != 1:
        raise SlurmPluginError("slurm_version.h of libslurm-dev defines no SLURM_VERSION_NUMBER")
    return text


@contextmanager
def trusted(root: Root) -> Iterator[str]:
    """Path in the root of the certificates that this machine trusts; its network may need more than Debian's.

    Empty where this machine has none; removed again at the end.
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
