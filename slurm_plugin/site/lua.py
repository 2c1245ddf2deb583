"""job_submit.lua: render it with the policy, chain it after the site's own script, and run it outside Slurm."""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal
from zlib import crc32

import slurm_plugin
from slurm_plugin.errors import MissingError, SlurmPluginError
from slurm_plugin.records import features
from slurm_plugin.records.site_settings import DEFAULT_ROOT
from slurm_plugin.records.token import MAX_RETRIES
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.slurm.process import run
from slurm_plugin.spec import policy_language
from slurm_plugin.templates import render

OWN: Final = "job_submit.site.lua"  # the name of the site's own script while our script loads it
LUA: Final = "lua5.1"
COMPILERS: Final = ("luac5.1", "luac")
DEADLINE_S: Final = 10.0
_HEAD: Final = b"-- slurm_plugin "
_CALL: Final = b"pcall(grant"
_ENVIRON: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}

# The part of slurmctld's Lua environment that a policy uses. /proc/self/status is missing, so no user is SlurmUser.
# It starts no program.
_STAND_IN: Final = """
local said, changes = {user = {}, log = {}}, {}
slurm = {SUCCESS = 0, ERROR = -1, FAILURE = -1, NO_VAL = 4294967294, INFINITE = 4294967295, NO_VAL16 = 65534,
  NO_VAL8 = 254, ESLURM_ACCESS_DENIED = 2002, ESLURM_ACCOUNTING_POLICY = 2050, ESLURM_INVALID_ACCOUNT = 2045}
function slurm.user_msg(text) table.insert(said.user, text) end
function slurm.log_user(...) table.insert(said.user, string.format(...)) end
for _, level in ipairs({"log_error", "log_info", "log_verbose", "log_debug", "log_debug2", "log_debug3"}) do
  slurm[level] = function(...) table.insert(said.log, string.format(...)) end
end
function os.execute(text) slurm.log_info("would run: %s", text) return 0 end
local real = io.open
io.open = function(path, ...) if path ~= "/proc/self/status" then return real(path, ...) end end
"""
_RUN: Final = """
dofile(file)
local seen = setmetatable({}, {__index = job, __newindex = function(_, field, value)
  if job[field] ~= value then
    changes[#changes + 1] = {field, tostring(job[field]), tostring(value)}
    job[field] = value
  end
end})
local code
if record then code = slurm_job_modify(seen, record, partitions, uid)
else code = slurm_job_submit(seen, partitions, uid) end
local function quoted(text)
  return '"' .. string.gsub(text, '[^ !#-%[%]-~]', function(each)
    return string.format("\\\\u00%02x", string.byte(each))
  end) .. '"'
end
local list
function list(texts)
  local parts = {}
  for _, text in ipairs(texts) do
    parts[#parts + 1] = type(text) == "table" and list(text) or quoted(text)
  end
  return "[" .. table.concat(parts, ",") .. "]"
end
"""
_TELL: Final = """
local form = '{"code":%d,"user":%s,"log":%s,"changes":%s}'
print(string.format(form, code, list(said.user), list(said.log), list(changes)))
"""


def job_submit(config: SiteConfig, root: str = DEFAULT_ROOT) -> str:
    """Return job_submit.lua for the site directory `root`. Raise SlurmPluginError if a Lua compiler refuses it."""
    policy = table(policy_language.compiled(config.policy)) if policy_language.rules_jobs(config.policy) else ""
    extends, guarded = (
        policy_language.hold_s(config.extend_time) > 0,
        policy_language.guarded_priorities(config.priorities),
    )
    values: dict[str, Any] = {
        "max_retries": config.max_retries,
        "limit": MAX_RETRIES,
        "features": tuple(features.KEYS),
        "asked": extends or any(guarded.values()),
        "extends": literal(extends),
        "guarded": literal(guarded),
        "root": root,
    }
    text = render("site/job_submit.lua.j2", version=slurm_plugin.__version__, policy=policy, **values)
    check(text)
    return text


