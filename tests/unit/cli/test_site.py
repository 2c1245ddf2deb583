"""`slurm-plugin site render`: what it tells the admin."""

from pathlib import Path

import pytest

from slurm_plugin import archive
from slurm_plugin.cli import main


def test_it_says_how_gpus_are_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through NVML, with the version of NVIDIA's binding; without the binding how to get it."""
    (tmp_path / "site.yaml").write_text("max_retries: 3\n")
    argv = ["site", "render", str(tmp_path / "site"), "--config", str(tmp_path / "site.yaml")]
    assert main(argv) == 0
    assert f"through NVML (nvidia-ml-py {archive.binding()}), else nvidia-smi\n" in capsys.readouterr().out
    monkeypatch.setattr(archive, "binding", lambda: "")
    assert main(argv) == 0
    assert "nvidia-smi; for NVML: pip install nvidia-ml-py, and render again\n" in capsys.readouterr().out
