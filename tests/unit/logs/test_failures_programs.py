"""Failures of programs that are neither PyTorch's nor MPI's, made for real, and the diagnosis of what they print."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.logs import library
from slurm_plugin.logs.diagnosis import of_files
from tests.failures.programs import CASES


@pytest.mark.full  # over 5 s: two compilers and a virtual machine
@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_programs(tmp_path: Path) -> None:
    """Each gets its class, whose it is, and its evidence; those that go on after an error are no failures."""
    signatures, wrong = library.load(), []
    for each in CASES:
        if not shutil.which(each.tool):
            continue
        place = tmp_path / each.name
        place.mkdir()
        log = place / "job.out"
        (place / "job.sh").write_text(f"{each.script}\n")
        with log.open("wb") as out:
            subprocess.run(
                ["unshare", "--mount", "--net", "--propagation=private", "bash", "job.sh"], cwd=place, check=False,
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=100, env={**os.environ, "LC_ALL": "C"},
            )  # fmt: skip
        found = of_files([log], signatures).cause
        wanted = (each.failure, "unknown" if each.failure == "none" else each.whose)
        if (found.failure, found.whose) != wanted or each.text not in (found.event.text if found.event else ""):
            wrong.append(f"{each.name}: {found}\n{log.read_text(errors='replace')}")
    assert wrong == []
