"""The files of nodes and ranks beside a job's log, as srun, mpirun and torchrun start the ranks, on a real Slurm."""

import json
import shlex
from importlib.util import find_spec

import pytest

from slurm_plugin.records import log_files
from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import OPEN_MPI, Job, submit, workdir
from tests.cluster.programs import OTHER_ROOT, PYTHON, program
from tests.cluster.test_mpi import LIBRARY, OURS, RANKS, environment
from tests.cluster.test_mpi import found as found_by_rank_0
from tests.waiting import until

pytestmark = pytest.mark.cluster
BOTH = {"logs": {"per": "both"}, "nodelist": "n[1-2]", "accelerators": {"gpu": 2}}
RAISES = """
import os, sys, time
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    rank, attempt = int(os.environ["RANK"]), os.environ["SLURM_PLUGIN_ATTEMPT"]
    sys.stdout.write(f"out {rank} of {attempt}\\n")
    sys.stdout.flush()
    if attempt == "0":
        if rank == 2:
            raise KeyError("lost")
        time.sleep(3000)

main()
"""


def bash(text: str) -> str:
    """A command that bash runs."""
    return f"bash -c {shlex.quote(text)}"


def files(job: Job, directory: str = "logs") -> dict[str, list[str]]:
    """The sorted lines of the job's files, by their names without its name and number."""
    begin = f"{job.directory.name}-{job.id}-"
    found = log_files.find(job.directory / directory, job.id)
    assert all(each.path.name.startswith(begin) for each in found)
    return {each.path.name.removeprefix(begin): sorted(each.path.read_text().splitlines()) for each in found}


def of_four(text: str, begin: str = "") -> dict[str, list[str]]:
    """What four ranks on two nodes leave, each with this line for its number."""
    lines = [text.format(rank) for rank in range(4)]
    nodes = {f"{begin}worker-{node}.log": lines[2 * node : 2 * node + 2] for node in range(2)}
    return nodes | {f"{begin}proc-rank-{rank}-device-{rank % 2}.txt": [lines[rank]] for rank in range(4)}


def test_tasks_of_srun(cluster: Sandbox) -> None:
    """The job's log keeps all lines, with stderr where `error` says; labels are srun's; the last lines are there."""
    text = 'seq 3000 >/dev/null; echo "out $RANK"; echo "err $RANK" >&2'
    job = submit(cluster, "logs-srun", launch="task", error="job.err", command=bash(text), **BOTH)
    labelled = {**BOTH, "logs": {"per": "node", "label": "yes", "directory": "a/b"}}
    other = submit(cluster, "logs-label", launch="task", command=bash(text), **labelled)
    assert (job.end(), other.end()) == ("COMPLETED", "COMPLETED"), job.log + other.log
    found = files(job)
    for name, lines in of_four("out {}").items():
        assert found[name] == sorted(lines + [line.replace("out", "err") for line in lines]), name
    assert set(found) == set(of_four(""))
    assert {f"out {rank}" for rank in range(4)} <= set(job.log.splitlines())
    assert {f"err {rank}" for rank in range(4)} <= set((job.directory / "job.err").read_text().splitlines())
    assert files(other, "a/b")["worker-1.log"] == ["err 2", "err 3", "out 2", "out 3"]
    assert {"3: out 3", "3: err 3"} <= set(other.log.splitlines())
    told = log_files.output(job.directory / f".slurm_plugin/{job.id}")
    where = f"/home/alice/{job.directory.name}"
    assert told == log_files.Output(job.directory.name, f"{where}/job.out", f"{where}/job.err", f"{where}/logs", "both")


