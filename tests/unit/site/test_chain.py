"""Chains in the real sh and Lua 5.1: the site's own program runs first, and both results count."""

import resource
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.site import lua
from slurm_plugin.site.configuration import load
from slurm_plugin.site.files import rendered
from slurm_plugin.site.install import lines
from slurm_plugin.site.slurmconf import HOOKS

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
        done = subprocess.run([self.chain(line, *programs)], capture_output=True, env={}, check=False, text=True)
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    def chain(self, line: str, *programs: str) -> Path:
        """The chain script."""
        path = self.root / "chain"
        path.write_text(lines.chain(line, programs, str(self.root)))
        path.chmod(0o755)
        return path


@pytest.fixture
def hooks(tmp_path: Path) -> Hooks:
    """With hooks of ours that say so and end with 75."""
    found = Hooks(tmp_path)
    for name in HOOKS.values():
        found.program(f"hooks/{name}", "echo ours\nexit 75")
    return found


@pytest.mark.parametrize("line", HOOKS)
def test_both_run(hooks: Hooks, line: str) -> None:
    """Our hook runs if the site's program passes."""
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
    """The site's exit code is the result; an epilog runs our hook all the same."""
    assert hooks.run(line, hooks.program("own", "echo own\nexit 3")) == (3, said)


def test_the_last_line_of_a_task_prolog_has_no_end(hooks: Hooks) -> None:
    """Our exports begin on a new line."""
    hooks.program("hooks/task_prolog", "echo export RANK=0")
    assert hooks.run("TaskProlog", hooks.program("own", "printf 'export A=1'")) == (0, ["export A=1", "export RANK=0"])


def test_health_checks_run_at_the_same_time(hooks: Hooks) -> None:
    """Both health checks run in parallel, and a failure of the site's is the result."""
    hooks.program("hooks/periodic", f"echo ours\n: >{hooks.root}/done")
    own = hooks.program("own", f"until [ -e {hooks.root}/done ]; do :; done\necho own\nexit 4")
    assert hooks.run("HealthCheckProgram", own) == (4, ["ours", "own"])


def test_a_pattern(hooks: Hooks) -> None:
    """Programs run in Slurm's order, the last name first, up to the first failure; names may have blanks."""
    for name in ("a", "b 1", "c"):
        hooks.program(f"10-{name}", f"echo {name}")
    both = (str(hooks.root / "10-*"), hooks.program("own", "echo own"))
    assert hooks.run("Prolog", *both) == (75, ["c", "b 1", "a", "own", "ours"])
    hooks.program("10-b 1", "exit 9")
    assert hooks.run("Prolog", *both) == (9, ["c"])


def test_a_program_that_is_missing(hooks: Hooks) -> None:
    """Fails, as it does in Slurm. If our hook is missing, the site's result counts."""
    for line in ("Prolog", "Epilog", "EpilogSlurmctld", "TaskProlog"):  # Slurm ignores that of a health check
        assert subprocess.run([hooks.chain(line, "/none")], capture_output=True, check=False).returncode == 127, line
        (hooks.root / "hooks" / HOOKS[line]).unlink()
        for code in (0, 3):
            chain = hooks.chain(line, hooks.program("own", f"exit {code}"))
            assert subprocess.run([chain], capture_output=True, check=False).returncode == code, line


def no_processes() -> None:
    """Limit the user's processes, as under a pids limit. root has no limit."""
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


