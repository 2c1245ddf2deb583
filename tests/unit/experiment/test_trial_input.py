"""Mirrors slurm_plugin/experiment/trial_input.py: the program of a trial finds this code, also in a container."""

import subprocess
import sys
from pathlib import Path

from slurm_plugin.experiment import trial_input
from slurm_plugin.records.experiments import Trial
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.files import render_site
from tests.waiting import HANG_S

TRIAL = Trial(7, {"lr": 0.1})


def test_the_program_can_import_this_code(tmp_path: Path) -> None:
    """Behind the user's own PYTHONPATH, which it keeps. Other packages beside this code are not there."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/prechecks").symlink_to("/old/prechecks")
    trial_input.link_library(tmp_path)
    trial_input.link_library(tmp_path)
    assert sorted(each.name for each in (tmp_path / "lib").iterdir()) == ["hostfiles", "prechecks", "slurm_plugin"]
    (tmp_path / "mine.py").write_text("")
    environ = trial_input.environment(tmp_path, TRIAL, {"PYTHONPATH": str(tmp_path), "PATH": "/bin"})
    words = [sys.executable, "-S", "-c", "import mine; from slurm_plugin.experiment import trial"]
    subprocess.run(words, env=environ, cwd="/", check=True, timeout=HANG_S)
    assert trial_input.environment(tmp_path, TRIAL, {})["PYTHONPATH"] == str(tmp_path / "lib")
    words[-1] = "import prechecks, hostfiles; import tests"
    done = subprocess.run(words, env=environ, cwd="/", capture_output=True, text=True, check=False, timeout=HANG_S)
    assert "No module named 'tests'" in done.stderr


def test_from_the_deployed_archive(tmp_path: Path) -> None:
    """It has the runner of Trial classes, and the package `determined` that stands in for the real one."""
    render_site(SiteConfig(), tmp_path)
    code = (
        "from pathlib import Path; from slurm_plugin.experiment import trial_input;"
        " trial_input.link_library(Path('/no')); print(trial_input.library(Path('/no')))"
    )
    asked = (
        "import sys; from slurm_plugin.experiment.runner import __main__ as m; m.offer_determined(); import determined"
    )
    archive = tmp_path / "slurm_plugin.pyz"
    for words in (code, asked):
        done = subprocess.run(
            [sys.executable, "-S", "-c", words], env={"PYTHONPATH": str(archive)}, cwd="/", capture_output=True,
            text=True, check=False, timeout=HANG_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout in (f"{archive}\n", "")


def test_a_container_has_it_too(tmp_path: Path) -> None:
    """And the directory of the experiment, in which the trial reads and writes."""
    mounts = trial_input.plan(JobPlan(container={"image": "a", "mounts": ["/d:/d"]}), tmp_path, TRIAL).container[
        "mounts"
    ]
    code = [f"{trial_input.LIBRARY}/{name}" for name in trial_input.PACKAGES]
    assert mounts == ["/d:/d", str(tmp_path), *(f"{each}:{each}:ro" for each in code)]
    assert trial_input.plan(JobPlan(), tmp_path, TRIAL).container == {}
