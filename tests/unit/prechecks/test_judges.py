"""Each check's judgement of a measured value: plain values in, whole findings out."""

import pytest

from prechecks import CHECKS, NODE_ITEMS, Check, Context, Finding
from prechecks.checks import disk, dns, gpu, ulimit

GB = 1 << 30
SETTINGS = {
    "mandatory": [],
    "disk-size": {"root": 32 * GB, "shm": GB, "cache": None},
    "gpu-check": {"device": "/dev/nvidia%d", "count": 4},
}
LOW = {"max_locked_memory_kb": 8192, "open_files": 20000, "stack_size_kb": 8192, "max_user_processes": 96365}
SEED = {
    "max_locked_memory_kb": 16000,
    "open_files": 1000000,
    "stack_size_kb": 8000,
    "max_user_processes": 1000000,
}


@pytest.mark.parametrize(
    ("available", "finding"),
    [
        (40 * GB, Finding("ok", "40 GB > 32 GB", 40 * GB, 32 * GB)),
        (32 * GB + 1, Finding("ok", "34359738369 B > 34359738368 B", 32 * GB + 1, 32 * GB)),
        (32 * GB, Finding("failed", "32 GB not > 32 GB", 32 * GB, 32 * GB)),
        (32 * GB - 1, Finding("failed", "31.9 GB < 32 GB", 32 * GB - 1, 32 * GB)),
        (0, Finding("failed", "0 B < 32 GB", 0, 32 * GB)),
        (None, Finding("failed", "no such directory", None, 32 * GB)),
    ],
)
def test_disk(available: int | None, finding: Finding) -> None:
    """Strictly more than the threshold passes. The message is exact to the last byte."""
    assert disk.judge(available, 32 * GB) == finding


