"""The node side as one zip file: `slurm_plugin.pyz`, which the hooks' interpreter imports from (zipimport).

It holds sources, and beside each what the hooks' own interpreter makes of it (a .pyc of PEP 552 that names its source
by hash and is not compared with it). An interpreter of another version finds a magic number in it that is not its own,
and takes the source. Nothing is compressed, so no zlib is imported; the same code gives the same bytes. Beside our own
code it holds NVIDIA's binding to NVML, one file of Python, where that is installed (extra `nvidia`).
"""

import base64
import json
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Final

import hostfiles
import prechecks
import slurm_plugin
from slurm_plugin.compiled import ARCHIVE
from slurm_plugin.slurm.process import run

# What runs on nodes: packages and modules that need the standard library only (tests/unit/test_layering_shell.py).
NODE_SIDE: Final = (
    "byhand",
    "hooks",
    "job",
    "modes",
    "slurm",
    "wrapper",
    "__init__.py",
    "__main__.py",
    "after_run.py",
    "asked.py",
    "cap.py",
    "comment.py",
    "compiled.py",
    "container.py",
    "decide.py",
    "durations.py",
    "envfile.py",
    "errors.py",
    "grant.py",
    "health.py",
    "history.py",
    "nearest.py",
    "own_command.py",
    "queueing.py",
    "reasons.py",
    "remark.py",
    "standalone.py",
    "token.py",
    "trust.py",
    "why.py",
)
BINDING: Final = "pynvml.py"
BINDING_OF: Final = "nvidia-ml-py"
DEADLINE_S: Final = 60.0
_ENVIRON: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONHASHSEED": "0"}
_ENTRY: Final = (
    "from slurm_plugin.__main__ import main\n\nraise SystemExit(main())\n"  # python3 slurm_plugin.pyz VERB ...
)
_LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)  # the first time that a zip can hold
_READ_BY_ALL: Final = 0o100644 << 16
# Text in, text out: names and sources as JSON; names and compiled code in base64. 1: by hash, unchecked.
_COMPILE: Final = f"""
import base64, importlib.util, json, marshal, sys
made = {{}}
for name, text in json.load(sys.stdin).items():
    source = text.encode()
    code = marshal.dumps(compile(source, "{ARCHIVE}/" + name, "exec", dont_inherit=True))
    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)
    made[name] = base64.b64encode(head + code).decode()
json.dump(made, sys.stdout)
"""


def build(interpreter: Sequence[str]) -> bytes:
    """The whole file. `interpreter` is the command of the hooks' Python: where it does not do, sources are all."""
    files = {**{name: text.encode() for name, text in _sources().items()}, **_compiled(tuple(interpreter))}
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.external_attr, entry.create_system = _READ_BY_ALL, 3  # as on Unix, wherever it is made
            archive.writestr(entry, files[name])
    return out.getvalue()


def code(data: bytes) -> dict[str, bytes] | None:
    """The sources in a file, each that another text than its own was compiled for as empty; None for no zip.

    What compiled code is made of depends on the very build of an interpreter: that is not to be compared. Nor is
    NVIDIA's binding, of which each machine that renders has its own version or none.
    """
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, NotImplementedError, OSError):
        return None
    sources = {name: found for name, found in files.items() if not name.endswith(".pyc") and name != BINDING}
    return {name: found if _fits(found, files.get(f"{name}c")) else b"" for name, found in sources.items()}


def _fits(source: bytes, compiled: bytes | None) -> bool:
    """Whether compiled code, where there is any, says that it was made of this source."""
    if compiled is None:
        return True
    from _imp import source_hash as hashed  # noqa: PLC0415 - with the key of the interpreter that made it (PEP 552)

    return compiled[4:16] == (1).to_bytes(4, "little") + hashed(int.from_bytes(compiled[:4], "little"), source)


def binding() -> str:
    """The version of nvidia-ml-py that is installed here, whose module the file then holds; empty for none."""
    try:
        found = metadata.distribution(BINDING_OF)
    except metadata.PackageNotFoundError:
        return ""
    return found.version if Path(str(found.locate_file(BINDING))).is_file() else ""


def _sources() -> dict[str, str]:
    """Every module by its path in the file."""
    found = {"__main__.py": _ENTRY}
    if binding():
        path = Path(str(metadata.distribution(BINDING_OF).locate_file(BINDING)))
        found[BINDING] = path.read_text(encoding="utf-8")
    for package in (hostfiles, prechecks, slurm_plugin):
        folder = Path(str(package.__file__)).parent
        names = NODE_SIDE if package is slurm_plugin else (".",)
        for path in (path for name in names for path in _modules(folder / name)):
            found[f"{package.__name__}/{path.relative_to(folder)}"] = path.read_text(encoding="utf-8")
    return found


def _modules(path: Path) -> Sequence[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


@cache
def _compiled(interpreter: tuple[str, ...]) -> Mapping[str, bytes]:
    """What this interpreter makes of the sources; nothing where it cannot be run, or is none."""
    # -P: not from a directory that happens to be the current one. Not -I: the seed makes it the same every time.
    argv = [*interpreter, "-S", "-s", "-P", "-c", _COMPILE]
    try:
        said = run(argv, deadline_s=DEADLINE_S, environ=_ENVIRON, text=json.dumps(_sources()))
        return {f"{name}c": base64.b64decode(text) for name, text in json.loads(said.out).items()}
    except (OSError, ValueError, AttributeError):
        return {}
