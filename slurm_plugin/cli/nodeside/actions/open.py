"""`slurm-plugin open JOB shell|jupyter|tensorboard|code`: work on a node of a running or held job."""

import json
import os
import socket
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from slurm_plugin.cli.nodeside.actions import control, tensorboard_source
from slurm_plugin.cli.nodeside.actions.control import Worker
from slurm_plugin.cli.nodeside.definition import JSON, Command, Parameter, within
from slurm_plugin.cli.nodeside.job_lookup import A_JOB
from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError, printable
from slurm_plugin.records import open_program
from slurm_plugin.records.open_program import CODE, SHELL, TENSORBOARD, WHAT, OpenProgram
from slurm_plugin.slurm import own_name, steps
from slurm_plugin.submit.wrapper import plugin_command
from slurm_plugin.supervisor.sessions import server
from slurm_plugin.views import open_program as view

START_S: Final = server.START_S + 60.0  # includes the start of the step
PROBE_S: Final = 60.0
_PORT: Final = within(1, 65535, int)
MOST_LINES: Final = 20  # characters of a step's output in a message
NEW: Final = (
    "Submit the spec, or that of an earlier job, without its command, wait until the job has its nodes, and open that "
    "job. It lasts until its time limit, or until slurm-plugin stop."
)


def _open(options: Namespace) -> int:
    _check(options)
    if not options.new:
        return _opened(options, options.job)
    job = _new(options.new)
    try:
        return _opened(options, [job])
    except SlurmPluginError:
        print(f"job {job} runs and waits for you; end it with: slurm-plugin stop {job}", file=sys.stderr)
        raise


def _opened(options: Namespace, words: Sequence[str]) -> int:
    """Open the job; for TensorBoard, several jobs."""
    what = options.what
    if what == SHELL:
        found = control.worker(words[0], options.worker)
        steps.become(found.step("enter", terminal=sys.stdin.isatty() and sys.stdout.isatty()))
    if what == TENSORBOARD and not options.carry:
        found, shows = tensorboard_source.find(words, options.worker, options.logdir)
    else:
        found, shows = control.worker(words[0], options.worker), ()
    if options.carry:
        return _carry(found, what)
    way = _way(found, options.login)
    if what == CODE:
        _probe(found)
        print(json.dumps(view.code_form(way)) if options.json else "\n".join(view.code_lines(way)))
        return 0
    answer, port = _started(found, what, shows), options.port or view.PORTS[what]
    shown = (way, answer, port, relay_socket(found.launch.job, what))
    print(json.dumps(view.form(*shown)) if options.json else "\n".join(view.lines(*shown)))
    return 0


def _check(options: Namespace) -> None:
    """Raise UsageError if two options contradict each other."""
    if bool(options.job) == bool(options.new):
        raise UsageError("found no job; accepted: JOB or --new SPEC" if not options.job else "found JOB and --new SPEC")
    if len(options.job) > 1 and options.what != TENSORBOARD:
        raise UsageError(f"found {len(options.job)} jobs; only {TENSORBOARD} shows several jobs together")
    if options.logdir and options.what != TENSORBOARD:
        raise UsageError(f"--logdir: found {options.what}; only {TENSORBOARD} has one")
    if options.carry and (options.what == SHELL or options.new or options.json):
        raise UsageError("--carry: the lines that slurm-plugin open prints use it; run one of these")


def _new(given: str) -> str:
    """Submit a spec, or that of a job, without its command. Wait until the new job runs and return its id."""
    try:
        from slurm_plugin.cli import open_new  # noqa: PLC0415 - nodes lack it, and msgspec and yaml
    except ModuleNotFoundError as error:
        raise MissingError(f"--new: {error.name} is not installed here\n  pip install slurm_plugin") from error
    return str(open_new.submit(given))


