"""Mirrors slurm_plugin/experiment/file/entrypoint.py: Trial classes by their syntax tree, launchers, commands."""

from pathlib import Path

import pytest

from slurm_plugin.experiment.file.entrypoint import RUNNER, Program, program
from tests.refusals import refusal_of

IN_PYTORCH = Program("pytorch", f"{RUNNER} m:C", "m:C", "pytorch")
IN_KERAS = Program("tensorflow", f"{RUNNER} m:C", "m:C", "keras")
LAUNCH = "python3 -m determined.launch"
COMMANDS = {
    "python train.py --lr 1": Program("script", "python train.py --lr 1"),
    "a && b || sleep 5h": Program("script", "a && b || sleep 5h"),
    "./m:C/run": Program("script", "./m:C/run"),
    f"{LAUNCH}.torch_distributed --trial m:C": IN_PYTORCH,
    f"{LAUNCH}.horovod --autohorovod --trial m:C": IN_PYTORCH,
    f"{LAUNCH}.autohorovod m:C": IN_PYTORCH,
    f"/opt/conda/bin/python3.8 -m {LAUNCH[11:]}.deepspeed --trial m:C": IN_PYTORCH,
    f"{LAUNCH}.torch_distributed python3 train.py 'a b'": Program("pytorch", "python3 train.py 'a b'"),
    f"{LAUNCH}.torch_distributed --nnodes=2 -- train.sh": Program("pytorch", "train.sh"),
    f"{LAUNCH}.deepspeed python3 train.py": Program("deepspeed", "python3 train.py"),
    f"{LAUNCH}.horovod python3 train.py": Program("horovod", "python3 train.py"),
}


@pytest.mark.parametrize("text", COMMANDS)
def test_commands(text: str, tmp_path: Path) -> None:
    """A launcher of Determined is replaced by the mode that does the same; other commands stay as they are."""
    (tmp_path / "m.py").write_text("from determined.pytorch import PyTorchTrial\nclass C(PyTorchTrial): ...\n")
    assert program([text], tmp_path) == COMMANDS[text]


def test_words(tmp_path: Path) -> None:
    """A list is the words of a command."""
    (tmp_path / "m.py").write_text("from determined.keras import TFKerasTrial\nclass C(TFKerasTrial): ...\n")
    assert program(["python", "a b.py"], tmp_path) == Program("script", "python 'a b.py'")
    assert program([*LAUNCH.split()[:2], "determined.launch.autohorovod", "m:C"], tmp_path) == IN_KERAS


# What a Trial class may look like -> its framework. `base.py` is beside it.
BASE = """import abc
import determined as det
class Base(det.keras.TFKerasTrial, abc.ABC): ...
"""
CLASSES = {
    "from determined.pytorch import DataLoader, PyTorchTrial\nclass C(PyTorchTrial): ...": IN_PYTORCH,
    "from determined.pytorch import PyTorchTrial as T\nclass C(T): ...": IN_PYTORCH,
    "import determined.pytorch\nclass C(determined.pytorch.PyTorchTrial): ...": IN_PYTORCH,
    "from determined import keras\nclass C(Mixin, keras.TFKerasTrial): ...": IN_KERAS,
    "from determined.keras import TFKerasTrial\nclass A(TFKerasTrial): ...\nclass C(A): ...": IN_KERAS,
    "from base import Base\nclass C(Base): ...": IN_KERAS,
    "import base\nclass C(base.Base): ...": IN_KERAS,
    "from base import Base as C": IN_KERAS,
    "try:\n  from determined.pytorch import PyTorchTrial\nfinally:\n  class C(PyTorchTrial): ...": IN_PYTORCH,
    "raise SystemExit\nfrom determined.pytorch import PyTorchTrial\nclass C(PyTorchTrial): ...": IN_PYTORCH,
}


@pytest.mark.parametrize("text", CLASSES)
def test_framework(text: str, tmp_path: Path) -> None:
    """It follows from the base classes, also those of other files, and no file is run."""
    (tmp_path / "base.py").write_text(BASE)
    (tmp_path / "m.py").write_text(text)
    assert program(["m:C"], tmp_path) == CLASSES[text]


def test_a_module_in_a_package(tmp_path: Path) -> None:
    """Dots are directories, and a package's class is in its `__init__.py`."""
    (tmp_path / "long" / "path").mkdir(parents=True)
    for path in ("long/path/model_def.py", "long/__init__.py"):
        (tmp_path / path).write_text("from determined.pytorch import PyTorchTrial\nclass C(PyTorchTrial): ...\n")
    assert program(["long.path.model_def:C"], tmp_path).framework == "pytorch"
    assert program(["long:C"], tmp_path).framework == "pytorch"


BASES = "accepted: one of PyTorchTrial, TFKerasTrial"
REFUSED = {
    "": "found no class C in m.py; accepted: a class",
    "class D: ...\nclass E: ...": "found no class C in m.py; accepted: D, E",
    "class Cc: ...": "found no class C in m.py; accepted: Cc; did you mean Cc?",
    "class C: ...": f"found no bases of C in m.py; {BASES}",
    "class C(A, b.B): ...": f"found the bases A, B of C in m.py; {BASES}",
    "class C(A): ...\nclass A(C): ...": f"found the bases A, C, A, C, A, C, A, C of C in m.py; {BASES}",
    "class C(f()): ...": f"found no bases of C in m.py; {BASES}",
    "from determined.pytorch import deepspeed\nclass C(deepspeed.DeepSpeedTrial): ...": (
        "found the base DeepSpeedTrial in m.py; accepted: PyTorchTrial, TFKerasTrial"
    ),
    "class C(": "found m.py, which cannot be read as Python: '(' was never closed (<unknown>, line 1)",
    "\0": "found m.py, which cannot be read as Python: source code string cannot contain null bytes",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str, tmp_path: Path) -> None:
    """The message says what was looked for, and what is there."""
    (tmp_path / "m.py").write_text(text)
    assert refusal_of(ValueError, program, ["m:C"], tmp_path) == REFUSED[text]


def test_no_program(tmp_path: Path) -> None:
    """A missing file, an empty text, a quote that is never closed, and a launcher without a command."""
    assert refusal_of(ValueError, program, ["a.b:C"], tmp_path) == (
        f"found a.b:C, and no file a/b.py in {tmp_path}; accepted: module:Class of a file there"
    )
    assert "accepted: a Trial class as module:Class, or a command" in refusal_of(ValueError, program, [" "], tmp_path)
    assert refusal_of(ValueError, program, ["python 'a"], tmp_path) == (
        'found "python \'a"; accepted: a command as in a shell (No closing quotation)'
    )
    for words in (f"{LAUNCH}.horovod", f"{LAUNCH}.horovod --trial x"):
        assert "found determined.launch.horovod" in refusal_of(ValueError, program, [words], tmp_path)


def test_without_a_directory() -> None:
    """Nothing is looked for: a Trial class is taken for PyTorch's."""
    assert program(["m:C"], None) == IN_PYTORCH
