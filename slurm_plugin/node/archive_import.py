"""Import this code from the deployed zip by its index. It runs before any import of this code.

Python's own way, zipimport, first reads the directory of all entries, and then reads and unmarshals each module twice.
That is a fifth of a prolog's CPU, and of a supervisor's start. What the index does not have is left to zipimport.
"""

import marshal
import os
import sys

TYPE_CHECKING = False  # `typing` would cost a prolog 5 ms
if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType
else:
    Loader, ModuleSpec = object, type(sys.__spec__)


class ArchiveImporter(Loader):
    """Finds the modules of the zip, and loads their code."""

    def __init__(self, zip_file: int, places: "Mapping[str, tuple[int, int, str]]") -> None:
        """`zip_file`: its descriptor. `places`: of each module the size and place of its code, and its path inside."""
        self._file, self._places = zip_file, places
        self.archive = f"/proc/self/fd/{zip_file}"  # as zipimporter names it

    def find_spec(self, name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """Return the module's spec; None if the zip has no such module."""
        if not (place := self._places.get(name)):
            return None
        inside = place[2]
        return ModuleSpec(name, self, origin=f"{self.archive}/{inside}", is_package=inside.endswith("/__init__.pyc"))

    def create_module(self, spec: "ModuleSpec") -> None:
        """Let Python create the module."""

    def exec_module(self, module: "ModuleType") -> None:
        """Run the code of the module."""
        size, place, inside = self._places[module.__name__]
        module.__file__ = f"{self.archive}/{inside}"
        exec(marshal.loads(os.pread(self._file, size, place)), module.__dict__)  # noqa: S102, S302 - root's own file

    def get_source(self, name: str) -> str:
        """Return the module's source, for the lines of a traceback."""
        from zipimport import zipimporter  # noqa: PLC0415

        return zipimporter(self.archive).get_data(self._places[name][2].removesuffix("c")).decode()
