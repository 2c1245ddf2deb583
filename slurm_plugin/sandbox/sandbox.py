"""A real Slurm with several machines on this host: up, down, status, run, break, heal, restart."""

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.sandbox import build, config, daemons, faults, machine, network, store
from slurm_plugin.sandbox.image import USERS
from slurm_plugin.sandbox.machine import Bind
from slurm_plugin.sandbox.store import Shape

MAX_NODES, MAX_GPUS = 1000, 64


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """The status of a machine. `pid`: its PID 1 on the host, None if the machine is dead. `state`: Slurm's."""

    name: str
    pid: int | None
    address: str
    daemon_alive: bool
    state: str
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a sandbox. `up`: slurmctld runs. `machines` is empty if no `up` has finished."""

    directory: str
    up: bool
    machines: tuple[MachineStatus, ...]


class Sandbox:
    """The sandbox in a directory. Every method reads the current state of the machines."""

    def __init__(self, directory: Path = store.DEFAULT_DIRECTORY) -> None:
        """Start nothing. Raise UsageError if the directory cannot hold a sandbox."""
        store.check_directory(directory)
        self.directory = directory
        self._pids: dict[str, int] = {}  # checked before each use

    def up(
        self,
        nodes: int = 4,
        gpus: int = 4,
        root: Path | None = None,
        binds: Iterable[Bind] = (),
        *,
        hooks: bool = True,
        accounting: bool = False,
    ) -> bool:
        """Start the sandbox and wait until every node is idle. Return False if it was up already.

        First remove the remains of an interrupted start. If this start fails, remove the directory. `hooks=False`
        builds a Slurm without our hooks, `accounting` one with slurmdbd and MariaDB. Raise SlurmPluginError if a
        different sandbox exists there.
        """
        if not (1 <= nodes <= MAX_NODES and 0 <= gpus <= MAX_GPUS):
            raise UsageError(f"{nodes} nodes x {gpus} GPUs: accepted are 1-{MAX_NODES} nodes with 0-{MAX_GPUS} GPUs")
        plan = build.Plan(self.directory, nodes, gpus, root or Path("/"), tuple(binds), hooks, accounting)
        build.require(plan)
        with build.umask(), store.locked(self.directory):
            shape = store.read_shape(self.directory)
            if shape:
                up = daemons.running("ctl", machine.find(self.directory))
                same = shape == Shape(nodes, gpus, str(plan.root), shape.network, hooks, accounting)
                if up and same:
                    return False
                raise SlurmPluginError(self._standing(shape, up=up))
            self._clear()
            try:
                build.build(plan)
            except BaseException:
                self._clear()
                store.remove(self.directory)
                raise
        return True

    def _standing(self, shape: Shape, *, up: bool) -> str:
        """Return the error for an `up` that would remove homes and configuration."""
        has = (
            f"{shape.nodes} nodes x {shape.gpus} GPUs, root {shape.root}, {'our' if shape.hooks else 'no'} hooks,"
            f" {'with' if shape.accounting else 'no'} accounting;"
            " its homes and configuration stay"
        )
        again = "" if up else f"\n  to have it back as it was, run: {store.command(self.directory, 'restart')}"
        state = "is up" if up else "was up, and its controller does not run:"
        away = f"\n  to remove it, the homes in it included, run: {store.command(self.directory, 'down')}"
        return f"{self.directory} {state} with {has}{again}{away}"

    def restart(self, names: Iterable[str] = ()) -> tuple[str, ...]:
        """Restart the daemons of these machines; without names, of all machines without a daemon. Return their names.

        Start a dead machine again; a node is then empty. Keep homes, configuration, Slurm's state and jobs.
        """
        with build.umask(), store.locked(self.directory):
            shape, pids = self._shape(), machine.find(self.directory)
            machines = tuple(self._addresses(shape))
            wanted = tuple(names) or tuple(name for name in machines if not daemons.running(name, pids))
            for name in wanted:
                if name not in machines:
                    raise self._no_machine(name, shape)
            if wanted:
                daemons.restart(self.directory, network.Network(shape.network), wanted)
        return wanted

    def down(self) -> bool:
        """End every machine and remove the directory with its homes. Return False if there was no sandbox."""
        if not store.exists(self.directory) and not machine.find(self.directory):
            return False
        with store.locked(self.directory):
            self._clear()
            store.remove(self.directory)
        return True

    def status(self) -> Status:
        """Return the status of every machine."""
        shape = store.read_shape(self.directory)
        if shape is None:
            return Status(str(self.directory), up=False, machines=())
        pids = machine.find(self.directory)
        states = self.states()
        found = []
        for name, address in self._addresses(shape).items():
            pid = pids.get(name)
            alive = daemons.running(name, pids)
            here = () if name == "ctl" else faults.active(self._node(name, shape, pids))
            state = "" if name == "ctl" else states.get(name, "unknown")
            found.append(MachineStatus(name, pid, address, alive, state, here))
        return Status(str(self.directory), daemons.running("ctl", pids), tuple(found))

    def states(self) -> dict[str, str]:
        """Return Slurm's state of each node (`idle`, `down*`); empty if the controller is dead or does not answer."""
        pid = machine.find(self.directory).get("ctl")
        return {} if pid is None else daemons.node_states(pid)

    def environment(self) -> dict[str, str]:
        """Return the variables that make `sbatch` and other commands on the host use this sandbox."""
        shape = self._shape()
        found = {"SLURM_CONF": str(self.directory / "etc/slurm/slurm.conf")}
        if shape.root != "/":  # wrappers run the commands of another release in the controller
            found["PATH"] = f"{self.directory / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}"
        return found

    def route_to_host(self) -> None:
        """Let programs in the machines reach this host by each of its own addresses, until a machine's link is cut."""
        network.route_to_host(machine.find(self.directory).values(), network.Network(self._shape().network))

    def home(self, user: str) -> Path:
        """Return the path of a user's home on the host."""
        return self.directory / "home" / user

    def argv(self, argv: Sequence[str], user: str = "alice", node: str = "ctl", directory: str = "") -> list[str]:
        """Return the host's command that runs `argv` in a machine."""
        if user not in (*USERS, "root", "slurm"):
            raise UsageError(f"no user {user!r} in the sandbox: {', '.join(USERS)} and root are accepted")
        home = machine.environment(user, {})["HOME"] if user != "slurm" else "/"
        return machine.enter_argv(self._pid(node), argv, user=user, directory=directory or home)

    def visible(self, path: Path, node: str = "ctl") -> str:
        """Return `path` if it is the same directory in the machine; else an empty text."""
        try:
            return str(path) if path.samefile(machine.inside(self._pid(node), str(path))) else ""
        except OSError:
            return ""

    def run(
        self,
        argv: Sequence[str],
        user: str = "alice",
        node: str = "ctl",
        *,
        check: bool = True,
        timeout: float = 300.0,
        input: str = "",  # noqa: A002 - as in subprocess.run
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a machine, in the user's home.

        Raise SlurmPluginError if it fails and `check` is set, subprocess.TimeoutExpired after killing its processes.
        """
        process = self.popen(
            argv, user, node, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        with process:
            try:
                out, err = process.communicate(input, timeout=timeout)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        done = subprocess.CompletedProcess(list(argv), process.returncode, out, err)
        if check and done.returncode != 0:
            raise SlurmPluginError(f"{' '.join(argv)}: exit {done.returncode}\n{out}{err}".rstrip())
        return done

    def popen(
        self,
        argv: Sequence[str],
        user: str = "alice",
        node: str = "ctl",
        *,
        env: Mapping[str, str] | None = None,
        stdin: int | IO[Any] | None = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
    ) -> "subprocess.Popen[str]":
        """Start a command in a machine, in a new process group. To end the command, kill that group."""
        environ = machine.environment(user, os.environ) | dict(env or {})
        return subprocess.Popen(
            self.argv(argv, user, node), env=environ, stdin=stdin, stdout=stdout, stderr=stderr,
            text=True, errors="surrogateescape", start_new_session=True, cwd="/", umask=build.UMASK,
        )  # fmt: skip

    def break_node(self, node: str, fault: str) -> None:
        """Inject a fault into a node."""
        if fault not in faults.FAULTS:
            raise UsageError(f"no fault {fault!r}; accepted are: {', '.join(faults.FAULTS)}")
        with store.locked(self.directory):
            target = self._node(node, self._shape(), machine.find(self.directory))
            faults.FAULTS[fault].make(target)

    def heal_node(self, node: str, *, resume: bool = False) -> tuple[str, ...]:
        """Undo every fault on a node and return the names of the faults.

        Do not undo Slurm's reactions, such as a drain. With `resume` also resume the node.
        """
        with build.umask(), store.locked(self.directory):
            shape, ctl = self._shape(), self._pid("ctl")
            found = self._node(node, shape, machine.find(self.directory))
            had = faults.active(found)
            if found.pid is None:
                daemons.restart_node(self.directory, node, network.Network(shape.network), ctl)
            for name in had:
                mend = faults.FAULTS[name].mend
                if mend is not None:
                    mend(found)
            if "slurmd-dead" in had:
                daemons.start_slurmd(self.directory, node, found.root())
        if resume:
            daemons.resume(ctl, node)
        return had

    def _clear(self) -> None:
        machine.end_all(self.directory)
        network.remove_link(network.host_link(self.directory))
        store.empty(self.directory)

    def _shape(self) -> Shape:
        shape = store.read_shape(self.directory)
        if shape is None:
            again = store.command(self.directory, "up")
            raise SlurmPluginError(f"no sandbox is up in {self.directory}\n  run: {again}")
        return shape

    def _addresses(self, shape: Shape) -> dict[str, str]:
        return network.addresses(network.Network(shape.network), shape.nodes)

    def _pid(self, name: str) -> int:
        shape = self._shape()
        if name not in self._addresses(shape):
            raise self._no_machine(name, shape)
        known = self._pids.get(name)
        if known is not None and machine.name_of(known, self.directory) == name:
            return known
        self._pids = machine.find(self.directory)
        pid = self._pids.get(name)
        if pid is None:
            again = store.command(self.directory, f"restart {name}")
            raise SlurmPluginError(f"{name} is dead\n  run: {again}")
        return pid

    def _no_machine(self, name: str, shape: Shape) -> UsageError:
        return UsageError(f"no machine {name!r} in the sandbox: ctl and n1 to n{shape.nodes} are accepted")

    def _node(self, name: str, shape: Shape, pids: Mapping[str, int]) -> faults.Node:
        addresses = self._addresses(shape)
        if name == "ctl" or name not in addresses:
            raise UsageError(f"no node {name!r} in the sandbox: n1 to n{shape.nodes} are accepted")
        return faults.Node(name, pids.get(name), config.hosts(addresses), shape.gpus, self.directory)
