"""Mirrors slurm_plugin/launch/log_copy.py: real processes under the words that copy their output."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from slurm_plugin.launch import MODES, Shape, log_copy
from slurm_plugin.launch.log_copy import Logs, lacks, of_rank, of_task
from tests.waiting import until

MPI = Path(os.environ.get("SLURM_PLUGIN_CACHE", "/var/cache/slurm_plugin"), "mpi")  # .ci/launchers fills it
Ended: TypeAlias = "subprocess.CompletedProcess[str]"
NUMBERS = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "RANK": "3", "LOCAL_RANK": "1"}
NAMES = ("j-7-worker-1.log", "j-7-proc-rank-3-device-1.txt")
Words = Callable[[Logs, tuple[str, ...]], tuple[str, ...]]
FORMS: dict[str, Words] = {
    "task": of_task,
    "rank": lambda logs, words: of_rank(logs, words, log_copy.TORCH, slots=2),
    "task apart": lambda logs, words: of_task(logs._replace(apart=True), words),
    "rank apart": lambda logs, words: of_rank(logs._replace(apart=True), words, log_copy.TORCH, slots=2),
}
form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def run(words: tuple[str, ...], environ: Mapping[str, str] = os.environ, **more: str) -> Ended:
    """Run them as rank 3, which is rank 1 of its node."""
    environ = {**environ, **NUMBERS, **more}
    return subprocess.run(words, env=environ, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("name", FORMS)
def test_both_files_and_the_output_have_all_lines(name: str, tmp_path: Path) -> None:
    """Also the last ones without an end; stdout and stderr stay apart; a second process on the node adds its own."""
    form, logs = FORMS[name], Logs(f"{tmp_path}/new dir/j-7", "both")
    ended = run(form(logs, ("sh", "-c", "seq 20000; echo no >&2; printf end; exit 7")))
    lines = "".join(f"{number}\n" for number in range(1, 20001))
    wanted = (lines + "end", "no\n") if "apart" in name else (f"{lines}no\nend", "")
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, *wanted)
    files = [tmp_path / "new dir" / file for file in NAMES]
    for file in files:
        until(lambda file=file: file.stat().st_size == len(lines) + 6, "tee")  # type: ignore[misc]
        assert "no\n" in file.read_text()
    assert sorted(files) == sorted((tmp_path / "new dir").iterdir())
    run(form(logs, ("echo", "more")))
    assert all(until(lambda file=file: file.read_text().endswith("more\n"), "tee") for file in files)  # type: ignore[misc]


@pytest.mark.parametrize("text", ["exit 7", "kill -TERM $$", "echo a; echo b >&2"])
def test_a_shielded_task(text: str) -> None:
    """It is the program, but a signal to it does not end the program."""
    words = ("sh", "-c", text)
    shield = of_task(None, words, shielded=True)
    plain, shielded = run(words), run(shield)
    assert (shielded.returncode, shielded.stdout, shielded.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert of_task(None, words) == words
    signals = of_task(None, ("sh", "-c", "kill -TERM $PPID; kill -USR1 $PPID; sleep 0.1; echo alive"), shielded=True)
    assert run(signals).stdout == "alive\n"


@form
@pytest.mark.parametrize(("per", "names"), [("node", NAMES[:1]), ("rank", NAMES[1:]), ("both", NAMES)])
def test_the_files_that_are_asked_for(form: Words, per: str, names: tuple[str, ...], tmp_path: Path) -> None:
    """And no other."""
    logs = Logs(f"{tmp_path}/j-7", per)
    assert run(form(logs, ("echo", "a"))).stdout == "a\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(names)
    assert lacks(logs, form(logs, ("echo",))) == ""


@form
@pytest.mark.parametrize("name", ["SEGV", "KILL", "TERM", "ABRT", "INT", "STOP"])
def test_how_the_program_ends_is_how_its_process_ends(form: Words, name: str, tmp_path: Path) -> None:
    """By the same signal, or with the code that stands for it; without a line of bash about it."""
    number = signal.Signals[f"SIG{name}"]
    logs = Logs(f"{tmp_path}/j-7", "both")
    if name != "STOP":
        ended = run(form(logs, ("sh", "-c", f"echo on; kill -{name} $$")))
        assert ended.returncode in ((-number, 128 + number) if name == "INT" else (-number,))
        assert (ended.stdout, ended.stderr) == ("on\n", "")
    assert run(form(logs, ("sh", "-c", f"exit {128 + number}"))).returncode in (-number, 128 + number)


@form
def test_no_program_and_no_tee(form: Words, tmp_path: Path) -> None:
    """A shell's exit code for a missing program; where there is no `tee` the program runs without files."""
    logs = Logs(f"{tmp_path}/j-7", "both")
    ended = run(form(logs, ("/no/such", "x")))
    assert ended.returncode == 127
    until(lambda: "/no/such" in (tmp_path / NAMES[0]).read_text(), "tee")
    bare = tmp_path / "bin"
    bare.mkdir()
    for tool in ("bash", "mkdir"):
        (bare / tool).symlink_to(f"/bin/{tool}")
    ended = run(form(Logs(f"{tmp_path}/none/j-7", "both"), ("/bin/echo", "a")), PATH=str(bare))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "a\n", "")


