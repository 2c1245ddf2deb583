"""A node with NVIDIA's binding and a fake NVML library, checked by a hook's interpreter."""

import json
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_plugin.site import archive
from tests.waiting import HANG_S

SOURCE = Path(__file__).parent / "fake_nvml.c"
SYSTEM = "/usr/bin/python3"
# Each input line is a separate check in a forked process, so that no check affects the next, as with hooks.
SERVE = """
import os, sys
sys.path.insert(0, sys.argv[1])
import prechecks
from prechecks import Context, quickjson; from prechecks.measure import nvidia

for line in sys.stdin:
    if os.fork():
        os.wait()
        print("end", flush=True)
        continue
    driver, environ, item, hook, gpus, settings = quickjson.loads(line)
    os.environ.update(environ)
    nvidia.DRIVER = driver
    check = next(check for check in prechecks.CHECKS if check.item == item)
    (found,) = prechecks.run(Context(hook, "n1", gpus=tuple(gpus)), settings, checks=[check])
    print(*found[1:6], sep="\\n", flush=True)
    os._exit(0)
"""


class Places:
    """The zip of a site, an old and a new library, and the GPUs in the files of the kernel's driver."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._servers: dict[tuple[str, str], subprocess.Popen[str]] = {}
        whole, bare = root / "site.zip", root / "bare.zip"
        whole.write_bytes(archive.build([SYSTEM]))
        with zipfile.ZipFile(whole) as found, zipfile.ZipFile(bare, "w") as without:
            for name in (name for name in found.namelist() if "pynvml" not in name):
                without.writestr(name, found.read(name))
        for name, options in (("new", ()), ("old", ("-DOLD",))):
            (root / name).mkdir()
            library = root / name / "libnvidia-ml.so.1"
            subprocess.run(["cc", "-shared", "-fPIC", *options, "-o", library, SOURCE], check=True)
        for minor, bus in enumerate(("0000:1a:00.0", "0000:1b:00.0")):
            (root / "gpus" / bus).mkdir(parents=True)
            (root / "gpus" / bus / "information").write_text(f"Device Minor: \t {minor}\n")
            (root / f"gpu{minor}").symlink_to("/dev/null")

    def ask(self, code: str, library: str, question: Sequence[Any]) -> list[str]:
        """Return what a hook with this zip and this library prints."""
        server = self._servers.get((code, library)) or self._begin(code, library)
        assert server.stdin
        assert server.stdout
        server.stdin.write(f"{json.dumps(question)}\n")
        server.stdin.flush()
        lines: list[str] = []
        while (line := server.stdout.readline()) != "end\n":
            assert line, f"it has ended, after {lines}"
            lines.append(line.rstrip("\n"))
        return lines

    def _begin(self, code: str, library: str) -> "subprocess.Popen[str]":
        argv = [SYSTEM, "-I", "-S", "-c", SERVE, str(self.root / code)]
        environ = {"LD_LIBRARY_PATH": str(self.root / library)}
        pipe = subprocess.PIPE
        server = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, env=environ, cwd="/")
        self._servers[code, library] = server
        return server

    def end(self) -> None:
        """End every server process."""
        for server in self._servers.values():
            server.communicate()


def look(
    places: Places,
    item: str,
    gpus: Mapping[str, Any] | None = None,
    *,
    library: str = "new",
    driver: str = "gpus",
    hook: str = "prolog",
    of: tuple[int, ...] = (0, 1),
    deadline: float = HANG_S,
    tool: str = "/nonexistent/nvidia-smi",
    code: str = "site.zip",
    nvml: bool = True,
    **own: Any,
) -> list[str]:
    """Return an item's verdict, problem, message, value and threshold, as a hook gets them."""
    parts = {
        "gpu-check": {"device": f"{places.root}/gpu%d", "count": None, "tool": tool, "nvml": nvml},
        "gpu-ecc": {"volatile": 0, "aggregate": None},
        "gpu-processes": {"accept": [], "shared": False},
    }
    settings = {**parts, "deadline_s": deadline, item: {**parts.get(item, {}), **own}}
    environ = {name: str(value) for name, value in (gpus or {}).items()}
    return places.ask(code, library, [str(places.root / driver), environ, item, hook, of, settings])
