"""What a batch script calls: `job supervise` on the first node, `job guard`, `prestart` and `stage-in` on every node.

`job enter` is the node's side of `slurm-plugin shell`.
"""

import argparse
import io
import os
import sys
import time

from hostfiles import HostfileError
from slurm_plugin import container
from slurm_plugin.errors import SlurmPluginError

HEARD_S = 0.5  # srun, which ends all tasks when one fails, may lose what this one wrote last


def main(args: list[str]) -> int:
    """Run one of them; errors of ours are one line in the job's log and their own exit code."""
    parser = _parser()
    options = parser.parse_args(args)
    if options.verb == "supervise" and not (options.command or options.script):
        parser.error("job supervise: a command is needed, or --script")
    if isinstance(sys.stdout, io.TextIOWrapper):  # a word or a name that the locale cannot print is no error
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if options.verb == "guard":
            from slurm_plugin.job import guard  # noqa: PLC0415 - each of 10,000 nodes loads only its part

            return guard.main(
                options.first,
                options.supervisor,
                options.restart,
                options.directory,
                cluster=options.cluster,
                no_kill=options.no_kill,
                lost_s=options.lost,
            )
        if options.verb == "prestart":
            from slurm_plugin.job import prestart  # noqa: PLC0415

            request = prestart.Request(
                options.run_directory,
                options.directory,
                options.python,
                tuple(options.files),
                after=options.after,
                changed=options.changed,
            )
            if code := prestart.run(request, os.environ):
                time.sleep(HEARD_S)
            return code
        if options.verb == "stage-in":
            from slurm_plugin.job import copies, stage_in  # noqa: PLC0415

            wanted = stage_in.Request(options.directory, options.run, options.notes, tuple(options.wanted))
            if code := copies.fetch(wanted, os.environ):
                time.sleep(HEARD_S)
            return code
        if options.verb == "enter":
            from slurm_plugin.job.enter import main as enter  # noqa: PLC0415

            return enter(options)
        from slurm_plugin.job.supervise import main as supervise  # noqa: PLC0415

        return supervise(options)
    except SlurmPluginError as error:
        print(f"[slurm_plugin] error,exiting: {error}", flush=True)
        return error.exit_code
    except HostfileError as error:  # this allocation cannot be what the mode needs
        print(f"[slurm_plugin] error,exiting: {error}", flush=True)
        return 2
    except OSError as error:  # the job's own directory: full, read-only, gone
        print(f"[slurm_plugin] error,exiting: {error}", flush=True)
        return 1


