"""`slurm-plugin time` and `priority`: change the time limit or the priority of jobs."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from slurm_plugin.cli.nodeside import check_context, job_lookup
from slurm_plugin.cli.nodeside.actions import share_request
from slurm_plugin.cli.nodeside.definition import JSON, Command, Parameter
from slurm_plugin.cli.nodeside.job_lookup import JOBS, Done, act_on_each
from slurm_plugin.records import durations, grant
from slurm_plugin.slurm import Slurm, changes


def _site() -> Mapping[str, Any]:
    return check_context.site(None).settings


def _time(options: Namespace) -> int:
    """Change the time limit of each job."""
    door, extend_s = job_lookup.door_to_slurm(), int(_site().get("extend_time_s", 0))
    seconds, longer = options.to

    def one(word: str) -> Done:
        job_id = _number(word, door, "time")
        job = job_lookup.living_job(door, job_id)
        if place := share_request.place(door, job):
            to = durations.UNLIMITED if seconds is None else f"{'+' * longer}{seconds}s"
            said = share_request.ask(door, job, place, "time", {"to": to})
        else:
            most_s = grant.longest_s(job, changes.time_limit_s(door, job_id), extend_s)
            with share_request.explained(job, "change the time of"):
                said = changes.change_time_limit(door, job_id, seconds, longer=longer, most_s=most_s)
        return Done(job_id, said, {"limit_s": changes.time_limit_s(door, job_id)})

    return act_on_each(options.jobs, "time", one, as_json=options.json)


def _number(word: str, door: Slurm, verb: str) -> int:
    """Return the number of a job. Raise NotRunningError for an array."""
    advice = f"name its tasks: slurm-plugin {verb} {{tasks}} ..."
    return job_lookup.one_job(word, door, None, job_lookup.NotRunningError, advice)


def _priority(options: Namespace) -> int:
    """Change the priority of each waiting job."""
    door, priorities = job_lookup.door_to_slurm(), _site().get("priorities", {})

    def one(word: str) -> Done:
        job_id = _number(word, door, "priority")
        with share_request.explained(door.job(job_id), "change the priority of"):
            said = changes.change_priority(door, job_id, options.to, priorities)
        return Done(job_id, said, {"priority": changes.priority_word(door.request(job_id), priorities)})

    return act_on_each(options.jobs, "priority", one, as_json=options.json)


EXITS = "Exit 0: it was changed; 1: Slurm or the site does not allow it; 2: wrong usage, or Slurm did not answer."
TIME = Command(
    "time",
    "Change the time limit of jobs: to 4h, or by +2h.\n\n"
    "A waiting job may have up to the limit of its partition. The limit of a running job can be lowered. It can "
    f"be raised by an operator, and by the owner if the site allows it (extend_time).\n\n{EXITS}",
    (
        JOBS,
        Parameter("to", "a new limit such as 4h, UNLIMITED, or an increase such as +2h", "TIME", read=durations.change),
        JSON,
    ),
    _time,
)
PRIORITY = Command(
    "priority",
    "Change the priority of waiting jobs, as the site maps the words.\n\n"
    "The site may limit how many urgent jobs a user or an account has queued and running. Operators make jobs "
    f"very-urgent.\n\n{EXITS}",
    (JOBS, Parameter("to", "normal, urgent or very-urgent", "PRIORITY"), JSON),
    _priority,
)
