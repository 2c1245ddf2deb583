"""The accepted keys of `policy` in the site file, and messages about others."""

from pathlib import Path

from slurm_plugin.errors import UsageError
from slurm_plugin.site import compilation, configuration
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.lua import job_submit
from slurm_plugin.spec import policy_language
from tests.refusals import refusal_of

WHOLE = """
policy:
  on_error: refuse
  defaults: {account: bio, time: 90m}
  required: [partition]
  checks: [gpu]
  rules:
    - name: small
      when: {partition: [debug], user: [bob, alice]}
      limit: {nodes: 2, time: 1-00, retries: 0}
      message: ask us
    - {name: closed, when: {qos: [old]}, deny: yes}
    - {name: owners, allow: {account: [Bio, chem]}, required: [qos]}
"""


def load(tmp_path: Path, text: str) -> SiteConfig:
    """Return the settings of a site file."""
    (tmp_path / "site.yaml").write_text(text)
    return configuration.load(tmp_path / "site.yaml")


def test_a_whole_policy(tmp_path: Path) -> None:
    """Times become minutes, empty entries are left out, a limit of 0 stays, and `required` is a rule."""
    config = load(tmp_path, WHOLE)
    assert policy_language.compiled(config.policy) == {
        "on_error": "refuse",
        "defaults": {"account": "bio", "time": 90},
        "rules": [
            {"name": "required", "required": ["partition"]},
            {
                "name": "small",
                "when": {"user": ["bob", "alice"], "partition": ["debug"]},
                "message": "ask us",
                "nodes": 2,
                "time": 1440,
                "retries": 0,
            },
            {"name": "closed", "when": {"qos": ["old"]}, "deny": True},
            {"name": "owners", "required": ["qos"], "allow": {"account": ["bio", "chem"]}},
        ],
    }
    assert compilation.compile_site(config)["check_partitions"] == ["gpu"]


def test_without_rules_the_lua_is_the_grant_alone(tmp_path: Path) -> None:
    """Without rules, or with `checks` alone, slurmctld runs no line of a policy."""
    plain = job_submit(SiteConfig())
    assert job_submit(load(tmp_path, "policy: {checks: [gpu]}\n")) == plain
    assert "policy" not in plain
    assert "local policy = {" in job_submit(load(tmp_path, WHOLE))


def test_what_is_refused(tmp_path: Path) -> None:
    """Each problem names its place, what was found and what is accepted."""
    cases = [
        ("on_error: ignore", "policy.on_error: found 'ignore'; accepted: accept, refuse"),
        ("default: {}", "policy.default: unknown key; accepted: on_error, defaults, required, checks, rules; did you"),
        ("required: [tme]", "policy.required: found 'tme'; accepted: a list of "),
        ("{defaults: {time: 1h}, required: [time]}", "policy.required: found time, which has a default; keep one"),
        ("defaults: {time: soon}", "policy.defaults.time: found 'soon'; accepted: 90s, 30m"),
        ("defaults: {time: 30s}", "policy.defaults.time: found '30s'; accepted: one minute or more"),
        ("rules: {name: a}", "policy.rules: found a mapping; accepted: a list of {name: "),
        ("rules: [{limit: {nodes: 2}}]", "line 1: policy.rules.0.name: missing; accepted: a name of up to 64"),
        ("rules: [{name: a}]", "policy.rules.0: found a rule that says nothing; give required, limit, allow or deny"),
        ("rules: [{name: a b, deny: yes}]", "policy.rules.0.name: found 'a b'; accepted: a name of up to 64 letters"),
        ("rules: [{name: a, deny: yes}, {name: a, deny: yes}]", "policy.rules.1.name: found 'a' a second time"),
        ("rules: [{name: a, deny: yes, limit: {nodes: 1}}]", "policy.rules.0: found deny with other conditions"),
        ("rules: [{name: a, limit: {nodes: 0}}]", "policy.rules.0.limit.nodes: found '0'; accepted: a whole number"),
        ("rules: [{name: a, limit: {time: 0}}]", "policy.rules.0.limit.time: found '0'; accepted: more than 0"),
        ("rules: [{name: a, limit: {retries: 200}}]", "policy.rules.0.limit.retries: found '200'; accepted: a whole"),
        ("rules: [{name: a, when: {groups: [x]}, deny: yes}]", "policy.rules.0.when.groups: unknown key; accepted: "),
        ("rules: [{name: a, allow: {user: [a b]}}]", "policy.rules.0.allow.user: found 'a b'; accepted: "),
        (
            'rules: [{name: a, deny: yes, message: "a\\nb"}]',
            "policy.rules.0.message: found 'a\\nb'; accepted: one line",
        ),
        ("checks: gpu", "policy.checks: found 'gpu'; accepted: a list of texts"),
    ]
    for text, message in cases:
        body = text if text.startswith("{") else f"{{{text}}}"
        refused = refusal_of(UsageError, load, tmp_path, f"policy: {body}\n")
        assert message in refused, text
