"""The runner of the fabric check, with launchers that only pretend: what it starts, reads, ends and makes of it."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from prechecks import Verdict
from slurm_plugin.job import fabric
from slurm_plugin.job.fabric import END_S, check, hydra, last_words, open_mpi

HOSTS = ("n1", "n2")
# Called as `launcher PYTHON PROGRAM NONCE SECONDS HOSTS`; says what two healthy ranks say.
HEALTHY = """
for rank in 0 1; do
  head="slurm_plugin-fabric $3 n$((rank + 1))"
  printf '%s\\n' "$head hello rank=$rank" "$head ready rank=$rank size=2" "$head barrier us=9" "$head allreduce us=99"
  printf '%s\\n' "$head link peer=$((1 - rank)) latency_us=2 mbs=500" "$head done"
done
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Callable[[str], list[str]]:
    """Make a launcher of a shell script."""

    def make(script: str) -> list[str]:
        path = tmp_path / "mpirun"
        path.write_text(f"#!/bin/bash\ncd {tmp_path}\n{script}\n")
        path.chmod(0o755)
        return [str(path)]

    return make


def run(launcher: list[str], deadline_s: float = 20.0, **options: object) -> tuple[dict[str, Verdict], list[str]]:
    """The verdicts, and what was said."""
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


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def test_healthy(launcher: Callable[[str], list[str]], tmp_path: Path) -> None:
    """The launcher gets python, the program by its path, a nonce, the time and the hosts; and the environment."""
    found, said = run(launcher(f'printf "%s\\n" "$@" "$COLOUR" >argv\n{HEALTHY}'))
    assert {name: verdict.verdict for name, verdict in found.items()} == {"n1": "ok", "n2": "ok"}
    assert found["n1"].message == "500 MB/s with n2, latency 2 us, barrier 9 us, all-reduce 99 us"
    assert all(0 < verdict.seconds < 10 for verdict in found.values())
    assert said == []
    python, path, nonce, seconds, hosts, colour = (tmp_path / "argv").read_text().splitlines()
    assert (python, Path(path).name, seconds, hosts, colour) == ("/opt/python3", "program.py", "16.0", "n1,n2", "blue")
    assert Path(path).is_file()
    assert len(nonce) == 8


def test_a_launcher_that_does_not_end(launcher: Callable[[str], list[str]], tmp_path: Path) -> None:
    """At the deadline it is ended with all it started, and what was said until then counts."""
    script = f"{HEALTHY}\ntrap '' TERM\nsleep 100 & echo $! >below\necho $$ >pid\nwhile :; do sleep 1; done"
    started = time.monotonic()
    found, said = run(launcher(script), deadline_s=END_S + 1)
    took = time.monotonic() - started
    assert {verdict.verdict for verdict in found.values()} == {"ok"}
    assert said == ["fabric: mpirun did not end in 5 s and was ended"]
    assert took < END_S + 1 + 4 * fabric.LEAVE_S
    assert all(gone(int((tmp_path / name).read_text())) for name in ("pid", "below"))


def test_what_left_its_process_group_is_ended(launcher: Callable[[str], list[str]], tmp_path: Path) -> None:
    """As the srun of mpirun's daemons does: it is told to end, after the launcher itself."""
    other = "import os, signal, sys, time; os.setpgid(0, 0); end = lambda *_: (open('told', 'w'), sys.exit()); "
    other += "signal.signal(signal.SIGTERM, end); open('ready', 'w'); time.sleep(100)"
    script = f'python3 -c "{other}" &\necho $! >below\nuntil [ -e ready ]; do sleep 0.05; done\n{HEALTHY}\nexit 0'
    found, said = run(launcher(script))
    assert {verdict.verdict for verdict in found.values()} == {"ok"}
    assert (tmp_path / "told").exists()
    assert gone(int((tmp_path / "below").read_text()))
    assert said == []


