"""Hostile texts in every key that takes one, through a real sbatch: what runs has the literal text, or nothing runs."""

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.sandbox import Sandbox
from slurm_plugin.spec import load
from tests.cluster.jobs import ALICE_UID, Job, workdir
from tests.hostile_specs import FILES, TEXTS, spec
from tests.waiting import until

pytestmark = pytest.mark.cluster

PROGRAM = """\
import json, os, sys
found = {"argv": sys.argv[2:], "cwd": os.getcwd(), "user": os.getuid()}
found |= {"env": os.environ.get("HOSTILE"), "checkpoint": os.environ["SLURM_PLUGIN_CHECKPOINT"]}
json.dump(found, open(sys.argv[1] + ".new", "w"))
os.rename(sys.argv[1] + ".new", sys.argv[1])
"""
HERE = "/home/alice/hostile"
LONGEST_NAME = 255  # bytes of a file's name


def command(number: int, text: str) -> str:
    """Return a program with the text as its argument."""
    return f"python3 {HERE}/program.py {HERE}/received/{number} {shlex.quote(text)}"


def accepted(part: dict[str, Any]) -> bool:
    """Return whether a spec may have this part."""
    try:
        load(spec(part), "job.yaml")
    except UsageError:
        return False
    return True


def is_name(text: str) -> bool:
    """Return whether a file can have this name, on this machine and in a pattern of Slurm's."""
    return text not in ("", ".", "..") and "/" not in text and "%" not in text and len(text.encode()) <= LONGEST_NAME


def parts(number: int, text: str) -> dict[str, dict[str, Any]]:
    """Return the parts of a spec that contain the text."""
    files = (
        {key: {key: text} for key in ("workdir", "output", "checkpoint")} if is_name(text.replace("\ud800", "")) else {}
    )
    flags = {"comment": {"sbatch": {"comment": text}}} if text.strip() == text else {}
    every = {
        **files,
        **flags,
        "command": {"command": command(number, text)},
        "env": {"env": {"HOSTILE": text}},
        "account": {"account": text},
        "name": {"name": text},
    }
    return {key: part for key, part in every.items() if accepted(part)}


def shown(job: Job) -> dict[str, str]:
    """Return the lines of `scontrol show job` by their first name."""
    lines = job.box.run(["scontrol", "show", "job", str(job.id)]).stdout.splitlines()
    return dict(line.lstrip().partition("=")[::2] for line in lines if "=" in line)


def submitted(box: Sandbox, directory: Path, number: int, given: dict[str, dict[str, Any]]) -> Job:
    """Submit a job with all of these parts in a new directory."""
    own = directory / str(number)
    fields: dict[str, Any] = {"mode": "single", "output": "job.out", "command": command(number, "harmless")}
    for part in given.values():
        fields |= part
    own.mkdir()
    if "workdir" in given:
        (own / fields["workdir"]).mkdir()
        os.chown(own / fields["workdir"], ALICE_UID, ALICE_UID)
    os.chown(own, ALICE_UID, ALICE_UID)
    (own / "job.json").write_bytes(spec(fields))
    said = box.run(["sh", "-c", f"cd {HERE}/{number} && exec slurm-plugin submit --json job.json"])
    return Job(box, json.loads(said.stdout)["job"], own / fields.get("workdir", ""))


@pytest.mark.full  # 20 s
def test_every_text_runs_as_it_is_or_not_at_all(cluster: Sandbox) -> None:
    """As a directory, log, checkpoint, comment, variable and argument: each text wherever it is accepted."""
    directory = workdir(cluster, "hostile")
    (directory / "program.py").write_text(PROGRAM)
    (directory / "received").mkdir()
    os.chown(directory / "received", ALICE_UID, ALICE_UID)
    every = {what: parts(number, text) for number, (what, text) in enumerate(TEXTS.items())}
    jobs = {
        what: submitted(cluster, directory, number, given)
        for number, (what, given) in enumerate(every.items())
        if given
    }
    for number, (what, text) in enumerate(TEXTS.items()):
        if what not in jobs:
            continue
        job, given = jobs[what], every[what]
        assert job.end() == "COMPLETED", (what, job.log)
        until(lambda number=number: (directory / "received" / str(number)).exists())
        found = json.loads((directory / "received" / str(number)).read_text())
        inside = f"{HERE}/{number}" + (f"/{text}" if "workdir" in given else "")
        log = text if "output" in given else "job.out"
        assert found == {
            "argv": [text if "command" in given else "harmless"],
            "env": text if "env" in given else None,
            "cwd": inside,
            "checkpoint": f"{inside}/{text}" if "checkpoint" in given else "",
            "user": ALICE_UID,
        }, what
        lines = shown(job)
        assert lines["WorkDir"] == inside, what
        assert lines["StdOut"].rstrip() == f"{inside}/{log}".rstrip(), what  # 26.05 shows no blanks at its end
        assert lines["Comment"].rstrip() == f"{f'{text} ' if 'comment' in given else ''}[sp1;retries=0;ib=auto]", what
        assert (job.directory / log).is_file(), what
    assert not list(directory.rglob("executed"))
    assert len(jobs) > 30
    for key in ("workdir", "output", "checkpoint", "comment", "command", "env"):
        assert sum(key in given for given in every.values()) > 15, key


def known(box: Sandbox) -> set[str]:
    """Return the ids of all jobs that Slurm still knows."""
    return set(box.run(["squeue", "-h", "-t", "all", "-o", "%A"]).stdout.split())


def test_no_file_that_is_no_spec_is_submitted(cluster: Sandbox) -> None:
    """Exit code 2, and no job."""
    directory = workdir(cluster, "files")
    before = known(cluster)
    for number, data in enumerate(FILES.values()):
        (directory / str(number)).write_bytes(data)
        done = cluster.run(["slurm-plugin", "submit", f"files/{number}"], check=False)
        assert done.returncode == 2, (number, done.stderr[:500])
    assert known(cluster) <= before
