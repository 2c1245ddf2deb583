"""`slurm-plugin hosts convert FILE --to ranktable-1.0`: a rank table of one form as another (docs/ranktables.md)."""

import argparse
import sys
from pathlib import Path

from hostfiles import HostfileError, ranktable_read
from slurm_plugin.job import files, ranktable

TO = ("ranktable-1.0",)


def main(args: list[str]) -> int:
    """Print or write the table. Exit 0; 2 where FILE is no whole table or the output cannot be written."""
    options = _parser().parse_args(args)
    try:
        text, _ = ranktable.wait(options.file, deadline_s=options.wait, uneven=options.uneven)
        converted = ranktable_read.convert(text, uneven=options.uneven)
        if options.output is None:
            sys.stdout.write(converted)
        else:
            files.write(options.output, converted)
    except HostfileError as error:
        print(f"slurm-plugin: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"slurm-plugin: {options.output}: {error.strerror}; nothing was written", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slurm-plugin hosts convert", description=__doc__, allow_abbrev=False)
    parser.add_argument("file", type=Path, metavar="FILE", help="template 2 (jobstart_hccl.json), or 1.0, to check it")
    parser.add_argument("--to", required=True, choices=TO, help="the form that is wanted")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write FILE, as a whole or not at all")
    parser.add_argument(
        "--wait", type=float, default=0.0, metavar="SECONDS", help="for FILE to be there, whole and `completed` (0)"
    )
    parser.add_argument("--uneven", action="store_true", help="accept servers with unequal numbers of devices")
    return parser
