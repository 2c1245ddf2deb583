"""How a sandbox comes up: files, controller, nodes, network, daemons, and the wait until Slurm calls them idle."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slurm_plugin.compiled import fingerprint
from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.sandbox import config, faults, image, machine, network, store
from slurm_plugin.sandbox.machine import Bind, Spec
from slurm_plugin.sandbox.network import Network
from slurm_plugin.site import render_site
from slurm_plugin.siteconfig import SiteFile, load
from slurm_plugin.sitefile import DEFAULT_PATH

READY_DEADLINE_S: Final = 30.0
COMMAND_DEADLINE_S: Final = 20.0
RESUME_DEADLINE_S: Final = 20.0
WORKERS: Final = 16
UMASK: Final = 0o022
# Commands that `sandbox env` wraps where another root's Slurm is run.
CLIENTS: Final = ("sbatch", "srun", "salloc", "squeue", "sinfo", "scancel", "scontrol", "sacct")
USABLE: Final = frozenset({"idle", "mixed", "allocated", "completing"})
WAITING: Final = frozenset({"idle*", "mixed*", "allocated*", "completing*", "unknown"})  # until slurmd answers


@dataclass(frozen=True, slots=True)
class Plan:
    """What `up` was asked for."""

    directory: Path
    nodes: int
    gpus: int
    root: Path
    binds: tuple[Bind, ...]
    hooks: bool


@contextmanager
def umask() -> Iterator[None]:
    """What is built is as readable as on any machine, whatever the caller's own umask."""
    before = os.umask(UMASK)
    try:
        yield
    finally:
        os.umask(before)


def require(plan: Plan) -> None:
    """Raise MissingError or UsageError for what would stop this plan."""
    if not (plan.root / "usr").is_dir() or not plan.root.is_absolute():
        raise UsageError(f"--root {plan.root} holds no system\n  name the absolute path of a root directory with /usr")
    image.require(plan.root)
    for bind in plan.binds:
        if not Path(bind.source).exists() or not Path(bind.target).is_absolute():
            raise UsageError(f"--bind {bind.source}:{bind.target}: the source must exist, the target be absolute")


def build(plan: Plan) -> None:
    """Make the sandbox in its empty, locked directory."""
    directory = plan.directory
    with network.choosing():
        subnet = network.choose(plan.nodes, network.used())
        addresses = network.addresses(subnet, plan.nodes)
        write_files(plan, addresses)
        pids = {"ctl": machine.start(directory, spec(plan, "ctl", addresses))}
        link = network.host_link(directory)
        network.batch(network.cables(pids, link))
        network.batch(network.interface(link, str(subnet[network.HOST]), subnet.prefixlen))
    network.batch([*network.bridge(addresses["ctl"], subnet.prefixlen), *network.ports(["host"])], pids["ctl"])
    names = [name for name in addresses if name != "ctl"]
    with ThreadPoolExecutor(WORKERS) as pool:
        started = pool.map(lambda name: machine.start(directory, spec(plan, name, addresses)), names)
        start_controller(directory, pids["ctl"])
        nodes = dict(zip(names, started, strict=True))
        network.batch(network.cables(pids | nodes, None))
        network.batch(network.ports(names), pids["ctl"])
        list(pool.map(lambda name: _attach(nodes[name], addresses[name], subnet), names))
        list(pool.map(lambda name: start_slurmd(directory, name, nodes[name]), names))
    wait_until_idle(directory, pids["ctl"], names)
    store.write_shape(directory, store.Shape(plan.nodes, plan.gpus, str(plan.root), str(subnet), plan.hooks))


