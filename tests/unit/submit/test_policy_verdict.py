"""Python and the rendered job_submit.lua judge a policy: the same verdict, with the same messages."""

import json
import random
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_plugin.site import lua
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.lua import job_submit
from slurm_plugin.spec import policy_language
from slurm_plugin.spec.policy_language import FIELDS, Policy
from slurm_plugin.submit import policy_verdict
from slurm_plugin.submit.policy_verdict import UNLIMITED, Facts

NO_VAL = 4294967294
REFUSED = 2050  # ESLURM_ACCOUNTING_POLICY
NAMES = {
    "user": ["alice", "bob"],
    "account": ["bio", "chem"],
    "partition": ["debug", "gpu", "long"],
    "qos": ["high"],
    "reservation": ["maint"],
}
PARTITIONS = {
    "debug": {"flag_default": 1, "default_time": 30, "max_time": 120},
    "gpu": {"flag_default": 0, "default_time": NO_VAL, "max_time": UNLIMITED},
    "long": {"flag_default": 0, "default_time": NO_VAL, "max_time": 1440},
}
LUA_CHANGES = {"time_limit": "time", "max_nodes": "nodes"}

SOME = st.fixed_dictionaries(
    {}, optional={name: st.lists(st.sampled_from(each), min_size=1, max_size=2) for name, each in NAMES.items()}
)
GIVEN = ["account", "partition", "qos", "reservation", "nodes", "time"]
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "nodes": st.integers(1, 8),
        "time": st.sampled_from(["1m", "1h", "36h", "2d"]),
        "retries": st.integers(0, 4),
    },
)
MESSAGES = st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=40)
RULES = st.fixed_dictionaries(
    {"name": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)},
    optional={
        "when": SOME,
        "required": st.lists(st.sampled_from(GIVEN), max_size=2),
        "limit": LIMITS,
        "allow": SOME,
        "deny": st.sampled_from(["yes", "no"]),
        "message": MESSAGES,
    },
)
POLICIES = st.fixed_dictionaries(
    {"rules": st.lists(RULES, min_size=1, max_size=5)},
    optional={
        "defaults": st.fixed_dictionaries(
            {},
            optional={
                "account": st.just("chem"),
                "partition": st.just("long"),
                "qos": st.just("high"),
                "reservation": st.just("maint"),
                "time": st.just("2h"),
            },
        ),
        "required": st.lists(st.sampled_from(GIVEN), max_size=2),
    },
)
HOSTILE = st.text(st.characters(exclude_characters="\0,", exclude_categories=("Cs",)), min_size=1, max_size=70)


def value(name: str) -> st.SearchStrategy[str]:
    """A name that a user gives. Mostly a rule knows it."""
    return st.sampled_from([*NAMES[name], *map(str.upper, NAMES[name]), ""]) | HOSTILE


JOBS = st.fixed_dictionaries(
    {"user_name": st.sampled_from(NAMES["user"])},
    optional={
        "account": value("account"),
        "partition": st.lists(value("partition"), min_size=1, max_size=3).map(",".join),
        "qos": value("qos"),
        "reservation": value("reservation"),
        "min_nodes": st.integers(0, 10),
        "max_nodes": st.integers(0, 10),
        "time_limit": st.sampled_from([0, 1, 30, 60, 61, 1440, 100000, UNLIMITED]),
    },
)


def policy_of(fields: dict[str, Any]) -> Policy:
    """Return a policy as the site file has it."""
    return msgspec.convert(fields, Policy, strict=False)


def description(job: dict[str, Any]) -> dict[str, Any]:
    """Return the job as slurmctld passes it."""
    return {"min_nodes": NO_VAL, "max_nodes": NO_VAL, "time_limit": NO_VAL, **job}


def facts(job: dict[str, Any]) -> Facts:
    """Return slurmctld's facts about the job, for Python's judge."""
    names = {name: policy_verdict.known(name, job[name]) for name in FIELDS if name in job}
    names["user"] = (job["user_name"],)
    names["partition"] = names.get("partition") or ("debug",)  # the default one
    least, most = job.get("min_nodes") or None, job.get("max_nodes") or None
    time = (job["time_limit"] or UNLIMITED) if "time_limit" in job else None
    given = {
        name for name in ("account", "partition", "qos", "reservation") if policy_verdict.known(name, job.get(name, ""))
    }
    given |= {"nodes"} if least else set()
    given |= {"time"} if time else set()
    return Facts(names, frozenset(given), least, most, time, default_time(names["partition"]))


def default_time(partitions: tuple[str, ...]) -> int | None:
    """Return the longest default time of these partitions."""
    times = [PARTITIONS[name] for name in partitions if name in PARTITIONS]
    return max((t["max_time"] if t["default_time"] == NO_VAL else t["default_time"] for t in times), default=None)


