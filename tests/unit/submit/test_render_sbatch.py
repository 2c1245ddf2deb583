"""Directives as the real sbatch reads them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.submit.render import directive
from tests.unit.submit.test_render import rendered

SBATCH = shutil.which("sbatch")


def read_by_sbatch(text: str, directory: Path) -> dict[str, str]:
    """Return the options that the real sbatch finds in a script. It prints them before it contacts a controller."""
    conf = directory / "slurm.conf"
    conf.write_text(
        "ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nMessageTimeout=2\nAuthType=auth/munge\n"
        "NodeName=n1\nPartitionName=p Nodes=ALL Default=YES\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
    done = subprocess.run(
        [str(SBATCH), "--verbose"],
        input=text,
        env={**environ, "SLURM_CONF": str(conf)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (line.removeprefix("sbatch: ").partition(" : ") for line in done.stderr.splitlines() if " : " in line)
    return {name.strip(): value for name, _, value in lines}


@pytest.mark.skipif(SBATCH is None, reason="no sbatch on this machine")
def test_sbatch_reads_the_directives_as_they_were_meant(tmp_path: Path) -> None:
    """With the real parser of #SBATCH lines, on the script with the most of them."""
    assert read_by_sbatch(rendered("pytorch-everything"), tmp_path) == {
        "chdir": "/home/ada/runs/my runs/no #1",
        "comment": "[sp1;retries=3;ib=yes]",
        "gres": "gres:gpu:8",
        "job-name": "every.thing-1",
        "nodes": "4",
        "ntasks-per-node": "8",
        "open-mode": "a",
        "output": "/home/ada/runs/my runs/no #1/logs/%x-%j.out",
        "error": "/home/ada/runs/my runs/no #1/logs/%x-%j.err",
        "requeue": "requeue",
        "time": "2-00:00:00",
        "verbose": "1",
    }


@pytest.mark.skipif(SBATCH is None, reason="no sbatch on this machine")
def test_sbatch_reads_any_value_that_we_accept(tmp_path: Path) -> None:
    """With blanks, `#` and other quotes the values arrive unchanged."""
    values = {
        "account": "a b#c",
        "comment": "it's",
        "constraint": "[x;y=1]",
        "job-name": "#",
        "mail-user": "a=b --uid=0",
        "partition": " lead",
        "qos": "ü",
        "wckey": "$HOME %x *",
    }
    lines = "".join(f"#SBATCH {directive(name, value)}\n" for name, value in values.items())
    found = read_by_sbatch(f"#!/bin/bash\n{lines}true\n", tmp_path)
    assert {name: found.get(name) for name in values} == values