@form
def test_a_directory_that_takes_no_files(form: Words, tmp_path: Path) -> None:
    """The program goes on, all its lines stay in the one log, and that says why there is no file."""
    (tmp_path / "file").touch()
    ended = run(form(Logs(f"{tmp_path}/file/j-7", "rank"), ("echo", "a")))
    assert (ended.returncode, ended.stdout) == (0, "a\n")
    assert "tee: " in ended.stderr + ended.stdout


@form
def test_a_full_disk_under_all_outputs(form: Words, tmp_path: Path) -> None:
    """The program writes on to its end, although nothing takes its lines."""
    for name in NAMES:
        (tmp_path / name).symlink_to("/dev/full")
    text = f"""
import pathlib, sys, time
for _ in range(5):
    for stream in (sys.stdout, sys.stderr):
        stream.write("a line\\n" * 50000)
        stream.flush()
    time.sleep(0.1)
pathlib.Path("{tmp_path}/end").touch()
sys.exit(7)
"""
    with Path("/dev/full").open("w") as full:
        environ = {**os.environ, **NUMBERS}
        words = form(Logs(f"{tmp_path}/j-7", "both"), (sys.executable, "-c", text))
        code = subprocess.run(words, env=environ, stdout=full, stderr=full, check=False).returncode
    assert (code, (tmp_path / "end").exists()) == (7, True)


@form
def test_signals_reach_the_program_and_not_what_copies(form: Words, tmp_path: Path) -> None:
    """Slurm signals all processes of a step. What the program writes then is still copied."""
    text = """
import os, signal, time
def say(number, frame): print("got", number, flush=True)
def end(number, frame): print("saved", flush=True); os._exit(5)
signal.signal(signal.SIGUSR1, say); signal.signal(signal.SIGTERM, end)
print("ready", signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
while True: time.sleep(1)
"""
    words = form(Logs(f"{tmp_path}/j-7", "both"), (sys.executable, "-c", text))
    with (tmp_path / "out").open("w") as out:
        process = subprocess.Popen(words, env={**os.environ, **NUMBERS}, stdout=out, process_group=0)
        try:
            for number, sign in ((signal.SIGUSR1, "ready True\n"), (signal.SIGTERM, "got 10\n")):
                until(lambda sign=sign: sign in (tmp_path / "out").read_text(), sign)  # type: ignore[misc]
                os.killpg(process.pid, number)
            assert process.wait() == 5
        finally:
            process.kill()
    for file in ("out", *NAMES):
        until(lambda file=file: (tmp_path / file).read_text() == "ready True\ngot 10\nsaved\n", file)  # type: ignore[misc]


def test_a_task_keeps_its_descriptors(tmp_path: Path) -> None:
    """srun gives the ranks of an MPI one for PMI, whatever its number."""
    text = 'for fd in 3 4 5 6 7 8 9 10 11 12; do read -r line <&$fd; echo "$fd $line"; done'
    given = "exec " + " ".join(f"{fd}<<<'{fd}'" for fd in range(3, 13)) + '; exec "$@"'
    words = of_task(Logs(f"{tmp_path}/j-7", "rank", apart=True), ("bash", "-c", text))
    assert run(("bash", "-c", given, "bash", *words)).stdout == "".join(f"{fd} {fd}\n" for fd in range(3, 13))


def test_a_task_ends_although_a_process_holds_its_output(tmp_path: Path) -> None:
    """The one that is left behind does not keep the task, whose exit code counts."""
    words = of_task(Logs(f"{tmp_path}/j-7", "rank"), ("sh", "-c", "sleep 300 & echo $!; exit 3"))
    with (tmp_path / "out").open("w") as out:
        assert subprocess.run(words, env={**os.environ, **NUMBERS}, stdout=out, check=False).returncode == 3
    os.kill(int((tmp_path / "out").read_text()), signal.SIGKILL)


