"""`slurm-plugin sbatch` and the real sbatch, on a real Slurm: the same jobs and the same output."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import workdir
from tests.waiting import HANG_S

pytestmark = pytest.mark.cluster

Said = tuple[int, str, str]
OURS = "/etc/slurm/slurm_plugin/bin/slurm-plugin"
SCRIPT = """\
#!/bin/bash
#SBATCH --comment="a comment # of mine" -t 30 --mail-type=END
# SBATCH --nodes=9
#SBATCH --output=from-script-%%j.out # what follows is none
%s
echo "$@"
#SBATCH --nodes=9
"""
LINES = (
    "job.sh",
    "job.sh a 'b c' --nodes=7 -- -N8",
    "-N2 job.sh",
    "-n 4 --ntasks-per-node=2 job.sh",
    "-JX -t10 job.sh",
    "--job-name name --time=1:00:00 --time-min=5 job.sh",
    "--part=main --acco none job.sh",
    "--gres=gpu:1 -N 2 job.sh",
    "--gpus-per-node=2 job.sh",
    "-c2 --mem=100M job.sh",
    "--array=1-4%2 job.sh",
    "--dependency=singleton --kill-on-invalid-dep=yes job.sh",
    "--begin=2035-01-01T00:00:00 --deadline=2036-01-01T00:00:00 job.sh",
    "--nice=5 job.sh",
    "-x n1 job.sh",
    "-w n2 job.sh",
    "--comment 'a b' job.sh",
    "--mail-type=FAIL --mail-user=bob job.sh",
    "--export=NONE job.sh",
    "--export=A=1,PATH job.sh",
    "--exclusive=user -O -n3 job.sh",
    "--requeue -k job.sh",
    "--signal=B:USR2@60 --open-mode=append job.sh",
    "-o %x-%j.log -e err -i /etc/hostname job.sh",
    "-D /home/alice/sbatch/other elsewhere.sh",
    "-D/tmp /home/alice/sbatch/job.sh",
    "-D other ./job.sh",
    "-D other ../sbatch/job.sh",
    "--contiguous --use-min-nodes -N1-2 job.sh",
    "--wrap 'echo $HOME; hostname'",
    "--nodes=2 --wrap=hostname --",
    "-- job.sh",
    "< job.sh",
    "-N2 /dev/stdin x < job.sh",
    "--cpus-per-task=2 --hint=nomultithread --switches=1@1:00 job.sh",
)
WITH_VARIABLES = ("SBATCH_JOB_NAME=v SBATCH_TIMELIMIT=5 SBATCH_SIGNAL=USR1", "SBATCH_REQUEUE= SBATCH_OPEN_MODE=t")
CHANGES = {"JobId", "ArrayJobId", "SubmitTime", "EligibleTime", "AccrueTime", "LastSchedEval", "Priority", "StartTime"}
WITH_FEATURES = {"Comment", "AdminComment", "Command", "SubmitLine", "Requeue"}
SAID = (
    "--nonsense",
    "-N",
    "-N x job.sh",
    "--part=none job.sh",
    "none.sh",
    "--wrap=a job.sh",
    "dos.sh",
    "nul.sh",
    "bare.sh",
    "< /dev/null",
    "--version",
    "--help",
    "--usage",
    "-Q -H job.sh",
    "-H job.sh",
    "-H --parsable < job.sh",
    "-W --output=/dev/null --wrap 'exit 3'",
    "--test-only job.sh",
    "--test-only -N99 job.sh",
)


@pytest.fixture(scope="module")
def directory(sandbox: Sandbox) -> Iterator[Path]:
    """Return alice's scripts, with a link and a copy of our command named sbatch."""
    path = workdir(sandbox, "sbatch")
    for name, line in (("job.sh", ""), ("features.sh", "#PLUGIN retries=1")):
        (path / name).write_text(SCRIPT % line)
    (path / "dos.sh").write_text("#!/bin/sh\r\necho\r\n")
    (path / "nul.sh").write_text("#!/bin/sh\necho \0\n")
    (path / "bare.sh").write_text("echo\n")
    sandbox.run(["sh", "-c", f"cd sbatch && mkdir bin copy other && ln -s {OURS} bin/sbatch && cp {OURS} copy/sbatch"])
    sandbox.run(["sh", "-c", "cd sbatch && cp job.sh other/elsewhere.sh && cp features.sh other/features.sh"])
    yield path
    sandbox.run(["scancel", "--user=alice"], user="root", check=False)


def said(box: Sandbox, lines: Iterable[str], set_up: str) -> list[Said]:
    """Return exit code, stdout and stderr of each of these shell lines. One shell runs all of them after `set_up`."""
    each = "( {line} ) >said/{number}.out 2>said/{number}.err; echo $? >said/{number}.code"
    runs = [each.format(line=line, number=number) for number, line in enumerate(lines)]
    box.run(["sh", "-c", "\n".join(["cd sbatch; rm -rf said; mkdir said", set_up, *runs])], timeout=2 * HANG_S)
    at = box.home("alice") / "sbatch/said"
    words = [[(at / f"{number}.{what}").read_text() for what in ("code", "out", "err")] for number in range(len(runs))]
    return [(int(code), out, err) for code, out, err in words]