def spec(plan: Plan, name: str, addresses: dict[str, str]) -> Spec:
    """The machine `name` of this plan."""
    where = plan.directory
    # The same paths as on the host, so that a job submitted from there finds its configuration and its files.
    same = [Bind(str(where / part), str(where / part), writable=True) for part in ("home", "run", "log", "etc")]
    binds = [
        *same,
        Bind(str(where / "home"), "/home", writable=True),
        Bind(str(where / "etc/slurm"), "/etc/slurm", writable=True),
        Bind(str(where / "image/bin"), "/sandbox/bin"),
        *image.program_binds(),
        *plan.binds,
    ]
    if name == "ctl":
        binds += [Bind(str(where / part), str(where / part), writable=True) for part in ("state", "munge")]
        binds.append(Bind(str(where / "spool"), "/var/spool/slurm_plugin", writable=True))
    gpus = 0 if name == "ctl" else plan.gpus
    return Spec(name, addresses[name], str(plan.root), str(where / "image/etc"), gpus, tuple(binds))


def write_files(plan: Plan, addresses: dict[str, str]) -> None:
    """Everything below the sandbox's directory, with the owners that a site's would have."""
    where = plan.directory
    for part in ("root", "home", "log", "machines", "image/bin", "etc/slurm", "run/munge", "munge", "state", "spool"):
        (where / part).mkdir(mode=0o755, parents=True)
    image.write_etc(plan.root, where / "image/etc", config.hosts(addresses))
    _script(where / "image/bin/slurm-plugin", image.program_wrapper(plan.root))
    _script(where / "image/bin/flapping", faults.FLAPPING_CHECK)
    passwd = (where / "image/etc/passwd").read_text(encoding="utf-8")
    for user in image.USERS:
        (where / "home" / user).mkdir(mode=0o700)
        os.chown(where / "home" / user, *image.account(passwd, user))
    slurm, munge = image.account(passwd, "slurm"), image.account(passwd, "munge")
    (where / "munge/key").write_bytes(secrets.token_bytes(1024))
    (where / "munge/key").chmod(0o400)
    (where / "log/slurmctld.log").touch()
    for path, owner, mode in (
        (where / "munge", munge, 0o700),
        (where / "munge/key", munge, 0o400),
        (where / "run/munge", munge, 0o755),
        (where / "state", slurm, 0o700),
        (where / "spool", slurm, 0o750),
        (where / "log/slurmctld.log", slurm, 0o644),
    ):
        os.chown(path, *owner)
        path.chmod(mode)
    write_slurm_files(plan, addresses)
    if plan.root != Path("/"):
        (where / "bin").mkdir()
        for client in CLIENTS:
            command = f'{sys.executable} -m slurm_plugin sandbox --dir {where} run --user root {client} "$@"'
            _script(where / "bin" / client, f"#!/bin/sh\nexec {command}\n")


def write_slurm_files(plan: Plan, addresses: dict[str, str]) -> None:
    """slurm.conf and its companions, the site file, and the site directory: the very files an admin deploys."""
    slurm = plan.directory / "etc/slurm"
    site_file = plan.directory / "etc/slurm/slurm_plugin.yaml"
    site_file.write_text(config.site_yaml(plan.gpus, image.soft_limits(), image.python(plan.root)), encoding="utf-8")
    fragment = ""
    if plan.hooks:
        there = SiteFile(str(DEFAULT_PATH), fingerprint(str(site_file)))  # as the machines see it
        inside = () if plan.root == Path("/") else ("chroot", str(plan.root))
        render_site(load(site_file), slurm / "slurm_plugin", site_file=there, inside=inside)
        fragment = (slurm / "slurm_plugin/slurm.conf.fragment").read_text(encoding="utf-8")
        (slurm / "job_submit.lua").write_bytes((slurm / "slurm_plugin/job_submit.lua").read_bytes())
    text = config.slurm_conf(plan.directory, addresses, plan.gpus, fragment)
    (slurm / "slurm.conf").write_text(text, encoding="utf-8")
    (slurm / "gres.conf").write_text(config.gres_conf(plan.nodes, plan.gpus), encoding="utf-8")
    version = config.parse_version(_output([_slurmctld(plan.root), "-V"], root=plan.root))
    (slurm / "cgroup.conf").write_text(config.cgroup_conf(version), encoding="utf-8")


