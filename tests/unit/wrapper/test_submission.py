"""Mirrors slurm_plugin/wrapper/submission.py: what is made of a script, or said in its place."""

from slurm_plugin.wrapper.arguments import Given
from slurm_plugin.wrapper.build import Submission
from slurm_plugin.wrapper.submission import make

SITE = {"retries": "2"}
GIVEN = Given((), ("job.yaml",))
COMMAND = "/opt/env/bin/slurm-plugin"
SPEC = f"#!{COMMAND} run\n#SBATCH --nodes=2\nname: a\n"


def test_a_job_spec_is_left_as_it_is() -> None:
    """The site's wishes would start a supervisor around its own."""
    assert make(GIVEN, SPEC.encode(), "job.yaml", SITE, COMMAND) is None
    assert isinstance(make(GIVEN, b"#!/bin/sh\ntrue\n", "job.sh", SITE, COMMAND), Submission)


def test_our_lines_in_a_job_spec() -> None:
    """Would go unread: its keys say that."""
    said = make(GIVEN, SPEC.replace("name", "#PLUGIN retries=1\nname").encode(), "job.yaml", {}, COMMAND)
    assert str(said).splitlines()[:2] == [
        "slurm-plugin: job.yaml: 1 problem, nothing was submitted",
        "  line 3: a job spec has keys for that; write key: value below, and take the #PLUGIN lines out",
    ]
