"""Mirrors slurm_plugin/policy/facts.py: a submission as sbatch reads it, and what a client cannot know of it."""

import pytest

from slurm_plugin.policy import facts, judge, language
from slurm_plugin.policy.facts import Asked
from slurm_plugin.policy.judge import UNLIMITED
from slurm_plugin.policy.language import Defaults, Limit, Names, Policy, Rule

SCRIPT = """#!/bin/bash
# a line of ours
#SBATCH --job-name=a
#SBATCH --partition="debug,gpu"   # two
#SBATCH --nodes=2-4 -t 90
#SBATCH -Abio
#SBATCH --comment "[sp1;retries=3]" --hint=x
#SBATCH --output='unclosed

echo
#SBATCH --qos=late
"""


def test_what_counts() -> None:
    """The script's directives above its first command, then sbatch's variables, then arguments."""
    (said,) = facts.asked(SCRIPT, (), {})
    assert said.options == {
        "job-name": "a",
        "partition": "debug,gpu",
        "nodes": "2-4",
        "time": "90",
        "account": "bio",
        "comment": "[sp1;retries=3]",
    }
    (said,) = facts.asked(SCRIPT, ("--time=5", "-q", "high"), {"SBATCH_PARTITION": "long", "SBATCH_TIMELIMIT": "7"})
    assert (said.get("partition"), said.get("time"), said.get("qos"), said.get("account")) == (
        "long",
        "5",
        "high",
        "bio",
    )


HETEROGENEOUS = """#!/bin/bash
#SBATCH --partition=cpu --nodes=1 --account=bio -t 90
#SBATCH hetjob
#SBATCH --nodes=4 --account=chem
#SBATCH hetjob
#SBATCH --partition=gpu
"""


def test_each_component_of_a_heterogeneous_job() -> None:
    """sbatch hands account and time on, partition and nodes not; its variables and arguments count for all."""
    found = [dict(said.options) for said in facts.asked(HETEROGENEOUS, (), {})]
    assert found == [
        {"partition": "cpu", "nodes": "1", "account": "bio", "time": "90"},
        {"nodes": "4", "account": "chem", "time": "90"},
        {"partition": "gpu", "account": "bio", "time": "90"},
    ]
    found = [dict(said.options) for said in facts.asked(HETEROGENEOUS, ("-t5",), {"SBATCH_PARTITION": "all"})]
    assert [(each["partition"], each["time"]) for each in found] == [("all", "5")] * 3


@pytest.mark.parametrize("line", ["-J hetjob", "--comment hetjob", "--job-name=x --comment 'hetjob'"])
def test_a_job_named_like_the_separator_is_one_job(line: str) -> None:
    """It is a line's first word alone, in any case, and options may stand behind it."""
    text = f"#SBATCH --partition=cpu\n#SBATCH {line}\n#SBATCH --nodes=2\n"
    (said,) = facts.asked(text, (), {})
    assert (said.get("partition"), said.get("nodes")) == ("cpu", "2")
    _, said = facts.asked(f"{text}#SBATCH HetJob --partition=gpu\n", (), {})
    assert said.get("partition") == "gpu"


def test_a_policy_judges_each_component() -> None:
    """One that is refused is enough, with each reason once; the fewest restarts count."""
    rules = (
        Rule("gpu", when=Names(partition=("gpu",)), limit=Limit(nodes=2, retries=1)),
        Rule("all", limit=Limit(nodes=3, retries=5)),
    )
    policy = language.compiled(Policy(rules=rules))
    text = "#SBATCH --partition=cpu --nodes=4\n#SBATCH hetjob\n#SBATCH --partition=gpu --nodes=4\n"
    parts = [judge.submitted(policy, facts.facts(said, "alice")) for said in facts.asked(text, (), {})]
    whole = judge.together(parts)
    assert [refusal.text for refusal in whole.refusals] == [
        "slurm_plugin: rule all: nodes: found 4; accepted: up to 3",
        "slurm_plugin: rule gpu (partition gpu): nodes: found 4; accepted: up to 2",
    ]
    assert whole.retries == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4", (4, 4)),
        ("2-4", (2, 4)),
        ("0", (None, None)),
        ("1,3", (None, None)),
        ("2k", (None, None)),
        ("", (None, None)),
    ],
)
def test_nodes(text: str, expected: tuple[int | None, int | None]) -> None:
    """The fewest and the most; what sbatch may read otherwise is left to the controller."""
    assert Asked({"nodes": text}).nodes == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90), ("1:30", 2), ("0:30:00", 30), ("1-00", 1440), ("0", UNLIMITED), ("UNLIMITED", UNLIMITED), ("", None)],
)
def test_minutes(text: str, expected: int | None) -> None:
    """Rounded up, as Slurm does."""
    assert Asked({"time": text}).minutes == expected


def test_what_a_client_cannot_know_is_left_to_the_controller() -> None:
    """The default partition, account and QOS: no rule about them is met, and none is broken."""
    rules = (
        Rule("debug", when=Names(partition=("debug",)), limit=Limit(nodes=1)),
        Rule("accounts", allow=Names(account=("bio",), qos=("high",))),
        Rule("given", required=("partition", "reservation")),
        Rule("user", when=Names(user=("alice",)), limit=Limit(nodes=3)),
    )
    policy = language.compiled(Policy(rules=rules))
    verdict = judge.submitted(policy, facts.facts(Asked({"nodes": "4"}), "alice"))
    assert [refusal.text for refusal in verdict.refusals] == [
        "slurm_plugin: rule given: partition: missing; give --partition",
        "slurm_plugin: rule given: reservation: missing; give --reservation",
        "slurm_plugin: rule user (user alice): nodes: found 4; accepted: up to 3",
    ]
    known = language.compiled(Policy(defaults=Defaults(partition="debug", account="chem"), rules=rules[:2]))
    verdict = judge.submitted(known, facts.facts(Asked({"nodes": "4"}), "alice"))
    assert [refusal.text for refusal in verdict.refusals] == [
        "slurm_plugin: rule debug (partition debug): nodes: found 4; accepted: up to 1",
        "slurm_plugin: rule accounts: account: found chem; accepted: bio",
    ]
    assert verdict.changes == (("account", "chem"), ("partition", "debug"))