def test_disk_of_the_example() -> None:
    """Half a gigabyte if one is required."""
    assert disk.judge(GB // 2, GB).message == "512 MB < 1 GB"


SCRATCH, DATA = ("/scratch", disk.judge(GB // 2, GB)), ("/data", disk.judge(3 * GB, GB))


@pytest.mark.parametrize(
    ("found", "finding"),
    [
        ([SCRATCH, DATA], Finding("failed", "/scratch: 512 MB < 1 GB", 1, 2)),
        ([DATA, DATA], Finding("ok", "/data: 3 GB > 1 GB, /data: 3 GB > 1 GB", 2, 2)),
        (
            [SCRATCH, ("/x", disk.judge(None, 1))],
            Finding("failed", "/scratch: 512 MB < 1 GB, /x: no such directory", 0, 2),
        ),
    ],
)
def test_disk_paths(found: list[tuple[str, Finding]], finding: Finding) -> None:
    """Only failing ones are reported."""
    assert disk.judge_all(found) == finding


def test_ulimit_low() -> None:
    """Every limit that is too low, in the units of `ulimit -a`."""
    assert ulimit.judge(LOW, SEED) == Finding(
        "failed",
        "max locked memory 8192 < 16000, open files 20000 < 1000000, max user processes 96365 < 1000000",
        "max locked memory 8192, open files 20000, stack size 8192, max user processes 96365",
        "max locked memory 16000, open files 1000000, stack size 8000, max user processes 1000000",
    )


def test_ulimit_exactly_the_threshold_fails() -> None:
    """More than the threshold is required."""
    assert ulimit.judge({**LOW, "open_files": 5}, {"open_files": 5}).message == "open files 5 not > 5"


def test_ulimit_unlimited_passes() -> None:
    """Unlimited is more than any threshold."""
    assert ulimit.judge(dict.fromkeys(LOW, None), SEED)[:2] == (
        "ok",
        "max locked memory unlimited, open files unlimited, stack size unlimited, max user processes unlimited",
    )


@pytest.mark.parametrize("thresholds", [{}, dict.fromkeys(SEED, None)])
def test_ulimit_without_a_threshold_passes(thresholds: dict[str, None]) -> None:
    """A site may leave a limit out, or set it to null."""
    assert ulimit.judge(LOW, thresholds).verdict == "ok"


@pytest.mark.parametrize(
    ("there", "finding"),
    [
        ("0123", Finding("ok", "4 of 4 GPUs", "found /dev/g0, /dev/g1, /dev/g2, /dev/g3", 4)),
        ("012", Finding("failed", "3 of 4 GPUs", "missing /dev/g3", 4)),
        ("", Finding("failed", "0 of 4 GPUs", "missing /dev/g0, /dev/g1, /dev/g2, /dev/g3", 4)),
    ],
)
def test_gpu(there: str, finding: Finding) -> None:
    """All must pass. The message has counts, the value has names."""
    assert gpu.judge({f"/dev/g{number}": str(number) in there for number in range(4)}) == finding


def test_gpu_expects_the_jobs_own_and_a_whole_node() -> None:
    """A GPU of the job is expected even if the site's count is too low."""
    assert gpu.expected((2, 5), None) == [2, 5]
    assert gpu.expected((2, 5), 4) == [0, 1, 2, 3, 5]
    assert gpu.expected((), 2) == [0, 1]


@pytest.mark.parametrize(
    ("unresolved", "finding"),
    [
        ([], Finding("ok", "8 names", 8, 8)),
        (["n3"], Finding("failed", "n3 does not resolve", 7, 8)),
        (["n3", "n1"], Finding("failed", "n3, n1 do not resolve", 6, 8)),
        (["a", "b", "c", "d", "e"], Finding("failed", "a, b, c and 2 more do not resolve", 3, 8)),
    ],
)
def test_dns(unresolved: list[str], finding: Finding) -> None:
    """At most three names are reported; the rest is counted."""
    assert dns.judge(8, unresolved, 8) == finding


def test_dns_names_in_hosts_files() -> None:
    """Lines of names, lines that begin with an address, comments and empty lines."""
    lines = [
        "# hosts\n",
        "\n",
        "job-worker-0.job\n",
        "10.0.0.7 n7 n7.cluster  # seven\n",
        "fe80::1 n8\n",
        "n9 slots=4\n",
    ]
    assert dns.names_in(lines) == ["job-worker-0.job", "n7", "n7.cluster", "n8", "n9"]


@pytest.mark.parametrize(
    ("context", "mandatory", "items"),
    [
        (Context("prolog", "n1"), [], "dns disk-size.root disk-size.shm"),
        (Context("prolog", "n1", infiniband=True), [], "dns disk-size.root disk-size.shm ulimit infiniband"),
        (Context("prolog", "n1", gpus=(0,)), [], "dns disk-size.root disk-size.shm gpu-check"),
        (
            Context("prolog", "n1"),
            ["ulimit", "gpu-check", "disk-size.cache"],
            "dns disk-size.root disk-size.shm ulimit gpu-check",
        ),
    ],
)
def test_which_checks_apply(context: Context, mandatory: list[str], items: str) -> None:
    """Limits with InfiniBand, GPUs with GPUs, both if mandatory; no disk without a threshold."""
    settings = {**SETTINGS, "mandatory": mandatory}
    assert " ".join(check.item for check in CHECKS if check.applies(context, settings)) == items


def test_mandatory_gpus_need_a_count() -> None:
    """Without one nothing is expected on a node whose job has no GPUs."""
    (check,) = (check for check in CHECKS if check.item == "gpu-check")
    settings = {"mandatory": ["gpu-check"], "gpu-check": {"device": "/dev/nvidia%d", "count": None}}
    assert not check.applies(Context("prolog", "n1"), settings)


def test_the_registry() -> None:
    """The items in their order. Only a node's own faults drain it."""
    assert [check.item for check in CHECKS] == [
        "dns",
        "disk-size.root",
        "disk-size.shm",
        "disk-size.cache",
        "ulimit",
        "gpu-check",
        "infiniband",
        "nic",
        "gpu-ecc",
        "gpu-remap",
        "gpu-nvlink",
        "gpu-processes",
        "gpu-xid",
        "npu-check",
        "mlu-check",
        "amd-check",
        "inodes.root",
        "inodes.shm",
        "inodes.cache",
        "disk-size.paths",
        "inodes.paths",
        "mounts.paths",
        "mounts.local",
        "memory",
        "memory.available",
        "memory.slurm",
        "clock",
        "processes",
        "processes.leftovers",
        "services",
        "ports",
        "command",
    ]
    assert [item for item in (check.item for check in CHECKS) if item not in NODE_ITEMS] == [
        "dns",
        "disk-size.root",
        "disk-size.shm",
        "disk-size.cache",
        "ulimit",
        "inodes.root",
        "inodes.shm",
        "inodes.cache",
        "disk-size.paths",
        "inodes.paths",
        "mounts.paths",
        "memory.available",
        "clock",
        "processes",
        "processes.leftovers",
        "services",
        "ports",
    ]
    assert all(isinstance(check, Check) for check in CHECKS)
