"""The command line: one click group; each command is a module, imported when it is asked for."""

import gc
import importlib
import sys

import click

from slurm_plugin import __version__
from slurm_plugin.errors import SlurmPluginError, printable
from slurm_plugin.nearest import nearest

# command -> (module attribute, one line for --help). Literal, and loaded on use: `--help` imports none of them.
COMMANDS = {
    "render": ("slurm_plugin.cli.jobs:render", "Print the sbatch script a job spec becomes."),
    "submit": ("slurm_plugin.cli.jobs:submit", "Submit a job spec and print the job id."),
    "forecast": ("slurm_plugin.cli.forecast:forecast", "Say when a job spec's job would start, and why not now."),
    "example": ("slurm_plugin.cli.example:example", "Print a job spec to begin with, one for each mode."),
    "schema": ("slurm_plugin.cli.schema:schema", "Print the JSON Schema of a job spec, for editors."),
    "sbatch": ("slurm_plugin.cli.sbatch:sbatch", "Submit a batch script as sbatch does; #PLUGIN lines are read."),
    "run": ("slurm_plugin.cli.run:run", "Run a job spec that sbatch was given as a batch script."),
    "hosts": ("slurm_plugin.cli.hosts:hosts", "Print a hostfile or launch variables of an allocation."),
    "check": ("slurm_plugin.cli.byhand:check", "Check this node by hand; --list explains each check."),
    "why": ("slurm_plugin.cli.byhand:why", "Say why a job waits, was requeued or ended, or why a node is out."),
    "history": ("slurm_plugin.cli.byhand:history", "Show every attempt of a job, how it ended and why."),
    "shell": ("slurm_plugin.cli.byhand:shell", "Open a shell on a worker of a job, as its launch was there."),
    "rerun": ("slurm_plugin.cli.byhand:rerun", "Run the command of a held job again, on its nodes."),
    "release": ("slurm_plugin.cli.byhand:release", "End the hold of a job that failed."),
    "sandbox": ("slurm_plugin.cli.sandbox:sandbox", "A real Slurm of several hosts on this machine."),
    "site": ("slurm_plugin.cli.site:site", "Install, check and take back what an admin deploys."),
    "policy": ("slurm_plugin.cli.policy:policy", "Say what the site's rules make of a job."),
    "doctor": ("slurm_plugin.cli.doctor:doctor", "Look at how this site is set up, and say what to change."),
}


_LOG = "tail --follow FILE; `output` of the spec names it, else: scontrol show job JOB"
# What others call it -> what to type. For commands that there are not.
ELSEWHERE = {
    **dict.fromkeys(("cancel", "kill", "stop"), "scancel JOB"),
    **dict.fromkeys(("queue", "list", "ps"), "squeue --me"),
    **dict.fromkeys(("status", "explain"), "slurm-plugin why JOB"),
    **dict.fromkeys(("logs", "log"), _LOG),
    **dict.fromkeys(("init", "new", "examples"), "slurm-plugin example"),
    **dict.fromkeys(("ssh", "attach", "exec"), "slurm-plugin shell JOB"),
    "validate": "slurm-plugin render JOB.yaml",
    "nodes": "sinfo --long --Node",
    "install": "slurm-plugin site install",
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of a job's way."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            ctx.fail(_no_command(cmd_name))
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        gc.disable()  # what is imported stays: nobody need look through it for garbage, neither now nor at the end
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
            gc.freeze()
        finally:
            gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _no_command(name: str) -> str:
    """What to type in place of a command that there is not."""
    close = nearest(name, COMMANDS)
    then = ELSEWHERE.get(name) or (f"slurm-plugin {close}" if close else "slurm-plugin --help")
    return f"found no command {printable(name[:64])}; try: {then}"


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="slurm-plugin")
def cli() -> None:
    """Checked nodes, ready launch environments and automatic restart for jobs on Slurm."""


def main(args: list[str]) -> int:
    """Run the command line; every error of ours is one message on stderr and its own exit code."""
    try:
        result = cli.main(args=args, prog_name="slurm-plugin", standalone_mode=False)
    except SlurmPluginError as error:
        print(f"slurm-plugin: {error}", file=sys.stderr)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    return result if isinstance(result, int) else 0
