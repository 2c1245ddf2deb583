"""The recorder of a program: what it writes from the log and from the samples of guards."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from prechecks.utilisation import Device
from slurm_plugin.records import progress_file, slow, usage
from slurm_plugin.supervisor import log
from slurm_plugin.supervisor.guard import sampler
from slurm_plugin.supervisor.recording import recorder
from slurm_plugin.supervisor.recording.orders import Orders
from slurm_plugin.supervisor.recording.recorder import Recorder, Tail
from tests.waiting import until

BAR = "\r 12%|█ | {step}/100 [00:10<01:20,  2.00it/s]"


@pytest.fixture
def out(tmp_path: Path) -> Iterator[int]:
    """Open the log of the job for appending, as Slurm does."""
    fd = os.open(tmp_path / "job.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, b"12%|x| 99/100 [00:10<01:20]\r")  # of the attempt before
    yield fd
    os.close(fd)


def orders(directory: Path, progress: str = "") -> Orders:
    """Return the orders for attempt 1 of a job on two nodes, whose log has now what it had before the attempt."""
    path = directory / "job.out"
    size = path.stat().st_size if path.exists() else 0
    return Orders(str(directory), 17, 1, "n[1-2]", "n1", (size, size), progress)


def steps(directory: Path) -> list[tuple[int, int | None, float | None]]:
    """Return what progress.jsonl says."""
    points = progress_file.read(directory / progress_file.FILE)
    assert all(each.attempt == 1 for each in points)
    return [(each.step, each.of, each.step_s) for each in points]


def write(out: int, text: str) -> None:
    """Append to the log."""
    os.write(out, text.encode())


def test_steps_of_a_log(tmp_path: Path, out: int) -> None:
    """A line counts when it has ended, or when the program has; an unchanged step gives no point."""
    found = Recorder(orders(tmp_path), (out,))
    found.look()
    assert steps(tmp_path) == []
    write(out, "hello\n" + "".join(BAR.format(step=number) for number in range(1, 30)))
    found.look()
    assert steps(tmp_path) == [(28, 100, 0.5)]
    found.look()
    found.look(last=True)
    assert steps(tmp_path) == [(28, 100, 0.5), (29, 100, 0.5)]
    # From its first step and the last one of the attempt before follow the steps that were made twice.
    assert [each.first for each in progress_file.read(tmp_path / progress_file.FILE)] == [1, None]


def test_the_time_of_a_step(tmp_path: Path, out: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the line does not say it, it is that between two points."""
    found = Recorder(orders(tmp_path), (out,))
    for number, at in ((10, 1000.0), (20, 1005.0), (30, 1005.0), (30, 1009.0), (5, 1010.0)):
        write(out, f"epoch=0/micro_step=40/global_step={number}, RunningAvgSamplesPerSec=25.02\n")
        monkeypatch.setattr(recorder.time, "time", lambda at=at: at)
        found.look()
    assert steps(tmp_path) == [(10, None, None), (20, None, 0.5), (30, None, None), (5, None, None)]


def test_a_users_expression(tmp_path: Path, out: int, capfd: pytest.CaptureFixture[str]) -> None:
    """Only what it finds counts. One that does not end is switched off, and the log says so, once."""
    found = Recorder(orders(tmp_path, r"it=(\d+)/(?P<of>\d+)"), (out,))
    write(out, BAR.format(step=5) + "\rit=7/70\n")
    found.look()
    assert steps(tmp_path) == [(7, 70, None)]
    recorder.SEARCH_S, before = 0.2, recorder.SEARCH_S
    try:
        endless = Recorder(orders(tmp_path, r"(a+)+b"), (out,))
        for _ in range(3):
            write(out, "a" * 60 + "\n")
            endless.look()
    finally:
        recorder.SEARCH_S = before
    assert capfd.readouterr().out == (
        "[slurm_plugin] `progress` is switched off: it took more than 0.2 s; write a simpler expression\n"
    )
    assert steps(tmp_path) == [(7, 70, None)]