@pytest.mark.parametrize("shell", ["/bin/dash", pytest.param("/bin/bash", marks=pytest.mark.full)])  # 15 s
def test_no_process_can_be_made(shell: str) -> None:
    """The shell ends with an error, bash after 15 s. This becomes 0: no program has failed."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o711)  # unlike the directories of tests
        for line in HOOKS:
            Path(directory, line).write_text(lines.chain(line, ["/bin/true"], directory))
        given: dict[str, Any] = {"user": 45454, "env": {}, "preexec_fn": no_processes}
        started = [subprocess.Popen([shell, f"{directory}/{line}"], **given) for line in HOOKS]
        assert [each.wait() for each in started] == [0] * len(HOOKS)


def test_few_files_can_be_opened(hooks: Hooks) -> None:
    """dash cannot read a script then; the results of both programs count."""
    (hooks.root / "own").symlink_to("/bin/true")
    for line in ("Prolog", "Epilog", "EpilogSlurmctld", "HealthCheckProgram"):
        (hooks.root / "hooks" / HOOKS[line]).write_text("#!/bin/bash\nexit 75\n")
        for most in (5, 10, 11):
            limit = ["/usr/bin/prlimit", f"--nofile={most}"]
            words = [*limit, hooks.chain(line, str(hooks.root / "own"))]
            assert subprocess.run(words, env={}, check=False).returncode == 75, (line, most)


def test_what_a_script_can_name() -> None:
    """Without quotes."""
    cases = [
        ("Prolog", "/a/b-1.sh", True),
        ("Prolog", "/a/*", True),
        ("TaskProlog", "/a/*", False),
        ("Prolog", "a", False),
        ("Prolog", "/a b", False),
        ("Prolog", "/a;b", False),
        ("Prolog", "/$(a)", False),
    ]
    for line, program, fine in cases:
        assert lines.runnable(line, program) is fine, line


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


def said(tmp_path: Path, program: str, *, own: str = OWN, ours: str | None = OURS) -> list[str]:
    """The lines that a program prints behind a chain of these two, and the first of an error."""
    (tmp_path / "own.lua").write_text(own)
    if ours is not None:
        (tmp_path / "ours.lua").write_text(ours)
    (tmp_path / "chain.lua").write_text(lua.chain(str(tmp_path / "own.lua"), str(tmp_path / "ours.lua"), b""))
    (tmp_path / "test.lua").write_text(STUB + program)
    argv = [LUA, tmp_path / "test.lua", tmp_path / "chain.lua"]
    done = subprocess.run(argv, capture_output=True, check=False, text=True)
    return done.stdout.splitlines() + done.stderr.splitlines()[:1]


def test_both_scripts(tmp_path: Path) -> None:
    """Both scripts get the same job in separate environments; a result that is no number is a success."""
    program = """
    local job = {comment = "c"}
    print(slurm_job_submit(job, {}, 1000), job.admin_comment)
    print(slurm_job_submit({own = slurm.SUCCESS}, {}, 1000))
    print(count, slurm_job_modify({comment = "m"}, {}, {}, 1000))
    """
    assert said(tmp_path, program) == [
        "own\t1", "ours\tc", "0\tgranted", "own\t2", "ours\tnil", "0", "ours\tm", "nil\t0",
    ]  # fmt: skip


def test_the_sites_script_refuses(tmp_path: Path) -> None:
    """The site's refusal is the result, and our script does not run."""
    assert said(tmp_path, "print(slurm_job_submit({own = 2042}, {}, 1000))") == ["own\t1", "2042"]


def test_ours_refuses(tmp_path: Path) -> None:
    """Our refusal is the result, also if the site's script fails."""
    assert said(tmp_path, "print(slurm_job_submit({ours = -1}, {}, 1000))")[-1] == "-1"
    assert said(tmp_path, "print(slurm_job_submit({ours = -1, fails = true}, {}, 1000))")[-1] == "-1"


def test_the_sites_script_fails(tmp_path: Path) -> None:
    """Slurm gets the site's error, after our script has removed forged grants."""
    program = """
    local job = {fails = true}
    local fine, message = pcall(slurm_job_submit, job, {}, 1000)
    print(fine, string.match(message, "no such field"), job.admin_comment)
    """
    assert said(tmp_path, program) == ["own\t1", "ours\tnil", "false\tno such field\tgranted"]


def test_the_sites_script_does_not_load(tmp_path: Path) -> None:
    """The chain does not load either, so slurmctld keeps its script."""
    (line,) = said(tmp_path, "", own="function (")
    assert "own.lua:1:" in line
    (line,) = said(tmp_path, "", own="error('at once')")
    assert "at once" in line


def test_ours_is_gone(tmp_path: Path) -> None:
    """The site's script runs without ours, and the log has a line."""
    first, *rest = said(tmp_path, "print(slurm_job_submit({}, {}, 1000))", ours=None)
    assert first.startswith("logged: slurm_plugin: ")
    assert rest == ["own\t1", "0"]


def test_whose_a_script_is(tmp_path: Path) -> None:
    """The first line identifies our scripts, a call the site's; a chain changes with our script."""
    first, second = (lua.chain("/own", "/ours", text).encode() for text in (b"a", b"b"))
    assert first != second
    calling = b"function slurm_job_submit(job) pcall(grant, job) return 0 end"
    assert [lua.kind(text) for text in (first, OWN.encode(), calling)] == ["ours", "own", "calls ours"]


def test_behind_a_sites_own_the_policy_holds(tmp_path: Path) -> None:
    """A rule may refuse what the site's script accepts."""
    (tmp_path / "site.yaml").write_text("policy: {required: [account]}\n")
    ours = rendered(load(tmp_path / "site.yaml"), "/etc/slurm/slurm_plugin")["job_submit.lua"].content
    assert ours is not None
    program = """
    slurm.NO_VAL, slurm.NO_VAL16 = 4294967294, 65534
    function slurm.log_user(...) print("told: " .. string.format(...)) end
    function slurm.log_info() end
    local job = {comment = "[sp1;retries=3]", account = arg[2]}
    print(slurm_job_submit(job, {}, 1000) == slurm.SUCCESS, job.admin_comment)
    """
    own, told, refused = said(tmp_path, program, ours=ours.decode())
    assert (own, refused.split("\t")[0]) == ("own\t1", "false")
    assert told.startswith("told: slurm_plugin: ")
    assert "account" in told
    granted = program.replace("arg[2]", '"a"')
    assert said(tmp_path, granted, ours=ours.decode()) == ["own\t1", 'true\tsp1:{"granted":3}']
