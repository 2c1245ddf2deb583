"""The errors that a command of ours ends with.

A message has three parts: what was found, what is accepted, and the next command to try. The classes are the
exit codes of every `slurm-plugin` command.
"""


class SlurmPluginError(Exception):
    """The thing asked about failed (exit 1)."""

    exit_code = 1

    @property
    def one_line(self) -> str:
        """The message as a line of a log."""
        return " ".join(str(self).split())


class UsageError(SlurmPluginError):
    """Wrong usage, or we could not tell (exit 2)."""

    exit_code = 2


class MissingError(SlurmPluginError):
    """Something this needs is missing on this machine (exit 3)."""

    exit_code = 3


def printable(text: str) -> str:
    """One line without anything that steers a terminal: keys, comments and reasons hold what others wrote."""
    return "".join(char if char.isprintable() else "?" for char in text)
