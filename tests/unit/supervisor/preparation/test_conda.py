"""Mirrors slurm_plugin/supervisor/preparation/conda.py: commands that name a conda environment, and their variables."""

import json
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from slurm_plugin.supervisor.preparation.conda import environment

CONDA = ("/opt/conda", "/opt/conda/envs/train", "/data/my env")
VENV = ("/w/venv", "/opt/v:v")
THERE = {
    *(f"{prefix}/conda-meta" for prefix in CONDA),
    *(f"{prefix}/pyvenv.cfg" for prefix in VENV),
    *(f"{prefix}/bin/{name}" for prefix in (*CONDA, *VENV, "/usr") for name in ("python", "conda", "torchrun")),
    "/opt/conda/condabin",
}


def found(*words: str, **environ: str) -> tuple[dict[str, str], str]:
    """Return the variables of a command in /w."""
    return environment(words, {"PATH": "/usr/bin:/bin", **environ}, PurePosixPath("/w"), THERE.__contains__)


def conda(prefix: str, name: str) -> dict[str, str]:
    """Return the variables that activation sets."""
    return {"PATH": f"{prefix}/bin:/usr/bin:/bin", "CONDA_PREFIX": prefix, "CONDA_DEFAULT_ENV": name}


TRAIN = conda("/opt/conda/envs/train", "train")
IN_VENV = {"PATH": "/w/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "/w/venv"}
ACTIVATED = {
    "by python": (("/opt/conda/envs/train/bin/python", "train.py"), TRAIN),
    "by another program": (("/opt/conda/envs/train/bin/torchrun", "train.py"), TRAIN),
    "behind srun": (("srun", "-n2", "/opt/conda/envs/train/bin/python", "train.py"), TRAIN),
    "behind mpirun by path": (("/usr/bin/mpirun", "-np", "2", "/opt/conda/envs/train/bin/python", "x.py"), TRAIN),
    "behind env": (("env", "A=1", "/opt/conda/envs/train/bin/python"), TRAIN),
    "base": (("/opt/conda/bin/python", "x.py"), conda("/opt/conda", "base")),
    "outside envs": (("/data/my env/bin/python",), conda("/data/my env", "/data/my env")),
    "venv": (("/w/venv/bin/python", "x.py"), IN_VENV),
    "relative": (("venv/bin/python", "x.py"), IN_VENV),
    "relative with a dot": (("./venv/bin/torchrun",), IN_VENV),
}
LEFT_ALONE = {
    "a name": ("python", "train.py"),
    "no environment": ("/usr/bin/python", "train.py"),
    "conda run": ("/opt/conda/bin/conda", "run", "-n", "train", "python", "x.py"),
    "conda of an environment": ("/opt/conda/envs/train/bin/conda", "run", "x"),
    "an argument": ("/usr/bin/python", "x.py", "/opt/conda/envs/train/bin/python"),
    "an argument of a name": ("python", "x.py", "/opt/conda/envs/train/bin/python"),
    "a program that is not there": ("/opt/conda/envs/train/bin/missing",),
    "no bin": ("/opt/conda/envs/train/conda-meta",),
    "nothing": (),
}


def test_a_command_that_names_an_environment() -> None:
    """It gets the variables of activation, and the log a note."""
    for words, variables in ACTIVATED.values():
        assert found(*words)[0] == variables, words
        assert ", ".join(variables) in found(*words)[1], words


def test_a_command_that_names_none() -> None:
    """Nothing is set and nothing is logged."""
    for words in LEFT_ALONE.values():
        assert found(*words) == ({}, ""), words


def test_notes() -> None:
    """The whole notes of both kinds."""
    kind = ": PATH, CONDA_PREFIX, CONDA_DEFAULT_ENV set as its activation does"
    assert found("/opt/conda/envs/train/bin/python")[1] == f"conda environment /opt/conda/envs/train{kind}"
    assert found("venv/bin/python")[1] == ("virtual environment /w/venv: PATH, VIRTUAL_ENV set as its activation does")


def test_an_activated_environment_is_left_alone() -> None:
    """PATH already begins with it."""
    assert found("/opt/conda/bin/python", PATH="/opt/conda/bin:/bin") == ({}, "")
    assert found("/opt/conda/bin/python", PATH="/opt/conda/bin") == ({}, "")


@pytest.mark.parametrize(("path", "expected"), [("", "/w/venv/bin"), ("/x", "/w/venv/bin:/x")])
def test_path(path: str, expected: str) -> None:
    """An empty PATH gets no empty part, which would mean the working directory."""
    assert found("venv/bin/python", PATH=path)[0]["PATH"] == expected


def test_without_a_path() -> None:
    """The system's default path follows the environment."""
    variables, _ = environment(("venv/bin/python",), {}, PurePosixPath("/w"), THERE.__contains__)
    assert variables["PATH"] == "/w/venv/bin:/bin:/usr/bin"


def test_two_variables_name_an_environment() -> None:
    """ANACONDA_DIR and DEFAULT_CONDA_ENV_NAME, for a command without a path."""
    both = {"ANACONDA_DIR": "/opt/conda/", "DEFAULT_CONDA_ENV_NAME": "train"}
    assert found("python", "x.py", **both)[0] == TRAIN
    assert found("torchrun", "x.py", **{**both, "DEFAULT_CONDA_ENV_NAME": "base"})[0] == conda("/opt/conda", "base")
    assert found("venv/bin/python", **both)[0] == IN_VENV
    assert found("/usr/bin/python", **both) == ({}, "")
    assert found("python", ANACONDA_DIR="/opt/conda") == ({}, "")


def test_two_variables_that_name_none() -> None:
    """They are not used, and the log says so in one line, whatever they contain."""
    variables, note = found("python", ANACONDA_DIR="/opt/conda", DEFAULT_CONDA_ENV_NAME="a\nb")
    assert variables == {}
    assert note == (
        "'/opt/conda/envs/a\\nb', from ANACONDA_DIR and DEFAULT_CONDA_ENV_NAME, is no conda environment: not used"
    )


def test_a_colon_in_the_path() -> None:
    """PATH cannot contain it. The note says so."""
    assert found("/opt/v:v/bin/python") == (
        {},
        "/opt/v:v has a colon in its path and cannot be in PATH: not activated",
    )


def test_a_real_venv(tmp_path: Path) -> None:
    """A child process that calls python gets the environment's."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "my venv"], cwd=tmp_path, check=True)
    words = ("my venv/bin/python", "-c", "import sys, json; print(json.dumps([sys.prefix]))")
    variables, _ = environment(
        words, {"PATH": "/usr/bin:/bin"}, PurePosixPath(tmp_path), lambda path: Path(path).exists()
    )
    said = subprocess.run(["python", *words[1:]], env=variables, capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == [str(tmp_path / "my venv")]
