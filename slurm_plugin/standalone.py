"""Modules of ours that another interpreter runs, which may know none of the others: how to call them."""

import os
from types import ModuleType
from typing import Final

# An interpreter finds modules in a zip, but no script. The current directory is not to be imported from.
_OUT_OF_A_ZIP: Final = (
    "import sys, zipimport; sys.path[0] or sys.path.pop(0); "
    "exec(zipimport.zipimporter(sys.argv.pop(1)).get_source(sys.argv.pop(1)))"
)


def words(module: ModuleType, archive: str = "") -> list[str]:
    """What stands behind the interpreter and before the module's own arguments.

    `archive` is the zip by a path that holds on other machines too; without it only this process's children can use it.
    """
    own: str = getattr(module.__loader__, "archive", "")
    if not own:
        return [str(module.__file__)]
    package, _, name = module.__name__.rpartition(".")
    place = archive or own.replace("/proc/self/", f"/proc/{os.getpid()}/")
    return ["-c", _OUT_OF_A_ZIP, f"{place}/{package.replace('.', '/')}", name]  # as zipimport wants it: folder, name
