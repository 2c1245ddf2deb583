"""`slurm-plugin policy`: what the site's rules make of a job, without submitting it."""

import json
import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from slurm_plugin import scripts, siteconfig, token
from slurm_plugin import submit as submission
from slurm_plugin.cli.jobs import config_option, flags_if_it_can_say, load_specs, read_file, spec_name
from slurm_plugin.policy import facts, judge, language, lua
from slurm_plugin.policy.facts import Asked
from slurm_plugin.site import job_submit

_NO_VAL = 4294967294  # slurm.NO_VAL
_NOTHING = ("nil", str(_NO_VAL))
# Of what a rule is about, as slurmctld has it.
_ABOUT = {"time_limit": "time", "min_nodes": "nodes", "max_nodes": "nodes", "admin_comment": "retries"}
_ANY_UID = 65534  # of a user that this machine does not know


@click.group()
def policy() -> None:
    """Say what the site's rules make of a job."""


@policy.command()
@click.argument("job_file", metavar="JOB.yaml|SCRIPT", type=click.Path(dir_okay=False, allow_dash=True))
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
    job_file: str,
    config: Path | None,
    user: str | None,
    default_partition: str | None,
    lua_file: Path | None,
    *,
    as_json: bool,
) -> int:
    """Run job_submit.lua on JOB.yaml outside Slurm: exit 0 where it accepts the job, 1 where it refuses.

    SCRIPT is a batch script, with its #SBATCH and #PLUGIN lines as slurm-plugin sbatch reads them.
    """
    settings = siteconfig.load(config)
    data = read_file(job_file)
    if scripts.is_script(data):
        jobs = [scripts.build(data, job_file, settings)]
    else:
        here = submission.here(settings)
        specs = load_specs(data, job_file, settings, flags_if_it_can_say)
        jobs = [submission.build(spec, here, spec_name(job_file)) for spec in specs]
    text = lua_file.read_text(errors="surrogateescape") if lua_file else job_submit(settings)
    name = user or submission.own_name()
    rules = None if lua_file or _uid(name) == 0 else language.compiled(settings.policy)
    parts = [said for job in jobs for said in facts.asked(job.script, job.arguments, os.environ)]
    return max([_tried(said, text, name, default_partition, rules, as_json=as_json) for said in parts])


def _tried(
    said: Asked,
    text: str,
    name: str,
    default_partition: str | None,
    rules: Mapping[str, Any] | None,
    *,
    as_json: bool,
) -> int:
    """Print what this job_submit.lua makes of one job, or of one group of it; 0 where it accepts it, else 1.

    `rules`: those that it was made of, which say who wants a change; None where it was not, and for root.
    """
    partitions = {
        each: {"flag_default": int(each == default_partition), "default_time": _NO_VAL, "max_time": judge.UNLIMITED}
        for each in (*(said.get("partition") or "").split(","), default_partition or "")
        if each
    }
    uid = _uid(name)
    answer = lua.outside(text, _description(said, name, uid), uid=uid, partitions=partitions)
    accepted = answer["code"] == 0
    because = _because(rules, said, name, default_partition) if rules is not None else {}
    changes = [(*each, because.get(_ABOUT.get(each[0], each[0]), "")) for each in answer["changes"]]
    if as_json:
        verdict = "accepted" if accepted else "refused"
        shown = [
            {"field": field, "from": None if before in _NOTHING else before, "to": after, "because": why or None}
            for field, before, after, why in changes
        ]
        words = {"messages": "\n".join(answer["user"]).splitlines(), "log": answer["log"]}
        click.echo(json.dumps({"verdict": verdict, "user": name, "changes": shown, **words}))
        return int(not accepted)
    click.echo("accepted" if accepted else "refused")
    for field, before, after, why in changes:
        click.echo(f"  {field}: {_value(field, before)} -> {_value(field, after)}{f' ({why})' if why else ''}")
    for line in "\n".join(answer["user"]).splitlines():
        click.echo(f"  {line}")
    if uid == 0:
        click.echo("  root is held to no rule; name another with --user", err=True)
    if not partitions:
        click.echo("  the job names no partition; name the cluster's default with --default-partition", err=True)
    return int(not accepted)


def _because(rules: Mapping[str, Any], said: Asked, user: str, default_partition: str | None) -> Mapping[str, str]:
    """Who wants each change: the defaults or a rule, as far as it can be told outside Slurm."""
    known = facts.facts(said, user)
    if default_partition and "partition" in known.unknown and not rules["defaults"].get("partition"):
        names = {**known.names, "partition": (default_partition,)}
        known = replace(known, names=names, unknown=known.unknown - {"partition"})
    if "partition" in known.names:
        known = replace(known, default_time=judge.UNLIMITED)  # as the stand-in for Slurm has it
    found, asked = judge.submitted(rules, known), token.find(said.get("comment") or "")
    most = found.retries
    granted_all = most is None or asked is None or asked.retries <= most
    return {name: why for name, why in found.because.items() if name != "retries" or not granted_all}


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
