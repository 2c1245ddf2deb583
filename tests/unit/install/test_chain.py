"""Chains, run by the real sh and Lua 5.1: the site's own first, and both verdicts count."""

import subprocess
from pathlib import Path

import pytest

from slurm_plugin.doctor import measure
from slurm_plugin.install import chain
from slurm_plugin.siteconfig import load

LUA = "/usr/bin/lua5.1"


class Hooks:
    """A chain for one line of slurm.conf in a directory of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "hooks").mkdir()

    def program(self, name: str, text: str) -> str:
        """A script; its path."""
        path = self.root / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def run(self, line: str, *programs: str) -> tuple[int, list[str]]:
        """Exit code and lines of the chain, with nothing in its environment."""
        path = self.program("chain", chain.script(line, programs, str(self.root)).partition("\n")[2])
        done = subprocess.run([path], capture_output=True, env={}, timeout=60, check=False, text=True)
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()


@pytest.fixture
def hooks(tmp_path: Path) -> Hooks:
    """With hooks of ours that say so and end with 75."""
    found = Hooks(tmp_path)
    for name in chain.HOOKS.values():
        found.program(f"hooks/{name}", "echo ours\nexit 75")
    return found


@pytest.mark.parametrize("line", chain.HOOKS)
def test_both_run(hooks: Hooks, line: str) -> None:
    """Ours has its say where the site's has nothing against it."""
    code, said = hooks.run(line, hooks.program("own", "echo own"))
    assert code == 75
    assert sorted(filter(None, said)) == ["ours", "own"]
    assert line == "HealthCheckProgram" or said[0] == "own"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Prolog", ["own"]),
        ("TaskProlog", ["own"]),
        ("Epilog", ["own", "ours"]),
        ("EpilogSlurmctld", ["own", "ours"]),
    ],
)
def test_the_site_says_no(hooks: Hooks, line: str, said: list[str]) -> None:
    """Its code is the answer; what cleans up after a job runs all the same."""
    assert hooks.run(line, hooks.program("own", "echo own\nexit 3")) == (3, said)


def test_the_last_line_of_a_task_prolog_has_no_end(hooks: Hooks) -> None:
    """What ours exports is a line of its own."""
    hooks.program("hooks/task_prolog", "echo export RANK=0")
    assert hooks.run("TaskProlog", hooks.program("own", "printf 'export A=1'")) == (0, ["export A=1", "export RANK=0"])


def test_health_checks_run_at_the_same_time(hooks: Hooks) -> None:
    """Each has all of its 60 s: ours is over before the site's begins to answer; a failure of the site's is seen."""
    hooks.program("hooks/periodic", f"echo ours\n: >{hooks.root}/done")
    own = hooks.program("own", f"until [ -e {hooks.root}/done ]; do :; done\necho own\nexit 4")
    assert hooks.run("HealthCheckProgram", own) == (4, ["ours", "own"])


def test_a_pattern(hooks: Hooks) -> None:
    """In Slurm's order, the last name first; one that fails is the last, names with blanks are names."""
    for name in ("a", "b 1", "c"):
        hooks.program(f"10-{name}", f"echo {name}")
    both = (str(hooks.root / "10-*"), hooks.program("own", "echo own"))
    assert hooks.run("Prolog", *both) == (75, ["c", "b 1", "a", "own", "ours"])
    hooks.program("10-b 1", "exit 9")
    assert hooks.run("Prolog", *both) == (9, ["c"])


def test_a_program_that_is_missing(hooks: Hooks) -> None:
    """Fails, as it does in Slurm."""
    path = hooks.program("chain", chain.script("Prolog", ["/none"], str(hooks.root)).partition("\n")[2])
    assert subprocess.run([path], capture_output=True, env={}, timeout=60, check=False).returncode == 127


@pytest.mark.parametrize(
    ("line", "program", "fine"),
    [
        ("Prolog", "/a/b-1.sh", True),
        ("Prolog", "/a/*", True),
        ("TaskProlog", "/a/*", False),
        ("Prolog", "a", False),
        ("Prolog", "/a b", False),
        ("Prolog", "/a;b", False),
        ("Prolog", "/$(a)", False),
    ],
)
def test_what_a_script_can_name(line: str, program: str, *, fine: bool) -> None:
    """Without quotes."""
    assert chain.runnable(line, program) is fine


STUB = """
slurm = {SUCCESS = 0, ERROR = -1}
function slurm.log_error(...) print("logged: " .. string.format(...)) end
dofile(arg[1])
"""
OURS = """
function slurm_job_submit(job)
  print("ours", job.comment)
  job.admin_comment = "granted"
  return job.ours or slurm.SUCCESS
end
function slurm_job_modify(job) print("ours", job.comment); return slurm.SUCCESS end
"""
OWN = """
count = 0
local function own(job)
  count = count + 1
  print("own", count)
  if job.fails then error("no such field") end
  return job.own
end
slurm_job_submit = own
"""


