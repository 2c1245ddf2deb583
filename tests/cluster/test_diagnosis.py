"""A job that fails says why: in its log, in `why`, `history` and `diagnose`; and what that changes for its nodes."""

from importlib.util import find_spec

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import as_json, reasons, submit, workdir
from tests.cluster.programs import LIBUV, OTHER_ROOT, PYTHON

pytestmark = pytest.mark.cluster
# Four ranks of which one lacks a key in the fourth step; the others wait for it in an all-reduce.
TRAIN = """import os
import torch
import torch.distributed as dist


def step(number, batch):
    total = torch.ones(1)
    if dist.get_rank() == 2 and number == 3:
        total += batch["tokens"]
    dist.all_reduce(total)
    print(f"step {number} loss {total.item()}", flush=True)


dist.init_process_group("gloo")
for number in range(10):
    step(number, {})
"""
BROKEN_CARD = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


@pytest.mark.parametrize("per", ["job", pytest.param("rank", marks=pytest.mark.full)])
@pytest.mark.skipif(not OTHER_ROOT and find_spec("torch") is None, reason="PyTorch is not installed here")
def test_one_rank_of_four_raises(cluster: Sandbox, per: str) -> None:
    """In under a screen: the rank, its node, the exception and the line of the program."""
    directory = workdir(cluster, "key")
    (directory / "train.py").write_text(TRAIN, encoding="utf-8")
    fields = {"accelerators": {"gpu": 2}, "nodelist": "n[1-2]", "env": LIBUV, "retries": 2}
    fields |= {"logs": {"per": per}} if per != "job" else {}
    job = submit(cluster, "key", made=True, command=f"{PYTHON} train.py", **fields)
    assert job.end() == "FAILED", job.log
    last = "\n".join(job.log.splitlines()[-6:])
    why = cluster.run(["slurm-plugin", "why", str(job.id)]).stdout
    history = cluster.run(["slurm-plugin", "history", str(job.id)]).stdout
    told = cluster.run(["slurm-plugin", "diagnose", str(job.id)]).stdout
    for said in (last, why, history, told):
        assert "rank 2 of 4 on n2" in said, said
        assert "KeyError: 'tokens'" in said
        assert "train.py, line 9, in step" in said
        assert len(said.splitlines()) <= 25
    assert "its nodes are fine" in last
    assert len(job.attempts) == 1  # a fault of the program is no reason to run again
    found = as_json(cluster, "history", job.id)["attempts"][0]["diagnosis"]
    assert as_json(cluster, "why", job.id)["diagnosis"] == found
    assert ("proc-rank-2-device-0.txt" in found["evidence"]["file"]) == (per == "rank")
    assert (found["class"], found["whose"], found["ranks"], found["nodes"]) == (
        "user_code",
        "user",
        [2],
        {"n2": "clear"},
    )
    assert as_json(cluster, "diagnose", job.id)["ranks"] == [2]


@pytest.mark.full  # 14 s
def test_a_log_that_tells_of_a_broken_card(cluster: Sandbox) -> None:
    """This job leaves its node out and runs again; the node is not drained, as a log is its user's word."""
    fails = f"[ $SLURM_PLUGIN_ATTEMPT = 1 ] || {{ echo '{BROKEN_CARD}'; exit 1; }}"
    (workdir(cluster, "card") / "card.sh").write_text(fails)
    fields = {"nodes": 1, "launch": "task", "accelerators": {"gpu": 1}, "nodelist": None, "retries": 2}
    job = submit(cluster, "card", made=True, command="bash card.sh", spares=1, **fields)
    assert job.end() == "COMPLETED", job.log
    first = job.attempts[0]
    assert first["verdicts"] == {"n1": "gpu_hw: a fault of an accelerator or its driver, as the log says"}
    assert (first["action"], job.attempts[1]["nodes"]) == ("again", "n2")
    assert reasons(cluster) == {}


# In the first attempt task 1 writes nothing and ends when its kernel reports the GPU, while task 0 sleeps.
DIES = """[ $SLURM_PLUGIN_ATTEMPT = 1 ] && exit 0
[ $SLURM_PROCID = 0 ] && exec sleep 9000
echo begun
until grep -q Xid /dev/kmsg; do sleep 0.1; done
kill -9 $$
"""


@pytest.mark.full  # 15 s
def test_a_kernel_that_tells_of_a_lost_gpu(cluster: Sandbox) -> None:
    """A program that is killed says nothing. The kernel's lines of its node come with the checks, and say why."""
    (workdir(cluster, "kmsg") / "dies.sh").write_text(DIES)
    fields = {"nodes": 2, "launch": "task", "accelerators": {"gpu": 1}, "nodelist": None, "retries": 1}
    job = submit(cluster, "kmsg", made=True, command="bash dies.sh", spares=1, **fields)
    job.until(lambda: "begun" in job.log, "its tasks run")
    cluster.break_node("n2", "xid")
    assert job.end() == "COMPLETED", job.log
    first = job.attempts[0]
    assert "the kernel of n2: [" in job.log
    assert "likely cause: " in job.log
    assert (list(first["verdicts"]), first["action"]) == (["n2"], "again")
