"""`slurm-plugin sbatch` and the real sbatch: random command lines give the same output and the same jobs."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import sbatch_lines
from tests.cluster.jobs import ALICE_UID, workdir
from tests.cluster.sbatch_lines import FDS, HOWS, Line, lines
from tests.waiting import HANG_S

pytestmark = pytest.mark.cluster

Said = tuple[int, str, str]
OURS = "/etc/slurm/slurm_plugin/bin/slurm-plugin"
COUNT = 400
FILES = {
    "job.sh": "#!/bin/sh\nhostname\n",
    "options.sh": '#!/bin/bash\n#SBATCH -N1 --comment="a # b" -t 30\n#SBATCH -Jx\n\ntrue\n#SBATCH --nodes=9\n',
    "features.sh": "#!/bin/bash\n#SBATCH -N1\n#PLUGIN retries=1\ntrue\n",
    "hetjob.sh": "#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\ntrue\n",
    "python.py": "#!/usr/bin/python3\nprint()\n",
    "locked.sh": "#!/bin/sh\n",
    "other/job.sh": "#!/bin/sh\nexit 1\n",
    "bin/on-path.sh": "#!/bin/sh\n#SBATCH -n2\n",
    "bare.sh": "echo\n",
    "dos.sh": "#!/bin/sh\r\necho\r\n",
    "empty.sh": "",
    "variables": "A=1\0B=two\nlines\0a.b=3\0",
    "nodes": "n1\nn2\n",
}
# These differ for each job, or depend on the scheduler's timing.
CHANGES = {
    "JobId", "ArrayJobId", "HetJobId", "HetJobIdSet", "SubmitTime", "EligibleTime", "AccrueTime", "LastSchedEval",
    "Priority", "StartTime", "EndTime", "Reason", "Deadline", "SLUID", "Scheduler",
}  # fmt: skip
FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z:/]*)=((?:(?!\s[A-Z][A-Za-z:/]*=).)*)", re.DOTALL)
SUBMITTED = re.compile(r"^(?:Submitted batch job )?([0-9]+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def directory(sandbox: Sandbox) -> Iterator[Path]:
    """Return alice's scripts and a link to our command. Every partition queues jobs and starts none."""
    path = workdir(sandbox, "sbatch-fuzz")
    for name, text in FILES.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text)
    (path / "locked.sh").chmod(0)
    (path / "linked.sh").symlink_to("job.sh")
    (path / "bin/sbatch").symlink_to(OURS)
    shutil.copy(sbatch_lines.__file__, path)
    for each in path.rglob("*"):
        os.chown(each, ALICE_UID, ALICE_UID, follow_symlinks=False)
    sandbox.run(["scontrol", "update", "PartitionName=main", "State=DOWN"], user="root")
    yield path
    sandbox.run(["scontrol", "update", "PartitionName=main", "State=UP"], user="root")


@pytest.mark.full  # over 5 s
def test_lines_of_a_seed(cluster: Sandbox, directory: Path, seed: int) -> None:
    """Compare exit code, stdout and stderr, except job ids; and the job, its script and its environment.

    `pytest tests/cluster/test_sbatch_fuzz.py --seed N` generates other lines.
    """
    wrong, accepted = compared(cluster, directory, lines(seed, COUNT))
    assert not wrong, "\n".join([f"--seed {seed}: {len(wrong)} of {COUNT} lines differ", *wrong[:10]])
    assert COUNT / 8 < accepted < COUNT


@pytest.mark.full  # over 5 s
def test_scripts_and_variables_by_a_descriptor(cluster: Sandbox, directory: Path) -> None:
    """Any descriptor, of a file and of a pipe. sbatch opens a file again, and reads it from the beginning."""
    every = [Line((f"/dev/fd/{fd}", "a"), descriptor=(fd, f"{how}job.sh")) for fd in FDS for how in HOWS]
    every += [Line((f"--export-file={fd}", "job.sh"), descriptor=(fd, f"{how}variables")) for fd in FDS for how in HOWS]
    wrong, accepted = compared(cluster, directory, every)
    assert not wrong, "\n".join(wrong)
    assert accepted == len(every)


