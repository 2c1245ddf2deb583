"""Jobs of slurm_plugin in tests: written as specs, submitted by alice, watched with users' commands."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from hostfiles.nodelist import expand
from slurm_plugin.records import grant
from slurm_plugin.records.grant import Grant
from slurm_plugin.sandbox import Sandbox
from tests.waiting import HANG_S, until

ALICE_UID = 20001
# This machine has few CPUs, and Debian's configuration of Open MPI 6 names `lo` as the only interface.
OPEN_MPI = {"OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_tcp_if_include": "eth0"}
OWN_WAIT_S = 121.0  # from a requeue until Slurm itself starts the job
HARMLESS = ": ok on ", ": ok: ", ": skipped: "
# Run until the last GPU of the node is missing, then fail, as a program that has lost its GPU. If there is a file
# done.ATTEMPT, end with 0.
USE_GPU = """bash -c 'echo "$(hostname) runs $SLURM_PLUGIN_ATTEMPT"; while [ -c /dev/fakegpu3 ]; do \
[ -e done.$SLURM_PLUGIN_ATTEMPT ] && exit 0; sleep 0.1; done; exit 5'"""


@dataclass(frozen=True, slots=True)
class Job:
    """A submitted job."""

    box: Sandbox
    id: int
    directory: Path  # its workdir, on the host

    @property
    def log(self) -> str:
        """The job's log so far."""
        file = self.directory / "job.out"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def lines(self, node: str = "") -> list[str]:
        """Return slurm_plugin's lines in the log, of one node if given. Leave out passed and skipped checks."""
        ours = [line for line in self.log.splitlines() if line.startswith(f"[slurm_plugin] {node}")]
        return [line for line in ours if not any(word in line for word in HARMLESS)]

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """The recorded attempts of the job."""
        text = (self.directory / ".slurm_plugin" / str(self.id) / "attempts.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def diagnosis(self, attempt: int = 0) -> tuple[str, dict[str, str]]:
        """What `slurm-plugin diagnose` says of an attempt: the class, and the verdict on each node where it began."""
        words = ["slurm-plugin", "diagnose", str(self.id), "--attempt", str(attempt), "--json"]
        found = json.loads(self.box.run(words, check=False).stdout)
        return found["class"], found["nodes"]

    def show(self, *fields: str) -> list[str]:
        """Return squeue's fields (letters of -o) of the job, in any state."""
        form = "\t".join(f"%{field}" for field in fields)
        out = self.box.run(["squeue", "-h", "-t", "all", "-j", str(self.id), "-o", f"%i\t{form}"]).stdout
        rows = [line for line in out.splitlines() if line.startswith(f"{self.id}+0\t")]  # of a heterogeneous job
        return (rows[0] if rows else out[:-1]).split("\t")[1:]

    @property
    def state(self) -> str:
        """Slurm's state of the job."""
        return self.show("T")[0]

    @property
    def grant(self) -> Grant:
        """The grant of the job."""
        out = self.box.run(["scontrol", "show", "job", str(self.id)]).stdout
        found = [line for line in out.splitlines() if line.strip().startswith("AdminComment=")]
        given = grant.parse(found[0]) if found else None
        assert given is not None, out
        return given

    @property
    def fields(self) -> dict[str, str]:
        """What scontrol shows of the job. A value with blanks has only its first word."""
        words = self.box.run(["scontrol", "-o", "show", "job", str(self.id)]).stdout.split()
        return dict(reversed([word.split("=", 1) for word in words if "=" in word]))  # of several, the first

    @property
    def exit_code(self) -> str:
        """Slurm's `code:signal`."""
        return self.fields["ExitCode"]

    @property
    def wait_s(self) -> float:
        """The seconds from the job's submission, or its last requeue, until Slurm may start it."""
        submitted, eligible = (datetime.fromisoformat(self.fields[name]) for name in ("SubmitTime", "EligibleTime"))
        return (eligible - submitted).total_seconds()

    def until(self, what: Callable[[], object], why: str, seconds: float = HANG_S) -> None:
        """Wait for an event. If it does not happen, fail with the job's state and log."""
        show = ["sh", "-c", f"squeue -h -t all -j {self.id} -o '%T %r %N'; sinfo -h -N -o '%N %T %E'"]
        until(what, lambda: f"{why}; {self.id} is {self.box.run(show, check=False).stdout}{self.log}", seconds)

    def until_state(self, *states: str) -> str:
        """Wait for one of these states, and return it."""
        self.until(lambda: self.state in states, " or ".join(states))
        return self.state

    @property
    def nodes(self) -> set[str]:
        """The nodes on which the job runs, or ran last."""
        return set(expand(self.show("N")[0]))

    def end(self) -> str:
        """Wait for the job's end, and return its state."""
        return self.until_state("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "DEADLINE")


def as_json(box: Sandbox, *words: object, user: str = "alice") -> Any:
    """Return what a command of slurm-plugin prints with --json."""
    return json.loads(box.run(["slurm-plugin", *map(str, words), "--json"], user=user).stdout)


def printed(job: Job) -> list[str]:
    """Return the lines that the program itself printed, sorted."""
    return sorted(line for line in job.log.splitlines() if not line.startswith("[slurm_plugin]"))


def submit(box: Sandbox, name: str, *, made: bool = False, **spec: Any) -> Job:
    """Submit alice's job, with a new working directory unless `made`. Leave out keys with the value None."""
    directory = written(box, name, made=made, **spec)
    said = box.run(["sh", "-c", f"cd /home/alice/{name} && exec slurm-plugin submit --json job.yaml"])
    return Job(box, json.loads(said.stdout)["job"], directory)


def written(box: Sandbox, name: str, *, made: bool = False, **spec: Any) -> Path:
    """Write the spec of a job as `submit` does. Return its working directory."""
    directory = box.home("alice") / name if made else workdir(box, name)
    fields = {"name": name, "mode": "pytorch", "nodes": 2, "accelerators": {"gpu": 4}, "output": "job.out", **spec}
    fields = {key: value for key, value in fields.items() if value is not None}
    (directory / "job.yaml").write_text(yaml.safe_dump(fields), encoding="utf-8")
    return directory


def first_run(box: Sandbox, name: str, **spec: Any) -> Job:
    """Submit a job of two nodes, and wait until its program (USE_GPU) runs on both."""
    job = submit(box, name, **{"command": USE_GPU, "retries": 3, **spec})
    until_run(job, 0)
    return job


def until_run(job: Job, attempt: int, nodes: int = 2) -> None:
    """Wait until USE_GPU runs on this number of nodes in this attempt."""
    job.until(lambda: job.log.count(f" runs {attempt}\n") == nodes, f"run {attempt} on {nodes} nodes")


def workdir(box: Sandbox, name: str) -> Path:
    """Make a directory of alice's that no other test uses. Move away that of an earlier try of this test."""
    directory = box.home("alice") / name
    if directory.exists():
        directory.rename(f"{directory}.{time.time_ns()}")
    directory.mkdir()
    os.chown(directory, ALICE_UID, ALICE_UID)
    return directory


def reasons(box: Sandbox) -> dict[str, str]:
    """Return the nodes with reasons, and the reasons."""
    out = box.run(["sinfo", "-h", "-R", "-o", "%N\t%E"]).stdout
    return {node: text for line in out.splitlines() for nodes, text in [line.split("\t", 1)] for node in expand(nodes)}
