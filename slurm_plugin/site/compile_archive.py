"""Compile the sources of slurm_plugin.pyz, and write that zip. Standard library only: the hooks' interpreter runs this.

compile_archive.py <SOURCES >CODE    JSON; the code in base64. On a controller, for `slurm_plugin.site.archive`
compile_archive.py ARCHIVE NEW       on a node, after the installation of slurm-plugin-node
"""

import base64
import importlib.util
import json
import marshal
import sys
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

INDEX = "index.pyc"  # the first entry, see `_index`
_LOCAL_HEADER, _CENTRAL_HEADER, _END = 30, 46, 22  # bytes without names (PKWARE's APPNOTE.TXT, 4.3.7, 4.3.12, 4.3.16)
_PYC_HEADER = 16  # PEP 552
INDEX_PLACE = _LOCAL_HEADER + len(INDEX)
INDEX_SIZE = 1 << 16  # the most bytes that hooks read
_NAME = "slurm_plugin.pyz"  # in tracebacks
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold
_READ_BY_ALL = 0o100644 << 16


def compiled(sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the code of each source for this interpreter, as an unchecked hash-based .pyc."""
    found = {}
    for name, source in sources.items():
        code = marshal.dumps(compile(source, f"{_NAME}/{name}", "exec", dont_inherit=True))
        head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)
        found[f"{name}c"] = head + code
    return found


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Return a zip of these files. The same files give the same bytes."""
    files = dict(sorted(files.items()))
    files = {INDEX: _index(files), **files} if "__main__.pyc" in files else files
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.external_attr, entry.create_system = _READ_BY_ALL, 3  # Unix, on any machine
            archive.writestr(entry, data)
    return out.getvalue()


def _index(files: Mapping[str, bytes]) -> bytes:
    """Return the magic number of the code, the size of the zip, and for each module the size and place of its code.

    Without it Python would read the directory of the whole zip (slurm_plugin/node/archive_import.py). The size shows
    that nobody has written the zip again.
    """

    def written(at: int) -> bytes:
        places = {}
        for name, data in files.items():
            at += _LOCAL_HEADER + len(name)
            if name.endswith(".pyc"):
                module = name.removesuffix(".pyc").removesuffix("/__init__").replace("/", ".")
                places[module] = (len(data) - _PYC_HEADER, at + _PYC_HEADER, name)
            at += len(data)
        whole = at + sum(_CENTRAL_HEADER + len(name) for name in (INDEX, *files)) + _END
        return files["__main__.pyc"][:4] + whole.to_bytes(4, "little") + marshal.dumps(places, 2)  # all read version 2

    index = written(INDEX_PLACE + len(written(0)))  # its size does not depend on the numbers
    if len(index) > INDEX_SIZE:
        raise ValueError(f"the index has {len(index)} bytes; hooks read {INDEX_SIZE}")
    return index


def main() -> None:
    """Compile what the arguments or stdin say."""
    if not sys.argv[1:]:
        sources = {name: text.encode() for name, text in json.load(sys.stdin).items()}
        json.dump({name: base64.b64encode(code).decode() for name, code in compiled(sources).items()}, sys.stdout)
        return
    found, new = map(Path, sys.argv[1:])
    with zipfile.ZipFile(found) as archive:
        sources = {name: archive.read(name) for name in archive.namelist() if not name.endswith(".pyc")}
    new.write_bytes(zipped({**sources, **compiled(sources)}))


if __name__ == "__main__":
    main()
