"""Mirrors slurm_plugin/wrapper/batch.py: a script as sbatch reads it."""

import pytest

from slurm_plugin.wrapper import batch
from slurm_plugin.wrapper.batch import Line

SCRIPT = b"""#!/bin/bash
#SBATCH -N1
# a comment
   # one further in

#PLUGIN retries=2
#PLUGINS=none
#PLUGIN\tgrace=1m mode=pytorch
\t
echo a
#PLUGIN spares=1
#SBATCH -N2
"""


def test_the_first_block_ends_at_the_first_command() -> None:
    """Comments and empty lines belong to it; what follows is the script's own, whatever it looks like."""
    block = batch.first_block(SCRIPT)
    assert (len(block), block[-1]) == (9, b"\t")
    assert batch.ours(block) == [Line(6, " retries=2"), Line(8, "\tgrace=1m mode=pytorch")]
    assert batch.words(block) == ["-N1"]


@pytest.mark.parametrize("script", [b"", b"#!/bin/sh", b"#!/bin/sh\n#PLUGIN", b"#!/bin/sh\n#PLUGIN\n\n"])
def test_a_script_without_a_command(script: bytes) -> None:
    """Is all first block."""
    assert b"\n".join(batch.first_block(script)) == script.removesuffix(b"\n")


@pytest.mark.parametrize(
    ("script", "refused"),
    [
        (b"", True),
        (b"\n#!/bin/sh\n", True),
        (b"#!/bin/sh\r\necho\r\n", True),
        (b"#!/bin/sh\necho \0\n", True),
        (b"#!/bin/sh\necho \r\n", True),
        (b"#!/bin/sh\necho \xff\x01\n", False),
    ],
)
def test_what_sbatch_refuses(script: bytes, refused: bool) -> None:
    """It says so itself, in its own words."""
    assert batch.refused(script) == refused


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (' --comment="a b" -Jx', ["--comment=a b", "-Jx"]),
        (r" --comment=a\ b", ["--comment=a", "b"]),
        (r' --comment="a\"b"', ['--comment=a"b']),
        (' --comment="a # b"#c', ["--comment=a # b"]),
        (" --comment=a#b --no-such", ["--comment=a"]),
        (""" --comment='a'"b"c""", ["--comment=abc"]),
        (" --comment ab\\", ["--comment", "ab"]),
        ("\t--comment=\u00e4", ["--comment=\u00e4"]),
    ],
)
def test_the_words_of_a_directive(line: str, words: list[str]) -> None:
    """As 22.05.8 was seen to cut them."""
    assert batch.words([f"#SBATCH{line}".encode()]) == words


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"#SBATCH hetjob", True),
        (b"#SBATCH\tHetJob -N2", True),
        (b"#SBATCH packjob", True),
        (b"#SBATCH -J hetjobs", False),
        (b"#SBATCH -J hetjob", False),
        (b"#SBATCH --comment hetjob", False),
        (b"#SBATCH", False),
        (b"# hetjob", False),
    ],
)
def test_a_heterogeneous_script(line: bytes, found: bool) -> None:
    """Its components stand apart by a line's first word (get_argument in sbatch's opt.c)."""
    assert batch.heterogeneous([b"#!/bin/sh", line]) == found


@pytest.mark.parametrize(
    ("first", "found"),
    [
        (b"#!/opt/env/bin/slurm-plugin run", True),
        (b"#! /usr/bin/env -S slurm-plugin run", True),
        (b"#!/opt/env/bin/slurm-plugin sbatch", False),
        (b"#!/opt/env/bin/slurm-plugin", False),
        (b"#!/bin/sh", False),
        (b"#!", False),
        (b"slurm-plugin run", False),
        (b"", False),
    ],
)
def test_a_job_spec_is_told_by_its_first_line(first: bytes, found: bool) -> None:
    """Which names what runs it."""
    assert batch.is_spec(first + b"\nname: a\n") == found
