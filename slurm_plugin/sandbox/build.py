"""Build a sandbox: files, controller, nodes, network, daemons; then wait until Slurm reports all nodes as idle."""

import os
import secrets
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError
from slurm_plugin.records.site_settings import fingerprint
from slurm_plugin.sandbox import config, daemons, faults, image, machine, network, store
from slurm_plugin.sandbox.machine import Bind, Spec
from slurm_plugin.site.compilation import SiteFile
from slurm_plugin.site.configuration import load
from slurm_plugin.site.files import render_site
from slurm_plugin.spec.submit_config import DEFAULT_PATH

UMASK: Final = 0o022
STRANGER: Final = "bob"  # a sandbox user who owns no file of the host
# Commands that get a wrapper if Slurm runs in another root directory (`--root`). `sandbox env` adds them to the PATH.
CLIENTS: Final = ("sbatch", "srun", "salloc", "squeue", "sinfo", "scancel", "scontrol", "sacct", "sacctmgr")


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of `sandbox up`."""

    directory: Path
    nodes: int
    gpus: int
    root: Path
    binds: tuple[Bind, ...]
    hooks: bool
    accounting: bool = False


@contextmanager
def umask() -> Iterator[None]:
    """Set the usual umask while building, whatever umask the caller has."""
    before = os.umask(UMASK)
    try:
        yield
    finally:
        os.umask(before)


def require(plan: Plan) -> None:
    """Raise MissingError or UsageError if this plan cannot be built."""
    if not (plan.root / "usr").is_dir() or not plan.root.is_absolute():
        raise UsageError(f"--root {plan.root} holds no system\n  name the absolute path of a root directory with /usr")
    image.require(plan.root, accounting=plan.accounting)
    for bind in plan.binds:
        if not Path(bind.source).exists() or not Path(bind.target).is_absolute():
            raise UsageError(f"--bind {bind.source}:{bind.target}: the source must exist, the target be absolute")


def build(plan: Plan) -> None:
    """Build the sandbox in its directory, which the caller has emptied and locked."""
    directory = plan.directory
    with network.choosing():
        subnet = network.choose(plan.nodes, network.used())
        addresses = network.addresses(subnet, plan.nodes)
        write_files(plan, addresses)
        ctl = machine.start(directory, spec(plan, "ctl", addresses))
        network.connect_controller(directory, ctl, addresses["ctl"], subnet)
    names = [name for name in addresses if name != "ctl"]
    with ThreadPoolExecutor(network.WORKERS) as pool:
        required = pool.submit(require_program, ctl, plan.root)
        started = pool.map(lambda name: machine.start(directory, spec(plan, name, addresses)), names)
        daemons.start_munged(directory, ctl)
        if plan.accounting:
            daemons.start_accounting(directory, ctl, ("root", *image.USERS))
        daemons.start_slurmctld(directory, ctl)
        nodes = dict(zip(names, started, strict=True))
        network.connect_nodes(ctl, nodes, addresses, subnet)
        required.result()
        list(pool.map(lambda name: daemons.start_slurmd(directory, name, nodes[name]), names))
    daemons.wait_until_ready(directory, ctl, names, idle=True)
    shape = store.Shape(plan.nodes, plan.gpus, str(plan.root), str(subnet), plan.hooks, plan.accounting)
    store.write_shape(directory, shape)


def spec(plan: Plan, name: str, addresses: dict[str, str]) -> Spec:
    """Return the description of the machine `name`."""
    where = plan.directory
    # The same paths as on the host, so that jobs submitted on the host find their configuration and files.
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
        binds += [Bind(str(where / part), str(where / part), writable=True) for part in ("state", "munge", "database")]
        binds.append(Bind(str(where / "spool"), "/var/spool/slurm_plugin", writable=True))
    gpus = 0 if name == "ctl" else plan.gpus
    return Spec(name, addresses[name], str(plan.root), str(where / "image/etc"), gpus, tuple(binds))


def write_files(plan: Plan, addresses: dict[str, str]) -> None:
    """Write all files of the sandbox, with the owners that they would have on a real site."""
    where = plan.directory
    for part in (
        "root", "home", "log", "machines", "image/bin", "etc/slurm", "run/munge", "munge", "state", "spool", "database",
    ):  # fmt: skip
        (where / part).mkdir(mode=0o755, parents=True)
    image.write_etc(plan.root, where / "image/etc", config.hosts(addresses))
    _script(where / "image/bin/slurm-plugin", image.program_wrapper(plan.root))
    _script(where / "image/bin/flapping", faults.FLAPPING_CHECK)
    if not image.has(plan.root, "python"):  # Debian has only python3; specs and scripts call python
        _script(where / "image/bin/python", image.python_wrapper(plan.root))
    passwd = (where / "image/etc/passwd").read_text(encoding="utf-8")
    for user in image.USERS:
        (where / "home" / user).mkdir(mode=0o700)
        os.chown(where / "home" / user, *image.account(passwd, user))
    slurm, munge = image.account(passwd, "slurm"), image.account(passwd, "munge")
    (where / "munge/key").write_bytes(secrets.token_bytes(1024))
    (where / "munge/key").chmod(0o400)
    for name in ("slurmctld", "slurmdbd", "mariadb"):
        (where / f"log/{name}.log").touch()
    for path, owner, mode in (
        (where / "munge", munge, 0o700),
        (where / "munge/key", munge, 0o400),
        (where / "run/munge", munge, 0o755),
        (where / "state", slurm, 0o700),
        (where / "spool", slurm, 0o750),
        (where / "database", slurm, 0o700),
        *((where / f"log/{name}.log", slurm, 0o644) for name in ("slurmctld", "slurmdbd", "mariadb")),
    ):
        os.chown(path, *owner)
        path.chmod(mode)
    write_slurm_files(plan, addresses)
    if plan.accounting:  # slurmdbd accepts no other owner or mode
        (where / daemons.SLURMDBD_CONF).write_text(config.slurmdbd_conf(where, addresses["ctl"]), encoding="utf-8")
        (where / daemons.SLURMDBD_CONF).chmod(0o600)
        os.chown(where / daemons.SLURMDBD_CONF, *slurm)
    if plan.root != Path("/"):
        (where / "bin").mkdir()
        for client in CLIENTS:
            command = f'{sys.executable} -P -m slurm_plugin sandbox --dir {where} run --user root {client} "$@"'
            _script(where / "bin" / client, f"#!/bin/sh\nexec {command}\n")


def write_slurm_files(plan: Plan, addresses: dict[str, str]) -> None:
    """Write slurm.conf, gres.conf, cgroup.conf, the site file, and the site directory, as an admin deploys them."""
    slurm = plan.directory / "etc/slurm"
    site_file = plan.directory / "etc/slurm/slurm_plugin.yaml"
    site_file.write_text(config.site_yaml(plan.gpus, image.soft_limits(), image.python(plan.root)), encoding="utf-8")
    fragment = ""
    if plan.hooks:
        there = SiteFile(str(DEFAULT_PATH), fingerprint(str(site_file)))  # its path inside the machines
        inside = () if plan.root == Path("/") else ("chroot", str(plan.root))
        render_site(load(site_file), slurm / "slurm_plugin", site_file=there, inside=inside)
        fragment = (slurm / "slurm_plugin/slurm.conf.fragment").read_text(encoding="utf-8")
        (slurm / "job_submit.lua").write_bytes((slurm / "slurm_plugin/job_submit.lua").read_bytes())
    text = config.slurm_conf(plan.directory, addresses, plan.gpus, fragment, accounting=plan.accounting)
    (slurm / "slurm.conf").write_text(text, encoding="utf-8")
    (slurm / "gres.conf").write_text(config.gres_conf(plan.nodes, plan.gpus), encoding="utf-8")
    version = config.parse_version(_output([_slurmctld(plan.root), "-V"], root=plan.root))
    (slurm / "cgroup.conf").write_text(config.cgroup_conf(version), encoding="utf-8")


def require_program(ctl: int, root: Path) -> None:
    """Raise MissingError if users cannot run `slurm-plugin` in the machines."""
    done = machine.run(machine.enter_argv(ctl, ["slurm-plugin", "--version"], user=STRANGER))
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        what = (
            f"all users must be able to read its Python, {sys.base_prefix}, and its packages, {sys.prefix}"
            if root == Path("/")
            else f"{root} needs Python's click, jinja2, msgspec, rich and yaml, as `sandbox root` installs them"
        )
        raise MissingError(f"slurm-plugin does not run for the users of the machines: {said[0]}\n  {what}")


def _script(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def _slurmctld(root: Path) -> str:
    return next(f"/{where}/slurmctld" for where in image.BIN_DIRECTORIES if (root / where / "slurmctld").exists())


def _output(argv: list[str], root: Path) -> str:
    done = machine.run(argv if root == Path("/") else ["chroot", str(root), *argv])
    if done.returncode != 0:
        raise SlurmPluginError(f"{' '.join(argv)} failed in {root}: {done.stderr.strip()}")
    return done.stdout
