"""Keys of a spec that is a batch script, compared with what Slurm gave the job and with the #SBATCH lines."""

from collections.abc import Mapping

from slurm_plugin.slurm import Request
from slurm_plugin.spec import load
from slurm_plugin.submit import render
from slurm_plugin.submit.batch_spec import Contradiction, Given, SlurmAnswers, contradictions, given

TEXT = "name: a\nmode: pytorch\ncommand: python x\n"
ASKED = Request("big", "physics", "high", "", "a100&ib", 65536, 4, ("gpu:a100:4",), requeue=True)
GPUS = "accelerators: {gpu: 4}"


def all_of(keys: str, given: Given) -> list[Contradiction]:
    """Return the contradictions of a spec with these keys."""
    return list(contradictions(load(f"{TEXT}{keys}\n".encode(), "a"), given))


def found(
    keys: str, request: Request | None = ASKED, lines: Mapping[str, str] | None = None, gpus: int = 4, nodes: int = 1
) -> list[str]:
    """Return each contradiction's message, and whether it ends the job."""
    told = all_of(keys, Given(nodes, gpus, "/d", "/d", request=request, lines=lines))
    return [f"{each.words}: #SBATCH {each.line}" for each in told]


def ends(keys: str, given: Given) -> list[bool]:
    """Return for each contradiction whether it ends the job."""
    return [each.ends for each in all_of(keys, given)]


FIT = [
    ("partition: [small, big]", ASKED),
    ("account: physics", ASKED),
    ("account: chemistry", ASKED._replace(account="")),  # without accounting Slurm reports none
    ("account: Physics", ASKED),  # Slurm makes it lower case
    ("qos: high", ASKED),
    ("qos: High", ASKED),
    ("qos: low", ASKED._replace(qos="")),
    ("constraint: a100&ib", ASKED),
    ("constraint: a100", ASKED),  # with the site's own addition
    ("reservation: [r1, r2]", ASKED._replace(reservation="r2")),
    ("reservation: [r1, r2]", ASKED._replace(reservation="r1,r2")),  # Slurm shows all of them while it runs
    ("cpus: 4", ASKED),
    ("cpus: 2", ASKED),  # MaxMemPerCPU
    ("memory: 64GB", ASKED),
    ("memory: 63GB", ASKED),
    ("memory: 64GB", ASKED._replace(memory_mb=0)),  # all of the node's memory
    ("memory: 0", ASKED),  # all of the node's memory, as its size
    ("memory: 1500000K", ASKED._replace(memory_mb=1465)),
    ("retries: 1", ASKED),
]


def test_what_fits() -> None:
    """No key contradicts."""
    for key, slurms in FIT:
        assert found(f"{GPUS}\n{key}", slurms) == [], key


WRONG = {
    "partition: [a, b]": "`partition: a,b`, and Slurm gave big: #SBATCH --partition=a,b",
    "account: chemistry": "`account: chemistry`, and Slurm gave physics: #SBATCH --account=chemistry",
    "qos: low": "`qos: low`, and Slurm gave high: #SBATCH --qos=low",
    "reservation: mine": "`reservation: mine`, and Slurm gave none: #SBATCH --reservation=mine",
    "constraint: h100": '`constraint: h100`, and Slurm gave a100&ib: #SBATCH --constraint="h100"',
    "cpus: 8": "`cpus: 8`, and Slurm gave 4: #SBATCH --cpus-per-task=8",
    "memory: 65GB": "`memory: 65GB`, and Slurm gave 65536M: #SBATCH --mem=65G",
}


def test_what_slurm_gave_otherwise() -> None:
    """The message has both values and the line."""
    for key, words in WRONG.items():
        assert found(f"{GPUS}\n{key}") == [words], key


def test_no_requeue() -> None:
    """No #SBATCH line requested it."""
    bare = Request("big", requeue=False)
    told = ["`retries: 2`, and Slurm may not requeue this job: #SBATCH --requeue"]
    assert found("retries: 2", bare, gpus=0) == told
    assert found("retries: 2", None, gpus=0) == []