def test_tails(tmp_path: Path) -> None:
    """Whole lines, at most 64 KiB of them, also after a log was truncated; nothing of what cannot be read."""
    path = tmp_path / "log"
    path.write_text("old\n")
    with path.open("ab") as file:
        tail = Tail(file.fileno(), 4)
        assert tail.read() == ""
        for text, read in (
            ("one\ntw", "one\n"),
            ("o\r", "two\r"),
            ("x" * 20_000, "x" * 20_000),
            ("y" * 200 + "\n" + "z" * 60_000 + "\n", "y" * 200 + "\n" + "z" * 60_000 + "\n"),
            ("line\n" * 100_000, "line\n" * 13107),
        ):
            file.write(text.encode())
            file.flush()
            assert tail.read() == read, text[:9]
        file.truncate(0)
        file.write(b"new\nrest")
        file.flush()
        assert tail.read() == "new\n"
        assert tail.read(last=True) == "rest"
        assert tail.read(last=True) == ""
    assert tail.read() == ""


def test_a_pipe_is_no_log(tmp_path: Path) -> None:
    """Nothing is read where the output is a terminal or a pipe."""
    read, out = os.pipe()
    write(out, BAR.format(step=3) + "\n")
    Recorder(orders(tmp_path), (out,)).look(last=True)
    os.close(read)
    os.close(out)
    assert steps(tmp_path) == []


def samples(node: str, used: float, count: int) -> bytes:
    """Return the lines of a guard about one accelerator, a line every 30 s."""
    lines = (
        sampler.line(node, 1.8e9 + 30 * number, (0.5, 7, 1, 2), [Device(0, used, 1, 2, 3.5)]) for number in range(count)
    )
    return "".join(f"{line}\n" for line in lines).encode()


def test_the_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Once in the log, when worker 0 was below one half for 10 minutes; another node does not count."""
    found = Recorder(orders(tmp_path), ())
    read, stdin = os.pipe()
    for lines in (samples("n1", 0.25, 20), samples("n2", 0.0, 40), b"slurm_plugin-guard n3 usage 7 [1,2,3,4,[]]\n"):
        os.write(stdin, lines[:20])
        assert found.take(read)
        os.write(stdin, lines[20:])
        assert found.take(read)
    found.look()
    assert capfd.readouterr().out == ""
    os.write(stdin, samples("n1", 0.25, 40))
    assert found.take(read)
    found.look()
    os.write(stdin, samples("n1", 0.25, 40))
    assert found.take(read)
    found.look()
    said, low = capfd.readouterr().out, "the accelerators of n1 were used 25% of the last 19 min 30 s"
    assert said.startswith(f"[slurm_plugin] {low}; what usually helps: a larger batch")
    assert said.count("\n") == 1
    os.close(stdin)
    assert not found.take(read)
    os.close(read)
    there = usage.read(tmp_path / usage.FILE)
    assert {each.node for each in there} == {"n1", "n2"}
    assert {each.attempt for each in there} == {1}
    again = Recorder(orders(tmp_path)._replace(attempt=1), ())
    assert again._warned


def test_a_disk_that_is_full(tmp_path: Path, out: int) -> None:
    """Or a directory that is gone: nothing is raised."""
    found = Recorder(orders(tmp_path / "gone"), (out,))
    write(out, BAR.format(step=5) + "\n")
    found._fresh = [usage.Sample(1.8e9, 1, "n1", 0)]
    found.look()
    assert list(tmp_path.iterdir()) == [tmp_path / "job.out"]


def test_as_a_process(tmp_path: Path, out: int) -> None:
    """It measures its node where there are no guards, and ends with its stdin: after the last line of the log."""
    request = sampler.Request({}, {"n1": 1}, every_s=0.05)
    given = orders(tmp_path)._replace(request=json.dumps(request._asdict()), apart=True)
    argv = [sys.executable, "-m", "slurm_plugin", "job", "record", json.dumps(given._asdict())]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.PIPE) as process:
        until((tmp_path / usage.FILE).exists)
        write(out, BAR.format(step=77))
        assert process.communicate() == (None, b"")
    assert process.returncode == 0
    assert steps(tmp_path) == [(77, 100, 0.5)]
    (first, *_) = usage.read(tmp_path / usage.FILE)
    assert (first.node, first.worker, first.attempt) == ("n1", 0, 1)
    assert abs(first.t - time.time()) < 3600


def test_lines_of_a_plain_script(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """They go to the file of the supervisor, without removing it."""
    (tmp_path / log.FILE).write_text("[slurm_plugin] attempt 0\n")
    try:
        log.keep_apart(tmp_path, fresh=False)
        log.say("a warning")
    finally:
        log._apart.clear()
    assert (tmp_path / log.FILE).read_text() == "[slurm_plugin] attempt 0\n[slurm_plugin] a warning\n"
    assert capfd.readouterr().out == ""


def test_a_fault_of_the_recorder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Is one line in the log."""
    given = orders(tmp_path)._replace(nodes="n[1-", request="")
    handlers = {number: signal.getsignal(number) for number in (*sampler.IGNORED, signal.SIGTERM)}
    try:
        assert recorder.main(json.dumps(given._asdict())) == 1
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert capfd.readouterr().out.startswith("[slurm_plugin] utilisation and progress are no longer recorded: Hostfile")


