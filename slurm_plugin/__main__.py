"""`slurm-plugin`: commands for hooks, batch scripts and nodes need only the standard library; others need click."""

import io
import os
import sys

# Command -> its place in the code, and its line of --help ("": for hooks and batch scripts, --help leaves it out).
# A literal in this module: a hook would pay for each further import.
COMMANDS = {
    "render": ("slurm_plugin.cli.specs:render", "Print the sbatch script a job spec becomes."),
    "submit": ("slurm_plugin.cli.submit:submit", "Submit a job spec and print the job id."),
    "clone": ("slurm_plugin.cli.clone:clone", "Submit a job again, with changes."),
    "forecast": ("slurm_plugin.cli.submit:forecast", "Say when a job spec's job would start, and why not now."),
    "init": ("slurm_plugin.cli.init:init", "Ask five questions and write a commented job spec."),
    "example": ("slurm_plugin.cli.specs:example", "Print a job spec to begin with, one for each mode."),
    "schema": ("slurm_plugin.cli.specs:schema", "Print the JSON Schema of a job spec, for editors."),
    "sbatch": ("slurm_plugin.submit.wrapper:main", "Submit a batch script as sbatch does; #PLUGIN lines are read."),
    "run": ("slurm_plugin.cli.run:run", "Run a job spec that sbatch was given as a batch script."),
    "hosts": ("slurm_plugin.cli.nodeside.hosts:main", "Print a hostfile or launch variables of an allocation."),
    "jobs": ("slurm_plugin.cli.nodeside.jobs:JOBS", "List your jobs: state, restarts, progress, use of the GPUs."),
    "check": ("slurm_plugin.cli.nodeside.check:CHECK", "Check this node by hand; --list explains each check."),
    "why": ("slurm_plugin.cli.nodeside.why:WHY", "Say why a job waits, was requeued or ended, or why a node is out."),
    "history": ("slurm_plugin.cli.nodeside.history:HISTORY", "Show every attempt of a job, how it ended and why."),
    "nodes": ("slurm_plugin.cli.nodeside.nodes:NODES", "Show nodes: what is in use, by whom, what fits, who is out."),
    "top": ("slurm_plugin.cli.top.command:TOP", "Show jobs, nodes and logs, live."),
    "logs": ("slurm_plugin.cli.nodeside.logs:LOGS", "Show, search, follow and save the logs of a job."),
    "report": ("slurm_plugin.cli.report:REPORT", "Write a page about a job: what happened, when, and what it cost."),
    "diagnose": ("slurm_plugin.cli.diagnose:DIAGNOSE", "Say why a program failed, from its logs."),
    "shell": (
        "slurm_plugin.cli.nodeside.actions.control:SHELL",
        "Open a shell on a worker of a job, as its launch was there.",
    ),
    "open": (
        "slurm_plugin.cli.nodeside.actions.open:OPEN",
        "Open a shell, Jupyter, TensorBoard or an editor on a job's node.",
    ),
    "rerun": ("slurm_plugin.cli.nodeside.actions.control:RERUN", "Run the command of a held job again, on its nodes."),
    "stop": ("slurm_plugin.cli.nodeside.actions.control:STOP", "Have a job save, where it has grace, and cancel it."),
    "time": ("slurm_plugin.cli.nodeside.actions.adjust:TIME", "Change the time limit of jobs: 4h, or +2h."),
    "priority": ("slurm_plugin.cli.nodeside.actions.adjust:PRIORITY", "Make waiting jobs urgent, or normal again."),
    "release": ("slurm_plugin.cli.nodeside.actions.control:RELEASE", "End the hold of a job that failed."),
    "delete": ("slurm_plugin.cli.delete:delete", "Remove the records and logs of jobs that ended."),
    "clean": ("slurm_plugin.cli.nodeside.clean:CLEAN", "Remove the records and logs of jobs that ended long ago."),
    "experiment": (
        "slurm_plugin.cli.experiment:experiment",
        "Search hyperparameters: preview, submit, control, look.",
    ),
    "report-metric": (
        "slurm_plugin.cli.nodeside.report_metric:REPORT_METRIC",
        "Report metrics of a trial, from a shell script or any program.",
    ),
    "sandbox": ("slurm_plugin.cli.sandbox:sandbox", "A real Slurm of several hosts on this machine."),
    "site": ("slurm_plugin.cli.site:site", "Install, check and take back what an admin deploys."),
    "policy": ("slurm_plugin.cli.policy:policy", "Say what the site's rules make of a job."),
    "doctor": ("slurm_plugin.cli.site:doctor", "Look at how this site is set up, and say what to change."),
    "completion": (
        "slurm_plugin.cli.reference.command:completion",
        "Print the completion script of bash, zsh or fish.",
    ),
    "man": ("slurm_plugin.cli.reference.command:man", "Write the man pages."),
    "hook": ("slurm_plugin.node.hook:main", ""),
    "job": ("slurm_plugin.supervisor.main:main", ""),
}
# Commands that also run on nodes, from the site's deployed copy of this code, without any package. They parse their
# own arguments.
NODE_SIDE = (
    "check", "clean", "history", "hook", "hosts", "job", "jobs", "logs", "nodes", "open", "priority",
    "release", "report-metric", "rerun", "sbatch", "shell", "stop", "time", "why",
)  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0 success, 1 failure, 2 wrong usage, 3 something is missing."""
    args = sys.argv[1:] if argv is None else argv
    if sys.stdout is None:  # closed by the caller: `slurm-plugin ... >&-`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - hooks do without pathlib
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: the encoding may lack a character of a name
    if argv is None and os.environ.get("LC_CTYPE") == "C.UTF-8":
        _uncoerce()
    called = "" if argv is not None else sys.argv[0].rpartition("/")[2]
    if called == "sbatch":  # a link with this name on the PATH
        args = [called, *args]
    if args[:2] == ["experiment", "work"]:  # the command of an array task, on a node
        from slurm_plugin.experiment import worker  # noqa: PLC0415

        return worker.start(args[2:])
    if args and args[0] in NODE_SIDE:
        module, _, attribute = COMMANDS[args[0]][0].partition(":")
        # Like import_module, which costs a hook 1 ms more.
        command = getattr(__import__(module, fromlist=[attribute]), attribute)
        code: int = command(args[1:], _default_settings) if args[0] == "job" else command(args[1:])
        return code
    try:
        from slurm_plugin.cli import group  # noqa: PLC0415 - loads packages that nodes need not have
    except ModuleNotFoundError as error:
        print(f"slurm-plugin: {error.name} is not installed here: only {', '.join(NODE_SIDE)} run", file=sys.stderr)
        print("  for the whole command line: pip install slurm_plugin", file=sys.stderr)
        if args[:1] == ["run"]:
            print(
                "  a spec that is a batch script names that one in its first line: render --batch does", file=sys.stderr
            )
        return 3
    return group.main(args, COMMANDS)


def _default_settings() -> "dict[str, object]":
    """Compile the site file and the user's own, or the defaults, for a job whose code is installed but not deployed."""
    from slurm_plugin.errors import UsageError  # noqa: PLC0415 - as below
    from slurm_plugin.site import compilation, configuration  # noqa: PLC0415 - a deployed copy lacks their packages
    from slurm_plugin.supervisor.log import say  # noqa: PLC0415 - as above

    try:
        return compilation.compile_site(configuration.load_for_user())
    except UsageError as error:  # a submission refuses such a file
        say(f"without your own settings: {error.one_line}")
        return compilation.compile_site(configuration.load())


def _uncoerce() -> None:
    """Remove the LC_CTYPE that Python sets in a plain locale (PEP 538): a user's job would inherit it."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - hooks do without pathlib
        if b"\0LC_CTYPE=" not in b"\0" + file.read():
            del os.environ["LC_CTYPE"]


if __name__ == "__main__":
    sys.exit(main())
