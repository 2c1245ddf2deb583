"""`slurm-plugin policy`: what the site's rules make of a job, without submitting it."""

import json
import os
import pwd
from pathlib import Path
from typing import Any

import click

from slurm_plugin import siteconfig
from slurm_plugin import submit as submission
from slurm_plugin.cli.jobs import config_option, flags_if_it_can_say, read_specs, spec_argument, spec_name
from slurm_plugin.policy import facts, judge, lua
from slurm_plugin.policy.facts import Asked
from slurm_plugin.site import job_submit

_NO_VAL = 4294967294  # slurm.NO_VAL
_NOTHING = ("nil", str(_NO_VAL))
_ANY_UID = 65534  # of a user that this machine does not know


@click.group()
def policy() -> None:
    """Say what the site's rules make of a job."""


@policy.command()
@spec_argument
@config_option
@click.option("--user", help="Who submits it.  [default: you]")
@click.option("--default-partition", metavar="NAME", help="The cluster's default partition, for a job that names none.")
@click.option(
    "--lua",
    "lua_file",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="A job_submit.lua to run.  [default: what `site render` makes of the site file]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def test(
    spec_file: str,
    config: Path | None,
    user: str | None,
    default_partition: str | None,
    lua_file: Path | None,
    *,
    as_json: bool,
) -> int:
    """Run job_submit.lua on JOB.yaml outside Slurm: exit 0 where it accepts the job, 1 where it refuses."""
    settings = siteconfig.load(config)
    specs = read_specs(spec_file, settings, flags_if_it_can_say)
    text = lua_file.read_text(errors="surrogateescape") if lua_file else job_submit(settings)
    name, here = user or submission.own_name(), submission.here(settings)
    jobs = [submission.build(spec, here, spec_name(spec_file)) for spec in specs]
    return max([_tried(job, text, name, default_partition, as_json=as_json) for job in jobs])


def _tried(job: submission.Submission, text: str, name: str, default_partition: str | None, *, as_json: bool) -> int:
    """Print what this job_submit.lua makes of one job; 0 where it accepts it, else 1."""
    said = facts.asked(job.script, job.arguments, os.environ)
    partitions = {
        each: {"flag_default": int(each == default_partition), "default_time": _NO_VAL, "max_time": judge.UNLIMITED}
        for each in (*(said.get("partition") or "").split(","), default_partition or "")
        if each
    }
    uid = _uid(name)
    answer = lua.outside(text, _description(said, name, uid), uid=uid, partitions=partitions)
    accepted = answer["code"] == 0
    if as_json:
        verdict = "accepted" if accepted else "refused"
        changes = [
            {"field": field, "from": None if before in _NOTHING else before, "to": after}
            for field, before, after in answer["changes"]
        ]
        words = {"messages": "\n".join(answer["user"]).splitlines(), "log": answer["log"]}
        click.echo(json.dumps({"verdict": verdict, "user": name, "changes": changes, **words}))
        return int(not accepted)
    click.echo("accepted" if accepted else "refused")
    for field, before, after in answer["changes"]:
        click.echo(f"  {field}: {_value(field, before)} -> {_value(field, after)}")
    for line in "\n".join(answer["user"]).splitlines():
        click.echo(f"  {line}")
    if uid == 0:
        click.echo("  root is held to no rule; name another with --user", err=True)
    if not partitions:
        click.echo("  the job names no partition; name the cluster's default with --default-partition", err=True)
    return int(not accepted)


def _description(said: Asked, user: str, uid: int) -> dict[str, Any]:
    """What slurmctld hands to job_submit.lua, as far as a policy can see it."""
    least, most = said.nodes
    names = {"account": "account", "partition": "partition", "qos": "qos", "reservation": "reservation"}
    names |= {"comment": "comment", "name": "job-name"}
    return {
        **{field: value for field, option in names.items() if (value := said.get(option))},
        "user_name": user,
        "user_id": uid,
        "min_nodes": least or _NO_VAL,
        "max_nodes": most or _NO_VAL,
        "time_limit": said.minutes or _NO_VAL,
    }


def _uid(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return _ANY_UID


def _value(field: str, text: str) -> str:
    """A value of a job as a line shows it."""
    if text in _NOTHING:
        return "not given"
    return judge.clock(int(text)) if field == "time_limit" and text.isdigit() else text
