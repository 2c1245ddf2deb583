"""The runner of the fabric check, with fake launchers: what it starts, reads and ends, and its results."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from prechecks import Verdict
from slurm_plugin.supervisor import fabric
from slurm_plugin.supervisor.fabric import END_S, check, hydra, last_words, open_mpi
from tests.guarded import AGES, gone
from tests.waiting import until

HOSTS = ("n1", "n2")
# Called as `launcher PYTHON PROGRAM NONCE SECONDS HOSTS`. It prints the lines of two healthy ranks.
HEALTHY = """
for rank in 0 1; do
  head="slurm_plugin-fabric $3 n$((rank + 1))"
  printf '%s\\n' "$head hello rank=$rank" "$head ready rank=$rank size=2" "$head barrier us=9" "$head allreduce us=99"
  printf '%s\\n' "$head link peer=$((1 - rank)) latency_us=2 mbs=500" "$head done"
done
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Callable[[str], list[str]]:
    """Write a launcher from a shell script."""

    def make(script: str) -> list[str]:
        path = tmp_path / "mpirun"
        path.write_text(f"#!/bin/bash\ncd {tmp_path}\n{script}\n")
        path.chmod(0o755)
        return [str(path)]

    return make


def run(launcher: list[str], deadline_s: float = AGES, **options: object) -> tuple[dict[str, Verdict], list[str]]:
    """Return the verdicts and the messages."""
    said: list[str] = []
    environ = {"PATH": os.environ["PATH"], "COLOUR": "blue"}
    found = check(
        HOSTS,
        launcher=launcher,
        python="/opt/python3",
        environ=environ,
        deadline_s=deadline_s,
        say=said.append,
        **options,  # type: ignore[arg-type]
    )
    return found, said


class Clock:
    """The clock of fabric.py: real, but a test can end long times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        monkeypatch.setattr(fabric, "time", self)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def ended(*files: Path) -> None:
    """Wait for the end of the processes with the pids in these files."""
    until(lambda: gone(*(int(file.read_text()) for file in files)))


def test_healthy(launcher: Callable[[str], list[str]], tmp_path: Path) -> None:
    """The launcher gets python, the program's path, a nonce, the time and the hosts; and the environment."""
    found, said = run(launcher(f'printf "%s\\n" "$@" "$COLOUR" >argv\n{HEALTHY}'))
    assert {name: verdict.verdict for name, verdict in found.items()} == {"n1": "ok", "n2": "ok"}
    assert found["n1"].message == "500 MB/s with n2, latency 2 us, barrier 9 us, all-reduce 99 us"
    assert all(verdict.seconds > 0 for verdict in found.values())
    assert said == []
    python, path, nonce, seconds, hosts, colour = (tmp_path / "argv").read_text().splitlines()
    assert (python, Path(path).name, seconds, hosts, colour) == (
        "/opt/python3",
        "program.py",
        f"{AGES - END_S:.1f}",
        "n1,n2",
        "blue",
    )
    assert Path(path).is_file()
    assert len(nonce) == 8