def test_slow_iterations(tmp_path: Path, out: int, capfd: pytest.CaptureFixture[str]) -> None:
    """An alert calls the site's command once in an attempt, and not soon again in the next; a file has it."""
    command = tmp_path / "notify"
    command.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{tmp_path}/told\n')
    command.chmod(0o755)
    asked = orders(tmp_path)._replace(threshold=0.8, notify=str(command))
    words = "hardware time is 0.9 of e2e time in 20 iterations, above 0.8 (performance)"
    for attempt in (1, 2):
        found = Recorder(asked._replace(attempt=attempt), (out,))
        for _ in range(3):
            write(out, "this iteration hardware time is 90 and e2e time is 100.0 ms.\n" * 20)
            found.look()
    until(lambda: (tmp_path / "told").exists() and (tmp_path / "told").read_text().endswith(" them\n"))
    assert (tmp_path / "told").read_text() == f"slow\n17\n{words}; {slow.NO_SUSPECT}\n"
    assert capfd.readouterr().out == f"[slurm_plugin] {words}; {slow.NO_SUSPECT}\n"
    assert [(each.attempt, each.kind) for each in slow.read(tmp_path / slow.FILE)] == [(1, slow.RATIO)]


def test_a_slow_program_that_may_be_moved(tmp_path: Path, out: int) -> None:
    """The supervisor gets the words, and alerts itself when it has decided. A user's own expression finds the times."""
    read, write_end = os.pipe()
    asked = orders(tmp_path)._replace(threshold=0.8, pattern=slow.EXAMPLE, notify="/bin/false", slow=write_end)
    found = Recorder(asked, (out,))
    write(out, "hw 9 of 10\n" * 20)
    found.look()
    assert os.read(read, 9999).decode().startswith("hardware time is 0.9 of e2e time")
    os.close(read)
    os.close(write_end)


def test_slow_steps(tmp_path: Path, out: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Are said in the log and recorded, without an alert."""
    now, found, step = [1000.0], Recorder(orders(tmp_path)._replace(notify="/bin/false"), (out,)), 0
    monkeypatch.setattr(recorder.time, "monotonic", lambda: now[0])
    for rate in [2.0] * 40 + [1.0] * 40:
        now[0], step = now[0] + 10, step + 5
        write(out, f"\r 12%|x | {step}/9000 [00:10<01:20,  {rate:.2f}it/s]\n")
        found.look()
    assert [each.kind for each in slow.read(tmp_path / slow.FILE)] == [slow.STEPS]
