"""Read the node: files of sysfs and /proc with one value each, directories, and the output of a vendor's tool.

Files of sysfs (Documentation/filesystems/sysfs.rst) may disappear at any time. Only the child process of a check runs
a tool and imports `subprocess`, so a prolog loses no time. The tool is in the session of the child: at the deadline the
runner kills both.
"""

from __future__ import annotations

import os
from collections import namedtuple

ABSENT = "not here: {}"  # the message of an item whose tool is missing on the node
MOST_BYTES = 4 << 20  # of a tool's output: a tool that writes without end must not fill the node's memory
_CHUNK = 65536


def text(path: str) -> str | None:
    """Return the value in a file; None if the file is missing or the driver answers with an error.

    Drivers answer with EINVAL for values that do not exist now: `carrier` and `speed` of an interface that is down, and
    counters of a port without a performance agent. This function may hang while a driver waits for its device.
    """
    try:
        with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - as in prechecks.checks.gpu
            return file.read().strip()
    except OSError:
        return None


def number(found: str | None) -> int | None:
    """Return the whole number in a value; None for another text, such as `N/A (no PMA)`."""
    try:
        return int(found or "")
    except ValueError:
        return None


def entries(directory: str) -> list[str]:
    """Return the names in a directory, `mlx5_2` before `mlx5_10`; empty if the directory is missing."""
    try:
        return sorted(os.listdir(directory), key=lambda name: (len(name), name))  # noqa: PTH208 - as in prechecks.checks.gpu
    except FileNotFoundError:
        return []


class Output(namedtuple("Output", "status out error")):
    """The exit status, negative for a signal, and the text of stdout and of stderr."""

    __slots__ = ()
    status: int
    out: str
    error: str

    @property
    def text(self) -> str:
        """Return stdout and stderr together: tools report errors on either."""
        return f"{self.out}\n{self.error}"


def run(program: str, *arguments: str) -> Output:
    """Run the tool in the C locale. Raise OSError if it cannot start, ValueError for more than MOST_BYTES of output.

    The tool inherits this environment: some tools find their libraries only by LD_LIBRARY_PATH.
    """
    import subprocess  # noqa: PLC0415 - for the few checks that run a tool
    from select import poll  # noqa: PLC0415 - as above

    pipe, environ = subprocess.PIPE, {**os.environ, "LC_ALL": "C"}
    argv = [program, *arguments]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environ) as tool:
        found = {each.fileno(): bytearray() for each in (tool.stdout, tool.stderr) if each}
        pipes, left = poll(), len(found)
        for fd in found:
            pipes.register(fd)
        while left:
            for fd, _ in pipes.poll():
                chunk = os.read(fd, _CHUNK)
                found[fd] += chunk
                if not chunk:
                    pipes.unregister(fd)
                    left -= 1
            if sum(map(len, found.values())) > MOST_BYTES:
                tool.kill()
                raise ValueError(f"{program} wrote more than {MOST_BYTES} bytes")
    return Output(tool.returncode, *(text.decode(errors="replace") for text in found.values()))


def useless(program: str, output: Output) -> ValueError:
    """Return the error to raise if the output does not describe the devices."""
    said = next((line.strip() for line in output.text.splitlines() if line.strip()), "nothing")
    return ValueError(f"{program} ended with {output.status} and said: {said}")