def group(text: str) -> tuple[int, int | None]:
    """`8,4`: slots of each node of a group, and CPUs for each process there; `8`: those that Slurm gives."""
    slots, _, cpus = text.partition(",")
    return int(slots), int(cpus) if cpus else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slurm-plugin job", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    supervise = container.arguments(
        verbs.add_parser("supervise", help="check the nodes, launch the command, decide what follows")
    )
    supervise.add_argument("--mode", required=True, help="how the command is launched (docs/modes.md)")
    supervise.add_argument("--launch", choices=("node", "task"), default="node", help="what one task is")
    supervise.add_argument("--slots", type=int, default=0, help="slots of every node in hostfiles; 0: its accelerators")
    supervise.add_argument(
        "--group",
        type=group,
        action="append",
        default=[],
        help="of a heterogeneous job, each: slots of a node, CPUs of a process",
    )
    supervise.add_argument("--retries", type=int, default=0, help="restarts asked for; 0: no checks either")
    supervise.add_argument("--nodes", type=int, default=0, help="nodes that the program wants; 0: all of the job")
    supervise.add_argument("--min-nodes", type=int, default=0, help="nodes that it can do with; 0: all that it wants")
    supervise.add_argument("--unconditional", action="store_true", help="restart it after any failure")
    supervise.add_argument("--no-kill", action="store_true", help="Slurm keeps the job when a node of it is lost")
    supervise.add_argument("--grace", type=float, default=0.0, help="seconds to save, when its nodes or its time end")
    supervise.add_argument("--hang-timeout", type=float, default=0.0, help="seconds without a word; 0: for ever")
    supervise.add_argument("--any-of", action="store_true", help="one of several jobs, of which one is to run")
    supervise.add_argument("--infiniband", choices=("auto", "yes", "no"), default="auto")
    supervise.add_argument("--checkpoint", default="", help="the program's checkpoint directory")
    _files(supervise)
    supervise.add_argument("--hold", type=int, default=0, metavar="S", help="keep the nodes so long after a failure")
    supervise.add_argument("--prechecks", default="", help="checks that this job asks for besides the site's: fabric")
    supervise.add_argument("--ps", type=int, default=0, help="mode tensorflow: parameter servers")
    supervise.add_argument("--chief", action="store_true", help="mode tensorflow: rank 0 is a chief")
    supervise.add_argument("--evaluator", action="store_true", help="mode tensorflow: the last rank evaluates")
    supervise.add_argument("--no-table", dest="table", action="store_false", help="mode ascend: no rank table")
    supervise.add_argument("--messages", default="normal", help="mode ascend: what MindSpore and CANN tell")
    supervise.add_argument("--script", nargs=2, metavar=("FILE", "MARK"), help="the command is what stands in it there")
    supervise.add_argument("command", nargs="*", metavar="COMMAND", help="after --: the user's own, as it is")
    guard = verbs.add_parser("guard", help="run on every node by supervise: checks as the job's user, ends lost ranks")
    guard.add_argument("--first", required=True, help="the node of the supervisor")
    guard.add_argument("--supervisor", type=int, required=True, help="its pid there")
    guard.add_argument("--restart", type=int, required=True, help="the run of the job")
    guard.add_argument("--directory", required=True, help="the job's own directory")
    guard.add_argument("--cluster", default="", help="its name, where it is known")
    guard.add_argument("--lost", type=float, required=True, help="seconds of silence after which a node is lost")
    guard.add_argument("--no-kill", action="store_true", help="the job outlives its first node")
    prestart = verbs.add_parser("prestart", help="run on every node by supervise: hooks before or after the program")
    prestart.add_argument("--run-directory", required=True)
    prestart.add_argument("--directory", required=True, help="the run's directory in it, by name")
    prestart.add_argument("--python", default="python3", help="what runs a .py")
    prestart.add_argument("--after", action="store_true", help="the program has ended: each is run, whatever it says")
    prestart.add_argument("--changed", action="store_true", help="hooks before it may have changed the environment")
    prestart.add_argument("files", nargs="+", metavar="FILE", help="after --: the hooks, in order")
    stage_in = verbs.add_parser("stage-in", help="run on every node by supervise: copies data to the node's own disk")
    stage_in.add_argument("--directory", required=True, help="the site's, for copies")
    stage_in.add_argument("--run", required=True, help="this run's own name")
    stage_in.add_argument("--notes", required=True, help="where a node says that it cannot have them")
    stage_in.add_argument("wanted", nargs="+", metavar="TO:FROM", help="after --")
    enter = verbs.add_parser("enter", help="run on one node by slurm-plugin shell: a shell as the launch was there")
    enter.add_argument("--directory", required=True, help="the job's own")
    enter.add_argument("--worker", type=int, required=True, metavar="N", help="which of its nodes, from 0")
    return parser


def _files(supervise: argparse.ArgumentParser) -> None:
    """What a spec names besides the command: files that are read, run or copied round it."""
    supervise.add_argument("--env-file", action="append", default=[], metavar="FILE", help="variables of the command")
    supervise.add_argument("--own-env", default="", metavar="NAMES", help="variables that no such file changes")
    supervise.add_argument("--logs", default="", metavar="DIR", help="where the program's tasks have logs of their own")
    supervise.add_argument("--logs-per", choices=("rank", "node"), default="rank", help="who has one")
    supervise.add_argument("--label", action="store_true", help="ranks before the lines of the job's log")
    supervise.add_argument("--before", action="append", default=[], metavar="FILE", help="a hook before the command")
    supervise.add_argument("--after", action="append", default=[], metavar="FILE", help="a hook after it")
    supervise.add_argument("--no-found-hooks", dest="found_hooks", action="store_false", help="none beside the program")
    supervise.add_argument("--stage-in", action="append", default=[], metavar="TO:FROM", help="data on every node")