def test_a_launcher_that_is_asked_can_clean_up(launcher: Callable[[str], list[str]], tmp_path: Path) -> None:
    """SIGTERM comes first, and to the launcher alone: mpirun then ends its ranks and daemons."""
    script = "trap 'touch cleaned; kill %1; exit 1' TERM\nsleep 100 &\nwait"
    found, _ = run(launcher(script), deadline_s=END_S + 0.5)
    assert (tmp_path / "cleaned").exists()
    assert found["n1"].verdict == "error"
    assert found["n1"].message == "no rank was started: the launcher said nothing"


def test_a_launch_that_fails(launcher: Callable[[str], list[str]]) -> None:
    """Unknown, with the launcher's last line; all of its last lines are in the log."""
    found, said = run(launcher("echo first >&2\necho 'mpirun: no such host' >&2\nexit 1"))
    assert {verdict.verdict for verdict in found.values()} == {"error"}
    assert found["n2"].message == "no rank was started: mpirun: no such host"
    assert said == ["fabric: mpirun said: first", "fabric: mpirun said: mpirun: no such host"]


def test_a_rank_that_crashed(launcher: Callable[[str], list[str]]) -> None:
    """mpirun then ends all the others: unknown, and mpirun's own words, which name the rank, are in the log."""
    hello = "for n in 1 2; do echo slurm_plugin-fabric $3 n$n hello rank=$((n - 1)); done"
    found, said = run(launcher(f"{hello}\necho 'rank 1 on node n2 exited on signal 11' >&2\nexit 139"))
    assert {verdict.verdict for verdict in found.values()} == {"timeout"}
    assert found["n1"].message == "not measured: its rank did not come to an end"
    assert said == ["fabric: mpirun said: rank 1 on node n2 exited on signal 11"]


def test_no_launcher(tmp_path: Path) -> None:
    """Unknown too."""
    found, _ = run([str(tmp_path / "mpirun")])
    assert found["n1"].verdict == "error"
    assert found["n1"].message == f"no rank was started: {tmp_path}/mpirun: No such file or directory"


def test_told_to_end(launcher: Callable[[str], list[str]], tmp_path: Path) -> None:
    """The launcher is ended at once, and nothing is judged."""
    started = time.monotonic()
    script = f"{HEALTHY}\necho $$ >pid\nsleep 100"
    found, _ = run(launcher(script), give_up=(tmp_path / "pid").exists)
    assert {verdict.verdict for verdict in found.values()} == {"skipped"}
    assert time.monotonic() - started < 50
    assert gone(int((tmp_path / "pid").read_text()))


def test_one_host_starts_nothing(tmp_path: Path) -> None:
    """There is nothing to measure."""
    found = check(["n1"], launcher=[str(tmp_path / "x")], python="python3", environ={}, say=print)
    assert found["n1"].verdict == "skipped"


def test_a_deadline_that_is_too_short(launcher: Callable[[str], list[str]]) -> None:
    """Says what is accepted; starts nothing."""
    found, _ = run(launcher(HEALTHY), deadline_s=END_S)
    assert (found["n1"].verdict, found["n1"].message) == ("error", "a deadline of 4 s: more than 4 s is needed")


def test_output_without_end(launcher: Callable[[str], list[str]]) -> None:
    """A launcher that floods us costs no memory, and its first lines count."""
    found, _ = run(launcher(f"{HEALTHY}\nhead -c 20000000 /dev/zero"))
    assert {verdict.verdict for verdict in found.values()} == {"ok"}


def test_it_ignores_what_this_process_ignores(launcher: Callable[[str], list[str]]) -> None:
    """A supervisor with handlers of its own is not disturbed."""
    before = signal.getsignal(signal.SIGTERM)
    run(launcher(HEALTHY))
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], ""),
        (["a", "b"], "b"),
        (["-----", "-----"], ""),
        (["-----", "first", "-----", "-----", "An ORTE daemon", "has failed", "-----"], "An ORTE daemon has failed"),
        (["-----", "framed", "-----", "mpirun: last"], "mpirun: last"),
    ],
)
def test_last_words(lines: list[str], words: str) -> None:
    """The last line; the whole last text between dashed lines."""
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
