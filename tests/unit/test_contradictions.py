"""Mirrors slurm_plugin/contradictions.py: a key, what Slurm gave the job, and what its #SBATCH lines ask."""

from collections.abc import Mapping

import pytest

from slurm_plugin import render
from slurm_plugin.batchspec import Told, given
from slurm_plugin.contradictions import Given, contradictions, megabytes
from slurm_plugin.slurm import Request
from slurm_plugin.spec import load

TEXT = "name: a\nmode: pytorch\ncommand: python x\n"
ASKED = Request("big", "physics", "high", "", "a100&ib", 65536, 4, ("gpu:a100:4",), requeue=True)
GPUS = "accelerators: {gpu: 4}"


def found(
    keys: str, request: Request | None = ASKED, lines: Mapping[str, str] | None = None, gpus: int = 4, nodes: int = 1
) -> list[str]:
    """What a spec with these keys contradicts."""
    spec = load(f"{TEXT}{keys}\n".encode(), "a")
    return list(contradictions(spec, Given(nodes, gpus, "/d", "/d", request=request, lines=lines)))


FIT = [
    ("partition: [small, big]", ASKED),
    ("account: physics", ASKED),
    ("account: chemistry", ASKED._replace(account="")),  # without accounting Slurm tells none
    ("qos: high", ASKED),
    ("qos: low", ASKED._replace(qos="")),
    ("constraint: a100&ib", ASKED),
    ("constraint: a100", ASKED),  # and what the site has added
    ("reservation: [r1, r2]", ASKED._replace(reservation="r2")),
    ("cpus: 4", ASKED),
    ("memory: 64GB", ASKED),
    ("memory: 0", ASKED),  # all of the node's, in its own number
    ("memory: 1500000K", ASKED._replace(memory_mb=1465)),
    ("retries: 1", ASKED),
]


@pytest.mark.parametrize(("key", "slurms"), FIT)
def test_what_fits(key: str, slurms: Request) -> None:
    """Is told of no key."""
    assert found(f"{GPUS}\n{key}", slurms) == []


WRONG = {
    "partition: [a, b]": "`partition: a,b`, and Slurm gave big: #SBATCH --partition=a,b",
    "account: chemistry": "`account: chemistry`, and Slurm gave physics: #SBATCH --account=chemistry",
    "qos: low": "`qos: low`, and Slurm gave high: #SBATCH --qos=low",
    "reservation: mine": "`reservation: mine`, and Slurm gave none: #SBATCH --reservation=mine",
    "constraint: h100": '`constraint: h100`, and Slurm gave a100&ib: #SBATCH --constraint="h100"',
    "cpus: 8": "`cpus: 8`, and Slurm gave 4: #SBATCH --cpus-per-task=8",
    "memory: 65GB": "`memory: 65GB`, and Slurm gave 65536M: #SBATCH --mem=65G",
}


@pytest.mark.parametrize(("key", "words"), WRONG.items(), ids=WRONG.keys())
def test_what_slurm_gave_otherwise(key: str, words: str) -> None:
    """Both are told, and the line."""
    assert found(f"{GPUS}\n{key}") == [words]


def test_no_memory_limit_and_no_requeue() -> None:
    """What no line asked for."""
    bare = Request("big", requeue=False)
    assert found("memory: 1G\nretries: 2", bare, gpus=0) == [
        "`memory: 1G`, and Slurm gave no limit of a node's own: #SBATCH --mem=1G",
        "`retries: 2`, and Slurm may not requeue this job: #SBATCH --requeue",
    ]
    assert found("memory: 1G\nretries: 2", None, gpus=0) == []


