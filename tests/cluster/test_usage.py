"""Utilisation and progress of jobs on a real Slurm, with a tool that says what nvidia-smi says."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.records import progress_file, usage
from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job, submit, workdir
from tests.cluster.sites import SetChecks, changing
from tests.waiting import until

pytestmark = pytest.mark.cluster

# What nvidia-smi prints of four GPUs. If there is a file `hang` beside it, it hangs when it is asked for utilisation.
TOOL = """#!/bin/sh
case "$*" in
*utilization*) values="25, 1024, 81920, 310.50"; [ -e "${0%/*}/hang" ] && sleep 30000 ;;
*) values=40 ;;
esac
for bus in 1A 1B 1C 1D; do echo "00000000:$bus:00.0, $values"; done
"""
# Print a bar of tqdm until there is a file `done`.
BARS = """bash -c 'for ((n = 1; ; n++)); do printf "\\r %d%%|#   | %d/9000 [00:10<01:20,  4.00it/s]" 1 $n; \
[ -e done ] && exit; sleep 0.2; done'"""


@pytest.fixture(scope="module")
def tool(sandbox: Sandbox) -> Path:
    """Make the tool, in a directory that all nodes see."""
    path = workdir(sandbox, "usage-tool") / "nvidia-smi"
    path.write_text(TOOL)
    path.chmod(0o755)
    return path


@pytest.fixture
def set_checks(cluster: Sandbox, tool: Path, tmp_path: Path) -> Iterator[SetChecks]:
    """Let the site have the tool."""
    with changing(cluster, tmp_path) as change:
        change({"gpu-check": {"tool": f"/home/alice/usage-tool/{tool.name}"}})
        yield change


def records(job: Job, name: str) -> Path:
    """Return the path of a file in the job's directory."""
    return job.directory / ".slurm_plugin" / str(job.id) / name


def has_psutil(box: Sandbox) -> bool:
    """Return whether the Python of the site, which the first line of its command names, has psutil."""
    command = box.run(["head", "-n1", "/etc/slurm/slurm_plugin/bin/slurm-plugin"]).stdout
    return box.run([command.split()[-2], "-I", "-c", "import psutil"], check=False).returncode == 0


def finish(job: Job) -> None:
    """Let the program end."""
    (job.directory / "done").touch()
    assert job.end() == "COMPLETED", job.log


@pytest.mark.full  # over 5 s
def test_every_node_of_a_job_with_guards(cluster: Sandbox, set_checks: SetChecks) -> None:
    """Each sends its samples to the first one, which writes one file; the bar in the log is the progress."""
    job = submit(cluster, "usage-guards", command=BARS, retries=1, mode="script")
    path = records(job, usage.FILE)
    job.until(lambda: {each.worker for each in usage.read(path)} == {0, 1}, "samples of both nodes")
    job.until(lambda: progress_file.last(records(job, progress_file.FILE)), "a step")
    finish(job)
    samples = usage.read(path)
    assert {each.node for each in samples} == job.nodes
    for each in samples:
        assert [(card.index, card.used, card.total, card.watts) for card in each.accelerators] == [
            (number, 0.25, 80 << 30, 310.5) for number in range(4)
        ]
        assert (each.cpu is not None) == (each.memory is not None) == has_psutil(cluster)
    points = progress_file.read(records(job, progress_file.FILE))
    assert {(each.of, each.step_s) for each in points} == {(9000, 0.25)}
    assert [each.step for each in points] == sorted({each.step for each in points})
    assert f"| {points[-1].step}/9000 " in job.log.rsplit("\r", 1)[-1]  # the last line was read


@pytest.mark.full  # over 5 s
def test_a_job_without_guards(cluster: Sandbox, set_checks: SetChecks) -> None:
    """The first node measures itself, only the job's own GPUs, and finds the steps by the user's own expression."""
    command = "bash -c 'echo epoch=3 it=7 of 70; until [ -e done ]; do sleep 0.2; done'"
    own: dict[str, Any] = {"nodes": 1, "accelerators": {"gpu": 2}, "progress": r"it=(\d+) of (?P<of>\d+)"}
    job = submit(cluster, "usage-alone", command=command, mode="single", **own)
    job.until(lambda: usage.read(records(job, usage.FILE)), "a sample")
    job.until(lambda: progress_file.last(records(job, progress_file.FILE)), "a step")
    finish(job)
    (first, *_) = usage.read(records(job, usage.FILE))
    assert first.worker == 0
    assert len(first.accelerators) == 2
    last = progress_file.last(records(job, progress_file.FILE))
    assert last is not None
    assert last.text == "7/70"


@pytest.mark.full  # over 5 s
def test_a_tool_that_hangs(cluster: Sandbox, tool: Path, set_checks: SetChecks) -> None:
    """Costs the samples, and nothing else: the job starts, runs and ends, and no process of it is left."""
    hang = tool.parent / "hang"
    hang.touch()
    try:
        job = submit(cluster, "usage-hangs", command=BARS, retries=1, mode="script")
        ps = ["sh", "-c", "ps -eo args | grep '[s]leep 30000' || :"]
        until(lambda: cluster.run(ps, node=sorted(job.nodes)[1]).stdout if job.state == "RUNNING" else "")
        job.until(lambda: progress_file.last(records(job, progress_file.FILE)), "a step")
        finish(job)
        assert usage.read(records(job, usage.FILE)) == []
        for node in job.nodes:
            until(lambda node=node: not cluster.run(ps, node=node).stdout)  # type: ignore[misc]
    finally:
        hang.unlink()


def test_a_plain_script(cluster: Sandbox, set_checks: SetChecks) -> None:
    """A batch script with `#PLUGIN progress` has both files, and not a byte more in its output."""
    directory = workdir(cluster, "usage-plain")
    script = "#!/bin/sh\n#SBATCH --output=job.out --gres=gpu:1\n#PLUGIN progress='step (\\d+)'\n"
    (directory / "job.sh").write_text(f"{script}echo step 12\nuntil [ -e done ]; do sleep 0.2; done\n")
    said = cluster.run(["sh", "-c", "cd ~/usage-plain && slurm-plugin sbatch --parsable job.sh"]).stdout
    job = Job(cluster, int(said), directory)
    job.until(lambda: usage.read(records(job, usage.FILE)), "a sample")
    job.until(lambda: progress_file.last(records(job, progress_file.FILE)), "a step")
    finish(job)
    assert job.log == "step 12\n"
    assert json.loads(records(job, progress_file.FILE).read_text().splitlines()[-1])["step"] == 12