def test_the_words_that_a_launcher_adds_for_a_rank(tmp_path: Path) -> None:
    """DeepSpeed's option for the local rank, as DeepSpeed would put it."""
    more = 'set -- "${@:1:2}" "--local_rank=$LOCAL_RANK" "${@:3}"\n'
    words = of_rank(Logs(f"{tmp_path}/j-7", "rank"), ("echo", "a.py", "b c", "$X"), log_copy.TORCH, more=more)
    assert run(words).stdout == "a.py --local_rank=1 b c $X\n"


@form
def test_the_environment_stays_as_it_is(form: Words, tmp_path: Path) -> None:
    """Also functions and names that bash cannot have; a file of BASH_ENV is not run."""
    (tmp_path / "init").write_text("export ADDED=1\n")
    given = {"BASH_ENV": str(tmp_path / "init"), "BASH_FUNC_f%%": "() { :; }", "a.b": "1", "HOME": "/h"}
    said = run(form(Logs(f"{tmp_path}/j-7", "rank"), ("env", "-0")), PATH=os.environ["PATH"], **given).stdout
    found = dict(each.split("=", 1) for each in said.split("\0") if each)
    assert given.items() <= found.items()
    assert "ADDED" not in found


def test_what_a_launch_lacks() -> None:
    """Files are only promised for processes that the launch starts by itself."""
    logs = Logs("/w/j-7", "both")
    assert lacks(logs, ("mpirun", "./a.out")) == "node"
    assert lacks(logs, of_task(logs, ("torchrun", "a.py"), alone=False)) == "rank"
    assert lacks(logs, of_rank(logs, ("a",), log_copy.HYDRA)) == "node"
    assert of_task(None, ("a",)) == of_rank(None, ("a",), log_copy.HYDRA) == ("a",)


@pytest.mark.skipif(not shutil.which("mpirun"), reason="Open MPI is not installed")
def test_ranks_of_the_real_mpirun(tmp_path: Path) -> None:
    """Each rank has its file; mpirun has all lines, and reports how a rank ended."""
    written = f"{tmp_path}/j-7-proc-rank-*.txt"
    text = f"""echo out $OMPI_COMM_WORLD_RANK; echo err >&2
    while [ $OMPI_COMM_WORLD_RANK != 2 ] || [ $(grep -lx err {written} | wc -l) != 4 ]; do sleep 0.1; done
    kill -9 $$"""
    argv = (
        MODES["openmpi"].launch(("sh", "-c", text), Shape(2, 2, root=True, logs=Logs(f"{tmp_path}/j-7", "both"))).argv
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    ended = run((argv[0], "--oversubscribe", *argv[1:]), environ)
    assert ended.returncode == 137
    assert "exited on signal 9" in ended.stdout + ended.stderr
    for rank in range(4):
        lines = {f"out {rank}", "err"}
        (file,) = tmp_path.glob(f"j-7-proc-rank-{rank}-device-*.txt")
        assert lines <= set(file.read_text().splitlines())
        assert f"out {rank}" in (tmp_path / f"j-7-worker-{rank // 2}.log").read_text().splitlines()
        assert f"out {rank}" in ended.stdout.splitlines()


@pytest.mark.parametrize("mode", ["mpich", "intelmpi"])
def test_ranks_of_the_real_hydra(mode: str, tmp_path: Path) -> None:
    """Both set the variables of a rank; the exit code of one that fails is the launcher's."""
    root = MPI / mode
    if not root.exists():
        pytest.skip(f"no {mode} in {MPI}: .ci/launchers installs it")
    all_wrote = f"[ $(grep -ls out {tmp_path}/j-7-proc-rank-*.txt | wc -l) = 4 ]"
    text = f"echo out $PMI_RANK; [ $PMI_RANK = 2 ] || exit 0; until {all_wrote}; do sleep 0.1; done; exit 9"
    words = ("sh", "-c", text)
    argv = MODES[mode].launch(words, Shape(2, 2, logs=Logs(f"{tmp_path}/j-7", "both"))).argv
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    environ |= {"LD_LIBRARY_PATH": f"{root}/lib", "I_MPI_ROOT": str(root)}
    ended = run((f"{root}/bin/mpiexec.hydra", *argv[argv.index("-n") :]), environ)
    assert ended.returncode == 9, ended
    for rank in range(4):
        (file,) = tmp_path.glob(f"j-7-proc-rank-{rank}-device-*.txt")
        assert file.read_text() == f"out {rank}\n"
        assert f"out {rank}" in (tmp_path / f"j-7-worker-{rank // 2}.log").read_text().splitlines()
