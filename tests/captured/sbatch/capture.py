"""Capture the options of a real sbatch, and which of them take an argument: `capture.py ROOT OUT.json`, as root.

ROOT is `/`, or a root directory of another release (docs/reference/sandbox.md). The script submits nothing: it needs a
slurm.conf, but no slurmctld. getopt_long lists the long names that begin with a letter, and reports a missing or
unexpected argument.
"""

import json
import re
import string
import subprocess
import sys
from pathlib import Path

CONF = "ClusterName=x\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nNodeName=n1\nPartitionName=p Nodes=n1\n"
ENVIRON = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "SLURM_CONF": "/tmp/slurm_plugin-capture.conf"}


class Sbatch:
    """The sbatch of one release."""

    def __init__(self, root: str) -> None:
        self.inside = ["/usr/sbin/chroot", root]

    def said(self, *words: str) -> str:
        """Return its output for these words."""
        done = subprocess.run(
            [*self.inside, "sbatch", *words],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=ENVIRON,
            timeout=20,
            check=False,
            cwd="/",
        )
        return done.stdout + done.stderr

    def names(self) -> set[str]:
        """Return all long names, also those that --help omits."""
        found: set[str] = set()
        for letter in string.ascii_lowercase:
            for said in (self.said(f"--{letter}", "--version"), self.said(f"--{letter}"), self.said(f"--{letter}=x")):
                found |= set(re.findall(r"'--([a-z0-9-]{2,})'", said))
        return found

    def takes(self, name: str) -> str:
        """Return whether a long option takes an argument: required, optional, no."""
        if "requires an argument" in self.said(f"--{name}"):
            return "required"
        return "no" if "doesn't allow an argument" in self.said(f"--{name}=x", "--version") else "optional"

    def short(self, letter: str) -> str | None:
        """Return the same for a letter, None if it is no option. h and V exit immediately, so they read as optional."""
        said = self.said(f"-{letter}")
        if "invalid option" in said:
            return None
        if "requires an argument" in said:
            return "required"
        return "no" if "invalid option -- '_'" in self.said(f"-{letter}_") else "optional"


def main(root: str, out: str) -> None:
    """Ask sbatch, and write the answers."""
    conf = Path(root, ENVIRON["SLURM_CONF"].lstrip("/"))
    conf.write_text(CONF)
    try:
        sbatch = Sbatch(root)
        short = {letter: sbatch.short(letter) for letter in string.ascii_letters + string.digits}
        found = {
            "version": sbatch.said("--version").strip(),
            "long": {name: sbatch.takes(name) for name in sorted(sbatch.names())},
            "short": {letter: kind for letter, kind in short.items() if kind},
        }
    finally:
        conf.unlink()
    Path(out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
