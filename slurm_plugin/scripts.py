"""A batch script of a user's own as a submission: what `slurm-plugin sbatch` makes of its #SBATCH and #PLUGIN lines."""

import os
from pathlib import Path

from slurm_plugin.errors import UsageError
from slurm_plugin.policy import facts
from slurm_plugin.siteconfig import SiteConfig
from slurm_plugin.submit import Submission
from slurm_plugin.wrapper import batch
from slurm_plugin.wrapper.arguments import Given
from slurm_plugin.wrapper.submission import make


def is_script(data: bytes) -> bool:
    """Whether it is a batch script, and no job spec, whose first line may name `slurm-plugin run`."""
    return data.startswith(b"#!") and not batch.is_spec(data)


def build(data: bytes, source: str, config: SiteConfig) -> Submission:
    """The submission of a script; one without features is as it stands. Raises UsageError for what is wrong in it."""
    if batch.refused(data):
        raise UsageError(f"{source}: sbatch refuses it: found a NUL, or lines that end as DOS ends them")
    name = "" if source == "-" else Path(source).name
    made = None
    if config.sbatch or batch.ours(batch.first_block(data)):
        made = make(Given((), (source,)), data, name, config.sbatch, config.command)
    if isinstance(made, str):
        raise UsageError(made.removeprefix("slurm-plugin: "))
    text = (made.script if made else data).decode("utf-8", "surrogateescape")
    named = made or facts.asked(text, (), os.environ)[0].get("job-name")
    arguments = made.arguments if made else [] if named or not name else [f"--job-name={name}"]
    return Submission(text, os.getcwd(), tuple(arguments))  # noqa: PTH109
