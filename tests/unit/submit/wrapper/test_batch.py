"""Mirrors slurm_plugin/submit/wrapper/batch_script.py: a script as sbatch reads it."""

from slurm_plugin.submit.wrapper import batch_script
from slurm_plugin.submit.wrapper.batch_script import Line

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
    """Comments and empty lines belong to it. What follows is the script's, whatever it looks like."""
    block = batch_script.first_block(SCRIPT)
    assert (len(block), block[-1]) == (9, b"\t")
    assert batch_script.ours(block) == [Line(6, " retries=2"), Line(8, "\tgrace=1m mode=pytorch")]
    assert batch_script.words(block) == ["-N1"]


def test_a_script_without_a_command() -> None:
    """All of it is the first block."""
    for script in [b"", b"#!/bin/sh", b"#!/bin/sh\n#PLUGIN", b"#!/bin/sh\n#PLUGIN\n\n"]:
        assert b"\n".join(batch_script.first_block(script)) == script.removesuffix(b"\n"), script


def test_what_sbatch_refuses() -> None:
    """sbatch itself prints the message."""
    cases = [
        (b"", True),
        (b"\n#!/bin/sh\n", True),
        (b"#!/bin/sh\r\necho\r\n", True),
        (b"#!/bin/sh\necho \0\n", True),
        (b"#!/bin/sh\necho \r\n", True),
        (b"#!/bin/sh\necho \xff\x01\n", False),
    ]
    for script, refused in cases:
        assert batch_script.refused(script) == refused, script


def test_the_words_of_a_directive() -> None:
    """As 22.05.8 splits them."""
    cases = [
        (' --comment="a b" -Jx', ["--comment=a b", "-Jx"]),
        (r" --comment=a\ b", ["--comment=a", "b"]),
        (r' --comment="a\"b"', ['--comment=a"b']),
        (' --comment="a # b"#c', ["--comment=a # b"]),
        (" --comment=a#b --no-such", ["--comment=a"]),
        (""" --comment='a'"b"c""", ["--comment=abc"]),
        (" --comment ab\\", ["--comment", "ab"]),
        ("\t--comment=\u00e4", ["--comment=\u00e4"]),
    ]
    for line, words in cases:
        assert batch_script.words([f"#SBATCH{line}".encode()]) == words, line


def test_a_line_that_begins_a_component() -> None:
    """The separator is the first word of an #SBATCH line (get_argument in sbatch's opt.c)."""
    cases = [
        (b"#SBATCH hetjob", True),
        (b"#SBATCH\tHetJob -N2", True),
        (b"#SBATCH packjob", True),
        (b"#SBATCH -J hetjobs", False),
        (b"#SBATCH -J hetjob", False),
        (b"#SBATCH --comment hetjob", False),
        (b"#SBATCH", False),
        (b"# hetjob", False),
    ]
    for line, found in cases:
        assert batch_script.begins_component(line) == found, line


def test_a_job_spec_is_told_by_its_first_line() -> None:
    """The line names the command that runs it."""
    cases = [
        (b"#!/opt/env/bin/slurm-plugin run", True),
        (b"#! /usr/bin/env -S slurm-plugin run", True),
        (b"#!/opt/env/bin/slurm-plugin sbatch", False),
        (b"#!/opt/env/bin/slurm-plugin", False),
        (b"#!/bin/sh", False),
        (b"#!", False),
        (b"slurm-plugin run", False),
        (b"", False),
    ]
    for first, found in cases:
        assert batch_script.is_spec(first + b"\nname: a\n") == found, first
