"""Mirrors slurm_plugin/records/log_files.py: the names of log files, and the record of where they are."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from slurm_plugin.records import job_directory, log_files
from slurm_plugin.records.log_files import Output


def named(directory: Path, job: int, *more: str) -> list[str]:
    """Make the files of a job with a name that looks like two others, and return their names."""
    stem = log_files.stem("a-7-worker-1.log", job, 0)
    names = [f"{stem}{log_files.of_worker(number)}" for number in (0, 2, 10)]
    names += [f"{stem}{log_files.of_rank(number, number % 2)}" for number in (0, 2, 10)]
    names += [log_files.stem("x", job, 1) + log_files.of_worker(0), *more]
    for name in names:
        (directory / name).touch()
    return names


def test_the_files_of_a_job(tmp_path: Path) -> None:
    """By attempt, nodes before ranks, in the order of their numbers; no link and no file of another job."""
    wanted = named(tmp_path, 7)
    named(tmp_path, 77, "a-7-worker-x.log", "a-7-worker-1.log.gz", "7-worker-1.log", "a-7-attempt-1.log")
    (tmp_path / "a-7-worker-3.log").symlink_to(tmp_path / wanted[0])
    (tmp_path / "a-7-worker-4.log").mkdir()
    os.mkfifo(tmp_path / "a-7-worker-5.log")
    found = log_files.find(tmp_path, 7)
    assert [each.path.name for each in found] == wanted
    assert [each[1:] for each in found[2:5]] == [(0, 10, None, None), (0, None, 0, 0), (0, None, 2, 0)]
    assert found[-1][1:] == (1, 0, None, None)
    assert log_files.find(tmp_path, 7, os.geteuid() + 1) == []
    assert log_files.find(tmp_path, 7, os.geteuid()) == found
    assert log_files.find(tmp_path / "none", 7) == []


@pytest.mark.parametrize("name", ["../../etc/x", ".", "-rf", "a\nb", "\udce9", "x" * 255, "训练" * 60, "$(id)", ""])
def test_any_name_of_a_job_is_safe(name: str, tmp_path: Path) -> None:
    """The file is in the directory, is found again, and no shell or option reads anything into its name."""
    file = log_files.stem(name, 7, 3) + log_files.of_rank(10**6, 255)
    (tmp_path / file).touch()
    assert [each.path for each in log_files.find(tmp_path, 7)] == [tmp_path / file]
    assert not set(file) & set("/ $()\n") and file[0] not in ".-"


def test_the_names() -> None:
    """As users of other platforms know them."""
    assert log_files.stem("resnet50", 7, 0) + log_files.of_worker(1) == "resnet50-7-worker-1.log"
    assert log_files.stem("训练", 7, 0) + log_files.of_rank(9, 1) == "训练-7-proc-rank-9-device-1.txt"
    assert log_files.stem("a b", 7, 2) + log_files.of_worker(0) == "a_b-7-attempt-2-worker-0.log"


def test_the_record(tmp_path: Path) -> None:
    """It is read as it was written, with a version."""
    written = Output("a\n", "/w/a.out", "/w/a.err", "/w/logs", "both")
    log_files.write_output(tmp_path, written)
    assert log_files.output(tmp_path) == written
    assert json.loads((tmp_path / log_files.FILE).read_text())["v"] == 1
    assert [each.name for each in tmp_path.iterdir()] == [log_files.FILE]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", None),
        ("[]", None),
        ("{", None),
        ("{}", Output()),
        (
            '{"name": 5, "stdout": ["x"], "stderr": null, "directory": "/w", "per": "rank"}',
            Output(directory="/w", per="rank"),
        ),
        ('{"per": "thread", "stdout": "/w\\u0000", "v": 9, "more": 1}', Output()),
        ('{"per": [], "name": "a"}', Output("a")),
        ('{"directory": "/w\\ud800", "stderr": "/w\\udcff"}', Output(stderr="/w\udcff")),
    ],
)
def test_a_record_that_the_user_changed(text: str, wanted: Output | None, tmp_path: Path) -> None:
    """A wrong type is no value; without an object there is no record."""
    (tmp_path / log_files.FILE).write_text(text)
    assert log_files.output(tmp_path) == wanted
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / log_files.FILE).symlink_to(tmp_path / log_files.FILE)
    assert log_files.output(tmp_path / "link") is None


def test_error_files(tmp_path: Path) -> None:
    """The last one of each rank, with its node; torchrun's own where no rank has one; no link and no pipe."""
    n1, n2 = (tmp_path / f"errors/3/{node}" for node in ("n1", "n2"))
    for place in (
        n1 / "first-0/none_a/attempt_0/0",
        n2 / "first-2/none_b/attempt_10/1",
        n2 / "first-2/none_b/attempt_9/1",
    ):
        place.mkdir(parents=True)
    (n1 / "error.json").touch()
    (n2 / "first-2/none_b/attempt_10/1/stdout.log").touch()
    os.mkfifo(n1 / "first-0/none_a/attempt_0/0/error.json")
    assert [each[1:] for each in log_files.error_files(tmp_path, 3)] == [("n1", None, 0)]
    for place in (n2 / "first-2/none_b/attempt_10/1", n2 / "first-2/none_b/attempt_9/1"):
        (place / "error.json").touch()
    (n1 / "rank-1.error.json").touch()
    assert [each[1:] for each in log_files.error_files(tmp_path, 3)] == [("n1", 1, 0), ("n2", 3, 10)]
    assert log_files.error_files(tmp_path, 2) == []
    assert log_files.error_file(Path("/w/errors/x/n1/error.json")) is None


