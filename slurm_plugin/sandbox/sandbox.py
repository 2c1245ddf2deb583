"""A real Slurm of several machines on this one: up, down, status, run, break, heal."""

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.sandbox import build, config, faults, machine, network, store
from slurm_plugin.sandbox.image import USERS
from slurm_plugin.sandbox.machine import Bind
from slurm_plugin.sandbox.store import Shape

MAX_NODES, MAX_GPUS = 1000, 64


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """One machine now. `pid` is its PID 1's on the host, None where it is dead; `state` is Slurm's word for it."""

    name: str
    pid: int | None
    address: str
    daemon_alive: bool
    state: str
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """The whole sandbox now; no machines where it is not up."""

    directory: str
    up: bool
    machines: tuple[MachineStatus, ...]


class Sandbox:
    """The sandbox of one directory. Every method looks at the machines as they are; the object holds no state."""

    def __init__(self, directory: Path = store.DEFAULT_DIRECTORY) -> None:
        """Name the sandbox; nothing is started. Raises UsageError for a directory that cannot hold one."""
        store.check_directory(directory)
        self.directory = directory

    def up(
        self,
        nodes: int = 4,
        gpus: int = 4,
        root: Path | None = None,
        binds: Iterable[Bind] = (),
        *,
        hooks: bool = True,
    ) -> bool:
        """Start it and return when Slurm says that every node is idle; False when it was up already.

        Cleans up first after a start or a sandbox that did not come to its end, and after itself where it fails.
        `hooks=False` leaves our own hooks out: a plain Slurm to compare with.
        """
        if not (1 <= nodes <= MAX_NODES and 0 <= gpus <= MAX_GPUS):
            raise UsageError(f"{nodes} nodes x {gpus} GPUs: accepted are 1-{MAX_NODES} nodes with 0-{MAX_GPUS} GPUs")
        plan = build.Plan(self.directory, nodes, gpus, root or Path("/"), tuple(binds), hooks)
        build.require(plan)
        with build.umask(), store.locked(self.directory):
            shape = store.read_shape(self.directory)
            if shape and build.controller_alive(self.directory):
                if (shape.nodes, shape.gpus, shape.root, shape.hooks) == (nodes, gpus, str(plan.root), hooks):
                    return False
                raise SlurmPluginError(
                    f"{self.directory} is up with {shape.nodes} nodes x {shape.gpus} GPUs, root {shape.root},"
                    f" {'our' if shape.hooks else 'no'} hooks\n  run: slurm-plugin sandbox down"
                )
            self._clear()
            try:
                build.build(plan)
            except BaseException:
                self._clear()
                store.remove(self.directory)
                raise
        return True

    def down(self) -> bool:
        """End every machine and remove the directory, homes included; False when there was nothing."""
        if not store.exists(self.directory) and not machine.find(self.directory):
            return False
        with store.locked(self.directory):
            self._clear()
            store.remove(self.directory)
        return True

    def status(self) -> Status:
        """Every machine as it is now."""
        shape = store.read_shape(self.directory)
        if shape is None:
            return Status(str(self.directory), up=False, machines=())
        pids = machine.find(self.directory)
        states = self.states()
        found = []
        for name, address in self._addresses(shape).items():
            pid = pids.get(name)
            daemon = "slurmctld" if name == "ctl" else "slurmd"
            alive = pid is not None and bool(machine.children(pid, daemon))
            here = () if name == "ctl" else faults.active(self._node(name, shape, pids))
            state = "" if name == "ctl" else states.get(name, "unknown")
            found.append(MachineStatus(name, pid, address, alive, state, here))
        return Status(str(self.directory), build.controller_alive(self.directory), tuple(found))

    def states(self) -> dict[str, str]:
        """Node -> Slurm's word (`idle`, `drained`, `down*`); empty where the controller does not answer."""
        pid = machine.find(self.directory).get("ctl")
        return {} if pid is None else build.node_states(pid)

    def environment(self) -> dict[str, str]:
        """What to export on the host so that its own `sbatch` and friends talk to this sandbox."""
        shape = self._shape()
        found = {"SLURM_CONF": str(self.directory / "etc/slurm/slurm.conf")}
        if shape.root != "/":  # another release's commands do not run here: wrappers run them in the controller
            found["PATH"] = f"{self.directory / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}"
        return found

    def home(self, user: str) -> Path:
        """The host's path of a user's home."""
        return self.directory / "home" / user

    def argv(self, argv: Sequence[str], user: str = "alice", node: str = "ctl", directory: str = "") -> list[str]:
        """The host's command that runs `argv` in a machine; needs the environment of `machine.environment`."""
        if user not in (*USERS, "root", "slurm"):
            raise UsageError(f"no user {user!r} in the sandbox: {', '.join(USERS)} and root are accepted")
        home = machine.environment(user, {})["HOME"] if user != "slurm" else "/"
        return machine.enter_argv(self._pid(node), argv, user=user, directory=directory or home)

    def visible(self, path: Path, node: str = "ctl") -> str:
        """`path` where it is the same directory in the machine, else nothing."""
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
        timeout: float = 60.0,
        input: str = "",  # noqa: A002 - subprocess.run's own word
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a machine, in the user's home, and return what it said.

        Raises SlurmPluginError when `check` and it failed, subprocess.TimeoutExpired (its processes killed) when late.
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
        """Start a command in a machine in a process group of its own; killing that group ends the command."""
        environ = machine.environment(user, os.environ) | dict(env or {})
        return subprocess.Popen(
            self.argv(argv, user, node), env=environ, stdin=stdin, stdout=stdout, stderr=stderr,
            text=True, start_new_session=True, cwd="/", umask=build.UMASK,
        )  # fmt: skip

    def break_node(self, node: str, fault: str) -> None:
        """Make a fault on a node."""
        if fault not in faults.FAULTS:
            raise UsageError(f"no fault {fault!r}; accepted are: {', '.join(faults.FAULTS)}")
        with store.locked(self.directory):
            target = self._node(node, self._shape(), machine.find(self.directory))
            faults.FAULTS[fault].make(target)

    def heal_node(self, node: str, *, resume: bool = False) -> tuple[str, ...]:
        """Undo every fault on a node and return what they were.

        What Slurm made of them stays for its admin, a drain for example; `resume` acts as that admin too.
        """
        with build.umask(), store.locked(self.directory):
            shape, ctl = self._shape(), self._pid("ctl")
            found = self._node(node, shape, machine.find(self.directory))
            had = faults.active(found)
            if found.pid is None:
                build.restart_node(self.directory, node, shape.network, ctl)
            for name in had:
                mend = faults.FAULTS[name].mend
                if mend is not None:
                    mend(found)
            if "slurmd-dead" in had:
                build.start_slurmd(self.directory, node, found.root())
        if resume:
            build.resume(ctl, node)
        return had

    def _clear(self) -> None:
        machine.end_all(self.directory)
        network.remove_host_link(self.directory)
        store.empty(self.directory)

    def _shape(self) -> Shape:
        shape = store.read_shape(self.directory)
        if shape is None:
            raise SlurmPluginError(f"no sandbox is up in {self.directory}\n  run: slurm-plugin sandbox up")
        return shape

    def _addresses(self, shape: Shape) -> dict[str, str]:
        return network.addresses(network.Network(shape.network), shape.nodes)

    def _pid(self, name: str) -> int:
        shape = self._shape()
        if name not in self._addresses(shape):
            raise UsageError(f"no machine {name!r} in the sandbox: ctl and n1 to n{shape.nodes} are accepted")
        pid = machine.find(self.directory).get(name)
        if pid is None:
            verb = "up" if name == "ctl" else f"heal {name}"
            raise SlurmPluginError(f"{name} is dead\n  run: slurm-plugin sandbox {verb}")
        return pid

    def _node(self, name: str, shape: Shape, pids: Mapping[str, int]) -> faults.Node:
        addresses = self._addresses(shape)
        if name == "ctl" or name not in addresses:
            raise UsageError(f"no node {name!r} in the sandbox: n1 to n{shape.nodes} are accepted")
        return faults.Node(name, pids.get(name), config.hosts(addresses), shape.gpus)
