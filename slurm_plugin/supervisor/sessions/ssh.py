"""`job carry`: an ssh server on stdin and stdout of a step, as the end of an ssh ProxyCommand. No daemon and no port.

It is the node's own sshd, started by the user in inetd mode (sshd(8), -i) without root's rights, so it can only log
this user in. Only a user who has logged in to the cluster, and whom Slurm has let into the job, can reach it. So it
accepts any key of the client, and the client need not check the host's key. A session runs in the environment of the
job's program (slurm_plugin.supervisor.enter), and ends with the step.
"""

import argparse
import fcntl
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from prechecks import files
from slurm_plugin.errors import MissingError, UsageError
from slurm_plugin.records import launch_record, node_directory, open_program
from slurm_plugin.supervisor import enter
from slurm_plugin.supervisor.guard import processes

PLACES: Final = "/usr/sbin:/usr/local/sbin:/sbin"  # where systems have sshd
ECHOS: Final = ("/usr/bin/echo", "/bin/echo")  # sshd demands a path that only root can write
SFTPS: Final = tuple(f"{each}/sftp-server" for each in ("lib/openssh", "libexec/openssh", "lib/ssh", "libexec"))
KEY: Final = "ssh_host_key"
CONFIG: Final = "sshd_config"
KEYGEN_S: Final = 30.0
_PLAIN: Final = re.compile(r"[\w,.:+-]+", re.ASCII)  # a value that sshd_config takes without quotes


def server(environ: Mapping[str, str]) -> str:
    """Return the path of sshd on the PATH of the job's program, or of this machine; empty without one."""
    return shutil.which("sshd", path=f"{environ.get('PATH', '')}:{PLACES}") or ""


def main(options: argparse.Namespace) -> int:
    """Become the ssh server. With `--probe` only print that this machine has one. Raise MissingError if it has none."""
    launch = launch_record.read(Path(options.directory))
    worker = enter.existing_worker(launch, options.worker)
    program = server(launch.environ)
    if not program:
        raise MissingError(
            f"{launch.nodes[worker]} has no sshd, which this needs as a program, not as a service\n"
            "  an admin installs it there with the package openssh-server; or have one on the PATH of the job"
        )
    if options.probe:
        print(open_program.HAS_SSH, flush=True)
        return 0
    folder = node_directory.user_folder(launch.run_directory, launch.node_directory)
    _make_key(f"{folder}/{KEY}")
    own = enter.step_variables(os.environ)
    session = [*launch.slurm_plugin, "job", "enter", f"--directory={options.directory}", f"--worker={worker}"]
    text = configuration(folder, _user(), [*session, "--session"], own, _sftp(program))
    files.replace(f"{folder}/{CONFIG}", text, mode=0o600)
    words = [program, "-i", "-f", f"{folder}/{CONFIG}", "-E", f"{folder}/sshd.log"]
    try:
        os.execve(program, words, {**os.environ, **processes.SPARED})  # noqa: S606
    except OSError as error:
        raise MissingError(f"{program}: {error.strerror}") from error


def _sftp(program: str) -> str:
    """Return the path of the server for files that is installed with this sshd; empty without one."""
    paths = [Path(top, each) for top in (Path(program).parents[1], "/usr") for each in SFTPS]
    return next((str(path) for path in paths if path.exists()), "")


def configuration(folder: str, user: str, session: Sequence[str], variables: Mapping[str, str], sftp: str = "") -> str:
    """Return sshd's configuration. `session`: the command of each session; `variables`: what the session finds.

    Raise UsageError for a path with control characters.
    """
    echo = next(filter(os.path.exists, ECHOS), ECHOS[-1])
    command = shlex.join(session)
    if not f"{folder}{command}".isprintable():
        raise UsageError(f"{command!r}: found control characters; ssh needs paths without them")
    kept = [f"{name}={value}" for name, value in variables.items() if _PLAIN.fullmatch(value)]
    lines = [
        f"HostKey {folder}/{KEY}",
        "AuthorizedKeysFile none",
        f"AuthorizedKeysCommand {echo} %t %k",
        f"AuthorizedKeysCommandUser {user}",
        "AuthenticationMethods publickey",
        "PermitRootLogin yes",
        "StrictModes no",
        "PidFile none",
        "UseDNS no",
        "PrintMotd no",
        "X11Forwarding no",
        "AllowTcpForwarding local",  # -R would open a port on the node
        "StreamLocalBindMask 0177",
        "ClientAliveInterval 30",  # so that a step does not outlive a machine that fell asleep
        "ClientAliveCountMax 4",
        "LogLevel ERROR",
        *(f"Subsystem sftp {each}" for each in ([sftp] if sftp else ())),
        *([f"SetEnv {' '.join(kept)}"] if kept else ()),
        f"ForceCommand {command}",
    ]
    return "\n".join((*lines, ""))


def _make_key(path: str) -> None:
    """Make the host key of this run, once. Raise MissingError without ssh-keygen."""
    with Path(f"{path}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(path):  # noqa: PTH110
            return
        Path(f"{path}.new").unlink(missing_ok=True)  # of a step that was ended: ssh-keygen replaces no file
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", f"{path}.new"]
        try:
            subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=KEYGEN_S)
        except (OSError, subprocess.SubprocessError) as error:
            raise MissingError(f"ssh-keygen: {error}\n  it comes with the package openssh-client") from error
        Path(f"{path}.new").replace(path)


def _user() -> str:
    """Return this user's name. Raise MissingError if this machine has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError as error:
        raise MissingError(f"this node has no name for user {os.geteuid()}, and sshd needs one") from error
