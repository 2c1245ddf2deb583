"""The code for nodes as one zip file, `slurm_plugin.pyz`. The hooks' interpreter imports from it.

The zip contains each source file, and the code that the hooks' interpreter compiled from it (an unchecked hash-based
.pyc, PEP 552). An interpreter of another version does not know the magic number of that code and uses the source
(zipimport). The zip is not compressed, so hooks need not import zlib, and the same code gives the same bytes. If
NVIDIA's binding to NVML is installed (extra `nvidia`), the zip contains its one Python file.
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
from slurm_plugin.site import compile_archive
from slurm_plugin.slurm.process import run

# The code that runs on nodes. It imports the standard library only (tests/unit/test_layering_shell.py).
NODE_SIDE: Final = (
    "__init__.py",
    "__main__.py",
    "cli/__init__.py",
    "cli/nodeside",
    "controller",
    "errors.py",
    "experiment/__init__.py",
    "experiment/claim.py",
    "experiment/file/__init__.py",
    "experiment/file/entrypoint.py",  # the runner reads which framework a Trial class is of
    "experiment/fold.py",
    "experiment/follow.py",
    "experiment/journal.py",
    "experiment/log_values.py",
    "experiment/metrics.py",
    "experiment/runner",  # the user's own interpreter runs it, with the user's PyTorch or Keras
    "experiment/searchers/__init__.py",  # those of other packages run with the Python that submitted the search
    "experiment/searchers/asha.py",
    "experiment/searchers/libraries.py",
    "experiment/searchers/simple.py",
    "experiment/shim",
    "experiment/trial.py",
    "experiment/trial_input.py",
    "experiment/worker.py",
    "launch",
    "logs",
    "node",
    "records",
    "slurm",
    "submit/__init__.py",
    "submit/wrapper",
    "supervisor",
    "views/__init__.py",
    "views/check.py",
    "views/columns.py",
    "views/diagnosis.py",
    "views/follow.py",
    "views/jobs.py",
    "views/log.py",
    "views/node_history.py",
    "views/nodes.py",
    "views/open_program.py",
    "views/reasons.py",
    "views/states.py",
    "views/why.py",
    "views/why_node.py",
)
NOT_THERE: Final = (
    "slurm_plugin/cli/nodeside/spec_file.py",  # it reads specs, which needs other packages
    "slurm_plugin/logs/library.py",  # it reads YAML; signatures.json has what it found
)
BINDING: Final = "pynvml.py"
BINDING_OF: Final = "nvidia-ml-py"
DEADLINE_S: Final = 60.0
_ENVIRON: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONHASHSEED": "0"}
_ENTRY: Final = (
    "from slurm_plugin.__main__ import main\n\nraise SystemExit(main())\n"  # python3 slurm_plugin.pyz VERB ...
)


def build(interpreter: Sequence[str]) -> bytes:
    """Return the zip. `interpreter`: the command of the hooks' Python; if it fails, the zip contains only sources."""
    sources = {name: text.encode() for name, text in _sources().items()}
    return compile_archive.zipped({**sources, **_compiled(tuple(interpreter))})


def same(found: bytes | None, rendered: bytes | None) -> bool:
    """Return whether two files contain the same sources, each with code that was compiled from it.

    Do not compare compiled code, which depends on the build of the interpreter, or NVIDIA's binding: each machine that
    renders may have another version or none.
    """
    sources = _sources_of(found)
    return found == rendered or (sources is not None and sources == _sources_of(rendered))


def _sources_of(data: bytes | None) -> dict[str, bytes] | None:
    """Return the sources in a zip; a source is empty if its code was not compiled from it. None: not a zip."""
    try:
        with zipfile.ZipFile(BytesIO(data or b"")) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, NotImplementedError, OSError):
        return None
    sources = {name: found for name, found in files.items() if not name.endswith(".pyc") and name != BINDING}
    return {name: found if _fits(found, files.get(f"{name}c")) else b"" for name, found in sources.items()}


def _fits(source: bytes, compiled: bytes | None) -> bool:
    """Return whether compiled code has the hash of this source; True if there is no compiled code."""
    if compiled is None:
        return True
    from _imp import source_hash as hashed  # noqa: PLC0415 - the hash is keyed by the magic number (PEP 552)

    return compiled[4:16] == (1).to_bytes(4, "little") + hashed(int.from_bytes(compiled[:4], "little"), source)


def binding() -> str:
    """Return the installed version of nvidia-ml-py, which the zip includes; empty if it is not installed."""
    try:
        return metadata.version(BINDING_OF) if _binding_file().is_file() else ""
    except metadata.PackageNotFoundError:
        return ""


def _binding_file() -> Path:
    return Path(str(metadata.distribution(BINDING_OF).locate_file(BINDING)))


def _sources() -> dict[str, str]:
    """Return the source of every module by its path in the zip."""
    found = {"__main__.py": _ENTRY}
    if binding():
        found[BINDING] = _binding_file().read_text(encoding="utf-8")
    for package in (hostfiles, prechecks, slurm_plugin):
        folder = Path(str(package.__file__)).parent
        names = NODE_SIDE if package is slurm_plugin else (".",)
        for path in (path for name in names for path in _modules(folder / name)):
            found[f"{package.__name__}/{path.relative_to(folder)}"] = path.read_text(encoding="utf-8")
    return {name: text for name, text in found.items() if name not in NOT_THERE}


def _modules(path: Path) -> Sequence[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


@cache
def _compiled(interpreter: tuple[str, ...]) -> Mapping[str, bytes]:
    """Return the compiled code of all sources; empty if the interpreter does not run."""
    # -P: import nothing from the current directory. Not -I, which ignores the seed that makes the result repeatable.
    # -c: the interpreter of a sandbox does not see this directory.
    argv = [*interpreter, "-S", "-s", "-P", "-c", Path(compile_archive.__file__).read_text(encoding="utf-8")]
    try:
        said = run(argv, deadline_s=DEADLINE_S, environ=_ENVIRON, text=json.dumps(_sources()))
        return {name: base64.b64decode(text) for name, text in json.loads(said.out).items()}
    except (OSError, ValueError, AttributeError):
        return {}
