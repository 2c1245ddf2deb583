"""site.lua, and the parts of job_submit.lua that Python does not have: edits, and its own errors."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from slurm_plugin.errors import MissingError, SlurmPluginError
from slurm_plugin.site import lua
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.lua import job_submit
from slurm_plugin.spec.policy_language import Policy

NO_VAL, INFINITE, REFUSED = 4294967294, 4294967295, 2050
ALICE = 1000
PARTITIONS = {
    "main": {"flag_default": 1, "default_time": NO_VAL, "max_time": INFINITE},
    "debug": {"flag_default": 0, "default_time": NO_VAL, "max_time": INFINITE},
}
RULES: list[dict[str, Any]] = [
    {"name": "small", "when": {"partition": ["debug"]}, "limit": {"nodes": 2, "time": "1h", "retries": 1}},
    {"name": "bio", "allow": {"account": ["bio", "chem"]}},
]
# A job in debug as slurmctld has it, within every limit.
RECORD = {
    "user_id": ALICE,
    "account": "bio",
    "partition": "debug",
    "min_nodes": 2,
    "max_nodes": 2,
    "time_limit": 60,
    "admin_comment": 'project x sp1:{"granted":1,"requeues":0,"last":"sp1:{\\"granted\\":99"}',
}


def text(on_error: str = "accept", rules: Sequence[Mapping[str, Any]] = RULES) -> str:
    """Render job_submit.lua with these rules."""
    policy = msgspec.convert({"rules": rules, "on_error": on_error}, Policy, strict=False)
    return job_submit(SiteConfig(policy=policy))


def edited(change: dict[str, Any], record: dict[str, Any] | None = None, uid: int = ALICE) -> dict[str, Any]:
    """Run an edit of a job; other fields are as slurmctld sets them."""
    job = {"user_id": ALICE, "user_name": "alice", "min_nodes": NO_VAL, "max_nodes": NO_VAL, "time_limit": NO_VAL}
    whole = {**RECORD, **(record or {})}
    return lua.outside(text(), {**job, **change}, uid=uid, partitions=PARTITIONS, record=whole)


WITHIN = "slurm_plugin: rule small (partition debug): "


def test_edits() -> None:
    """An edit may not set what a submission may not; the grant stays."""
    cases = [
        ({"time_limit": 60}, {}, ""),
        ({"time_limit": 61}, {}, f"{WITHIN}time: found 01:01:00; accepted: up to 01:00:00"),
        ({"time_limit": INFINITE}, {}, f"{WITHIN}time: found UNLIMITED; accepted: up to 01:00:00"),
        ({"min_nodes": 3}, {}, f"{WITHIN}nodes: found 3; accepted: up to 2"),
        ({"min_nodes": 1, "max_nodes": 2}, {}, ""),
        ({"partition": "main"}, {}, ""),
        ({"partition": "debug"}, {"partition": "main", "max_nodes": 4}, f"{WITHIN}nodes: found 4; accepted: up to 2"),
        ({"account": "art"}, {}, "slurm_plugin: rule bio: account: found art; accepted: bio, chem"),
        ({"account": "chem"}, {}, ""),
        ({"account": "Chem"}, {}, ""),
        ({"account": ""}, {}, "slurm_plugin: rule bio: account: found none; accepted: bio, chem"),
        ({"partition": ""}, {}, ""),
        ({"account": "law"}, {"account": "art"}, "slurm_plugin: rule bio: account: found law; accepted: bio, chem"),
        ({"comment": "[sp1;retries=9]", "nice": 5}, {}, ""),
        # What the rules refuse already may stay, or become less: an administrator may have allowed it.
        ({"comment": "x"}, {"time_limit": 600, "max_nodes": 8, "account": "art"}, ""),
        ({"time_limit": 300}, {"time_limit": 600}, ""),
        ({"time_limit": 601}, {"time_limit": 600}, f"{WITHIN}time: found 10:01:00; accepted: up to 01:00:00"),
        # Its grant was made where more restarts are accepted.
        (
            {"partition": "debug"},
            {"partition": "main", "admin_comment": 'sp1:{"granted":3,"requeues":1}'},
            f"{WITHIN}retries: found 3 granted; accepted: up to 1",
        ),
        ({"partition": "debug"}, {"partition": "main"}, ""),
    ]
    for change, record, refusal in cases:
        answer = edited(change, record)
        assert (answer["user"], answer["code"]) == ([refusal] if refusal else [], REFUSED if refusal else 0), change
        assert answer["changes"] == [], change


def test_a_job_that_breaks_a_rule_twice_may_be_edited() -> None:
    """A job that is older than a rule may keep what the rule refuses."""
    rules = [{"name": "bio", "required": ["account"], "allow": {"account": ["bio"]}}]
    record = {name: value for name, value in RECORD.items() if name != "account"}
    for change, code in (({"name": "x"}, 0), ({"account": "bio"}, 0), ({"account": "art"}, REFUSED)):
        job = {"user_name": "alice", **change}
        answer = lua.outside(text(rules=rules), job, uid=ALICE, partitions=PARTITIONS, record=record)
        assert answer["code"] == code, change


def test_an_edit_that_leaves_the_size_open() -> None:
    """A job that says no size or no time moves under a limit: it gets that."""
    loose = {"partition": "main", "min_nodes": NO_VAL, "max_nodes": 0, "time_limit": NO_VAL}
    moved = edited({"partition": "debug"}, loose)
    assert sorted(change[0] for change in moved["changes"]) == ["max_nodes", "time_limit"]
    assert edited({"name": "x"}, {**loose, "partition": "debug"})["changes"] == []


def test_whose_edits_are_free() -> None:
    """Edits by root and by operators pass."""
    for uid in [0, 1001]:
        assert edited({"time_limit": INFINITE}, uid=uid)["code"] == 0, uid


def test_a_users_name_is_looked_up_where_a_rule_asks_for_it() -> None:
    """The user's name is looked up only if a rule needs it: slurmctld holds its locks meanwhile."""
    for partition, asked in [("debug", True), ("main", False)]:
        rules = [{"name": "ours", "when": {"partition": ["debug"]}, "allow": {"user": ["bob"]}}]
        told = """
    local submit = slurm_job_submit
    function slurm_job_submit(job, partitions, uid)
      return submit(setmetatable({}, {__newindex = job, __index = function(_, field)
        if field == "user_name" then slurm.log_info("asked") end
        return job[field]
      end}), partitions, uid)
    end
    """
        job = {"user_name": "bob", "partition": partition, "min_nodes": 1, "max_nodes": 1, "time_limit": 1}
        answer = lua.outside(text(rules=rules) + told, job, uid=ALICE, partitions=PARTITIONS)
        assert (answer["code"], answer["log"]) == (0, ["asked"] if asked else []), partition