def lua(tmp_path: Path, program: str, *, own: str = OWN, ours: str | None = OURS) -> list[str]:
    """The lines that a program prints behind a chain of these two, and the first of an error."""
    (tmp_path / "own.lua").write_text(own)
    if ours is not None:
        (tmp_path / "ours.lua").write_text(ours)
    (tmp_path / "chain.lua").write_text(chain.lua(str(tmp_path / "own.lua"), str(tmp_path / "ours.lua"), b""))
    (tmp_path / "test.lua").write_text(STUB + program)
    argv = [LUA, tmp_path / "test.lua", tmp_path / "chain.lua"]
    done = subprocess.run(argv, capture_output=True, timeout=60, check=False, text=True)
    return done.stdout.splitlines() + done.stderr.splitlines()[:1]


def test_both_scripts(tmp_path: Path) -> None:
    """Each in an environment of its own, on the same job; what the site's returns that is no number is a yes."""
    program = """
    local job = {comment = "c"}
    print(slurm_job_submit(job, {}, 1000), job.admin_comment)
    print(slurm_job_submit({own = slurm.SUCCESS}, {}, 1000))
    print(count, slurm_job_modify({comment = "m"}, {}, {}, 1000))
    """
    assert lua(tmp_path, program) == [
        "own\t1", "ours\tc", "0\tgranted", "own\t2", "ours\tnil", "0", "ours\tm", "nil\t0",
    ]  # fmt: skip


def test_the_sites_script_refuses(tmp_path: Path) -> None:
    """Its code is the answer; ours is not asked."""
    assert lua(tmp_path, "print(slurm_job_submit({own = 2042}, {}, 1000))") == ["own\t1", "2042"]


def test_ours_refuses(tmp_path: Path) -> None:
    """The same for ours, also where the site's fails."""
    assert lua(tmp_path, "print(slurm_job_submit({ours = -1}, {}, 1000))")[-1] == "-1"
    assert lua(tmp_path, "print(slurm_job_submit({ours = -1, fails = true}, {}, 1000))")[-1] == "-1"


def test_the_sites_script_fails(tmp_path: Path) -> None:
    """Slurm gets the failure, as without us; ours was asked before, so no forged grant stays."""
    program = """
    local job = {fails = true}
    local fine, message = pcall(slurm_job_submit, job, {}, 1000)
    print(fine, string.match(message, "no such field"), job.admin_comment)
    """
    assert lua(tmp_path, program) == ["own\t1", "ours\tnil", "false\tno such field\tgranted"]


def test_the_sites_script_does_not_load(tmp_path: Path) -> None:
    """Neither does the chain: slurmctld goes on with the script that it has."""
    (said,) = lua(tmp_path, "", own="function (")
    assert "own.lua:1:" in said
    (said,) = lua(tmp_path, "", own="error('at once')")
    assert "at once" in said


def test_ours_is_gone(tmp_path: Path) -> None:
    """The site's goes on without it, and the log says so."""
    first, *rest = lua(tmp_path, "print(slurm_job_submit({}, {}, 1000))", ours=None)
    assert first.startswith("logged: slurm_plugin: ")
    assert rest == ["own\t1", "0"]


def test_whose_a_script_is(tmp_path: Path) -> None:
    """By its first line; a chain changes with what it calls."""
    first, second = (chain.lua("/own", "/ours", text).encode() for text in (b"a", b"b"))
    assert first != second
    assert chain.lua_is_ours(first)
    assert not chain.lua_is_ours(OWN.encode())


def test_behind_a_sites_own_the_policy_holds(tmp_path: Path) -> None:
    """Ours as it is rendered with rules: what the site lets through, a rule may refuse."""
    (tmp_path / "site.yaml").write_text("policy: {required: [account]}\n")
    ours = measure.rendered(load(tmp_path / "site.yaml"), "/etc/slurm/slurm_plugin")["job_submit.lua"].content
    assert ours is not None
    program = """
    slurm.NO_VAL, slurm.NO_VAL16 = 4294967294, 65534
    function slurm.log_user(...) print("told: " .. string.format(...)) end
    function slurm.log_info() end
    local job = {comment = "[sp1;retries=3]", account = arg[2]}
    print(slurm_job_submit(job, {}, 1000) == slurm.SUCCESS, job.admin_comment)
    """
    own, told, refused = lua(tmp_path, program, ours=ours.decode())
    assert (own, refused.split("\t")[0]) == ("own\t1", "false")
    assert told.startswith("told: slurm_plugin: ")
    assert "account" in told
    granted = program.replace("arg[2]", '"a"')
    assert lua(tmp_path, granted, ours=ours.decode()) == ["own\t1", 'true\tsp1:{"granted":3}']
