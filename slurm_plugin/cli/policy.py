"""`slurm-plugin policy`: try the site's rules on a job, without submitting it."""

import json
import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from slurm_plugin.cli.group import json_option
from slurm_plugin.cli.nodeside.spec_file import load_specs, read_file, spec_name
from slurm_plugin.cli.specs import config_option, flags_if_it_can_say
from slurm_plugin.records import token
from slurm_plugin.site import configuration, lua
from slurm_plugin.slurm import connect, own_name
from slurm_plugin.spec import policy_language, submit_config
from slurm_plugin.submit import policy_verdict, submission
from slurm_plugin.submit.policy_verdict import JobOptions
from slurm_plugin.submit.wrapper import batch_script, plugin_command

_NO_VAL = 4294967294  # slurm.NO_VAL
_NOTHING = ("nil", str(_NO_VAL))
# slurmctld's field -> the name that rules use.
_ABOUT = {"time_limit": "time", "min_nodes": "nodes", "max_nodes": "nodes", "admin_comment": "retries"}
_ANY_UID = 65534  # for a user that this machine does not know


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
@json_option
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
    settings, own = configuration.load(config), submit_config.load(config)
    data = read_file(job_file)
    if batch_script.is_script(data):
        jobs = [submission.of_script(data, job_file, settings.sbatch, settings.command)]
    else:
        here = submission.here(settings)
        specs = load_specs(data, job_file, own, flags_if_it_can_say)
        jobs = [submission.build(spec, here, spec_name(job_file)) for spec in specs]
    plain = lua_file is None and plugin_command.is_plain(settings.command, connect)
    if plain and not (config or submit_config.DEFAULT_PATH.exists()):
        words = f"{plugin_command.NOT_INSTALLED}: no rule applies, and no restart is granted"
        nothing = {"verdict": "accepted", "user": user or own_name(), "changes": [], "messages": [words]}
        click.echo(json.dumps({**nothing, "log": []}) if as_json else f"accepted\n  {words}")
        return 0
    if plain:
        click.echo(f"{plugin_command.NOT_INSTALLED}: these rules do not apply yet", err=True)
    text = lua_file.read_text(errors="surrogateescape") if lua_file else lua.job_submit(settings)
    name = user or own_name()
    rules = None if lua_file or _uid(name) == 0 else policy_language.compiled(settings.policy)
    parts = [part for job in jobs for part in policy_verdict.jobs(job.script, job.arguments, os.environ)]
    return max([_try_rules(part, text, name, default_partition, rules, as_json=as_json) for part in parts])


def _try_rules(
    job: JobOptions,
    text: str,
    name: str,
    default_partition: str | None,
    rules: Mapping[str, Any] | None,
    *,
    as_json: bool,
) -> int:
    """Run the job_submit.lua in `text` on a job or one of its groups. Print the verdict. Return 0 if accepted, else 1.

    `rules`: the rules that the script was made from; they give the cause of a change. None for --lua, and for root.
    """
    partitions = {
        each: {
            "flag_default": int(each == default_partition),
            "default_time": _NO_VAL,
            "max_time": policy_verdict.UNLIMITED,
        }
        for each in (*(job.get("partition") or "").split(","), default_partition or "")
        if each
    }
    uid = _uid(name)
    answer = lua.outside(text, _description(job, name, uid), uid=uid, partitions=partitions)
    accepted = answer["code"] == 0
    because = _because(rules, job, name, default_partition) if rules is not None else {}
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


def _because(rules: Mapping[str, Any], job: JobOptions, user: str, default_partition: str | None) -> Mapping[str, str]:
    """Return the cause of each change, the defaults or a rule, if it is known outside Slurm."""
    known = policy_verdict.facts(job, user)
    if default_partition and "partition" in known.unknown and not rules["defaults"].get("partition"):
        names = {**known.names, "partition": (default_partition,)}
        known = replace(known, names=names, unknown=known.unknown - {"partition"})
    if "partition" in known.names:
        known = replace(known, default_time=policy_verdict.UNLIMITED)  # as in the partitions of `_try_rules`
    found, request = policy_verdict.submitted(rules, known), token.find(job.get("comment") or "")
    most = found.retries
    granted_all = most is None or request is None or request.retries <= most
    return {name: why for name, why in found.because.items() if name != "retries" or not granted_all}


def _description(job: JobOptions, user: str, uid: int) -> dict[str, Any]:
    """Return the job description that job_submit.lua gets, with only the fields that a policy can read."""
    least, most = job.nodes
    names = {"account": "account", "partition": "partition", "qos": "qos", "reservation": "reservation"}
    names |= {"comment": "comment", "name": "job-name"}
    return {
        **{field: value for field, option in names.items() if (value := job.get(option))},
        "user_name": user,
        "user_id": uid,
        "min_nodes": least or _NO_VAL,
        "max_nodes": most or _NO_VAL,
        "time_limit": job.minutes or _NO_VAL,
    }


def _uid(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return _ANY_UID


def _value(field: str, text: str) -> str:
    """Return the value of a job's field as text for people."""
    if text in _NOTHING:
        return "not given"
    return policy_verdict.clock(int(text)) if field == "time_limit" and text.isdigit() else text