@pytest.mark.full  # over 5 s
def test_a_restart_has_its_own_files(cluster: Sandbox) -> None:
    """In place and after a requeue; a rank's exit code and its signal are still known."""
    text = 'echo "out $RANK of $SLURM_PLUGIN_ATTEMPT"; [ $SLURM_PLUGIN_ATTEMPT != 0 ] && exit 0; sleep 1'
    text = f"{text}; touch ran.$RANK; until [ $(ls ran.* | wc -l) = 4 ]; do sleep 0.1; done; "
    end = {"exit": "[ $RANK != 3 ] || exit 7; sleep 3000", "signal": "[ $RANK != 3 ] || kill -SEGV $$; sleep 3000"}
    restarts = {"launch": "task", "retries": 1, "unconditional": "yes", **BOTH}
    jobs = {name: submit(cluster, f"logs-{name}", command=bash(text + last), **restarts) for name, last in end.items()}
    for name, job in jobs.items():
        assert job.end() == "COMPLETED", job.log
        assert job.attempts[0]["code"] == {"exit": 7, "signal": 139}[name], job.log
        wanted = of_four("out {} of 0") | of_four("out {} of 1", "attempt-1-")
        found = files(job)
        assert set(found) == set(wanted)
        assert {name: lines for name, lines in found.items() if name in of_four("", "attempt-1-")} == of_four(
            "out {} of 1", "attempt-1-"
        )
        assert "out 3 of 0" in found["proc-rank-3-device-1.txt"]


SIGNALLED = """
import os, signal, sys, time
def last(number, frame):
    sys.stdout.write(f"last words {number} of {os.environ['RANK']}\\n")
    sys.stdout.flush()
    os._exit(0 if number == signal.SIGUSR1 else 4)
signal.signal(signal.SIGUSR1, last)
signal.signal(signal.SIGTERM, last)
open(f"ready.{os.environ['RANK']}", "w").close()
time.sleep(3000)
"""


@pytest.mark.full  # over 5 s
@pytest.mark.parametrize("launch", ["task", "node"])
@pytest.mark.parametrize(("verb", "number"), [("stop", 10), ("scancel", 15)])
def test_the_last_words_of_a_job_that_is_ended(cluster: Sandbox, launch: str, verb: str, number: int) -> None:
    """A signal to the whole step ends neither bash nor tee before the program, with torchrun neither."""
    if launch == "node" and not (OTHER_ROOT or find_spec("torch")):
        pytest.skip("torch is not installed in this environment")
    command = f"{PYTHON} {program(cluster, f'signalled-{launch}-{verb}.py', SIGNALLED)}"
    job = submit(cluster, f"logs-{launch}-{verb}", launch=launch, grace="10m", time="1h", command=command, **BOTH)
    job.until(lambda: len(list(job.directory.glob("ready.*"))) == 4, "the ranks")
    cluster.run([*(["slurm-plugin", "stop"] if verb == "stop" else ["scancel"]), str(job.id)])
    job.end()
    wanted = {line for lines in of_four(f"last words {number} of {{}}").values() for line in lines}
    until(
        lambda: {line for lines in files(job).values() for line in lines} >= wanted, lambda: f"{files(job)} {job.log}"
    )
    for name, lines in of_four(f"last words {number} of {{}}").items():
        assert set(lines) <= set(files(job)[name]), (name, job.log)
    assert wanted <= set(job.log.splitlines())


MPI = [("openmpi", "node"), ("horovod", "node"), ("mpich", "node"), ("mpich", "task"), ("intelmpi", "node")]


@pytest.mark.full  # over 5 s
@pytest.mark.parametrize(("mode", "launch"), MPI)
def test_ranks_of_mpirun(cluster: Sandbox, mode: str, launch: str) -> None:
    """Each has its files, written on its own node, and its line in the job's log."""
    env = environment(cluster, mode) if mode in LIBRARY else OPEN_MPI
    command = bash('echo "out ${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$SLURM_PROCID}}"')
    job = submit(cluster, f"logs-{mode}-{launch}", mode=mode, launch=launch, env=env, command=command, **BOTH)
    assert job.end() == "COMPLETED", job.log
    assert files(job) == of_four("out {}")
    assert {f"out {rank}" for rank in range(4)} <= set(job.log.splitlines())


