"""Keys of a spec as a real Slurm takes them: what sbatch makes of each, and what the job then has."""

from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.command import until
from tests.cluster.jobs import Job, submit, workdir

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
TOO_LARGE = {":8": ":4", "npu:": "gpu:", "=8": "=4"}  # what the sandbox's nodes do not have


@pytest.fixture(scope="module")
def examples(sandbox: Sandbox) -> str:
    """A directory of alice's with all of the examples, by its name in there."""
    directory = workdir(sandbox, "examples")
    for path in EXAMPLES.glob("*.yaml"):
        (directory / path.name).write_bytes(path.read_bytes())
    return "/home/alice/examples"


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_each_example_is_taken_by_sbatch(cluster: Sandbox, examples: str, name: str) -> None:
    """As it is rendered, but for a number of accelerators that the nodes here have."""
    script = cluster.run(["sh", "-c", f"cd {examples} && exec slurm-plugin render {name}"]).stdout
    for large, small in TOO_LARGE.items():
        script = script.replace(large, small)
    done = cluster.run(["sbatch", "--test-only"], input=script, check=False)
    assert "to start at" in done.stderr, done.stderr
    assert done.returncode == 0


def shown(job: Job) -> dict[str, str]:
    """What `scontrol show job` says."""
    out = job.box.run(["scontrol", "-o", "show", "job", str(job.id)]).stdout
    return dict(word.partition("=")[::2] for word in out.split() if "=" in word)


def test_keys_are_what_the_job_has(cluster: Sandbox) -> None:
    """Each in Slurm's own words for it; a flag that no key has, and the user's comment before our token."""
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
    found = shown(job)
    assert "USER" in (found["OverSubscribe"], found.get("Exclusive"))  # 26.05 has a field of its own for it
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
    """Each task says its number in its own file; at most two run at a time."""
    directory = workdir(cluster, "array")
    text = "name: many\nmode: single\narray: 1-3%2\ncommand: bash -c 'echo I am $SLURM_ARRAY_TASK_ID'\n"
    (directory / "job.yaml").write_text(text)
    number = cluster.run(["sh", "-c", "cd /home/alice/array && exec slurm-plugin submit job.yaml"]).stdout.strip()
    logs = [directory / f"many-{number}_{task}.out" for task in (1, 2, 3)]
    until(lambda: all(path.exists() and "I am" in path.read_text() for path in logs), 60)
    assert [f"I am {task}\n" in path.read_text() for task, path in enumerate(logs, 1)] == [True] * 3
    until(lambda: len([each for each in (directory / ".slurm_plugin").iterdir() if each.name.isdigit()]) == 3)


def test_a_flag_that_this_release_does_not_have_is_told_before_anything_is_submitted(cluster: Sandbox) -> None:
    """With the nearest; one that the help does not name is passed through where sbatch reads it."""
    directory = workdir(cluster, "flags")
    (directory / "job.yaml").write_text(
        "name: a\nmode: single\ncommand: 'true'\nsbatch: {contigous: yes, hint: nomultithread, acctg-freq: 30}\n"
    )
    done = cluster.run(["sh", "-c", "cd /home/alice/flags && exec slurm-plugin submit job.yaml"], check=False)
    assert done.returncode == 2
    problems = [line for line in done.stderr.splitlines() if line.startswith("  line")]
    assert len(problems) == 1
    assert "this machine's sbatch has no --contigous; did you mean contiguous?" in problems[0]