def by_python(policy: Policy, job: dict[str, Any]) -> tuple[list[str], dict[str, str], int | None]:
    """Return the refusals, the changes if there are none, and the most restarts."""
    found = facts(job)
    if policy.defaults.partition and not job.get("partition", "").strip(
        ","
    ):  # slurmctld knows the default time of that partition
        found = msgspec.structs.replace(found, default_time=default_time((policy.defaults.partition,)))
    verdict = policy_verdict.submitted(policy_language.compiled(policy), found)
    texts = list(verdict.refusals)
    changes = {} if texts else {name: str(to) for name, to in verdict.changes}
    return texts, changes, verdict.retries


def by_lua(policy: Policy, job: dict[str, Any]) -> tuple[list[str], dict[str, str], int]:
    """Return the same from the file that a site deploys. The restarts are those of a job that requests the most."""
    text = job_submit(SiteConfig(policy=policy))
    asked = {**description(job), "comment": "[sp1;retries=128]"}
    answer = lua.outside(text, asked, uid=1000, partitions=PARTITIONS)
    assert answer["code"] == (REFUSED if answer["user"] else 0)
    texts = answer["user"][0].split("\n") if answer["user"] else []
    changes = {LUA_CHANGES.get(field, field): after for field, _, after in answer["changes"]}
    granted = changes.pop("admin_comment", 'sp1:{"granted":-1}')
    return texts, {} if texts else changes, json.loads(granted.removeprefix("sp1:"))["granted"]


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(POLICIES, JOBS)
def test_any_policy_on_any_job(fields: dict[str, Any], job: dict[str, Any]) -> None:
    """Refusals, changes and restarts are equal, whatever the rules and the job."""
    policy = policy_of(fields)
    texts, changes, retries = by_python(policy, job)
    said, done, granted = by_lua(policy, job)
    assert (said, done) == (texts, changes)
    if not texts:
        assert granted == (128 if retries is None else retries)


RULED = {
    "defaults": {"account": "bio", "time": "2h"},
    "required": ["nodes"],
    "rules": [
        {
            "name": "small",
            "when": {"partition": ["debug"]},
            "limit": {"nodes": 2, "time": "1h", "retries": 1},
            "message": "larger: -p gpu",
        },
        {"name": "chemists", "when": {"partition": ["gpu"], "qos": ["high"]}, "allow": {"account": ["chem"]}},
        {"name": "closed", "when": {"user": ["bob"], "partition": ["long"]}, "deny": "yes"},
        {"name": "booked", "when": {"qos": ["high"]}, "required": ["reservation"]},
    ],
}
SMALL = "slurm_plugin: rule small (partition debug): "


def test_words() -> None:
    """Each refusal names the rule, the matched value, what was found and what is accepted, in both."""
    cases = [
        ({"min_nodes": 2, "max_nodes": 2, "time_limit": 60}, []),
        ({"time_limit": 60}, ["slurm_plugin: rule required: nodes: missing; give --nodes"]),
        (
            {"min_nodes": 1, "max_nodes": 3, "time_limit": 60},
            [f"{SMALL}nodes: found 3; accepted: up to 2; larger: -p gpu"],
        ),
        ({"min_nodes": 1}, [f"{SMALL}time: found 02:00:00; accepted: up to 01:00:00; larger: -p gpu"]),
        (
            {"min_nodes": 3, "time_limit": 0},
            [
                f"{SMALL}nodes: found 3; accepted: up to 2; larger: -p gpu",
                f"{SMALL}time: found UNLIMITED; accepted: up to 01:00:00; larger: -p gpu",
            ],
        ),
        ({"min_nodes": 9, "partition": "gpu"}, []),
        (
            {"min_nodes": 9, "partition": "gpu,long", "qos": "high"},
            [
                "slurm_plugin: rule chemists (partition gpu, qos high): account: found bio; accepted: chem",
                "slurm_plugin: rule booked (qos high): reservation: missing; give --reservation",
            ],
        ),
        (
            {"min_nodes": 9, "partition": "long", "user_name": "bob"},
            ["slurm_plugin: rule closed (user bob, partition long): not accepted"],
        ),
    ]
    for job, refusals in cases:
        policy, whole = policy_of(RULED), {"user_name": "alice", **job}
        assert by_python(policy, whole)[0] == refusals, job
        assert by_lua(policy, whole)[0] == refusals, job


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(st.lists(HOSTILE | MESSAGES, min_size=1, max_size=10), st.randoms())
def test_any_text_makes_right_lua(texts: list[str], chance: random.Random) -> None:
    """With any message and name the file loads, and returns the text unchanged."""
    word = chance.choice(texts)
    fields = {"name": "x", "allow": {"account": [word]}, "message": "".join(texts)}
    policy = policy_of({"rules": []})
    text = job_submit(SiteConfig(policy=policy_of(RULED)))
    table = lua.table({"on_error": "accept", "defaults": {}, "rules": [fields]})
    head, tail = text.split("local policy = ", 1)
    whole = f"{head}local policy = {table}\n\nlocal function number{tail.split('local function number', 1)[1]}"
    lua.check(whole)
    answer = lua.outside(whole, description({"user_name": "alice"}), uid=1000, partitions=PARTITIONS)
    assert answer["user"] == [f"slurm_plugin: rule x: account: found none; accepted: {word}; {''.join(texts)}"]
    assert not policy.rules
