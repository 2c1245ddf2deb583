"""A small experiment file, what it becomes with more text, and the problems that the text adds."""

import re
from pathlib import Path
from typing import Any

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment.file import loader
from slurm_plugin.experiment.file.loader import Loaded
from tests.refusals import refusal_of

MODEL = "from determined.pytorch import PyTorchTrial\nclass MyTrial(PyTorchTrial): pass\n"
SEARCHER = "searcher: {name: single, metric: loss, max_length: {batches: 9}}\n"
HYPERPARAMETERS = "hyperparameters: {global_batch_size: 8}\n"
ENTRYPOINT = "entrypoint: model_def:MyTrial\n"
_KEY = re.compile(r"^([a-z_]+):", re.MULTILINE)


def written(directory: Path, text: str) -> Path:
    """Write a file, with the required keys that the text does not set, and the program beside it."""
    given = set(_KEY.findall(text))
    rest = [line for line in (SEARCHER, HYPERPARAMETERS, ENTRYPOINT) if line.partition(":")[0] not in given]
    (directory / "model_def.py").write_text(MODEL)
    path = directory / "e.yaml"
    path.write_text(f"{text}\n{''.join(rest)}")
    return path


def load(directory: Path, text: str, *given: Any, **named: Any) -> Loaded:
    """Return what the text becomes."""
    return loader.load(written(directory, text), *given, **named)


def problems(directory: Path, text: str, *given: Any, **named: Any) -> list[str]:
    """Return the problems of the text, with their lines and places."""
    path = written(directory, text)
    first, *found, last = refusal_of(UsageError, loader.load, path, *given, **named).splitlines()
    assert first == f"{path}: {len(found)} problem{'s' * (len(found) > 1)}, nothing was submitted"
    assert last == f"  correct the file, then run: slurm-plugin experiment preview {path}"
    return [line.strip() for line in found]
