"""Mirrors slurm_plugin/cli/run.py: a job spec as a batch script, on a node whose site file has mistakes."""

from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli import run
from slurm_plugin.spec import submit_config
from slurm_plugin.submit.batch_spec import SlurmAnswers

SPEC = "name: a\nmode: single\ncommand: ./train\n"


@pytest.mark.parametrize("site", ["presets: [", "presets: {a: {nodes: x}}", "container: {runtime: podman}"])
@pytest.mark.parametrize(
    ("more", "code", "why"),
    [("", 0, ""), ("extends: big\n", 2, "extends"), ("container: {image: docker://a}\n", 2, "names none")],
)
def test_a_site_file_with_mistakes(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    site: str,
    more: str,
    code: int,
    why: str,
) -> None:
    """The job runs, with a line in its log, unless its spec needs a preset or the site's container runtime."""
    scripts: list[str] = []
    monkeypatch.setattr(run, "_become", lambda script: scripts.append(script) or 0)
    monkeypatch.setattr(run, "_slurm_answers", SlurmAnswers)
    monkeypatch.setattr(submit_config, "DEFAULT_PATH", home / "site.yaml")
    for name, value in {"ID": "7", "NUM_NODES": "1", "NODELIST": "n1"}.items():
        monkeypatch.setenv(f"SLURM_JOB_{name}", value)
    (home / "site.yaml").write_text(site)
    (home / "a.yaml").write_text(SPEC + more)
    assert main(["run", "a.yaml"]) == code
    said, error = capsys.readouterr()
    assert said.startswith("[slurm_plugin] the site file cannot be read")
    assert (len(scripts), why in error) == (code == 0, True), error