def test_slurm_user_is_free() -> None:
    """SlurmUser is exempt; its uid is read from /proc when the file is loaded."""
    job = {"user_name": "alice", "account": "art", "min_nodes": 9, "max_nodes": 9, "time_limit": 1}
    whole = text().replace('io.open("/proc/self/status")', 'io.open("/proc/1/status")')  # pid 1 is root's
    whole = whole.replace("if uid ~= 0 and ", "if ")
    assert lua.outside(whole, job, uid=0, partitions=PARTITIONS)["code"] == 0
    assert lua.outside(text(), job, uid=64030, partitions=PARTITIONS)["code"] == REFUSED


def test_our_own_error() -> None:
    """An error in the policy is logged, and `on_error` decides; an accepted job keeps its grant."""
    for on_error in ["accept", "refuse"]:
        broken = text(on_error).replace("local function judge(job)\n", "local function judge(job)\n  error('gone')\n")
        job = {"user_name": "alice", "comment": "[sp1;retries=3]"}
        answer = lua.outside(broken, job, uid=ALICE, partitions=PARTITIONS)
        assert "the policy failed on a job of uid 1000: " in answer["log"][0], on_error
        assert answer["code"] == (REFUSED if on_error == "refuse" else 0), on_error
        assert [change[0] for change in answer["changes"]] == ([] if on_error == "refuse" else ["admin_comment"]), (
            on_error
        )
        words = ["slurm_plugin: the site's policy failed; tell the administrators"]
        assert answer["user"] == (words if on_error == "refuse" else []), on_error
        answer = lua.outside(broken, {}, uid=ALICE, partitions=PARTITIONS, record=RECORD)
        assert answer["code"] == (REFUSED if on_error == "refuse" else 0), on_error


def test_a_file_that_is_not_lua() -> None:
    """A broken file is neither written nor run."""
    with pytest.raises(SlurmPluginError, match=r"job_submit\.lua: .*near"):
        lua.check("function slurm_job_submit(\n")
    with pytest.raises(SlurmPluginError, match="near"):
        lua.outside("function slurm_job_submit(\n", {}, uid=ALICE, partitions={})


def test_without_lua(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Lua a run is a MissingError, and files are rendered without a check."""
    monkeypatch.setattr("slurm_plugin.site.lua.shutil.which", lambda *_, **__: None)
    with pytest.raises(MissingError, match=r"apt-get install lua5\.1"):
        lua.outside(text(), {}, uid=ALICE, partitions={})
    lua.check("no lua (")


def test_what_has_no_form() -> None:
    """Other types than those of a policy are refused."""
    assert lua.literal({"a b": [1, True, 'x"\\\n\u00fc']}) == r'{["a b"] = {1, true, "x\034\092\010\195\188"}}'
    with pytest.raises(TypeError):
        lua.literal(1.5)
