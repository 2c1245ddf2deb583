"""Compile the sources in slurm_plugin.pyz for this interpreter: compile_archive.py ARCHIVE NEW.

Runs on a node, after the installation of slurm-plugin-node, and makes what `slurm_plugin.site.archive` makes on a
controller: beside each source its code as an unchecked hash-based .pyc (PEP 552).
"""

import importlib.util
import marshal
import sys
import zipfile
from pathlib import Path


def main(found: Path, new: Path) -> None:
    """Write `new`, the archive `found` with code that this interpreter has compiled."""
    with zipfile.ZipFile(found) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith(".pyc")}
        about = {each.filename: each for each in archive.infolist()}
    for name, source in list(files.items()):
        code = marshal.dumps(compile(source, f"{found.name}/{name}", "exec", dont_inherit=True))
        head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)
        files[f"{name}c"] = head + code
    with zipfile.ZipFile(new, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, about[name.removesuffix("c")].date_time)
            entry.external_attr, entry.create_system = about[name.removesuffix("c")].external_attr, 3
            archive.writestr(entry, files[name])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