def test_dumps(tmp_path: Path) -> None:
    """Those of the flight recorder of one attempt, on each node; no link."""
    for node in ("n1", "n2"):
        (tmp_path / "errors/3" / node).mkdir(parents=True)
        (tmp_path / f"errors/3/{node}/trace_rank_{node[1]}").touch()
    (tmp_path / "errors/3/n1/trace_rank_7").symlink_to("/dev/zero")
    assert sorted(each.name for each in log_files.dumps(tmp_path, 3)) == ["trace_rank_1", "trace_rank_2"]
    assert log_files.dumps(tmp_path, 2) == []


def test_old_error_files_are_removed(tmp_path: Path) -> None:
    """Those of the newest attempts stay; what this attempt's number had before goes, too."""
    for number in (*range(10), "x"):
        (tmp_path / f"errors/{number}/n1").mkdir(parents=True)
    log_files.prune_errors(tmp_path, 8)
    assert sorted(each.name for each in (tmp_path / "errors").iterdir()) == ["5", "6", "7"]
    log_files.prune_errors(tmp_path / "none", 0)


def test_the_path_of_an_output(tmp_path: Path) -> None:
    """Only a regular file that still exists has one."""
    with (tmp_path / "a.out").open("w") as file, tempfile.TemporaryFile() as deleted:
        assert log_files.path_of(file.fileno()) == str(tmp_path / "a.out")
        assert log_files.path_of(deleted.fileno()) == ""
    read, write = os.pipe()
    assert log_files.path_of(write) == ""
    os.close(read)
    os.close(write)
    assert log_files.path_of(write) == ""


def test_an_array_task_is_found_by_its_name(tmp_path: Path) -> None:
    """The newest job of that name; without records, or with hostile ones, there is none."""
    for job_id, task in ((7, "5_1"), (8, "5_2"), (9, "5_2"), (10, "")):
        log_files.write_output(job_directory.directory(tmp_path, job_id), Output(task=task))
    (tmp_path / ".slurm_plugin" / "99").mkdir()
    (tmp_path / ".slurm_plugin" / "99" / log_files.FILE).write_text('{"task": ["5_2"]}')
    (tmp_path / ".slurm_plugin" / "notes").mkdir()
    assert [log_files.of_task(tmp_path, name) for name in ("5_1", "5_2", "5_3")] == [7, 9, None]
    assert log_files.of_task(tmp_path / "missing", "5_1") is None


@pytest.mark.parametrize("name", ["a", "a-7", "a-7-attempt-7", "7"])
@pytest.mark.parametrize("attempt", [0, 1, 7])
def test_an_attempt_with_the_number_of_the_job(tmp_path: Path, name: str, attempt: int) -> None:
    """The attempt is not taken for the job's number, whatever the job's name is."""
    (tmp_path / (log_files.stem(name, 7, attempt) + log_files.of_worker(3))).touch()
    ((_, *found),) = log_files.find(tmp_path, 7)
    assert found == [attempt, 3, None, None]
