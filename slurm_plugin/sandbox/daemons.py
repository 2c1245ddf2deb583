"""Slurm's daemons on the machines of a sandbox: start, wait for, resume and restart them.

A restart keeps homes, configuration and Slurm's state.
"""

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.sandbox import machine, network
from slurm_plugin.sandbox.network import Network

# A busy machine needs a minute. Only a hang takes longer than these deadlines.
READY_DEADLINE_S: Final = 180.0
START_S: Final = 20.0  # until a process has the name of its program
RESUME_DEADLINE_S: Final = 120.0
STOP_DEADLINE_S: Final = 60.0
USABLE: Final = frozenset({"idle", "mixed", "allocated", "completing"})
# The file that exists if slurmdbd is part of the sandbox, below its directory.
SLURMDBD_CONF: Final = Path("etc/slurm/slurmdbd.conf")
ACCOUNT: Final = "lab"
# The path that slurmdbd's client library uses, in the controller's private /run.
DATABASE_SOCKET: Final = "/run/mysqld/mysqld.sock"
# Small files and no wait for the disk. slurmdbd wants the long wait for locks.
MARIADB: Final = (
    "--no-defaults", "--skip-networking", f"--socket={DATABASE_SOCKET}", "--innodb-lock-wait-timeout=900",
    "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M", "--innodb-flush-log-at-trx-commit=0",
)  # fmt: skip
WAITING: Final = frozenset({"idle*", "mixed*", "allocated*", "completing*", "unknown"})  # slurmd does not answer yet


def start_munged(directory: Path, pid: int) -> None:
    """Start munged, as the user munge, on the controller whose PID 1 is `pid`."""
    munge, socket = directory / "munge", directory / "run/munge/socket"
    _start(
        machine.enter_argv(
            pid,
            [
                "munged", f"--key-file={munge}/key", f"--socket={socket}", f"--pid-file={munge}/pid",
                f"--log-file={munge}/log", f"--seed-file={munge}/seed",
            ],
            user="munge",
        ),
        munge / "log",
    )  # fmt: skip


def start_accounting(directory: Path, pid: int, users: Sequence[str] = ()) -> None:
    """Start MariaDB and slurmdbd, as SlurmUser, on the controller whose PID 1 is `pid`, unless they run.

    If there is no database yet, make it, with an account for `users`. Raises SlurmPluginError.
    """
    data, log = directory / "database", directory / "log/mariadb.log"
    new = not (data / "mysql").is_dir()
    where = f"--datadir={data}"
    if new:
        install = ["mariadb-install-db", "--no-defaults", where, "--auth-root-authentication-method=socket"]
        _start(
            machine.enter_argv(pid, [*install, "--auth-root-socket-user=slurm", "--skip-test-db"], user="slurm"), log
        )
    if not machine.children(pid, "mariadbd"):
        _start(machine.enter_argv(pid, ["install", "-d", "-o", "slurm", str(Path(DATABASE_SOCKET).parent)]), log)
        # mariadbd stays in the foreground.
        detached = ["sh", "-c", f'exec setsid --fork mariadbd "$@" >>{log} 2>&1', "sh", *MARIADB, where]
        _start(machine.enter_argv(pid, detached, user="slurm"), log)
    _until(lambda: _listens(machine.inside(pid, DATABASE_SOCKET)), pid, "mariadbd", log)
    if new:  # slurmdbd 24.11 that makes the database itself fails with MariaDB 11.8
        create = ["mariadb", "--no-defaults", f"--socket={DATABASE_SOCKET}", "-e", "CREATE DATABASE slurm_acct_db"]
        _start(machine.enter_argv(pid, create, user="slurm"), log)
    if not machine.children(pid, "slurmdbd"):
        _start(machine.enter_argv(pid, ["slurmdbd"], user="slurm"), directory / "log/slurmdbd.log")
    answers = machine.enter_argv(pid, ["sacctmgr", "show", "cluster"])
    _until(lambda: machine.run(answers).returncode == 0, pid, "slurmdbd", directory / "log/slurmdbd.log")
    if new:
        for words in (("cluster", "sandbox"), ("account", ACCOUNT), ("user", ",".join(users), f"account={ACCOUNT}")):
            argv = machine.enter_argv(pid, ["sacctmgr", "--immediate", "add", *words])
            _start(argv, directory / "log/slurmdbd.log")


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def _until(ready: Callable[[], bool], pid: int, comm: str, log: Path) -> None:
    """Wait for a daemon. Raises SlurmPluginError with the end of its log, after START_S if it does not run."""
    begin = time.monotonic()
    deadline = begin + READY_DEADLINE_S
    while not ready():
        ended = time.monotonic() > begin + START_S and not machine.children(pid, comm)
        if ended or time.monotonic() > deadline:
            what = "has ended" if ended else f"does not answer after {READY_DEADLINE_S:.0f} s"
            raise SlurmPluginError(f"{comm} {what}; {log} ends with:\n{tail(log)}")
        time.sleep(0.1)


def start_slurmctld(directory: Path, pid: int) -> None:
    """Start slurmctld, as SlurmUser, on the controller whose PID 1 is `pid`."""
    _start(machine.enter_argv(pid, ["slurmctld"], user="slurm"), directory / "log/slurmctld.log")


def start_slurmd(directory: Path, name: str, pid: int) -> None:
    """Start slurmd on the node `name`, whose PID 1 is `pid`."""
    _start(machine.enter_argv(pid, ["slurmd"]), directory / "log" / f"{name}.log")


