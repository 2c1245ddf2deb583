"""A policy as Lua: the table in job_submit.lua, and that file run outside Slurm, with the Lua that slurmctld has."""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from slurm_plugin.errors import MissingError, SlurmPluginError
from slurm_plugin.slurm.process import run

LUA: Final = "lua5.1"
COMPILERS: Final = ("luac5.1", "luac")
DEADLINE_S: Final = 10.0
_ENVIRON: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}

# What slurmctld has round the file, as far as a policy can see it. Outside of it nobody is SlurmUser.
_STAND_IN: Final = """
local said, changes = {user = {}, log = {}}, {}
slurm = {SUCCESS = 0, ERROR = -1, FAILURE = -1, NO_VAL = 4294967294, INFINITE = 4294967295, NO_VAL16 = 65534,
  NO_VAL8 = 254, ESLURM_ACCESS_DENIED = 2002, ESLURM_ACCOUNTING_POLICY = 2050, ESLURM_INVALID_ACCOUNT = 2045}
function slurm.user_msg(text) table.insert(said.user, text) end
function slurm.log_user(...) table.insert(said.user, string.format(...)) end
for _, level in ipairs({"log_error", "log_info", "log_verbose", "log_debug", "log_debug2", "log_debug3"}) do
  slurm[level] = function(...) table.insert(said.log, string.format(...)) end
end
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


def literal(value: Any) -> str:
    """A plain value as Lua source. Raises TypeError for what a policy does not hold."""
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
    """One byte of a text between double quotes: printable ASCII as it is, all else by its three digits."""
    return chr(byte) if 32 <= byte <= 126 and byte not in b'"\\' else f"\\{byte:03}"


def table(policy: Mapping[str, Any]) -> str:
    """The table of a compiled policy, a line for each rule."""
    rules = "".join(f"    {literal(rule)},\n" for rule in policy["rules"])
    rest = "".join(f"  {name} = {literal(policy[name])},\n" for name in ("on_error", "defaults"))
    return f"{{\n{rest}  rules = {{\n{rules}  }},\n}}"


def check(text: str) -> None:
    """Raise SlurmPluginError where a Lua compiler is at hand and does not accept the file."""
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
    """Run the file `text` on one submission, or on an edit of `record`: its `code`, what it tells the `user` and
    the `log`, and its `changes` as [field, before, after], all as texts.

    Raises MissingError without Lua 5.1, SlurmPluginError where the file does not load or fails.
    """
    lua = shutil.which(LUA, path=_ENVIRON["PATH"])
    if lua is None:
        raise MissingError(f"{LUA} is not installed, and slurmctld's own cannot be asked\n  apt-get install {LUA}")
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
    # Each byte came as a character of its own: Lua knows no encodings.
    text = json.dumps(json.loads(result.out.splitlines()[-1]), ensure_ascii=False)
    answer: dict[str, Any] = json.loads(text.encode("latin-1").decode("utf-8", "replace"))
    return answer
