"""DeepSpeed's own launcher and TensorFlow's strategies in jobs of slurm_plugin. Run by .ci/consumers."""

import json
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job, submit
from tests.cluster.programs import SAVES, TRAIN, program
from tests.fetched import REASON, Consumers, fetched, required

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(fetched() is None, reason=REASON)]

DEEPSPEED = {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
TENSORFLOW = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
FAIL = """
import os, pathlib, sys, time

pathlib.Path(f"started{os.environ['RANK']}").write_text(os.uname().nodename)
while os.environ["RANK"] == "3":
    time.sleep(0.2)
    if len(list(pathlib.Path().glob("started?"))) == 4:
        os.kill(os.getpid(), 9) if sys.argv[-1] == "killed" else os._exit(int(sys.argv[-1]))
time.sleep(6000)
"""
# What rank 2 does -> the class of the failure, and its line of evidence.
RAISES = {
    "key": ('{}["tokens"]', "user_code", "KeyError: 'tokens'"),
    "import": ("import nothere_xyz", "import_env", "No module named 'nothere_xyz'"),
    "file": ('open("/data/nothere.bin")', "missing_file", "/data/nothere.bin"),
    "memory": ("bytearray(1 << 60)", "host_oom", "MemoryError"),
}
MODEL = """
import json, os, sys
import tensorflow as tf

task = json.loads(os.environ["TF_CONFIG"])["task"]


def gradient(weights, seed):
    wanted = tf.constant([[1.0], [-2.0], [3.0], [0.5]])
    x = tf.random.stateless_normal([8, 4], seed=[seed, 7])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.matmul(x, weights) - tf.matmul(x, wanted)) ** 2)
    return loss, tape.gradient(loss, weights)


def tell(**found):
    with open(f"{task['type']}{task['index']}.json", "w") as file:
        json.dump({"node": os.uname().nodename, **found}, file)
"""
ALL_REDUCE = f"""{MODEL}
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weights = tf.Variable(tf.zeros([4, 1]))


@tf.function
def step():
    def replica():
        loss, slope = gradient(weights, task["index"])  # different data: the strategy must make them agree
        context = tf.distribute.get_replica_context()
        weights.assign_sub(0.1 * context.all_reduce(tf.distribute.ReduceOp.MEAN, slope))
        return loss

    return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(replica), axis=None)


losses = [float(step()) for _ in range(20)]
tell(replicas=strategy.num_replicas_in_sync, losses=losses, weights=weights.numpy().ravel().tolist())
"""
COORDINATOR = f"""{MODEL}
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if task["type"] != "chief":
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=task["type"], task_index=task["index"], protocol="grpc", start=True
    )
    tell()
    server.join()  # forever

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = tf.Variable(tf.zeros([4, 1]))


@tf.function
def step():
    loss, slope = gradient(weights, 7)
    weights.assign_sub(0.1 * slope)
    return loss


steps = [coordinator.schedule(step) for _ in range(20)]
coordinator.join()
losses = [float(loss.fetch()) for loss in steps]
tell(losses=[losses[0], losses[-1]], where=weights.device)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="session")
def consumers() -> Consumers:
    """Return what .ci/consumers fetched."""
    return required()


def told(job: Job, name: str) -> dict[str, Any]:
    """Return what a process wrote."""
    answer: dict[str, Any] = json.loads((job.directory / f"{name}.json").read_text())
    return answer


def launched(job: Job) -> str:
    """Return the launched commands in the log."""
    (line,) = [line for line in job.log.splitlines() if line.startswith("[slurm_plugin] launch: ")]
    return line


# How a user may start it -> the command, and its result.
STARTS = {
    "python": ("python {}", "-m deepspeed.launcher.launch"),
    "deepspeed": ("deepspeed {}", "--no_ssh"),
    "task": ("python {}", "--ntasks-per-node=2"),
}


def deepspeed(box: Sandbox, consumers: Consumers, start: str, arguments: str, name: str, **more: str) -> Job:
    """Submit a job of 2 hosts x 2 ranks. `more`: keys of its spec."""
    command = f"{consumers.deepspeed_python.parent}/{STARTS[start][0].format(arguments)}"
    launch = "task" if start == "task" else "node"
    fields = {"accelerators": {"gpu": 2}, "launch": launch, "command": command, "env": DEEPSPEED}
    return submit(box, f"{name}-{start}", mode="deepspeed", **fields, **more)


@pytest.mark.parametrize("start", STARTS)
def test_deepspeed_trains_with_ddp(cluster: Sandbox, consumers: Consumers, start: str) -> None:
    """The launcher starts 2 ranks on each of 2 hosts, with `--local_rank`. A task is a rank and gets no such option."""
    job = deepspeed(cluster, consumers, start, program(cluster, "ds.py", TRAIN), "ds")
    assert job.end() == "COMPLETED", job.log
    assert STARTS[start][1] in launched(job)
    found = [told(job, f"rank{rank}") for rank in range(4)]
    places = [(rank["world"], rank["node"], rank["local"]) for rank in found]
    assert places == [(4, "n1", "0"), (4, "n1", "1"), (4, "n2", "0"), (4, "n2", "1")]
    given = [] if start == "task" else [f"--local_rank={rank % 2}" for rank in range(4)]
    assert [word for rank in found for word in rank["given"]] == given
    losses = found[0]["losses"]
    assert all(rank["losses"] == losses and rank["agree"] for rank in found)
    assert losses[-1] < losses[0] / 10


@pytest.mark.parametrize(
    ("start", "how", "code"),
    [
        ("python", "5", 5),
        ("deepspeed", "5", 5),
        ("task", "5", 5),
        ("deepspeed", "killed", 247),
    ],
)
def test_a_rank_that_fails_ends_the_job_with_its_code(
    cluster: Sandbox, consumers: Consumers, start: str, how: str, code: int
) -> None:
    """DeepSpeed's launcher ends its other rank and passes the code on, 256 - 9 for signal 9. srun ends the others."""
    job = deepspeed(cluster, consumers, start, f"{program(cluster, 'ds-fail.py', FAIL)} {how}", f"ds-{how}")
    job.until(lambda: len([*job.directory.glob("started?")]) == 4, "every rank")
    assert (job.end(), job.exit_code) == ("FAILED", f"{code}:0"), job.log  # the other ranks would sleep longer
    assert [(job.directory / f"started{rank}").read_text() for rank in range(4)] == ["n1", "n1", "n2", "n2"]
    for node in ("n1", "n2"):
        assert cluster.run(["pgrep", "-u", "alice", "-f", "ds-fail"], node=node, check=False).stdout == ""


@pytest.mark.parametrize("start", STARTS)
def test_what_is_said_of_an_error_under_deepspeed(cluster: Sandbox, consumers: Consumers, start: str) -> None:
    """The exception of one rank of four is the likely cause, and no line of DeepSpeed's launchers."""
    found = {}
    for name, (line, *_) in RAISES.items():
        text = f"import os, time\nif os.environ['RANK'] == '2':\n    {line}\ntime.sleep(6000)\n"
        job = deepspeed(cluster, consumers, start, program(cluster, f"ds-{name}.py", text), f"ds-{name}")
        assert job.end() == "FAILED", job.log
        said = json.loads(cluster.run(["slurm-plugin", "diagnose", "--json", str(job.id)], check=False).stdout)
        assert said["nodes"] == {"n2": "clear"}
        found[name] = (said["class"], said["evidence"]["text"] if said["evidence"] else "")
    assert {name: kind for name, (kind, _) in found.items()} == {name: kind for name, (_, kind, _) in RAISES.items()}
    assert all(text in found[name][1] for name, (_, _, text) in RAISES.items()), found


@pytest.mark.parametrize("start", STARTS)
def test_every_rank_of_deepspeed_saves(cluster: Sandbox, consumers: Consumers, start: str) -> None:
    """The signal to save reaches the ranks and ends no launcher. The job ends when each rank has saved."""
    saves = program(cluster, "ds-saves.py", SAVES)
    job = deepspeed(cluster, consumers, start, saves, "ds-grace", grace="30m", time="2h")
    job.until(lambda: len([*job.directory.glob("runs.*")]) == 4, "every rank")
    cluster.run(["scancel", "--batch", "--signal=USR1", str(job.id)])
    assert (job.end(), job.exit_code) == ("COMPLETED", "0:0"), job.log
    assert len([*job.directory.glob("saved.*")]) == 4, job.log


def test_tensorflow_workers_reduce_among_themselves(cluster: Sandbox, consumers: Consumers) -> None:
    """MultiWorkerMirroredStrategy on 2 hosts: the loss falls, and both have the same weights from different data."""
    command = f"{consumers.tensorflow_python} {program(cluster, 'tf-reduce.py', ALL_REDUCE)}"
    job = submit(cluster, "tf-reduce", mode="tensorflow", accelerators={}, command=command, env=TENSORFLOW)
    assert job.end() == "COMPLETED", job.log
    first, second = told(job, "worker0"), told(job, "worker1")
    assert (first.pop("node"), second.pop("node")) == ("n1", "n2")
    assert first == second
    assert first["replicas"] == 2
    assert first["losses"][-1] < first["losses"][0] / 10


@pytest.mark.parametrize("code", [0, 5])
def test_tensorflow_servers_end_with_the_coordinator(cluster: Sandbox, consumers: Consumers, code: int) -> None:
    """Two workers and a parameter server would run forever. The job ends when the chief ends."""
    command = f"{consumers.tensorflow_python} {program(cluster, 'tf-ps.py', COORDINATOR)} {code}"
    fields = {"accelerators": {}, "tensorflow": {"ps": 1, "chief": "yes"}, "command": command, "env": TENSORFLOW}
    job = submit(cluster, f"tf-ps-{code}", mode="tensorflow", nodes=3, **fields)
    job.until((job.directory / "chief0.json").exists, "the end of the training")
    assert (job.end(), job.exit_code) == (("FAILED" if code else "COMPLETED"), f"{code}:0"), job.log
    assert [told(job, name)["node"] for name in ("chief0", "worker0", "worker1", "ps0")] == ["n1", "n2", "n3", "n1"]
    chief = told(job, "chief0")
    assert chief["losses"][1] < chief["losses"][0] / 10
    assert "/job:ps/" in chief["where"]
