"""`slurm-plugin logs` of a job whose ranks and nodes have files of their own."""

import json
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.records import job_directory, log_files
from tests.fakes import FakeSlurm
from tests.unit.cli.nodeside.job_logs import job_with_logs, rank_files, record, shown
from tests.unit.records.test_history import FIRST


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """Return a door that knows job 7."""
    return job_with_logs(monkeypatch, tmp_path)


def test_merged(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The logs of the ranks and of the job come by time, with who speaks; of `both` the ranks' are taken."""
    rank_files(tmp_path)
    found = shown(capsys, "7", "--merge")
    assert [line.split(" | ")[0].strip() for line in found if line[-1] != "x"] == [
        "slurm_plugin", "slurm", "rank 0", "rank 1", "rank 0", "rank 1",
    ]  # fmt: skip
    found = shown(capsys, "7", "--merge", "--no-system")
    assert len(found) == 4
    assert found[-1] == "      rank 1 | 2026-03-01T01:00:01Z attempt 1 of rank 1"
    assert not any("node" in line for line in found)
    assert shown(capsys, "7", "--merge", "--attempt", "1", "--tail", "1") == found[-1:]


def test_merged_from_one_log(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The launcher's prefixes say who speaks."""
    (tmp_path / "work/out").write_text("[slurm_plugin] x\n[rank3]: step 1\nend\n")
    assert shown(capsys, "7", "--merge") == [
        "slurm_plugin | [slurm_plugin] x",
        "      rank 3 | step 1",
        "         job | end",
    ]


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["--rank", "1"], ["2026-03-01T00:00:01Z attempt 0 of rank 1", "2026-03-01T01:00:01Z attempt 1 of rank 1"]),
        (["--rank", "1", "--attempt", "1"], ["2026-03-01T01:00:01Z attempt 1 of rank 1"]),
        (["--worker", "worker-1", "--attempt", "0"], ["attempt 0, node 1"]),
        (["--worker", "n2", "--attempt", "0"], ["attempt 0, node 1"]),
        (["--worker", "1", "--tail", "1"], ["attempt 1, node 1"]),
    ],
)
def test_files_of_ranks_and_nodes(
    slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], lines: list[str]
) -> None:
    """A rank and a node are found by number, the node also by its name."""
    rank_files(tmp_path)
    assert shown(capsys, "7", *words) == lines


def test_a_script_without_a_mode(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lines of slurm_plugin that are not in its log come with --merge."""
    (tmp_path / "work" / ".slurm_plugin" / "7" / "log").write_text("[slurm_plugin] dns: ok on n1\n")
    assert len(shown(capsys, "7")) == 6
    assert "slurm_plugin | [slurm_plugin] dns: ok on n1" in shown(capsys, "7", "--merge")


def test_stderr_in_a_file_of_its_own(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both files are shown, with a column for which one it is; without time stamps stderr comes last."""
    own, out = tmp_path / "work" / ".slurm_plugin" / "7", tmp_path / "work" / "out"
    log_files.write_output(own, log_files.Output("train", str(out), str(out.with_name("err"))))
    out.with_name("err").write_text("oops\n")
    found = shown(capsys, "7", "--no-system")
    assert [line.strip() for line in (found[-2], found[-1])] == ["job | KeyError: 'tokens'", "error | oops"]


def test_a_node_without_a_file_of_its_own(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The files of its ranks are taken, else the lines with their prefixes; the attempts say which ranks it has."""
    own = record(tmp_path / "work", 7)
    job_directory.record(own, {**FIRST, "n": 0, "nodes": "n[1-2]", "slots": 1})
    assert shown(capsys, "7", "--worker", "n2") == ["1: red"]
    assert shown(capsys, "7", "--worker", "worker-0") == ["0: 100%|##| 2/2"]
    assert main(["logs", "7", "--worker", "n3"]) == 1
    assert "accepted: worker-0 (n1), worker-1 (n2)" in capsys.readouterr().err
    for path in rank_files(tmp_path).glob("*worker*"):
        path.unlink()
    job_directory.record(own, {**FIRST, "n": 0, "nodes": "n[1-2]", "slots": [1, 1]})
    assert shown(capsys, "7", "--worker", "n2", "--attempt", "0") == ["2026-03-01T00:00:01Z attempt 0 of rank 1"]
    assert shown(capsys, "7", "--rank", "3", code=1) == []


def test_json(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The list of the files, with the node of an attempt where it is known."""
    rank_files(tmp_path)
    (tmp_path / "work" / "out").unlink()
    assert main(["logs", "7", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["v"], found["job"], len(found["files"])) == (1, 7, 9)
    assert found["files"][0] == {
        "kind": "job", "path": str(tmp_path / "work/out"), "attempt": None, "worker": None, "node": "", "rank": None,
        "device": None, "size": None,
    }  # fmt: skip
    assert [(each["kind"], each["node"], each["size"]) for each in found["files"][1:3]] == [
        ("node", "n1", 18),
        ("node", "n2", 18),
    ]


def test_save(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All logs and records, and what `why` says."""
    rank_files(tmp_path)
    assert shown(capsys, "7", "--save", str(tmp_path / "saved")) == [f"saved: {tmp_path / 'saved'}"]
    assert len([*(tmp_path / "saved" / "logs").iterdir()]) == 9
    assert (tmp_path / "saved" / "records" / "attempts.jsonl").exists()
    assert json.loads((tmp_path / "saved" / "reports" / "why.json").read_text())["job"] == 7


def test_what_is_not_saved(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log that is a link is named; a part of the logs cannot be asked for."""
    (tmp_path / "work/out").rename(tmp_path / "elsewhere")
    (tmp_path / "work/out").symlink_to(tmp_path / "elsewhere")
    said = json.loads(shown(capsys, "7", "--save", str(tmp_path / "saved"), "--json")[0])
    assert (said["saved"], said["left_out"]) == (str(tmp_path / "saved"), [str(tmp_path / "work/out")])
    assert main(["logs", "7", "--save", str(tmp_path / "again")]) == 0
    assert f"left out: {tmp_path / 'work/out'}: it is a link" in capsys.readouterr().err
    for words in (["--rank", "1"], ["--worker", "n2"], ["--attempt", "0"]):
        assert main(["logs", "7", "--save", str(tmp_path / "part"), *words]) == 2
        assert "it saves all logs" in capsys.readouterr().err
