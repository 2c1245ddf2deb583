"""A submission as sbatch reads it, and facts that a client does not know."""

from slurm_plugin.spec import policy_language
from slurm_plugin.spec.policy_language import Defaults, Limit, Names, Policy, Rule
from slurm_plugin.submit import policy_verdict
from slurm_plugin.submit.policy_verdict import UNLIMITED, JobOptions

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
    (said,) = policy_verdict.jobs(SCRIPT, (), {})
    assert said.options == {
        "job-name": "a",
        "partition": "debug,gpu",
        "nodes": "2-4",
        "time": "90",
        "account": "bio",
        "comment": "[sp1;retries=3]",
    }
    (said,) = policy_verdict.jobs(
        SCRIPT, ("--time=5", "-q", "high"), {"SBATCH_PARTITION": "long", "SBATCH_TIMELIMIT": "7"}
    )
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
    """sbatch copies account and time, but not partition and nodes. Its variables and arguments count for all."""
    found = [dict(said.options) for said in policy_verdict.jobs(HETEROGENEOUS, (), {})]
    assert found == [
        {"partition": "cpu", "nodes": "1", "account": "bio", "time": "90"},
        {"nodes": "4", "account": "chem", "time": "90"},
        {"partition": "gpu", "account": "bio", "time": "90"},
    ]
    found = [dict(said.options) for said in policy_verdict.jobs(HETEROGENEOUS, ("-t5",), {"SBATCH_PARTITION": "all"})]
    assert [(each["partition"], each["time"]) for each in found] == [("all", "5")] * 3


def test_a_job_named_like_the_separator_is_one_job() -> None:
    """The separator is a line's first word, in any letter case, and options may follow it."""
    for line in ["-J hetjob", "--comment hetjob", "--job-name=x --comment 'hetjob'"]:
        text = f"#SBATCH --partition=cpu\n#SBATCH {line}\n#SBATCH --nodes=2\n"
        (said,) = policy_verdict.jobs(text, (), {})
        assert (said.get("partition"), said.get("nodes")) == ("cpu", "2"), line
        _, said = policy_verdict.jobs(f"{text}#SBATCH HetJob --partition=gpu\n", (), {})
        assert said.get("partition") == "gpu", line


def test_a_policy_judges_each_component() -> None:
    """One refused component is enough. Each reason occurs once."""
    rules = (
        Rule("gpu", when=Names(partition=("gpu",)), limit=Limit(nodes=2, retries=1)),
        Rule("all", limit=Limit(nodes=3, retries=5)),
    )
    policy = policy_language.compiled(Policy(rules=rules))
    text = "#SBATCH --partition=cpu --nodes=4\n#SBATCH hetjob\n#SBATCH --partition=gpu --nodes=4\n"
    parts = [
        policy_verdict.submitted(policy, policy_verdict.facts(said, "alice"))
        for said in policy_verdict.jobs(text, (), {})
    ]
    whole = policy_verdict.combine(parts)
    assert list(whole.refusals) == [
        "slurm_plugin: rule all: nodes: found 4; accepted: up to 3",
        "slurm_plugin: rule gpu (partition gpu): nodes: found 4; accepted: up to 2",
    ]


def test_nodes() -> None:
    """The fewest and the most. Forms that sbatch may read otherwise are left to the controller."""
    cases = [
        ("4", (4, 4)),
        ("2-4", (2, 4)),
        ("0", (None, None)),
        ("1,3", (None, None)),
        ("2k", (None, None)),
        ("", (None, None)),
    ]
    for text, expected in cases:
        assert JobOptions({"nodes": text}).nodes == expected, text


def test_minutes() -> None:
    """Rounded up, as in Slurm."""
    for text, expected in [
        ("90", 90),
        ("1:30", 2),
        ("0:30:00", 30),
        ("1-00", 1440),
        ("0", UNLIMITED),
        ("UNLIMITED", UNLIMITED),
        ("", None),
    ]:
        assert JobOptions({"time": text}).minutes == expected, text


def test_what_a_client_cannot_know_is_left_to_the_controller() -> None:
    """The default partition, account and QOS: no rule about them applies or is violated."""
    rules = (
        Rule("debug", when=Names(partition=("debug",)), limit=Limit(nodes=1)),
        Rule("accounts", allow=Names(account=("bio",), qos=("high",))),
        Rule("given", required=("partition", "reservation")),
        Rule("user", when=Names(user=("alice",)), limit=Limit(nodes=3)),
    )
    policy = policy_language.compiled(Policy(rules=rules))
    verdict = policy_verdict.submitted(policy, policy_verdict.facts(JobOptions({"nodes": "4"}), "alice"))
    assert list(verdict.refusals) == [
        "slurm_plugin: rule given: partition: missing; give --partition",
        "slurm_plugin: rule given: reservation: missing; give --reservation",
        "slurm_plugin: rule user (user alice): nodes: found 4; accepted: up to 3",
    ]
    known = policy_language.compiled(Policy(defaults=Defaults(partition="debug", account="chem"), rules=rules[:2]))
    verdict = policy_verdict.submitted(known, policy_verdict.facts(JobOptions({"nodes": "4"}), "alice"))
    assert list(verdict.refusals) == [
        "slurm_plugin: rule debug (partition debug): nodes: found 4; accepted: up to 1",
        "slurm_plugin: rule accounts: account: found chem; accepted: bio",
    ]
    assert verdict.changes == (("account", "chem"), ("partition", "debug"))