def test_a_launcher_that_does_not_end(
    launcher: Callable[[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the deadline it is ended with all its children. Its earlier output counts."""
    clock, looks = Clock(monkeypatch), []
    monkeypatch.setattr(fabric, "LEAVE_S", 0.1)

    def look() -> bool:
        """The deadline comes when all output has been read: at the third check after it."""
        looks.append((tmp_path / "pid").exists())
        clock.ahead = AGES if sum(looks) > 2 else 0.0
        return False

    script = f"{HEALTHY}\ntrap '' TERM\nsleep 3000 & echo $! >below\necho $$ >pid.new; mv pid.new pid\n"
    found, said = run(launcher(f"{script}while :; do sleep 1; done"), deadline_s=AGES, give_up=look)
    assert {verdict.verdict for verdict in found.values()} == {"ok"}
    assert said == ["fabric: mpirun did not end in 1e+06 s and was ended"]
    ended(tmp_path / "pid", tmp_path / "below")


def test_what_left_its_process_group_is_ended(
    launcher: Callable[[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the srun of mpirun's daemons: it gets SIGTERM after the launcher itself."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr(fabric, "LEAVE_S", AGES)

    def sleep(_seconds: float) -> None:
        """The launcher's own time ends at the first sleep. Its children may then take longer."""
        clock.ahead = 2 * AGES

    monkeypatch.setattr(clock, "sleep", sleep)
    other = "import os, signal, sys, time; os.setpgid(0, 0); end = lambda *_: (open('told', 'w'), sys.exit()); "
    other += "signal.signal(signal.SIGTERM, end); open('ready', 'w'); time.sleep(3000)"
    script = f'python3 -c "{other}" &\necho $! >below\nuntil [ -e ready ]; do sleep 0.05; done\n{HEALTHY}\nexit 0'
    found, said = run(launcher(script))
    assert {verdict.verdict for verdict in found.values()} == {"ok"}
    assert (tmp_path / "told").exists()
    ended(tmp_path / "below")
    assert said == []


def test_a_launcher_that_is_asked_can_clean_up(
    launcher: Callable[[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM comes first, only to the launcher: mpirun then ends its ranks and daemons."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr(fabric, "LEAVE_S", 2 * AGES)

    def look() -> bool:
        clock.ahead = AGES if (tmp_path / "ready").exists() else 0.0
        return False

    script = "trap 'touch cleaned; kill %1; exit 1' TERM\nsleep 3000 &\ntouch ready\nwait"
    found, _ = run(launcher(script), give_up=look)
    assert (tmp_path / "cleaned").exists()
    assert found["n1"].verdict == "error"
    assert found["n1"].message == "no rank was started: the launcher said nothing"


def test_a_launch_that_fails(launcher: Callable[[str], list[str]]) -> None:
    """Unknown, with the launcher's last line. The log has more of its lines."""
    found, said = run(launcher("echo first >&2\necho 'mpirun: no such host' >&2\nexit 1"))
    assert {verdict.verdict for verdict in found.values()} == {"error"}
    assert found["n2"].message == "no rank was started: mpirun: no such host"
    assert said == ["fabric: mpirun said: first", "fabric: mpirun said: mpirun: no such host"]


def test_a_rank_that_crashed(launcher: Callable[[str], list[str]]) -> None:
    """mpirun then ends all others: unknown. The log has mpirun's message, which names the rank."""
    hello = "for n in 1 2; do echo slurm_plugin-fabric $3 n$n hello rank=$((n - 1)); done"
    found, said = run(launcher(f"{hello}\necho 'rank 1 on node n2 exited on signal 11' >&2\nexit 139"))
    assert {verdict.verdict for verdict in found.values()} == {"timeout"}
    assert found["n1"].message == "not measured: its rank did not end"
    assert said == ["fabric: mpirun said: rank 1 on node n2 exited on signal 11"]


def test_no_launcher(tmp_path: Path) -> None:
    """Unknown, too."""
    found, _ = run([str(tmp_path / "mpirun")])
    assert found["n1"].verdict == "error"
    assert found["n1"].message == f"no rank was started: {tmp_path}/mpirun: No such file or directory"


def test_told_to_end(launcher: Callable[[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher is ended long before the deadline, and nothing is judged."""
    monkeypatch.setattr(fabric, "LEAVE_S", 0.1)
    script = f"{HEALTHY}\necho $$ >pid.new; mv pid.new pid\nsleep 3000"
    found, _ = run(launcher(script), give_up=(tmp_path / "pid").exists)
    assert {verdict.verdict for verdict in found.values()} == {"skipped"}
    ended(tmp_path / "pid")


def test_one_host_starts_nothing(tmp_path: Path) -> None:
    """Nothing can be measured."""
    found = check(["n1"], launcher=[str(tmp_path / "x")], python="python3", environ={}, say=print)
    assert found["n1"].verdict == "skipped"


def test_a_deadline_that_is_too_short(launcher: Callable[[str], list[str]]) -> None:
    """The message has the accepted ones, and nothing starts."""
    found, _ = run(launcher(HEALTHY), deadline_s=END_S)
    assert (found["n1"].verdict, found["n1"].message) == ("error", "a deadline of 4 s: more than 4 s is needed")


def test_output_without_end(launcher: Callable[[str], list[str]]) -> None:
    """Endless output does not fill the memory, and its first lines count."""
    found, _ = run(launcher(f"{HEALTHY}\nhead -c 20000000 /dev/zero"))
    assert {verdict.verdict for verdict in found.values()} == {"ok"}


def test_it_ignores_what_this_process_ignores(launcher: Callable[[str], list[str]]) -> None:
    """The handlers of the supervisor do not change."""
    before = signal.getsignal(signal.SIGTERM)
    run(launcher(HEALTHY))
    assert signal.getsignal(signal.SIGTERM) is before


def test_last_words() -> None:
    """The last line, or the whole last text between dashed lines."""
    for lines, words in (
        ([], ""),
        (["a", "b"], "b"),
        (["-----", "-----"], ""),
        (["-----", "first", "-----", "-----", "An ORTE daemon", "has failed", "-----"], "An ORTE daemon has failed"),
        (["-----", "framed", "-----", "mpirun: last"], "mpirun: last"),
    ):
        assert last_words(lines) == words


def test_launchers() -> None:
    """One rank on each host, in their order."""
    words = "mpirun --allow-run-as-root -np 2 --host n2:1,n1:1 --map-by ppr:1:node --bind-to none"
    words += " -mca pml ob1 -mca btl ^openib"
    assert open_mpi(["n2", "n1"], root=True) == words.split()
    assert open_mpi(["n1"])[:3] == ["mpirun", "-np", "1"]
    rest = ["slurm", "-ppn", "1", "-hosts", "n2,n1"]
    assert hydra(["n2", "n1"]) == ["mpiexec.hydra", "-n", "2", "-launcher", *rest]
    assert hydra(["n2", "n1"], intel=True) == ["mpiexec.hydra", "-n", "2", "-bootstrap", *rest]
