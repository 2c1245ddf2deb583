"""`slurm-plugin sandbox`: run a real Slurm with several machines on this machine."""

import json
import os
import shlex
import shutil
import time
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from slurm_plugin.cli.group import json_option
from slurm_plugin.errors import MissingError, SlurmPluginError
from slurm_plugin.sandbox import Sandbox, machine, roots, store
from slurm_plugin.sandbox.faults import FAULTS
from slurm_plugin.sandbox.image import USERS


@click.group()
@click.option(
    "--dir",
    "directory",
    envvar=store.VARIABLE,
    show_envvar=True,
    default=store.DEFAULT_DIRECTORY,
    show_default=True,
    type=click.Path(file_okay=False, resolve_path=True, path_type=Path),
    help="Everything of the sandbox is in this directory; another directory is another sandbox.",
)
@click.pass_context
def sandbox(ctx: click.Context, directory: Path) -> None:
    """A real Slurm of several machines on this one, with faults to make and to undo."""
    ctx.obj = Sandbox(directory)


@sandbox.command()
@click.option("--nodes", default=4, show_default=True, help="Nodes n1..nN beside the controller `ctl`.")
@click.option("--gpus", default=4, show_default=True, help="Fake GPUs of each node.")
@click.option(
    "--root",
    type=click.Path(file_okay=False, exists=True, resolve_path=True, path_type=Path),
    help="A root directory with another release's Slurm.  [default: this machine's]",
)
@click.option(
    "--bind", "binds", multiple=True, metavar="SRC[:DST][:rw]", help="Show a path of the host in every machine."
)
@click.option("--no-hooks", "--plain", "no_hooks", is_flag=True, help="A plain Slurm, without our hooks.")
@click.option("--accounting", is_flag=True, help="Also slurmdbd with MariaDB: sacct, accounts and QOS work.")
@click.pass_obj
def up(
    box: Sandbox,
    *,
    nodes: int,
    gpus: int,
    root: Path | None,
    binds: tuple[str, ...],
    no_hooks: bool,
    accounting: bool,
) -> None:
    """Start it, and return when every node is idle."""
    begin = time.monotonic()
    parsed = tuple(machine.parse_bind(text) for text in binds)
    if not box.up(nodes, gpus, root, parsed, hooks=not no_hooks, accounting=accounting):
        click.echo(f"already up: {nodes} nodes x {gpus} GPUs in {box.directory}")
        return
    click.echo(f"up in {time.monotonic() - begin:.1f} s: {nodes} nodes x {gpus} GPUs in {box.directory}")
    click.echo(f"  try: {store.command(box.directory, 'run srun -N2 hostname')}")


@sandbox.command()
@click.argument("machines", metavar="[ctl|nX]...", nargs=-1)
@click.pass_obj
def restart(box: Sandbox, machines: tuple[str, ...]) -> None:
    """Start slurmctld or slurmd again on these machines, or wherever it does not run. Files, state and jobs stay."""
    done = box.restart(machines)
    click.echo(f"{box.directory}: " + (f"restarted {', '.join(done)}" if done else "nothing was stopped"))


@sandbox.command()
@click.pass_obj
def down(box: Sandbox) -> None:
    """End it and remove its directory, the homes in it included."""
    click.echo(f"{box.directory}: " + ("down, nothing left" if box.down() else "nothing was up"))


@sandbox.command()
@json_option
@click.pass_obj
def status(box: Sandbox, as_json: bool) -> int:
    """Show every machine and its faults; exit 1 when it is not up."""
    found = box.status()
    if as_json:
        click.echo(json.dumps(asdict(found), indent=1))
        return 0 if found.up else 1
    if not found.machines:
        raise SlurmPluginError(f"no sandbox is up in {box.directory}\n  run: {store.command(box.directory, 'up')}")
    table = Table(box=None, pad_edge=False)
    for column in ("MACHINE", "PID", "ADDRESS", "DAEMON", "STATE", "FAULTS"):
        table.add_column(column, no_wrap=True)
    for row in found.machines:
        daemon = "slurmctld" if row.name == "ctl" else "slurmd"
        alive = daemon if row.daemon_alive else f"no {daemon}"
        table.add_row(row.name, str(row.pid or "dead"), row.address, alive, row.state, " ".join(row.faults))
    Console(highlight=False, width=None if os.isatty(1) else 200).print(table)
    return 0 if found.up else 1


@sandbox.command()
@click.pass_obj
def env(box: Sandbox) -> None:
    """Print the variables that connect this machine's own sbatch to it: eval "$(... sandbox env)"."""
    for name, value in box.environment().items():
        click.echo(f"export {name}={shlex.quote(value)}")


@sandbox.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--user", default="alice", show_default=True, type=click.Choice([*USERS, "root", "slurm"]))
@click.option("--node", default="ctl", show_default=True, help="ctl, or n1..nN.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def run(box: Sandbox, user: str, node: str, command: tuple[str, ...]) -> None:
    """Run CMD in a machine with this terminal, and exit with its exit code."""
    program = shutil.which("nsenter")
    if program is None:
        raise MissingError("nsenter is not found\n  run: apt-get install util-linux")
    if os.geteuid() != 0:
        raise MissingError(f"entering a machine needs root\n  run: sudo {store.command(box.directory, 'run ...')}")
    argv = box.argv(command, user, node, box.visible(Path.cwd(), node))
    os.chdir("/")
    os.umask(0o022)
    os.execve(program, argv, machine.environment(user, os.environ))  # noqa: S606 - an argument list, no shell


@sandbox.command(name="break")
@click.argument("node")
@click.argument("fault", type=click.Choice(list(FAULTS)))
@click.pass_obj
def break_(box: Sandbox, node: str, fault: str) -> None:
    """Make FAULT on NODE (`sandbox faults` explains each one)."""
    box.break_node(node, fault)
    click.echo(f"{node}: {FAULTS[fault].about}\n  undo it: {store.command(box.directory, f'heal {node}')}")


@sandbox.command()
@click.argument("node")
@click.option("--resume", is_flag=True, help="Also resume the node in Slurm, as its admin would.")
@click.pass_obj
def heal(box: Sandbox, node: str, resume: bool) -> None:
    """Undo every fault on NODE."""
    had = box.heal_node(node, resume=resume)
    click.echo(f"{node}: healed {', '.join(had)}" if had else f"{node}: had no fault")
    if not resume:
        resuming = store.command(box.directory, f"run --user root scontrol update nodename={node} state=resume")
        click.echo(f"  if Slurm drained it: {resuming}")


@sandbox.command()
@click.argument("suite", type=click.Choice(list(roots.SUITES)))
@click.argument("root", metavar="DIR", type=click.Path(resolve_path=True, path_type=Path))
@click.option("--mirror", metavar="URL", help="Get Debian from here.  [default: this machine's own apt mirror]")
@click.option(
    "--package", "packages", multiple=True, metavar="NAME", help="Also install this Debian package, in a built DIR too."
)
@click.pass_obj
def root(box: Sandbox, suite: str, root: Path, mirror: str | None, packages: tuple[str, ...]) -> None:
    """Build DIR for `up --root DIR`: trixie has Slurm 24.11, forky 26.05 and pyslurm."""
    if roots.make(roots.Wanted(suite, root, packages), mirror, click.echo):
        click.echo(f"  try: {store.command(box.directory, f'up --root {root}')}")


@sandbox.command()
def faults() -> None:
    """List the faults that `break` can make."""
    for name, fault in FAULTS.items():
        click.echo(f"{name:<12} {fault.about}")