def test_what_the_site_gave_in_its_place() -> None:
    """It ends no job, unless the script's own line contradicts."""
    cases = [
        ("partition: small", {"partition": "small"}, False),  # job_submit.lua, scontrol, sbatch's command line
        ("partition: small", {}, False),
        ("partition: small", None, False),
        ("partition: small", {"partition": "big"}, True),
        ("partition: [small, tiny]", {"partition": "tiny"}, False),
        ("partition: small", {"partition": "small,big"}, True),
        ("account: chemistry", {"account": "Chemistry"}, False),
        ("account: chemistry", {"account": "physics"}, True),
        ("qos: low", {"qos": "LOW"}, False),
        ("qos: low", {"qos": "high"}, True),
        ("reservation: mine", {"reservation": "mine"}, False),
        ("reservation: mine", {}, True),
    ]
    for key, line, ended in cases:
        run = Given(1, 4, "/d", "/d", request=ASKED, lines=line)
        assert ends(key, run) == [ended], key
        assert ends(key, run._replace(restarted=True)) == [False], key


def test_the_time_limit() -> None:
    """A shorter limit contradicts, unless it was shortened later."""
    cases = [
        (3600, 0, {"time": "60"}, []),
        (7200, 0, {"time": "2:00:00"}, []),  # more than enough
        (1800, 900, {"time": "60"}, []),  # sbatch --time-min: Slurm shortens it
        (1800, 0, {"time": "30"}, [True]),
        (1800, 0, {}, [True]),  # the partition's default
        (1800, 0, {"time": "60"}, [False]),  # changed after the submission
        (1800, 0, {"time": "UNLIMITED"}, [False]),
        (1800, 0, None, [False]),
    ]
    for limit_s, least_s, line, ended in cases:
        run = Given(1, 0, "/d", "/d", limit_s, lines=line, time_min_s=least_s)
        assert ends("time: 1h", run) == ended, limit_s
        assert ends("time: 1h", run._replace(restarted=True)) == [False for _ in ended], limit_s


def test_a_run_after_the_first() -> None:
    """It ends only if the program cannot run, not because of other changes."""
    bare = Given(1, 0, "/d", "/s", 60, "", Request("big", requeue=False), {}, restarted=True)
    keys = "nodes: 2\naccelerators: {gpu: 1}\ncpus: 2\nworkdir: w\nretries: 1\nlaunch: task\ngrace: 60s\ntime: 1h"
    assert [each.line for each in all_of(keys, bare) if each.ends] == ["--nodes=2", "--gres=gpu:1"]
    assert ends(keys, bare._replace(restarted=False)) == [True] * 8


def test_more_gpus_than_asked_for() -> None:
    """With whole nodes: `exclusive: yes`, or a partition with OverSubscribe=EXCLUSIVE."""
    assert found("accelerators: {gpu: 2}") == []
    assert found("accelerators: {gpu: 8}") == ["`accelerators: {gpu: 8}`, and Slurm gave 4: #SBATCH --gres=gpu:8"]


