"""What runs a site's own hook and then ours: scripts in `sh` below the site directory, and one in Lua. Text only."""

import re
from collections.abc import Mapping, Sequence
from typing import Final
from zlib import crc32

import slurm_plugin
from slurm_plugin.templates import render

# The line of slurm.conf -> our hook.
HOOKS: Final[Mapping[str, str]] = {
    "Prolog": "prolog",
    "Epilog": "epilog",
    "TaskProlog": "task_prolog",
    "EpilogSlurmctld": "epilog_slurmctld",
    "HealthCheckProgram": "periodic",
}
GLOBS: Final = ("Prolog", "Epilog")  # may be patterns
REPEATED: Final = ("Prolog", "Epilog", "EpilogSlurmctld")  # may stand several times, where Release.hooks_repeat
OWN_LUA: Final = "job_submit.site.lua"
_HEAD: Final = "-- slurm_plugin "
_PROGRAM: Final = re.compile(r"/[A-Za-z0-9._/+-]+", re.ASCII)
_PATTERN: Final = re.compile(r"/[A-Za-z0-9._/+*?\[\]-]+", re.ASCII)


def runnable(name: str, program: str) -> bool:
    """Whether a script can name this program, or pattern of programs, as it is."""
    return bool((_PATTERN if name in GLOBS else _PROGRAM).fullmatch(program))


def script(name: str, programs: Sequence[str], root: str) -> str:
    """The script for this line of slurm.conf: the site's programs, in order, and ours."""
    ours, glob = f"{root}/hooks/{HOOKS[name]}", name in GLOBS
    return render(
        "site/chain.sh.j2", version=slurm_plugin.__version__, line=name, programs=programs, ours=ours, glob=glob
    )


def lua(own: str, ours: str, text: bytes) -> str:
    """job_submit.lua that loads the site's own from `own`, and from `ours` ours, whose text is given.

    slurmctld reads job_submit.lua again when that changes: it holds a sum of ours, and so changes with it.
    """
    return render(
        "site/job_submit_chain.lua.j2", version=slurm_plugin.__version__, own=own, ours=ours, crc32=crc32(text)
    )


def lua_is_ours(text: bytes) -> bool:
    """Whether this job_submit.lua was written by us, as it is deployed or as a chain."""
    return text.startswith(_HEAD.encode())
