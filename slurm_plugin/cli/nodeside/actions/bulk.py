"""Act on several jobs: print a line for each, continue after a failure, and print one object with --json."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from slurm_plugin.cli.definition import PROGRAM, Parameter
from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.slurm import JobNotFoundError, SlurmAwayError, SlurmError

JOBS: Final = Parameter("jobs", job_lookup.A_JOB, "JOB", nargs="+")


class Done(NamedTuple):
    """What was done with one job: the text for people, and the fields of the JSON object."""

    job: int
    said: str
    fields: Mapping[str, Any] = {}


def act(words: Sequence[str], verb: str, one: Callable[[str], Done], *, as_json: bool) -> int:
    """Call `one` for each job that a user named. Return 0, else the exit code of the first failure.

    The code is 2 if Slurm fails to answer. If no controller answers, skip the remaining jobs.
    """
    code, forms = 0, list[Mapping[str, Any]]()
    for word in dict.fromkeys(words):
        try:
            done = one(word)
        except SlurmPluginError as error:
            unsure = isinstance(error, SlurmError) and not isinstance(error, JobNotFoundError)
            code = code or (UsageError.exit_code if unsure else error.exit_code)
            forms.append({"job": word, "error": error.one_line})
            print(f"{PROGRAM}: {error}", file=sys.stderr)
            if isinstance(error, SlurmAwayError):
                break
            continue
        forms.append({"job": done.job, **done.fields})
        if not as_json:
            print(f"job {done.job}: {done.said}", flush=True)
    if as_json:
        print(json.dumps({"v": 1, "asked": verb, "jobs": forms}))
    return code