def test_accelerators() -> None:
    """The type of GPUs (the run knows their number); for NPUs, which a job does not see, also the number."""
    cases = [
        ("{gpu: 4, type: a100}", "gpu:a100:4", ("gpu:a100:4",), True),
        ("{gpu: 4, type: a100}", "gpu:a100:4", ("shard:2", "gpu:a100:4"), True),
        ("{gpu: 4, type: a100}", "gpu:a100:4", None, True),  # by --gpus or the like
        ("{gpu: 4, type: a100}", "gpu:a100:4", ("gpu:h100:4",), False),
        ("{gpu: 4, type: a100}", "gpu:a100:4", ("gpu:4",), False),
        ("{gpu: 4}", "gpu:4", ("gpu:h100:4",), True),
        ("{gpu: 4, type: a100}", "gpu:a100:4", ("shard:2",), True),  # with the whole node
        ("{npu: 8}", "npu:8", ("npu:8",), True),
        ("{npu: 4}", "npu:4", ("npu:8",), True),
        ("{npu: 8}", "npu:8", ("npu:910b:8",), True),
        ("{npu: 8, type: 910b}", "npu:910b:8", ("npu:910b:4", "npu:910b:4"), True),
        ("{npu: 8}", "npu:8", ("npu:4",), False),
        ("{npu: 8}", "npu:8", ("gpu:8",), False),
        ("{npu: 8}", "npu:8", (), False),
        ("{npu: 8}", "npu:8", None, True),
    ]
    for key, asked, gres, fits in cases:
        shown = ",".join(gres or ()) or "none"
        told = [] if fits else [f"`accelerators: {key}`, and Slurm gave {shown}: #SBATCH --gres={asked}"]
        assert found(f"accelerators: {key}", ASKED._replace(gres=gres)) == told, key


def test_the_signal_for_grace() -> None:
    """Slurm does not report it, so the line counts."""
    cases = [
        ("B:USR1@120", True), ("b:sigusr1@120", True), ("USR1@120", False), ("B:USR1@60", False),
        ("B:USR1", False), ("B:TERM@120", False), ("", False), (None, False),
        ("B:10@120", True), ("BR:USR1@120", True), ("RB:SIGUSR1@120", True), ("R:USR1@120", False),
        ("B:12@120", False), ("10@120", False), ("B:NOSUCH@120", False), ("B:@120", False),
    ]  # fmt: skip
    for asks, fits in cases:
        words = found("launch: task\ngrace: 2m\ntime: 1h", None, {} if asks is None else {"signal": asks}, gpus=0)
        line = f"`grace: 2m`, and the #SBATCH lines ask for {asks or 'no signal'}: #SBATCH --signal=B:USR1@120"
        assert words == ([] if fits else [line]), asks


def test_npus_with_the_whole_node() -> None:
    """A job that did not request them does not see them."""
    wants, none = "accelerators: {npu: 8}", ASKED._replace(gres=())
    assert found(wants, none, {"exclusive": ""}) == []
    assert len(found(wants, none, {"exclusive": "user"})) == 1


def test_the_signal_after_a_minute() -> None:
    """sbatch's default without a time."""
    assert found("launch: task\ngrace: 60s\ntime: 1h", None, {"signal": "B:USR1"}, gpus=0) == []


def test_a_job_that_outlives_its_nodes() -> None:
    """It needs the #SBATCH line that keeps it."""
    for keys, named in [("spares: 1", "spares: 1"), ("nodes: 2\nmin_nodes: 1", "min_nodes: 1")]:

        def told(lines: Mapping[str, str] | None, keys: str = keys) -> list[str]:
            return found(f"retries: 1\n{keys}", None, lines, gpus=0, nodes=2)

        line = "#SBATCH --no-kill"
        assert told({"no-kill": ""}) == [], keys
        assert told({}) == [f"`{named}`, and the #SBATCH lines do not keep a job that loses a node: {line}"], keys
        assert told({"no-kill": "off"}) == [f"`{named}`, and the #SBATCH lines have --no-kill=off: {line}"], keys
        assert told(None) == [], keys


def test_what_render_writes_fits() -> None:
    """For each key that needs a line."""
    spec = load(f"{TEXT}launch: task\nspares: 1\nretries: 2\ngrace: 5m\ntime: 1h\n".encode(), "a")
    script = "#!/bin/x\n" + "".join(f"#SBATCH {each}\n" for each in render.directives(spec, ""))
    run = given({"SLURM_JOB_NUM_NODES": "2"}, "/d", SlurmAnswers(), script.encode())
    assert list(contradictions(spec, run)) == []
    run = given({"SLURM_JOB_NUM_NODES": "2"}, "/d", SlurmAnswers(), b"#!/bin/x\n")
    assert len(list(contradictions(spec, run))) == 2