def node_states(ctl: int) -> dict[str, str]:
    """Return Slurm's state of each node; nothing if slurmctld does not answer."""
    done = machine.run(machine.enter_argv(ctl, ["sinfo", "-h", "-N", "-o", "%N %T"]))
    rows = (line.split() for line in done.stdout.splitlines()) if done.returncode == 0 else ()
    return {row[0]: row[1] for row in rows if len(row) == 2}


def wait_until_ready(directory: Path, ctl: int, names: Sequence[str], *, idle: bool) -> None:
    """Wait until slurmctld answers and every node is idle. If not `idle`, wait only until every node answers.

    Raises SlurmPluginError with the end of the log of the daemon that is late.
    """
    deadline = time.monotonic() + READY_DEADLINE_S
    while True:
        states = node_states(ctl)
        waiting = [
            name
            for name in names
            if (state := states.get(name, "unknown")) != "idle" and (idle or state.endswith(("*", "unknown")))
        ]
        if states and not waiting:
            return
        if time.monotonic() > deadline:
            log = directory / "log" / (f"{waiting[0]}.log" if states else "slurmctld.log")
            wanted = "idle" if idle else "answering"
            what = f"{len(waiting)} of {len(names)} nodes are not {wanted}, {waiting[0]} is"
            what = f"{what} {states.get(waiting[0], 'unknown')}" if states else "slurmctld does not answer"
            raise SlurmPluginError(f"after {READY_DEADLINE_S:.0f} s {what}; {log} ends with:\n{tail(log)}")
        time.sleep(0.1)


def resume(ctl: int, name: str) -> None:
    """Wait until a node answers, and resume it as an admin would. Raises SlurmPluginError if it is not usable."""
    deadline = time.monotonic() + RESUME_DEADLINE_S
    while (state := node_states(ctl).get(name, "unknown")) not in USABLE:
        if time.monotonic() > deadline:
            raise SlurmPluginError(f"{name} is still {state} after {RESUME_DEADLINE_S:.0f} s; look at sandbox status")
        if state not in WAITING:
            machine.run(machine.enter_argv(ctl, ["scontrol", "update", f"nodename={name}", "state=resume"]))
        time.sleep(0.2)


def running(name: str, pids: Mapping[str, int]) -> bool:
    """Return whether the machine and its daemon run."""
    pid = pids.get(name)
    return pid is not None and bool(machine.children(pid, "slurmctld" if name == "ctl" else "slurmd"))


def restart(directory: Path, subnet: Network, names: Sequence[str]) -> None:
    """Restart the daemons of these machines, the controller's first. Start machines that are dead."""
    for name in sorted(names, key=lambda name: name != "ctl"):
        pids = machine.find(directory)
        if name == "ctl":
            restart_controller(directory, subnet, pids)
        elif "ctl" not in pids:
            raise SlurmPluginError("the controller's machine is dead, and the network with it: restart ctl first")
        elif name in pids:
            stop(pids[name], "slurmd")
            start_slurmd(directory, name, pids[name])
        else:
            restart_node(directory, name, subnet, pids["ctl"])
    nodes = [name for name in names if name != "ctl"]
    wait_until_ready(directory, machine.find(directory)["ctl"], nodes, idle=False)


def restart_controller(directory: Path, subnet: Network, pids: Mapping[str, int]) -> None:
    """Restart slurmctld, and start munged and the accounting if they do not run.

    If the machine is dead, first start and connect it.
    """
    pid = pids.get("ctl") or _restart_controller_machine(directory, subnet, pids)
    stop(pid, "slurmctld")
    if not machine.children(pid, "munged"):
        start_munged(directory, pid)
    if (directory / SLURMDBD_CONF).exists():
        start_accounting(directory, pid)
    start_slurmctld(directory, pid)


def restart_node(directory: Path, name: str, subnet: Network, ctl: int) -> None:
    """Start a dead node as an empty machine with its old name and address."""
    known = machine.load_spec(directory, name)
    pid = machine.start(directory, known)
    network.remove_link(name, ctl)
    network.connect_nodes(ctl, {name: pid}, {name: known.address}, subnet)
    start_slurmd(directory, name, pid)


def stop(pid: int, comm: str) -> None:
    """Stop a daemon as its service manager would. The jobs on the machine continue."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + STOP_DEADLINE_S
        for daemon_pid in machine.children(pid, comm):
            with suppress(ProcessLookupError):
                os.kill(daemon_pid, number)
        while machine.children(pid, comm) and time.monotonic() < deadline:
            time.sleep(0.02)
    if left := machine.children(pid, comm):
        raise SlurmPluginError(f"{comm} does not end; look at /proc/{left[0]}/stack")


def _restart_controller_machine(directory: Path, subnet: Network, pids: Mapping[str, int]) -> int:
    """Start the controller's machine, and connect all nodes again: the old bridge and its cables are gone."""
    network.remove_link(network.host_link(directory))
    for pid in pids.values():
        network.remove_link("eth0", pid)
    known = machine.load_spec(directory, "ctl")
    ctl = machine.start(directory, known)
    network.connect_controller(directory, ctl, known.address, subnet)
    network.connect_nodes(ctl, pids, {name: machine.load_spec(directory, name).address for name in pids}, subnet)
    return ctl


def _start(argv: list[str], log: Path) -> None:
    done = machine.run(argv)
    if done.returncode != 0:
        said = (done.stderr + done.stdout).strip()
        raise SlurmPluginError(f"{log.stem} did not start: {said}\n{log} ends with:\n{tail(log)}")


def tail(path: Path) -> str:
    """Return the last lines of a log, or why it cannot be read."""
    try:
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
    except OSError as error:
        return str(error)
