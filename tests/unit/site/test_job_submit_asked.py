"""job_submit.lua in a real Lua 5.1: what owners ask SlurmUser for, and what they cannot request themselves."""

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slurm_plugin.site import lua
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.spec.policy_language import Policy, Priority

PRIORITIES = {
    "urgent": Priority(partitions={"main": "rush"}),
    "very-urgent": Priority(qos="top"),
}
ALICE, BOB, ROOT = 20001, 20002, 0
PARTITIONS = {"main": {"max_time": 600}, "rush": {"max_time": 600}}
RUNNING: dict[str, Any] = {
    "job_id": 7, "user_id": ALICE, "job_state": 1, "time_limit": 60, "partition": "main", "admin_comment": ""
}  # fmt: skip
WAITING = {**RUNNING, "job_state": 0}
POLICY = msgspec.convert({"rules": [{"name": "short", "limit": {"time": "5h"}}]}, Policy, strict=False)
FILES = {
    "alone": lua.job_submit(SiteConfig(extend_time="4h", priorities=PRIORITIES), "/opt/site"),
    "with rules": lua.job_submit(SiteConfig(extend_time="4h", priorities=PRIORITIES, policy=POLICY), "/opt/site"),
}
COMMAND = "would run: SLURM_PLUGIN_ASKED='7 {}' /opt/site/bin/slurm-plugin hook asked </dev/null >/dev/null 2>&1 &"
NO_VAL = "4294967294"


def edited(text: str, job: dict[str, Any], record: dict[str, Any], uid: int = ALICE) -> tuple[int, Any, list[str]]:
    """Return the code, the changes of the edit, and the programs that it starts."""
    done = lua.outside(text, job, uid=uid, partitions=PARTITIONS, record=record)
    return done["code"], done["changes"], [line for line in done["log"] if line.startswith("would run")]


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
@pytest.mark.parametrize(
    ("job", "record", "changes", "asked"),
    [
        ({"time_limit": 120}, RUNNING, [["time_limit", "120", NO_VAL]], "time 120"),
        ({"time_limit": 30}, RUNNING, [], ""),
        ({"time_limit": 120}, WAITING, [], ""),
        ({"partition": "rush"}, WAITING, [["partition", "rush", ""]], "priority urgent"),
        ({"partition": "main"}, {**WAITING, "partition": "rush"}, [], ""),
        ({"partition": "rush"}, {**WAITING, "partition": "rush"}, [], ""),
        ({"qos": "normal"}, WAITING, [], ""),
    ],
)
def test_an_owners_edit(text: str, job: Any, record: Any, changes: Any, asked: str) -> None:
    """A raise of the limit, and an urgent partition, are passed on; all else is the owner's own."""
    code, changed, started = edited(text, job, record)
    assert (code, changed) == (0, changes)
    assert started == ([COMMAND.format(asked)] if asked else [])


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
@pytest.mark.parametrize(
    ("job", "record"),
    [({"time_limit": 601}, RUNNING), ({"time_limit": 4294967295}, RUNNING), ({"qos": "TOP"}, WAITING)],
)
def test_what_nobody_may_ask_for(text: str, job: Any, record: Any) -> None:
    """More than the partition's limit, no limit, and a very-urgent job."""
    code, changed, started = edited(text, job, record)
    assert (code != 0, changed, started) == (True, [], [])


@pytest.mark.parametrize(
    ("job", "allowed"),
    [
        ({"partition": "rush,first"}, False),
        ({"partition": "first,rush"}, False),
        ({"account": "b"}, False),
        ({"account": "b", "partition": "main"}, False),
        ({"account": "a"}, True),
        ({"partition": "rush"}, True),
    ],
)
def test_the_owner_of_an_urgent_job(job: Any, allowed: bool) -> None:
    """He cannot add a very-urgent partition, nor take the job to an account where it was not counted."""
    words = {"urgent": Priority(partitions={"main": "rush"}), "very-urgent": Priority(partitions={"main": "first"})}
    text = lua.job_submit(SiteConfig(priorities=words), "/opt/site")
    code, changed, started = edited(text, job, {**WAITING, "partition": "rush", "account": "a"})
    assert (code == 0, changed, started) == (allowed, [], [])
    assert edited(text, {"account": "b"}, {**WAITING, "account": "a"}) == (0, [], [])


def test_the_sites_rules_come_first() -> None:
    """A limit that a rule refuses is not passed on."""
    code, _, started = edited(FILES["with rules"], {"time_limit": 400}, RUNNING)
    assert (code != 0, started) == (True, [])


@pytest.mark.parametrize("uid", [ROOT, BOB])
def test_an_operators_edit(uid: int) -> None:
    """Slurm itself allows edits by others only to operators: nothing is passed on or refused."""
    for job in ({"time_limit": 120}, {"partition": "rush"}, {"qos": "top"}):
        assert edited(FILES["alone"], job, WAITING, uid) == (0, [], [])


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
@pytest.mark.parametrize(
    ("job", "says"),
    [
        ({"partition": "main,rush"}, ("partition rush", "urgent")),
        ({"qos": "top"}, ("qos top", "very-urgent")),
        ({"partition": "main"}, ()),
        ({}, ()),
    ],
)  # fmt: skip
def test_a_submission(text: str, job: Any, says: str) -> None:
    """Only root submits an urgent job; the message has the command for others."""
    whole = {"comment": "", "user_name": "alice", **job}
    done = lua.outside(text, whole, uid=ALICE, partitions=PARTITIONS)
    lines = [
        f"slurm_plugin: {what} is for {word} jobs; submit without it, then run: slurm-plugin priority JOB {word}"
        for what, word in ([says] if says else [])
    ]
    assert (done["user"], done["code"] != 0) == (lines, bool(says))
    assert lua.outside(text, whole, uid=ROOT, partitions=PARTITIONS)["code"] == 0


def test_a_user_who_asks_all_the_time(tmp_path: Path) -> None:
    """Each request starts a process: after ten in ten seconds the edits are refused, those of others are not."""
    (tmp_path / "job_submit.lua").write_text(FILES["alone"])
    program = """
slurm = {SUCCESS = 0, ERROR = -1, NO_VAL = 4294967294, INFINITE = 4294967295}
function slurm.log_info() end
function slurm.log_user(_, text) print(text) end
os.time = function() return 1000 end
local started = 0
os.execute = function() started = started + 1 end
dofile(arg[1])
for uid, times in pairs({[20001] = 12, [20002] = 1}) do
  for _ = 1, times do
    local record = {job_id = 7, user_id = uid, job_state = 1, time_limit = 60, partition = "main"}
    slurm_job_modify({time_limit = 90}, record, {main = {max_time = 600}}, uid)
  end
end
print(started)
"""
    done = subprocess.run(
        ["/usr/bin/lua5.1", "-", tmp_path / "job_submit.lua"], input=program, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["slurm_plugin: too many requests at once; try again in 10 seconds"] * 2 + ["11"]


def test_a_site_without_them() -> None:
    """Its file has none of this."""
    assert "os.execute" not in lua.job_submit(SiteConfig())
