"""Keys of a spec on a real Slurm: the options for sbatch, and what the job gets."""

from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import submit, workdir
from tests.waiting import HANG_S, until

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
TOO_LARGE = {":8": ":4", "npu:": "gpu:", "=8": "=4"}  # the sandbox's nodes have fewer


def test_each_example_is_taken_by_sbatch(cluster: Sandbox) -> None:
    """As it is rendered, except for a number of accelerators that the nodes here have."""
    directory = workdir(cluster, "examples")
    names = sorted(path.name for path in EXAMPLES.glob("*.yaml") if path.stem != "search")  # many jobs
    for name in names:
        (directory / name).write_bytes((EXAMPLES / name).read_bytes())
    small = " ".join(f"-e s/{large}/{small}/g" for large, small in TOO_LARGE.items())
    each = f"slurm-plugin render $name | sed {small} | sbatch --test-only >$name.said 2>&1; echo $? >$name.code"
    cluster.run(["sh", "-c", f"cd examples; for name in *.yaml; do {each}; done"], timeout=HANG_S)
    assert len(names) > 10
    for name in names:
        said = (directory / f"{name}.said").read_text()
        assert "to start at" in said, f"{name}: {said}"
        assert (directory / f"{name}.code").read_text() == "0\n", f"{name}: {said}"


def test_keys_are_what_the_job_has(cluster: Sandbox) -> None:
    """Each key in Slurm's record, a flag without a key, and the user's comment before our token."""
    job = submit(
        cluster,
        "keys",
        mode="single",
        nodes=1,
        accelerators={"gpu": 1},
        command="true",
        partition="main",
        account="anything",
        cpus=2,
        memory="64MB",
        nodelist="n2",
        exclude=["n1", "n[3-4]"],
        exclusive="user",
        dependency="singleton",
        nice=7,
        begin="now+1hour",
        mail={"type": "end, FAIL"},
        sbatch={"mincpus": 3, "contiguous": "yes", "comment": "it's #1"},
    )
    found = job.fields
    assert "USER" in (found["OverSubscribe"], found.get("Exclusive"))  # 26.05 has a separate field for it
    assert (
        found.items()
        >= {
            "Partition": "main",
            "Account": "anything",
            "CPUs/Task": "2",
            "MinMemoryNode": "64M",
            "ReqNodeList": "n2",
            "ExcNodeList": "n[1,3-4]",
            "Nice": "7",
            "MailType": "END,FAIL",
            "MinCPUsNode": "3",
            "Contiguous": "1",
            "Reason": "BeginTime",
        }.items()
    )
    assert "Comment=it's #1 [sp1;retries=0;ib=auto]" in cluster.run(["scontrol", "show", "job", str(job.id)]).stdout


def test_a_launcher_has_all_cpus_of_its_node_and_a_task_its_own(cluster: Sandbox) -> None:
    """On every release: with 2 of 4 processes on a node, 8 CPUs or 2."""
    step = "bash -c 'scontrol -o show step $SLURM_JOB_ID.$SLURM_STEP_ID; echo for ${SLURM_CPUS_PER_TASK:-all} of them'"
    node = submit(cluster, "cpus-node", nodes=2, cpus=2, command=step)
    task = submit(cluster, "cpus-task", nodes=2, cpus=2, launch="task", command=step)
    for job, tasks, own in ((node, 2, "all"), (task, 8, "2")):
        assert job.end() == "COMPLETED", job.log
        assert f" CPUs=16 Tasks={tasks} " in job.log, job.log
        assert job.log.count(f"for {own} of them\n") == tasks


def test_an_array_is_jobs_with_logs_of_their_own(cluster: Sandbox) -> None:
    """Each task writes its number to its own file. At most two run at a time."""
    directory = workdir(cluster, "array")
    text = "name: many\nmode: single\narray: 1-3%2\ncommand: bash -c 'echo I am $SLURM_ARRAY_TASK_ID'\n"
    (directory / "job.yaml").write_text(text)
    number = cluster.run(["sh", "-c", "cd /home/alice/array && exec slurm-plugin submit job.yaml"]).stdout.strip()
    logs = [directory / f"many-{number}_{task}.out" for task in (1, 2, 3)]
    until(lambda: all(path.exists() and "I am" in path.read_text() for path in logs))
    assert [f"I am {task}\n" in path.read_text() for task, path in enumerate(logs, 1)] == [True] * 3
    until(lambda: len([each for each in (directory / ".slurm_plugin").iterdir() if each.name.isdigit()]) == 3)


def test_a_flag_that_this_release_does_not_have_is_told_before_anything_is_submitted(cluster: Sandbox) -> None:
    """The message names the nearest flag. A flag that the help omits is passed through if sbatch accepts it."""
    directory = workdir(cluster, "flags")
    (directory / "job.yaml").write_text(
        "name: a\nmode: single\ncommand: 'true'\nsbatch: {contigous: yes, hint: nomultithread, acctg-freq: 30}\n"
    )
    done = cluster.run(["sh", "-c", "cd /home/alice/flags && exec slurm-plugin submit job.yaml"], check=False)
    assert done.returncode == 2
    problems = [line for line in done.stderr.splitlines() if line.startswith("  line")]
    assert len(problems) == 1
    assert "this machine's sbatch has no --contigous; did you mean contiguous?" in problems[0]
