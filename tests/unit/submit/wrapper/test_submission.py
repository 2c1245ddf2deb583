"""Mirrors slurm_plugin/submit/wrapper/submission.py: the submission of a script, or a message."""

from slurm_plugin.submit.wrapper.arguments import Given, Option
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


def test_a_wish_of_the_sites_that_does_not_fit() -> None:
    """The script is submitted unchanged. With features of the user it is refused."""
    given = Given((Option("distribution", "arbitrary", ("-m", "arbitrary")),), ("job.sh",))
    assert make(given, b"#!/bin/sh\ntrue\n", "job.sh", SITE, COMMAND) is None
    said = make(given, b"#!/bin/sh\n#PLUGIN retries=1\n", "job.sh", SITE, COMMAND)
    assert str(said).startswith("slurm-plugin: job.sh: --distribution=arbitrary")
    assert str(said).endswith("; nothing was submitted")


def test_our_lines_in_a_job_spec() -> None:
    """They are refused: nothing would read them. A spec's keys do the same."""
    said = make(GIVEN, SPEC.replace("name", "#PLUGIN retries=1\nname").encode(), "job.yaml", {}, COMMAND)
    assert str(said).splitlines()[:2] == [
        "slurm-plugin: job.yaml: 1 problem, nothing was submitted",
        "  line 3: a job spec has keys for that; write key: value below, and take the #PLUGIN lines out",
    ]


def test_a_feature_of_the_site_that_contradicts_an_option() -> None:
    """The script has its own features without the site's; alone, the site's are left out."""
    site = {"grace": "20s"}
    endless = b"#!/bin/sh\n#SBATCH --time=UNLIMITED\n%strue\n"
    assert make(GIVEN, endless % b"", "a.sh", site, COMMAND) is None
    made = make(GIVEN, endless % b"#PLUGIN retries=1\n", "a.sh", site, COMMAND)
    assert isinstance(made, Submission)
    assert not [each for each in made.arguments if each.startswith("--signal")]
    said = make(GIVEN, endless % b"#PLUGIN grace=20s\n", "a.sh", {"retries": "1"}, COMMAND)
    assert str(said).startswith("slurm-plugin: job.yaml: --time=UNLIMITED: found it with grace, whose signal")