def real(box: Sandbox, lines: Iterable[str]) -> list[Said]:
    """Return the real sbatch's result."""
    return said(box, lines, "export _=")


def ours(box: Sandbox, lines: Iterable[str]) -> list[Said]:
    """Return our sbatch's result. It is the first on the PATH, with a copy of it after it."""
    return said(box, lines, 'export PATH="$HOME/sbatch/bin:$HOME/sbatch/copy:$PATH"')


def shown(box: Sandbox, answers: Iterable[Said]) -> list[dict[str, str]]:
    """Return slurmctld's record of the submitted jobs by field, without their ids."""
    numbers = []
    for answer in answers:
        assert answer[0] == 0, answer
        numbers.append(answer[1].strip())
    told = box.run(["scontrol", "show", "job"]).stdout.split("\n\n")
    box.run(["scancel", *numbers])
    text = {each.partition(" ")[0].removeprefix("JobId="): each for each in map(str.strip, told)}
    return [masked(text[number], number) for number in numbers]


def masked(text: str, number: str) -> dict[str, str]:
    """Return the fields of a job, without its id and what depends on it."""
    found = re.findall(r"(?:^|\s)([A-Z][A-Za-z:/]*)=((?:(?!\s[A-Z][A-Za-z:/]*=).)*)", text, re.DOTALL)
    logs = {name: value.replace(number, "N") for name, value in found if name in ("StdOut", "StdErr")}
    return {name: value for name, value in {**dict(found), **logs}.items() if name not in CHANGES}


@pytest.mark.full  # over 5 s
def test_the_same_jobs(cluster: Sandbox, directory: Path) -> None:
    """Field by field. With features, the fields of the features differ."""
    lines = [f"sbatch -H --parsable {line}" for line in LINES]
    lines += [f"export {variables}; sbatch -H --parsable job.sh" for variables in WITH_VARIABLES]
    theirs = shown(cluster, real(cluster, lines))
    for line, one, other in zip(lines, shown(cluster, ours(cluster, lines)), theirs, strict=True):
        assert one == other, line
        assert len(one) > 30, line
    scripts = [(line, job) for line, job in zip(lines, theirs, strict=True) if "job.sh" in line]
    features = shown(cluster, ours(cluster, [line.replace("job.sh", "features.sh") for line, _ in scripts]))
    for (line, job), with_features in zip(scripts, features, strict=True):
        differ = {name for name in job if with_features.get(name, "").replace("features.sh", "job.sh") != job[name]}
        assert differ <= WITH_FEATURES, line
        assert with_features["Requeue"] == "1", line
        if job["Command"].startswith("/home/"):
            places = [Path(os.path.normpath(each["Command"].split()[0])).parent for each in (with_features, job)]
            assert places[0] == places[1], line
        comment = "a b" if "--comment" in line else "a comment # of mine"
        assert with_features["Comment"].strip() == f"{comment} [sp1;retries=1;ib=auto]", line


def test_the_same_words(cluster: Sandbox, directory: Path) -> None:
    """Exit code, stdout and stderr to the byte, except job ids and times."""
    lines = [f"sbatch {line}" for line in SAID]
    for line, one, other in zip(SAID, ours(cluster, lines), real(cluster, lines), strict=True):
        assert plain(line, one) == plain(line, other), line
        assert any(one) or "-Q" in line


def plain(line: str, said: Said) -> Said:
    """Return the output; for a submitted job, without its id."""
    code, out, err = said
    if "job.sh" in line or "--wrap" in line:
        out, err = (re.sub(r"[0-9]+", "N", text) for text in (out, err))
    return code, out, err


def test_plain_sbatch_says_that_lines_of_ours_are_not_read(cluster: Sandbox, directory: Path) -> None:
    """Only #PLUGIN lines above the first command count. The job is submitted unchanged."""
    (directory / "below.sh").write_text("#!/bin/sh\ntrue\n#PLUGIN retries=1\n")
    told, below = real(cluster, ["sbatch -H features.sh", "sbatch -H below.sh"])
    assert (told[0], below[0], below[2]) == (0, 0, "")
    assert "this job has no features: a #PLUGIN line of its script was not read" in told[2]
    ((code, _, err),) = ours(cluster, ["sbatch -H features.sh"])
    assert (code, err) == (0, "")


def test_problems_are_told_and_nothing_is_submitted(cluster: Sandbox, directory: Path) -> None:
    """All problems, with their line numbers."""
    (directory / "wrong.sh").write_text("#!/bin/sh\n#PLUGIN retris=2\n#PLUGIN grace=soon\nhostname\n")
    ((code, out, err),) = ours(cluster, ["sbatch -H wrong.sh"])
    assert (code, out) == (2, "")
    assert "  line 2: retris: unknown key" in err
    assert "  line 3: grace: found 'soon'" in err
    assert cluster.run(["squeue", "-h", "--name=wrong.sh"]).stdout == ""