def chain(own: str, ours: str, text: bytes) -> str:
    """Return a job_submit.lua that loads the site's own script from `own`, then ours from `ours`.

    It contains a checksum of our `text`, because slurmctld reloads job_submit.lua only if that file itself changes.
    """
    return render(
        "site/job_submit_chain.lua.j2", version=slurm_plugin.__version__, own=own, ours=ours, crc32=crc32(text)
    )


def kind(text: bytes) -> Literal["ours", "calls ours", "own"]:
    """Return the kind of a job_submit.lua: ours (or a chain), the site's own that calls ours, or the site's own."""
    return "ours" if text.startswith(_HEAD) else "calls ours" if _CALL in text else "own"


def literal(value: Any) -> str:
    """Return a plain value as Lua source. Raise TypeError for a type that a policy cannot contain."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return f'"{"".join(map(_character, value.encode("utf-8", "surrogateescape")))}"'
    if isinstance(value, list | tuple):
        return "{" + ", ".join(map(literal, value)) + "}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"[{literal(key)}] = {literal(each)}" for key, each in value.items()) + "}"
    raise TypeError(f"{value!r} has no form in a policy's Lua")


def _character(byte: int) -> str:
    """Return a byte of a quoted text: printable ASCII unchanged, other bytes as a backslash and three digits."""
    return chr(byte) if 32 <= byte <= 126 and byte not in b'"\\' else f"\\{byte:03}"


def table(policy: Mapping[str, Any]) -> str:
    """Return a compiled policy as a Lua table with one line for each rule."""
    rules = "".join(f"    {literal(rule)},\n" for rule in policy["rules"])
    rest = "".join(f"  {name} = {literal(policy[name])},\n" for name in ("on_error", "defaults"))
    return f"{{\n{rest}  rules = {{\n{rules}  }},\n}}"


def check(text: str) -> None:
    """Raise SlurmPluginError if an installed Lua compiler refuses the file."""
    compiler = next((found for name in COMPILERS if (found := shutil.which(name, path=_ENVIRON["PATH"]))), None)
    if compiler is None:
        return
    result = run([compiler, "-p", "-"], deadline_s=DEADLINE_S, environ=_ENVIRON, text=text)
    if result.code:
        raise SlurmPluginError(f"job_submit.lua: {result.err.strip()}\n  nothing was written; please report this text")


def outside(
    text: str,
    job: Mapping[str, Any],
    *,
    uid: int,
    partitions: Mapping[str, Mapping[str, Any]],
    record: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run the file `text` on a submission, or on an edit of `record`.

    Return its `code`, its lines for the `user` and the `log`, and its `changes` as texts [field, before, after].
    Raise MissingError without Lua 5.1, SlurmPluginError if the file does not load or fails.
    """
    lua = shutil.which(LUA, path=_ENVIRON["PATH"])
    if lua is None:
        raise MissingError(f"{LUA}, which slurmctld embeds, is not installed\n  apt-get install {LUA}")
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "job_submit.lua")
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
        given = {"file": str(file), "job": job, "partitions": partitions, "uid": uid}
        values = "".join(f"local {name} = {literal(value)}\n" for name, value in given.items())
        values += f"local record = {literal(record) if record is not None else 'nil'}\n"
        program = _STAND_IN + values + _RUN + _TELL
        result = run([lua, "-"], deadline_s=DEADLINE_S, environ=_ENVIRON, text=program)
    if result.code != 0:
        said = (result.err.strip().splitlines() or ["no answer"])[0]
        raise SlurmPluginError(f"job_submit.lua: {said}\n  slurmctld would keep the script that it has")
    # Lua has no encodings: it printed each byte as one character.
    text = json.dumps(json.loads(result.out.splitlines()[-1]), ensure_ascii=False)
    answer: dict[str, Any] = json.loads(text.encode("latin-1").decode("utf-8", "replace"))
    return answer
