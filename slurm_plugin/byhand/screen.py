"""Text for a terminal: colours where one is there and wants them, columns, nothing that others wrote unprinted."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence

from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.slurm import SlurmError

CODES: Mapping[str, str] = {"bold": "1", "dim": "2", "red": "1;31", "green": "32", "yellow": "33"}
CLEAR = "\x1b[H\x1b[2J"
INTERRUPTED = 130  # as a shell has it after Ctrl-C
NOBODY_READS = 141  # as it has it of a program whose reader has ended, `head`


def guarded(command: Callable[[], int]) -> int:
    """What a command returns; an error of ours is one message and its exit code, 2 where Slurm could not tell."""
    try:
        return command()
    except SlurmError as error:  # away, or it refused to answer: not the same as that there is no such job
        print(f"slurm-plugin: {error}", file=sys.stderr)
        return UsageError.exit_code
    except SlurmPluginError as error:
        print(f"slurm-plugin: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be written at the end
        return NOBODY_READS


def coloured() -> bool:
    """Whether stdout is a terminal that takes colours; NO_COLOR (no-color.org) says no."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, *, on: bool) -> str:
    """The text in a colour of CODES; as it is where none is wanted."""
    return f"\x1b[{CODES[colour]}m{text}\x1b[0m" if on and colour else text


def columns(rows: Sequence[Sequence[str]], paints: Sequence[Sequence[str]] = (), *, on: bool = False) -> list[str]:
    """Rows of cells as lines, each column as wide as its widest cell but for the last. `paints`: colours of cells."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]) - 1)] if rows else []
    lines = []
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)] + [row[-1]]
        colours = paints[number] if paints else [""] * len(cells)
        lines.append("  ".join(paint(cell, c, on=on) for cell, c in zip(cells, colours, strict=True)).rstrip())
    return lines
