"""The scripts of `hooks` that run when something happens to the job: `on_restart`, `on_failure` and `on_hold`.

They run on the first node, one after the other, as the job's user. Each has LIMIT_S. What they do, and how they end,
changes no decision.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from slurm_plugin.launch import hooks
from slurm_plugin.records import diagnoses, job_directory
from slurm_plugin.supervisor.launcher import TERM_S, Launcher
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.preparation.prepare import Preparation

LIMIT_S: Final = 60.0
RESTART, FAILURE, HOLD = "restart", "failure", "hold"


def run(event: str, preparation: Preparation, launcher: Launcher, cluster: str, more: Mapping[str, str]) -> None:
    """Run the scripts for an event. `more`: variables about it."""
    plan, directory = preparation.plan, preparation.directory
    files: Sequence[str] = getattr(plan, f"on_{event}")
    if not files:
        return
    recorded = [each for each in job_directory.attempts(directory, cluster) or () if each.get("trial", 0) == plan.trial]
    last: Mapping[str, Any] = recorded[-1] if recorded else {}
    form = diagnoses.read(directory, cluster).get(number if isinstance(number := last.get("n"), int) else -1)
    told = {"SLURM_PLUGIN_EVENT": event, **facts(last, form or {}), **more}
    if event == RESTART:  # of the attempt that is prepared afterwards
        told["SLURM_PLUGIN_RESTART"] = "1"
    environ = {**preparation.environment("", launched=False), **told}
    for file in files:
        _run(file, ["bash", file] if file.endswith(".sh") else [preparation.python, file], environ, launcher)


def facts(last: Mapping[str, Any], form: diagnoses.Form) -> dict[str, str]:
    """Return the variables about an attempt, from its record and its diagnosis."""
    verdicts, code = last.get("verdicts"), last.get("code")
    cause = "".join(diagnoses.sentences(form)[:1])
    return {
        "SLURM_PLUGIN_EXIT_CODE": "" if code is None else str(code),
        "SLURM_PLUGIN_BAD_NODES": ",".join(verdicts) if isinstance(verdicts, dict) else "",
        "SLURM_PLUGIN_DIAGNOSIS": cause.removeprefix("likely cause: "),
    }


def _run(file: str, argv: Sequence[str], environ: Mapping[str, str], launcher: Launcher) -> None:
    name = PurePosixPath(file).name
    if why := hooks.refused(file):
        say(" ".join(why.split()))
        return
    until = time.monotonic() + LIMIT_S
    code = launcher.run(
        argv, environ, say, checkpoints=False, look=lambda: launcher.told_to_end or time.monotonic() > until
    )
    if time.monotonic() > until or launcher.told_to_end:
        launcher.stop(TERM_S)
        say(f"{name} is ended: {'the job is told to end' if launcher.told_to_end else f'after {LIMIT_S:.0f} s'}")
    elif code:
        say(f"{name}: failed: exit code {code}")