@pytest.mark.parametrize(
    ("key", "asked", "gres", "fits"),
    [
        ("{gpu: 4, type: a100}", "gpu:a100:4", ("gpu:a100:4",), True),
        ("{gpu: 4, type: a100}", "gpu:a100:4", ("shard:2", "gpu:a100:4"), True),
        ("{gpu: 4, type: a100}", "gpu:a100:4", None, True),  # by --gpus or the like
        ("{gpu: 4, type: a100}", "gpu:a100:4", ("gpu:h100:4",), False),
        ("{gpu: 4, type: a100}", "gpu:a100:4", ("gpu:4",), False),
        ("{gpu: 4}", "gpu:4", ("gpu:h100:4",), True),
        ("{npu: 8}", "npu:8", ("npu:8",), True),
        ("{npu: 8}", "npu:8", ("npu:910b:8",), True),
        ("{npu: 8, type: 910b}", "npu:910b:8", ("npu:910b:4", "npu:910b:4"), True),
        ("{npu: 8}", "npu:8", ("npu:4",), False),
        ("{npu: 8}", "npu:8", ("gpu:8",), False),
        ("{npu: 8}", "npu:8", (), False),
        ("{npu: 8}", "npu:8", None, True),
    ],
)
def test_accelerators(key: str, asked: str, gres: tuple[str, ...] | None, fits: bool) -> None:
    """The type of GPUs, whose number the run tells; of npus, of which a job sees nothing, the number too."""
    shown = ",".join(gres or ()) or "none"
    told = [] if fits else [f"`accelerators: {key}`, and Slurm gave {shown}: #SBATCH --gres={asked}"]
    assert found(f"accelerators: {key}", ASKED._replace(gres=gres)) == told


@pytest.mark.parametrize(
    ("asks", "fits"),
    [
        ("B:USR1@120", True), ("b:sigusr1@120", True), ("USR1@120", False), ("B:USR1@60", False),
        ("B:USR1", False), ("B:TERM@120", False), ("", False), (None, False),
    ],
)  # fmt: skip
def test_the_signal_for_grace(asks: str | None, fits: bool) -> None:
    """Of which Slurm tells nothing: the line counts."""
    words = found("launch: task\ngrace: 2m\ntime: 1h", None, {} if asks is None else {"signal": asks}, gpus=0)
    line = f"`grace: 2m`, and the #SBATCH lines ask for {asks or 'no signal'}: #SBATCH --signal=B:USR1@120"
    assert words == ([] if fits else [line])


def test_the_signal_after_a_minute() -> None:
    """As sbatch has it without a time."""
    assert found("launch: task\ngrace: 60s\ntime: 1h", None, {"signal": "B:USR1"}, gpus=0) == []


@pytest.mark.parametrize(
    ("keys", "named"), [("spares: 1", "spares: 1"), ("nodes: 2\nmin_nodes: 1", "min_nodes: 1")], ids=["spares", "least"]
)
def test_a_job_that_outlives_its_nodes(keys: str, named: str) -> None:
    """Needs the line that keeps it."""

    def told(lines: Mapping[str, str] | None) -> list[str]:
        return found(f"retries: 1\n{keys}", None, lines, gpus=0, nodes=2)

    line = "#SBATCH --no-kill"
    assert told({"no-kill": ""}) == []
    assert told({}) == [f"`{named}`, and the #SBATCH lines do not keep a job that loses a node: {line}"]
    assert told({"no-kill": "off"}) == [f"`{named}`, and the #SBATCH lines have --no-kill=off: {line}"]
    assert told(None) == []


def test_what_render_writes_fits() -> None:
    """Of each key that needs a line."""
    spec = load(f"{TEXT}launch: task\nspares: 1\nretries: 2\ngrace: 5m\ntime: 1h\n".encode(), "a")
    script = "#!/bin/x\n" + "".join(f"#SBATCH {each}\n" for each in render.directives(spec, ""))
    run = given({"SLURM_JOB_NUM_NODES": "2"}, "/d", Told(), script.encode())
    assert list(contradictions(spec, run)) == []
    run = given({"SLURM_JOB_NUM_NODES": "2"}, "/d", Told(), b"#!/bin/x\n")
    assert len(list(contradictions(spec, run))) == 2


@pytest.mark.parametrize(("size", "mb"), [("64G", 65536), ("1", 1), ("1500000K", 1465), ("1.5T", 1572864), ("5M", 5)])
def test_megabytes(size: str, mb: int) -> None:
    """As Slurm counts them."""
    assert megabytes(size) == mb
