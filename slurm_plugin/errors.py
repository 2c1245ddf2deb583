"""The errors that end a `slurm-plugin` command, and their exit codes.

A message has three parts: the value that was found, the accepted values, and the next command to try.
"""

INTERRUPTED = 130  # the exit code after Ctrl-C: 128 + SIGINT, as in shells


class SlurmPluginError(Exception):
    """The job, node or action failed (exit 1)."""

    exit_code = 1

    @property
    def one_line(self) -> str:
        """Return the message as one line for a log."""
        return " ".join(str(self).split())


class UsageError(SlurmPluginError):
    """The usage is wrong, or the result is unknown (exit 2)."""

    exit_code = 2


class MissingError(SlurmPluginError):
    """Something that the command needs is missing on this machine (exit 3)."""

    exit_code = 3


def printable(text: str) -> str:
    """Replace unprintable characters by `?`: in keys, comments and reasons, other users could control the terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)
