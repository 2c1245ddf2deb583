"""Mirrors slurm_plugin/launch/env_file.py: the grammar of files with variables, and messages about wrong files."""

import os
from pathlib import Path

from slurm_plugin.errors import UsageError
from slurm_plugin.launch import env_file
from tests.refusals import refusal_of

GOOD = (
    b"\xef\xbb\xbf# a comment\n\n  # another, and a blank line\n\t\nA=1\r\n  B= two  words \nC=\n"
    b"URL=https://x/?a=b#c\nSHELL_LIKE=$HOME `id` \\n \"x\"y\nJSON={\"a\": [1]}\nWIDE=gr\xc3\xb6\xc3\x9fe"
)  # fmt: skip


def written(tmp_path: Path, data: bytes, name: str = "env", mode: int = 0o600) -> str:
    """Write a file with this content."""
    path = tmp_path / name
    path.write_bytes(data)
    path.chmod(mode)
    return str(path)


def refusal(path: str) -> str:
    """Return the message about a file that is refused."""
    return refusal_of(UsageError, env_file.read, path)


def test_a_value_is_everything_behind_the_sign(tmp_path: Path) -> None:
    """Unchanged: nothing is expanded, and no quote or blank is dropped, except a DOS line end."""
    assert env_file.read(written(tmp_path, GOOD)) == {
        "A": "1",
        "B": " two  words ",
        "C": "",
        "URL": "https://x/?a=b#c",
        "SHELL_LIKE": '$HOME `id` \\n "x"y',
        "JSON": '{"a": [1]}',
        "WIDE": "größe",
    }


def test_variables_of_slurm() -> None:
    """srun's input variables are accepted, but not those that say what the job has, and not the plugin's."""
    accepted = ("MPI_TYPE", "KILL_BAD_EXIT", "CPU_BIND", "HINT", "DISTRIBUTION", "WAIT", "OPEN_MODE")
    refused = ("JOB_ID", "NTASKS", "NNODES", "MEM_PER_CPU", "GPUS", "CONF", "EXPORT_ENV", "PLUGIN_LAUNCH", "MPI_TYPES")
    assert [name for name in (*accepted, *refused) if not env_file.wrong(f"SLURM_{name}", "x")] == [*accepted]


WRONG = {
    b"SECRET": "line 1: found no `=`; accepted: NAME=VALUE",
    b"export A=1": "line 1: found export; accepted: NAME=VALUE, as no shell reads it",
    b'\nA="secret"': "line 2: A: found a value in quotes, which some readers keep; accepted: the value as it stands,"
    " without them",
    b"A=1\nA=2": "line 2: A: found twice, first in line 1",
    b"SLURM_JOB_ID=1": "line 1: SLURM_JOB_ID: SLURM_ names are Slurm's and ours; choose another name, or an input"
    " variable of srun: man srun",
    b"UID=0": "line 1: UID: bash does not let a script set it; choose another name",
    b"A B=1": "line 1: A B: accepted names: letters, digits and `_`, the first not a digit",
    b"\x1b[2J=1": "line 1: ?[2J: accepted names: letters, digits and `_`, the first not a digit",
    b"=secret": "line 1: : accepted names: letters, digits and `_`, the first not a digit",
    b"A=secret\0": "line 1: A: the value has a NUL, or what is no UTF-8, in it; accepted: text",
    b"A=secret\xff": "line 1: A: the value has a NUL, or what is no UTF-8, in it; accepted: text",
    b"A=" + b"s" * 140_000: "line 1: A: found 140000 characters; a variable can hold 131008 bytes; use a file",
}


def test_what_others_would_read_otherwise_is_refused(tmp_path: Path) -> None:
    """With its line and its name, but never with its value."""
    for data, wrong in WRONG.items():
        path = written(tmp_path, data)
        said = refusal(path)
        assert said.splitlines()[0] == f"env_file: {path}: {wrong}", data
        assert "secret" not in said.lower(), data


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    """Up to a line that can be read."""
    said = refusal(written(tmp_path, b"x\n" * 12))
    assert said.count("found no `=`") == 10
    assert "; and 2 more\n" in said


def test_no_file(tmp_path: Path) -> None:
    """A missing file, a directory, a pipe without a writer, and a file that is too long."""
    assert "No such file or directory; accepted: a file that the job's user can read" in refusal(f"{tmp_path}/none")
    assert "found Is a directory; " in refusal(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    assert "found no file; " in refusal(str(tmp_path / "pipe"))
    assert "found more than 1048576 bytes" in refusal(written(tmp_path, b"#" * (env_file.MOST_BYTES + 1)))


def test_a_file_that_all_may_write_to(tmp_path: Path) -> None:
    """Any writer could set LD_PRELOAD. A group is accepted."""
    path = written(tmp_path, b"A=1\n", mode=0o666)
    said = refusal(path)
    why = "all users may write to it, and so could set what your job runs with"
    assert said == f"env_file: {path}: {why}\n  see: chmod o-w {path}"
    assert env_file.read(written(tmp_path, b"A=1\n", "group", 0o664)) == {"A": "1"}


def test_who_wins(tmp_path: Path) -> None:
    """A later file over an earlier one, the spec over both, the files over the submitted environment."""
    paths = [written(tmp_path, b"A=1\nB=1\nC=1\n", "one"), written(tmp_path, b"B=2\nC=2\n", "two")]
    before = {"A": "0", "C": "own", "HOME": "/h"}
    assert env_file.over(before, paths, ["C"]) == {"A": "1", "B": "2", "C": "own", "HOME": "/h"}
    assert env_file.over(before, [], [""]) == before


def test_variables_that_bash_sets_itself_are_refused() -> None:
    """The program would get another value, or none: `export GROUPS=8` exports nothing."""
    for name in ("GROUPS", "RANDOM", "LINENO", "DIRSTACK", "EPOCHSECONDS"):
        assert "bash does not let a script set it" in env_file.wrong(name, "8"), name
