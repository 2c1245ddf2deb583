"""`slurm-plugin hosts convert FILE --to ranktable-1.0`: a rank table of one form as another (docs/ranktables.md)."""

import argparse
from pathlib import Path

from hostfiles import ranktable_read
from slurm_plugin.job import ranktable
from slurm_plugin.job.deliver import deliver

TO = ("ranktable-1.0",)


def main(args: list[str]) -> int:
    """Print or write the table. Exit 0; 2 where FILE is no whole table or the output cannot be written."""
    options = _parser().parse_args(args)

    def converted() -> str:
        text, table = ranktable.wait(options.file, deadline_s=options.wait, uneven=options.uneven)
        return ranktable_read.as_1_0(text, table, uneven=options.uneven)

    return deliver(converted, options.output)


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
