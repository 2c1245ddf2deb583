"""The rendered job_submit.lua, run by a real Lua 5.1: it grants what Python reads in the same comment, and no more."""

import subprocess
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_plugin import grant, token
from slurm_plugin.grant import Grant
from slurm_plugin.site import render_site
from slurm_plugin.siteconfig import SiteConfig
from tests.comments import ACCEPTED, REFUSED

LUA = (
    "/usr/bin/lua5.1"  # the version that slurmctld embeds; where it is missing these tests fail: apt-get install lua5.1
)
SITE_LIMIT = 10
FORGED = 'sp1:{"granted":128}'

STUB = """
slurm = {SUCCESS = 0, ERROR = -1}
function slurm.log_error(...) print("logged: " .. string.format(...)) end
dofile(arg[1])
"""
# Reads jobs as the lengths of comment and admin_comment (-1: nil), then their bytes, and prints each admin_comment.
SUBMIT = """
local function text(length)
  if length < 0 then return nil end
  return length == 0 and "" or io.read(length)
end
while true do
  local comment, admin = io.read("*n", "*n")
  if not comment then break end
  io.read(1)
  local job = {comment = text(comment), admin_comment = text(admin)}
  assert(slurm_job_submit(job, {}, 1000) == slurm.SUCCESS)
  print(job.admin_comment or "nil")
end
"""

Lua = Callable[..., list[str]]
Texts = tuple[str | None, str | None]


@pytest.fixture(scope="module")
def lua(tmp_path_factory: pytest.TempPathFactory) -> Lua:
    """Run a Lua program behind the file that a site deploys; the lines that it prints."""
    directory = tmp_path_factory.mktemp("site")
    render_site(SiteConfig(max_retries=SITE_LIMIT), directory)

    def run(program: str, stdin: bytes = b"") -> list[str]:
        source = directory / "test.lua"
        source.write_text(STUB + program)
        argv = [LUA, source, directory / "job_submit.lua"]
        result = subprocess.run(argv, input=stdin, capture_output=True, timeout=30, check=False)
        assert (result.returncode, result.stderr) == (0, b"")
        return result.stdout.decode().splitlines()

    return run


def submitted(lua: Lua, jobs: Sequence[Texts]) -> list[str]:
    """The admin_comment of each job (comment, admin_comment) after its submission."""
    stdin = b""
    for texts in jobs:
        encoded = [None if text is None else text.encode() for text in texts]
        stdin += b"%d %d\n" % tuple(-1 if text is None else len(text) for text in encoded)
        stdin += b"".join(text for text in encoded if text) + b"\n"
    return lua(SUBMIT, stdin)


def granted_by_python(comment: str) -> Grant | None:
    """What a job gets that submits this comment, by Python's reading."""
    asked = token.find(comment)
    return None if asked is None else Grant(min(asked.retries, SITE_LIMIT))


def test_whole_text(lua: Lua) -> None:
    """The grant is one short line of JSON, limited to what the site allows."""
    assert submitted(lua, [("[sp1;retries=3]", None), ("[sp1;retries=128]", None)]) == [
        'sp1:{"granted":3}',
        'sp1:{"granted":10}',
    ]


def test_site_text_is_kept(lua: Lua) -> None:
    """What another job_submit plugin has put into admin_comment stands before the grant; a forged grant is gone."""
    jobs: list[Texts] = [("[sp1;retries=3]", text) for text in ("project=a", FORGED, f"project=a\n{FORGED}")]
    answers = "\n".join(submitted(lua, jobs))
    assert answers == 'project=a sp1:{"granted":3}\nsp1:{"granted":3}\nproject=a\n sp1:{"granted":3}'


@pytest.mark.parametrize("admin_comment", [None, FORGED])
def test_both_languages_agree(lua: Lua, admin_comment: str | None) -> None:
    """Of every comment in the list, good or hostile, Lua grants exactly what Python reads."""
    comments = [*ACCEPTED, *REFUSED]
    answers = submitted(lua, [(comment, admin_comment) for comment in comments])
    expected = {comment: granted_by_python(comment) for comment in comments}
    assert dict(zip(comments, map(grant.parse, answers), strict=True)) == expected
    assert sum(each is not None for each in expected.values()) == len(ACCEPTED)


PARTS = st.sampled_from(
    [
        "retries=3",
        "retries=",
        "retries=129",
        "ib=no",
        "ib=x",
        "run=0",
        "again=1",
        "q=60",
        "q=1h",
        "again=",
        "x=1,,2",
        "x=a",
        "x=1234567",
        "new",
        "new=1",
        "=",
        "",
    ]
)
NEAR_TOKENS = st.lists(PARTS, max_size=4).map(lambda parts: f"[sp1;{';'.join(parts)}]")
COMMENTS = st.lists(NEAR_TOKENS | st.text(max_size=10), max_size=3).map("".join)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(COMMENTS.filter(lambda text: "\0" not in text), min_size=1, max_size=50))
def test_both_languages_agree_on_anything(lua: Lua, comments: list[str]) -> None:
    """The same for comments made up of pieces of tokens."""
    answers = submitted(lua, [(comment, None) for comment in comments])
    assert list(map(grant.parse, answers)) == list(map(granted_by_python, comments))


@pytest.mark.parametrize("comment", [None, "", "my run", "[sp1;retries=999]"])
def test_forged_grant(lua: Lua, comment: str | None) -> None:
    """A grant that came with the submission itself is cleared; what a site keeps in admin_comment stays."""
    jobs: list[Texts] = [(comment, FORGED), (comment, f"project {FORGED}"), (comment, "project sp1"), (comment, None)]
    assert submitted(lua, jobs) == ["", "project ", "project sp1", "nil"]


@pytest.mark.parametrize(
    "job", ["nil", "7", "{comment = {}}", "setmetatable({}, {__index = function() error('x') end})"]
)
def test_our_own_failure(lua: Lua, job: str) -> None:
    """Whatever breaks in here is logged in one line, and the job goes through."""
    logged, code = lua(f"print(slurm_job_submit({job}, {{}}, 1000))")
    assert logged.startswith("logged: slurm_plugin: no grant for a job of uid 1000: ")
    assert code == "0"


def test_modify(lua: Lua) -> None:
    """A comment that is edited later asks for nothing."""
    program = """
    local job = {comment = "[sp1;retries=9]"}
    print(slurm_job_modify(job, {}, {}, 1000), job.admin_comment)
    """
    assert lua(program) == ["0\tnil"]
