"""The verbs of `slurm-plugin job`: `supervise` on the first node, `guard`, `prestart` and `stage-in` on every node.

`job record` and `job share` run beside `job supervise`. `job enter` is the node's side of `slurm-plugin shell`;
`job open`, `job carry` and `job relay` are that of `slurm-plugin open`.
"""

import argparse
import importlib
import io
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from hostfiles import HostfileError
from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.records import job_plan, open_program
from slurm_plugin.records.job_plan import ACCESS
from slurm_plugin.supervisor import log

PEOPLES = {  # verbs in a step that a person has started, not the supervisor
    "enter": "slurm_plugin.supervisor.enter",
    "open": "slurm_plugin.supervisor.sessions.server",
    "carry": "slurm_plugin.supervisor.sessions.ssh",
    "relay": "slurm_plugin.supervisor.sessions.relay",
}
HEARD_S = 0.5  # after one task fails, srun ends all tasks and may lose the last lines of this task


def main(args: list[str], default_settings: Callable[[], Mapping[str, Any]]) -> int:
    """Run one verb and return its exit code. Write an error of this package as one line into the job's log.

    `default_settings` compiles the site's settings if this code was installed, but not deployed to a site directory.
    """
    try:
        options = _read(args)
    except (UsageError, OSError) as error:
        print(f"[slurm_plugin] error,exiting: {error}", flush=True)
        return error.exit_code if isinstance(error, UsageError) else 1
    if isinstance(sys.stdout, io.TextIOWrapper):  # do not fail on characters that the locale cannot print
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _run(options, default_settings)
    except (SlurmPluginError, HostfileError, OSError) as error:
        if options.verb in PEOPLES and isinstance(error, SlurmPluginError):
            print(f"slurm-plugin: {error}", file=sys.stderr, flush=True)  # stdout may be the connection of ssh
            return error.exit_code
        log.show()
        log.say(f"error,exiting: {error}")
        if isinstance(error, SlurmPluginError):
            return error.exit_code
        # 2: the allocation does not fit the mode. 1: the job's directory is full, read-only or missing.
        return 2 if isinstance(error, HostfileError) else 1
    finally:
        log.close()


def _run(options: argparse.Namespace, default_settings: Callable[[], Mapping[str, Any]]) -> int:
    """Run one verb. Load only its part: each of 10,000 nodes runs a guard."""
    if options.verb == "guard":
        from slurm_plugin.supervisor.guard import server  # noqa: PLC0415

        return server.main(options.orders)
    if options.verb == "prestart":
        from slurm_plugin.supervisor import prestart  # noqa: PLC0415

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
        from slurm_plugin.records import stage_in  # noqa: PLC0415
        from slurm_plugin.supervisor.staging import data_copies  # noqa: PLC0415

        wanted = stage_in.Request(options.directory, options.run, options.notes, tuple(options.wanted), options.keep)
        if code := data_copies.fetch(wanted, os.environ):
            time.sleep(HEARD_S)
        return code
    if options.verb == "record":
        from slurm_plugin.supervisor.recording import recorder  # noqa: PLC0415

        return recorder.main(options.orders)
    if options.verb == "share":
        from slurm_plugin.supervisor.share.serve import main as share  # noqa: PLC0415

        return share(options, default_settings)
    if options.verb in PEOPLES:
        ended: int = importlib.import_module(PEOPLES[options.verb]).main(options)
        return ended
    from slurm_plugin.supervisor.supervise import main as supervise  # noqa: PLC0415

    return supervise(options.plan, default_settings)


def _read(args: list[str]) -> argparse.Namespace:
    """Read the arguments of a verb, and the job plan. Raise UsageError for an invalid one, OSError for file errors."""
    if args and "/" in args[0]:  # `job FILE`: from the first line of a batch script
        return argparse.Namespace(verb="supervise", plan=job_plan.read_batch_script(args[0]))
    options = _parser().parse_args(args)
    if options.verb == "supervise":
        options.plan = job_plan.read(options.plan)._replace(command=tuple(options.command))
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slurm-plugin job", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    supervise = verbs.add_parser("supervise", help="check the nodes, launch the command, decide what follows")
    supervise.add_argument("plan", metavar="PLAN", help="the job plan, JSON (slurm_plugin.records.job_plan)")
    supervise.add_argument("command", nargs="+", metavar="COMMAND", help="after --: the user's own, as it is")
    guard = verbs.add_parser("guard", help="run on every node by supervise: checks as the job's user, ends lost ranks")
    guard.add_argument("orders", metavar="ORDERS", help="JSON (slurm_plugin.supervisor.guard.server)")
    prestart = verbs.add_parser("prestart", help="run on every node by supervise: hooks before or after the program")
    prestart.add_argument("--run-directory", required=True)
    prestart.add_argument("--directory", required=True, help="the run's directory in it, by name")
    prestart.add_argument("--python", default="python3", help="what runs a .py")
    prestart.add_argument("--after", action="store_true", help="the program has ended: run each of them")
    prestart.add_argument("--changed", action="store_true", help="hooks before it may have changed the environment")
    prestart.add_argument("files", nargs="+", metavar="FILE", help="after --: the hooks, in order")
    stage_in = verbs.add_parser("stage-in", help="run on every node by supervise: copies data to the node's own disk")
    stage_in.add_argument("--directory", required=True, help="the site's, for copies")
    stage_in.add_argument("--run", required=True, help="this run's own name")
    stage_in.add_argument("--keep", type=float, default=0.0, help="remove the user's copies unused for so many seconds")
    stage_in.add_argument("--notes", required=True, help="where a node says that it cannot have them")
    stage_in.add_argument("wanted", nargs="+", metavar="TO:FROM", help="after --")
    record = verbs.add_parser("record", help="run by supervise: records utilisation and progress of a program")
    record.add_argument("orders", metavar="ORDERS", help="JSON (slurm_plugin.supervisor.recording.recorder)")
    share = verbs.add_parser("share", help="run beside supervise: lets a group see the job, carries out requests")
    share.add_argument("--directory", required=True, help="the job's own")
    share.add_argument("--job", type=int, required=True)
    share.add_argument("--restart", type=int, required=True, help="the run of the job")
    share.add_argument("--cluster", default="", help="its name, where it is known")
    share.add_argument("--group", default="", help="its name")
    share.add_argument("--access", choices=ACCESS, required=True)
    share.add_argument("--supervisor", type=int, required=True, help="its pid")
    enter = verbs.add_parser("enter", help="run on one node by slurm-plugin shell: a shell as the launch was there")
    enter.add_argument("--session", action="store_true", help="of ssh: run the command that the client has sent")
    begin = verbs.add_parser("open", help="run on one node by slurm-plugin open: a program on a UNIX socket")
    begin.add_argument("what", choices=open_program.PROGRAMS)
    begin.add_argument("shows", nargs="*", metavar="[NAME=]DIR", help="the log directories of tensorboard")
    carry = verbs.add_parser("carry", help="run on one node by slurm-plugin open: an ssh server on stdin and stdout")
    carry.add_argument("--probe", action="store_true", help="only say whether the node has one")
    relay = verbs.add_parser("relay", help="run on one node by slurm-plugin open: carry connections to a socket")
    relay.add_argument("what", choices=open_program.PROGRAMS)
    for each in (enter, begin, carry, relay):
        each.add_argument("--directory", required=True, help="the job's own")
        each.add_argument("--worker", type=int, required=True, metavar="N", help="which of its nodes, from 0")
    return parser
