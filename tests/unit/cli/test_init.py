"""`slurm-plugin init`: five answers become a spec that `submit` accepts."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from slurm_plugin.__main__ import COMMANDS
from slurm_plugin.cli import init
from slurm_plugin.cli.group import LazyGroup
from slurm_plugin.cli.nodeside import spec_file
from slurm_plugin.launch import MODES
from slurm_plugin.spec import submit_config

ANSWERS = {"command": "python train.py", "nodes": "2", "gpus": "4", "mode": "pytorch", "time": "1d"}


def loaded(text: str) -> object:
    """Return the spec of a text; raise SlurmPluginError if it is none."""
    return spec_file.load_specs(text.encode(), "job.yaml", submit_config.SubmitConfig(), lambda _: None)[0]


def asked(home: Path, answers: str, *words: str) -> tuple[int, str, str]:
    """Return the exit code of `init` with these answers, and what it printed."""
    done = CliRunner().invoke(LazyGroup(COMMANDS), ["init", *words], input=answers, standalone_mode=False)
    error = f"{done.exception}" if done.exception else ""
    return 1 if done.exception else 0, done.stdout, done.stderr + error


def test_enter_five_times(home: Path) -> None:
    """The defaults are a spec; the file says how to go on."""
    code, out, err = asked(home, "\n" * 5)
    assert (code, out) == (0, "")
    text = (home / "job.yaml").read_text()
    assert yaml.safe_load(text) == {
        "name": "train", "mode": "single", "command": "python train.py", "nodes": 1, "accelerators": {"gpu": 1},
        "time": "4h", "retries": 1,
    }  # fmt: skip
    assert "submit it: slurm-plugin submit job.yaml" in err
    loaded(text)


def test_answers_that_are_wrong(home: Path) -> None:
    """Each is explained, and asked again."""
    answers = "a && b\n./solve --x '$Y: #1'\nmany\n0\n4\n-1\n8\nmpi\nopenmpi\nsoon\n2h\n"
    code, out, err = asked(home, answers, "-")
    assert code == 0, err
    given = yaml.safe_load(out)
    assert given["command"] == "./solve --x '$Y: #1'"
    assert (given["name"], given["mode"], given["nodes"], given["accelerators"]) == ("solve", "openmpi", 4, {"gpu": 8})
    assert given["time"] == "2h"
    for words in ("found many; accepted: a number", "found mpi; accepted: single, openmpi", "bash -c", "90s, 30m, 4h"):
        assert words in err, words


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_and_every_key_in_a_comment(mode: str) -> None:
    """The spec is accepted in each mode, and also with each line that a user may uncomment."""
    nodes = "1" if mode == "single" else "2"
    text = init.spec_text({**ANSWERS, "mode": mode, "nodes": nodes}, "my job.yaml")
    loaded(text)
    keys = [line for line in text.splitlines() if line.startswith("# ") and ": " in line.partition("#")[2][:20]]
    keys = [line for line in keys if line[2:].partition(":")[0].isidentifier()]
    assert len(keys) == 8
    for line in keys:
        loaded(text.replace(line, line[2:]))


def test_the_mode_is_guessed() -> None:
    """From the launcher that the command names, else from the sizes."""
    cases = [
        ("python train.py", "1", "1", "single"),
        ("python3.11 train.py", "2", "0", "pytorch"),
        ("/opt/bin/python train.py", "1", "8", "pytorch"),
        ("torchrun train.py", "1", "1", "pytorch"),
        ("mpirun -np 4 ./a.out", "4", "0", "openmpi"),
        ("/usr/bin/deepspeed x.py", "2", "8", "deepspeed"),
        ("horovodrun python x.py", "2", "8", "horovod"),
        ("./solver", "4", "0", "openmpi"),
    ]
    for command, nodes, gpus, mode in cases:
        text = init.spec_text({"command": command, "nodes": nodes, "gpus": gpus, "mode": "", "time": "1h"}, "-")
        assert yaml.safe_load(text)["mode"] == mode, command


def test_a_name_from_the_command() -> None:
    """That of the program's file."""
    cases = [
        ("python -u src/train.v2.py -x", "train"), ("./a.out", "a"), ("sh -c 'x; y'", "sh"), ("...", "job"),
        ("mpirun -np 4 /opt/solve", "solve"), ("/usr/bin/torchrun", "job"),
    ]  # fmt: skip
    for command, name in cases:
        assert yaml.safe_load(init.spec_text({**ANSWERS, "command": command}, "-"))["name"] == name, command


def test_a_file_that_exists(home: Path) -> None:
    """It is not replaced without --force."""
    (home / "job.yaml").write_text("mine")
    code, _, err = asked(home, "\n" * 5)
    assert code == 1
    assert "job.yaml: found this file\n  name another one, or replace it with --force" in err
    assert (home / "job.yaml").read_text() == "mine"
    assert asked(home, "\n" * 5, "--force")[0] == 0
    assert (home / "job.yaml").read_text() != "mine"
