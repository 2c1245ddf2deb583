"""Mirrors slurm_plugin/submit/wrapper/submission.py: the submission of a script, or a message."""

from slurm_plugin.submit.wrapper.arguments import Given
from slurm_plugin.submit.wrapper.build import Submission
from slurm_plugin.submit.wrapper.submission import make

SITE = {"retries": "2"}
GIVEN = Given((), ("job.yaml",))
COMMAND = "/opt/env/bin/slurm-plugin"
SPEC = f"#!{COMMAND} run\n#SBATCH --nodes=2\nname: a\n"


def test_a_job_spec_is_left_as_it_is() -> None:
    """The site's features would start a second supervisor."""
    assert make(GIVEN, SPEC.encode(), "job.yaml", SITE, COMMAND) is None
    assert isinstance(make(GIVEN, b"#!/bin/sh\ntrue\n", "job.sh", SITE, COMMAND), Submission)


def test_our_lines_in_a_job_spec() -> None:
    """They are refused: nothing would read them. A spec's keys do the same."""
    said = make(GIVEN, SPEC.replace("name", "#PLUGIN retries=1\nname").encode(), "job.yaml", {}, COMMAND)
    assert str(said).splitlines()[:2] == [
        "slurm-plugin: job.yaml: 1 problem, nothing was submitted",
        "  line 3: a job spec has keys for that; write key: value below, and take the #PLUGIN lines out",
    ]