@pytest.mark.full  # over 5 s
def test_scripts_with_features_by_a_descriptor(cluster: Sandbox, directory: Path) -> None:
    """The whole script is below our lines. Variables from a descriptor are the same as without features."""
    fds = [Line((f"/dev/fd/{fd}", "a"), descriptor=(fd, f"{how}features.sh")) for fd in FDS for how in HOWS]
    alone = Line(("--export-file=9", "features.sh"), descriptor=(9, "variables"))
    for line, (theirs, ours) in zip([*fds, alone], said(cluster, directory, [*fds, alone]), strict=True):
        assert (theirs[0], ours[0], ours[2]) == (0, 0, ""), line
        numbers = [int(each[1].split()[-1]) for each in (theirs, ours)]
        assert FILES["features.sh"].encode() in kept(cluster, numbers[1], "script")[100:], line
        told = [kept(cluster, number, "environment") for number in numbers]
        assert {*told[1][4:].split(b"\0")} ^ {*told[0][4:].split(b"\0")} <= {b"SLURM_OPEN_MODE=a"}, line


def compared(box: Sandbox, directory: Path, every: list[Line]) -> tuple[list[str], int]:
    """Return the lines that differ, with the differences; and how many are equal and accepted."""
    pairs = said(box, directory, every)
    told = shown(box, directory)
    wrong, accepted = [], 0
    for line, (theirs, ours) in zip(every, pairs, strict=True):
        numbers = [SUBMITTED.search(each[1]) for each in (theirs, ours)]
        one, other = (
            (each[0], unnumbered(each[1], number[1]) if number else each[1], without_start(each[2]))
            for each, number in zip((theirs, ours), numbers, strict=True)
        )
        if one != other:
            wrong.append(f"{line}\n  sbatch: {one}\n  ours:   {other}")
        elif numbers[0] and numbers[1]:
            accepted += 1
            jobs = [of_a_job(box, told, int(number[1])) for number in numbers if number]
            differ = {name: [each.get(name) for each in jobs] for name in {*jobs[0], *jobs[1]}}
            differ = {name: both for name, both in differ.items() if both[0] != both[1]}
            if differ or len(jobs[0]) < 30:
                wrong.append(f"{line}\n  {differ or 'not found'}")
    return wrong, accepted


def said(box: Sandbox, directory: Path, every: list[Line]) -> list[tuple[Said, Said]]:
    """Return the results of the real sbatch and of ours for each line."""
    at = f"/home/alice/{directory.name}"
    path = f"{at}/bin:/usr/local/bin:/usr/bin:/bin"
    words = ["python3", "-IS", "sbatch_lines.py", "/usr/bin/sbatch", f"{at}/bin/sbatch"]
    program = f'cd {at} && PATH={path} exec "$@"'
    done = box.run(["sh", "-c", program, "sh", *words], input=json.dumps(every), timeout=2 * HANG_S)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def shown(box: Sandbox, directory: Path) -> dict[int, str]:
    """Return slurmctld's record of every job. A value may not be UTF-8."""
    box.run(["sh", "-c", f"scontrol show job >/home/alice/{directory.name}/shown"], user="root")
    told = (directory / "shown").read_text(encoding="utf-8", errors="surrogateescape").split("\n\n")
    found = (re.match(r"JobId=([0-9]+)", each.strip()) for each in told)
    return {int(match[1]): match.string for match in found if match}


def of_a_job(box: Sandbox, told: dict[int, str], number: int) -> dict[str, object]:
    """Return the fields of a job and of its further components, its script and its environment, without its id."""
    found: dict[str, object] = {}
    for part in range(5):
        text = told.get(number + part, "")
        if part and f"HetJobId={number} " not in text:
            break
        for name, value in FIELD.findall(text):
            if name not in CHANGES:
                found[f"{part} {name}"] = unnumbered(value, number, number + part) if name.startswith("Std") else value
        # Slurm prints this for the second job of a name, not for the first.
        waits = str(found.get(f"{part} Dependency"))
        found[f"{part} Dependency"] = waits.replace("singleton(unfulfilled)", "(null)")
    return {**found, **{name: kept(box, number, name) for name in ("script", "environment")}}


def kept(box: Sandbox, number: int, name: str) -> bytes:
    """Return the script or the environment of a job, as slurmctld has it."""
    return (box.directory / f"state/hash.{number % 10}/job.{number}/{name}").read_bytes()


def without_start(text: str) -> str:
    """Return the output of --test-only, without id and time."""
    return re.sub(r"Job [0-9]+ to start at \S+", "Job N to start at T", text)


def unnumbered(text: str, *numbers: str | int) -> str:
    """Return a text without job ids."""
    return re.sub(rf"(?<![0-9])({'|'.join(map(str, numbers))})(?![0-9])", "N", text)
