"""A vendor's tool: run by its absolute path, and all that it printed.

Called in the child of an item only: there `subprocess` costs nobody's prolog anything, and at the deadline the tool is
killed with the child, whose session it is in.
"""

from __future__ import annotations

import os
from collections import namedtuple

ABSENT = "not here: {}"  # the message of an item whose tool a node does not have


class Output(namedtuple("Output", "status out error")):
    """The exit status, negative for a signal, and what stood on stdout and on stderr."""

    __slots__ = ()
    status: int
    out: str
    error: str

    @property
    def text(self) -> str:
        """Both, for tools that complain on either."""
        return f"{self.out}\n{self.error}"


def run(program: str, *arguments: str) -> Output:
    """What it printed in the C locale. Raises OSError where it cannot be started.

    It gets this process's environment: some tools find their libraries by LD_LIBRARY_PATH only.
    """
    import subprocess  # noqa: PLC0415 - see above

    done = subprocess.run(
        [program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    )
    return Output(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def useless(program: str, output: Output) -> ValueError:
    """What to raise for an answer that says nothing of the devices."""
    said = next((line.strip() for line in output.text.splitlines() if line.strip()), "nothing")
    return ValueError(f"{program} ended with {output.status} and said: {said}")