def _way(found: Worker, login: str) -> view.Way:
    """Return how the user's own machine reaches this one. SSH_CONNECTION has the address that the user's ssh used."""
    connection = os.environ.get("SSH_CONNECTION", "").split()
    address = connection[2] if len(connection) == 4 and connection[2] != "UNKNOWN" else ""
    here = login or address or socket.gethostname()
    user = own_name()
    return view.Way(found.launch.job, found.number, found.node, user, here, plugin_command.for_scripts(""))


def _started(found: Worker, what: str, shows: tuple[str, ...]) -> OpenProgram:
    """Return the answer of a program that now runs on the worker. Otherwise raise SlurmPluginError with its output."""
    answer, text = steps.in_background(found.step("open", what, *shows), open_program.find, START_S)
    if answer is None:
        raise SlurmPluginError(_said(text) or f"{what} did not answer in {START_S:g} s\n  try it again")
    return answer


def _said(text: str) -> str:
    """Return what a step printed, without the name of the command and the lines of srun after it."""
    lines = [printable(line) for line in text.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith("srun: ")]
    return "\n".join((own or lines)[-MOST_LINES:]).replace("slurm-plugin: ", "", 1)


def _probe(found: Worker) -> None:
    """Raise SlurmPluginError if the worker's node has no ssh server."""
    answer, text = steps.in_background(found.step("carry", "--probe"), _probed, PROBE_S)
    if answer is None:
        raise SlurmPluginError(_said(text) or f"{found.node} did not answer in {PROBE_S:g} s\n  try it again")


def _probed(text: str) -> bool | None:
    return True if open_program.HAS_SSH in text.split() else None


def relay_socket(job_id: int, what: str) -> str:
    """Return the socket on the login node that `--carry` serves if the worker's node has no ssh server.

    It is in the user's runtime directory (systemd), whose name no other user can take, else in /tmp.
    """
    uid = os.geteuid()
    top = own if os.path.isdir(own := f"/run/user/{uid}") else "/tmp"  # noqa: PTH112, S108 - serve() checks it
    return f"{top}/slurm_plugin-{uid}/{job_id}.{what}.sock"


def _carry(found: Worker, what: str) -> int:
    """Replace this process by the step that ssh talks to, or serve the relay's socket until ssh ends."""
    options = ("--quiet", "--unbuffered")  # srun buffers lines, and ssh sends bytes
    if what == CODE:
        steps.become(found.step("carry", options=options))
    from slurm_plugin.supervisor.sessions import relay  # noqa: PLC0415 - asyncio is slow to import

    return relay.serve(Path(relay_socket(found.launch.job, what)), found.step("relay", what, options=options))


OPEN: Final = Command(
    "open",
    "Open a shell, Jupyter, TensorBoard or an editor on a worker of a running or held job, in the environment of its "
    "program. Jupyter and TensorBoard listen on a UNIX socket that only you can reach; this prints the ssh line and "
    "the URL for your own machine. No port is open on the node.\n\n"
    "TensorBoard also takes several jobs, an array or an experiment.\n\n"
    "Exit 0: it is open; 1: the job does not run, or the program fails; 2: Slurm did not answer, or wrong usage.",
    (
        Parameter("job", f"{A_JOB}; for tensorboard also several, or an experiment", "JOB", nargs="*"),
        Parameter("what", "what to open", choices=WHAT),
        Parameter("--new", NEW, "SPEC|JOB"),
        Parameter("--worker", "worker-1, or a node's name.  [default: worker-0]", "WORKER", "worker-0"),
        Parameter("--logdir", "For tensorboard: what it shows, from the job's directory.", "DIR", ""),
        Parameter("--port", "The port on your own machine.  [default: 8888, tensorboard 6006]", "PORT", 0, _PORT),
        Parameter("--login", "The name of this machine for ssh on your own machine.", "HOST", ""),
        Parameter("--carry", "Used by the printed ssh lines: pass the connections on to the worker."),
        JSON,
    ),
    _open,
)