@pytest.mark.full  # over 5 s
@OURS
def test_a_program_of_mpi_finds_its_ranks(cluster: Sandbox) -> None:
    """What Slurm's pmi2 gives a task reaches the program."""
    command = f"{PYTHON} {program(cluster, 'logs-ranks.py', RANKS)}"
    env = environment(cluster, "mpich")
    job = submit(cluster, "logs-pmi2", mode="mpich", launch="task", env=env, command=command, **BOTH)
    assert job.end() == "COMPLETED", job.log
    assert found_by_rank_0(job)["total"] == 10
    assert set(files(job)) == set(of_four(""))


@pytest.mark.full  # over 5 s
@pytest.mark.skipif(not (OTHER_ROOT or find_spec("torch")), reason="torch is not installed in this environment")
def test_ranks_of_torchrun(cluster: Sandbox) -> None:
    """Started again after a rank has raised: the error file of that rank, and the files of both attempts."""
    command = f"{PYTHON} {program(cluster, 'raises.py', RAISES)}"
    job = submit(cluster, "logs-torch", command=command, retries=1, unconditional="yes", **BOTH)
    assert job.end() == "COMPLETED", job.log
    found = files(job)
    for rank in range(4):
        assert f"out {rank} of 0" in found[f"proc-rank-{rank}-device-{rank % 2}.txt"]
        assert found[f"attempt-1-proc-rank-{rank}-device-{rank % 2}.txt"] == [f"out {rank} of 1"]
        assert f"out {rank} of 1" in found[f"attempt-1-worker-{rank // 2}.log"]
    assert "KeyError: 'lost'" in found["proc-rank-2-device-0.txt"]
    directory = job.directory / f".slurm_plugin/{job.id}"
    errors = log_files.error_files(directory, 0)
    assert [(each.node, each.rank) for each in errors] == [("n2", 2)]
    assert "KeyError" in errors[0].path.read_text()
    assert log_files.error_files(directory, 1) == []


@pytest.mark.full  # over 5 s
def test_ranks_of_several_groups(cluster: Sandbox) -> None:
    """Counted over all groups, as the ranks are."""
    groups = [{"nodes": 1, "cpus": 2}, {"nodes": 2, "accelerators": {"gpu": 2}, "cpus": 1}]
    fields = {"nodes": None, "accelerators": None, "groups": groups, "time": "5m", "launch": "task"}
    job = submit(cluster, "logs-groups", command=bash("echo out $RANK"), logs={"per": "both", "label": "yes"}, **fields)
    assert job.end() == "COMPLETED", job.log
    assert {f"{rank}: out {rank}" for rank in range(5)} <= set(job.log.splitlines()), job.log
    found = files(job)
    nodes = {"worker-0.log": ["out 0"], "worker-1.log": ["out 1", "out 2"], "worker-2.log": ["out 3", "out 4"]}
    devices = (0, 0, 1, 0, 1)
    ranks = {f"proc-rank-{rank}-device-{device}.txt": [f"out {rank}"] for rank, device in enumerate(devices)}
    assert found == nodes | ranks


@pytest.mark.full  # over 5 s
def test_tasks_of_an_array(cluster: Sandbox) -> None:
    """Each has its own number, in the names as in its directory."""
    directory = workdir(cluster, "logs-array")
    spec = {"name": "logs-array", "mode": "single", "output": "job-%a.out", "logs": {"per": "both"}, "array": "1-2"}
    spec["command"] = bash("echo task $SLURM_ARRAY_TASK_ID")
    (directory / "job.yaml").write_text(json.dumps(spec), encoding="utf-8")
    cluster.run(["sh", "-c", "cd logs-array && slurm-plugin submit --json job.yaml"])
    until(lambda: len(list((directory / ".slurm_plugin").glob("*/attempts.jsonl"))) == 2, "both tasks")
    found = []
    for own in sorted((directory / ".slurm_plugin").iterdir()):
        job = Job(cluster, int(own.name), directory)
        found += files(job)["worker-0.log"]
        assert files(job)["proc-rank-0-device-0.txt"] == files(job)["worker-0.log"]
    assert sorted(found) == ["task 1", "task 2"]
