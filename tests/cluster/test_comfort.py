"""`init`, completion and man pages as alice uses them, with a real Slurm."""

import subprocess

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.waiting import until

pytestmark = pytest.mark.cluster

# The words as bash splits them, then what it would offer.
ASK = """
source completion; compopt() { :; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _slurm_plugin; printf '%s\\n' "${COMPREPLY[@]}"
"""


def offered(box: Sandbox, *words: str) -> list[str]:
    """Return what bash offers alice for the last word."""
    return box.run(["bash", "-c", ASK, "bash", "slurm-plugin", *words]).stdout.split()


@pytest.mark.full  # 12 s
def test_a_spec_from_five_answers_runs(cluster: Sandbox) -> None:
    """The spec that `init` writes is submitted as it is."""
    answers = "hostname\n2\n1\nscript\n5m\n"
    done = cluster.run(["sh", "-c", "mkdir comfort && cd comfort && slurm-plugin init"], input=answers)
    assert "submit it: slurm-plugin submit job.yaml" in done.stderr
    done = cluster.run(["sh", "-c", "cd comfort && slurm-plugin submit --wait job.yaml"])
    assert "COMPLETED" in done.stderr


def test_completion_asks_this_slurm(cluster: Sandbox) -> None:
    """alice is offered her jobs, with the tasks of an array, and the nodes and partitions of this cluster."""
    cluster.run(["sh", "-c", "slurm-plugin completion bash >completion"])
    submit = ["sbatch", "--parsable", "-o", "/dev/null"]
    one = cluster.run([*submit, "--wrap", "sleep 3000"]).stdout.strip()
    array = cluster.run([*submit, "--array=0-1", "--wrap", "sleep 3000"]).stdout.strip()
    theirs = cluster.run([*submit, "-D", "/tmp", "--wrap", "sleep 3000"], user="bob").stdout.strip()
    mine = {one, array, f"{array}_0", f"{array}_1"}
    until(lambda: mine <= set(offered(cluster, "why", "")))
    assert theirs not in offered(cluster, "why", "")
    assert {f"n{number}" for number in range(1, 6)} <= set(offered(cluster, "why", "n"))
    assert offered(cluster, "check", "--partition", "") == ["main"]


def test_man_shows_the_pages(cluster: Sandbox) -> None:
    """`man` formats the page of a command that alice has written."""
    if cluster.run(["sh", "-c", "command -v man"], check=False).returncode != 0:
        cluster.run(["slurm-plugin", "man", "pages"])
        page = (cluster.home("alice") / "pages/man1/slurm-plugin-submit.1").read_text()
        shown = subprocess.run(["groff", "-man", "-Tutf8"], input=page, capture_output=True, text=True, check=True)
    else:
        shown = cluster.run(["sh", "-c", "slurm-plugin man pages && man -l pages/man1/slurm-plugin-submit.1"])
    assert "First change the spec in an editor" in " ".join(shown.stdout.replace("‐", "-").split())