def start_controller(directory: Path, pid: int) -> None:
    """munged and slurmctld, each as its own unprivileged account."""
    munge, socket = directory / "munge", directory / "run/munge/socket"
    _daemon(
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
    _daemon(machine.enter_argv(pid, ["slurmctld"], user="slurm"), directory / "log/slurmctld.log")


def start_slurmd(directory: Path, name: str, pid: int) -> None:
    """slurmd of the node `name`, whose PID 1 is `pid`."""
    _daemon(machine.enter_argv(pid, ["slurmd"]), directory / "log" / f"{name}.log")


def restart_node(directory: Path, name: str, subnet: str, ctl: int) -> None:
    """A dead node comes back as it was built: an empty machine with its old name and address."""
    known = machine.load_spec(directory, name)
    pid = machine.start(directory, known)
    network.remove_link(name, ctl)
    network.batch(network.cables({"ctl": ctl, name: pid}, None))
    network.batch(network.ports([name]), ctl)
    _attach(pid, known.address, Network(subnet))
    start_slurmd(directory, name, pid)


def controller_alive(directory: Path) -> bool:
    """Whether slurmctld runs."""
    pid = machine.find(directory).get("ctl")
    return pid is not None and bool(machine.children(pid, "slurmctld"))


def node_states(ctl: int) -> dict[str, str]:
    """Node -> Slurm's word for its state; empty where slurmctld does not answer."""
    done = _run(machine.enter_argv(ctl, ["sinfo", "-h", "-N", "-o", "%N %T"]))
    rows = (line.split() for line in done.stdout.splitlines()) if done.returncode == 0 else ()
    return {row[0]: row[1] for row in rows if len(row) == 2}


def wait_until_idle(directory: Path, ctl: int, names: Sequence[str]) -> None:
    """Return when every node is idle. Raises SlurmPluginError with the end of the log that should tell why."""
    deadline = time.monotonic() + READY_DEADLINE_S
    while True:
        states = node_states(ctl)
        waiting = [name for name in names if states.get(name) != "idle"]
        if not waiting:
            return
        if time.monotonic() > deadline:
            log = directory / "log" / (f"{waiting[0]}.log" if states else "slurmctld.log")
            raise SlurmPluginError(
                f"after {READY_DEADLINE_S:.0f} s {len(waiting)} of {len(names)} nodes are not idle, {waiting[0]} is"
                f" {states.get(waiting[0], 'unknown')}; {log} ends with:\n{_tail(log)}"
            )
        time.sleep(0.1)


def resume(ctl: int, name: str) -> None:
    """Resume a node as its admin would, once it answers again. Raises SlurmPluginError where it does not."""
    deadline = time.monotonic() + RESUME_DEADLINE_S
    while (state := node_states(ctl).get(name, "unknown")) not in USABLE:
        if time.monotonic() > deadline:
            raise SlurmPluginError(f"{name} is still {state} after {RESUME_DEADLINE_S:.0f} s; look at sandbox status")
        if state not in WAITING:
            _run(machine.enter_argv(ctl, ["scontrol", "update", f"nodename={name}", "state=resume"]))
        time.sleep(0.2)


def _attach(pid: int, address: str, subnet: Network) -> None:
    network.batch(network.interface("eth0", address, subnet.prefixlen), pid)


def _script(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def _slurmctld(root: Path) -> str:
    return next(f"/{where}/slurmctld" for where in image.BIN_DIRECTORIES if (root / where / "slurmctld").exists())


def _output(argv: list[str], root: Path) -> str:
    done = _run(argv if root == Path("/") else ["chroot", str(root), *argv])
    if done.returncode != 0:
        raise SlurmPluginError(f"{' '.join(argv)} failed in {root}: {done.stderr.strip()}")
    return done.stdout


def _daemon(argv: list[str], log: Path) -> None:
    done = _run(argv)
    if done.returncode != 0:
        said = (done.stderr + done.stdout).strip()
        raise SlurmPluginError(f"{log.stem} did not start: {said}\n{log} ends with:\n{_tail(log)}")


def _run(argv: Iterable[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(argv), env=machine.environment("root", {}), stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=COMMAND_DEADLINE_S, check=False, cwd="/", start_new_session=True,
    )  # fmt: skip


def _tail(path: Path, lines: int = 15) -> str:
    try:
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except OSError as error:
        return str(error)
