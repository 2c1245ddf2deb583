"""The rendered job_submit.lua in a real Lua 5.1: it grants exactly what Python reads in the same comment."""

import subprocess
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_plugin.records import grant, token
from slurm_plugin.records.grant import Grant
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.files import render_site
from tests.comments import ACCEPTED, REFUSED

LUA = (
    "/usr/bin/lua5.1"  # the version that slurmctld embeds; where it is missing these tests fail: apt-get install lua5.1
)
SITE_LIMIT = 10
FORGED = 'sp1:{"granted":128}'

STUB = """
slurm = {SUCCESS = 0, ERROR = -1}
function slurm.log_error(...) print("logged: " .. string.format(...)) end
function slurm.log_user(text) print("told: " .. text) end
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
        result = subprocess.run(argv, input=stdin, capture_output=True, check=False)
        assert (result.returncode, result.stderr) == (0, b"")
        return result.stdout.decode().splitlines()

    return run


def submitted(lua: Lua, jobs: Sequence[Texts]) -> list[str]:
    """Return the admin_comment of each job (comment, admin_comment) after its submission."""
    stdin = b""
    for texts in jobs:
        encoded = [None if text is None else text.encode() for text in texts]
        stdin += b"%d %d\n" % tuple(-1 if text is None else len(text) for text in encoded)
        stdin += b"".join(text for text in encoded if text) + b"\n"
    return lua(SUBMIT, stdin)


def granted_by_python(comment: str) -> Grant | None:
    """Return the grant that Python reads in this comment."""
    asked = token.find(comment)
    return None if asked is None else Grant(min(asked.retries, SITE_LIMIT))


def test_whole_text(lua: Lua) -> None:
    """The grant is one short line of JSON, limited to what the site allows."""
    assert submitted(lua, [("[sp1;retries=3]", None), ("[sp1;retries=128]", None)]) == [
        'sp1:{"granted":3}',
        'sp1:{"granted":10}',
    ]


ELASTIC = """
local none, none16 = 4294967294, 65534
for _, each in ipairs({
  {5, 6, none, 2}, {5, 6, 12, 2}, {5, 6, none, none16}, {5, 6}, {6, 6, none, 2}, {5, none, none, 2}, {none, none, none},
}) do
  local job = {comment = "[sp1;retries=3]", min_nodes = each[1], max_nodes = each[2], num_tasks = each[3]}
  job.ntasks_per_node = each[4]
  assert(slurm_job_submit(job, {}, 1000) == slurm.SUCCESS)
  print(job.admin_comment)
end
"""


def test_the_tasks_of_a_job_with_a_range_of_nodes(lua: Lua) -> None:
    """The number of an elastic job is that of its fewest nodes, or its own."""
    assert lua(ELASTIC) == [
        *(f'sp1:{{"granted":3,"tasks":{tasks}}}' for tasks in (10, 12, 5, 5)),
        *['sp1:{"granted":3}'] * 3,
    ]


def test_site_text_is_kept(lua: Lua) -> None:
    """Other text in admin_comment stays before the grant; a forged grant is removed."""
    jobs: list[Texts] = [("[sp1;retries=3]", text) for text in ("project=a", FORGED, f"project=a\n{FORGED}")]
    answers = "\n".join(submitted(lua, jobs))
    assert answers == 'project=a sp1:{"granted":3}\nsp1:{"granted":3}\nproject=a\n sp1:{"granted":3}'


def test_both_languages_agree(lua: Lua) -> None:
    """Of every comment in the list, good or hostile, Lua grants exactly what Python reads."""
    for admin_comment in [None, FORGED]:
        comments = [*ACCEPTED, *REFUSED]
        answers = submitted(lua, [(comment, admin_comment) for comment in comments])
        expected = {comment: granted_by_python(comment) for comment in comments}
        assert dict(zip(comments, map(grant.parse, answers), strict=True)) == expected, admin_comment
        assert sum(each is not None for each in expected.values()) == len(ACCEPTED), admin_comment


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
    """Lua and Python agree on comments made of pieces of tokens."""
    answers = submitted(lua, [(comment, None) for comment in comments])
    assert list(map(grant.parse, answers)) == list(map(granted_by_python, comments))


def test_forged_grant(lua: Lua) -> None:
    """A grant that came with the submission itself is cleared; what a site keeps in admin_comment stays."""
    comments = [None, "", "my run", "[sp1;retries=999]"]
    admin_comments = [FORGED, f"project {FORGED}", "project sp1", None]
    jobs = [(comment, admin_comment) for comment in comments for admin_comment in admin_comments]
    assert submitted(lua, jobs) == ["", "project ", "project sp1", "nil"] * len(comments)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("#PLUGIN retries=1", True),
        ("#PLUGIN\tretires=1", True),
        ("#PLUGINS retries=1", True),
        ("# PLUGIN retries=1", True),
        ("  ##plugin: hang_timeout = 5m", True),
        ("# the plugin retries=3 was tried", False),
        ("# plugin: see the manual, a=1", False),
        ("#SBATCH --comment=plugin", False),
        ("export PLUGINS_retries=1", False),
        ("true\n#PLUGIN retries=1", False),
        ("", False),
    ],
)
def test_lines_that_sbatch_does_not_read(line: str, told: bool, lua: Lua) -> None:
    """Print a warning for each line that names a feature, also a misspelt one, but not for prose or later lines."""
    script = f"#!/bin/sh\n\n#SBATCH -N2\n{line}\nhostname\n"
    lines = lua("slurm_job_submit({script = io.read('*a')}, {}, 1000)", script.encode())
    says = "told: slurm_plugin: this job has no features: a #PLUGIN line of its script was not read"
    assert [each.startswith(says) for each in lines] == [True] * told


@pytest.mark.parametrize("lines", ['"#plugin" .. string.rep("_", 20000)', 'string.rep("#\\n", 2000000)'])
def test_no_script_takes_long(lines: str, lua: Lua) -> None:
    """Submissions pass slurmctld one at a time, so no user's script may keep it busy."""
    program = f"""
    local script = "#!/bin/sh\\n" .. {lines} .. "\\ntrue\\n"
    local begun = os.clock()
    slurm_job_submit({{script = script}}, {{}}, 1000)
    print(os.clock() - begun < 0.3)
    """
    assert lua(program) == ["true"]


def test_our_own_failure(lua: Lua) -> None:
    """An error is logged in one line, and the job is accepted."""
    for job in ["nil", "7", "{comment = {}}", "setmetatable({}, {__index = function() error('x') end})"]:
        logged, code = lua(f"print(slurm_job_submit({job}, {{}}, 1000))")
        assert logged.startswith("logged: slurm_plugin: no grant for a job of uid 1000: "), job
        assert code == "0", job


def test_modify(lua: Lua) -> None:
    """A later edit of the comment changes nothing."""
    program = """
    local job = {comment = "[sp1;retries=9]"}
    print(slurm_job_modify(job, {}, {}, 1000), job.admin_comment)
    """
    assert lua(program) == ["0\tnil"]
