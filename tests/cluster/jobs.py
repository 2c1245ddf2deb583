"""Jobs of ours in a test: written as specs, submitted by alice, watched through the door that users have."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hostfiles.nodelist import expand
from slurm_plugin import grant
from slurm_plugin.grant import Grant
from slurm_plugin.sandbox import Sandbox

ALICE_UID = 20001
# This machine has few CPUs, and Debian's configuration of Open MPI 6 names `lo` as the only interface.
OPEN_MPI = {"OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_tcp_if_include": "eth0"}
DEADLINE_S = 60.0
HARMLESS = ": ok: ", ": skipped: "


@dataclass(frozen=True, slots=True)
class Job:
    """A submitted job."""

    box: Sandbox
    id: int
    directory: Path  # its workdir, on the host

    @property
    def log(self) -> str:
        """The job's log as far as it is written."""
        file = self.directory / "job.out"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def lines(self, node: str = "") -> list[str]:
        """Our lines in the log that are not plain passes; those of one node where it is named."""
        ours = [line for line in self.log.splitlines() if line.startswith(f"[slurm_plugin] {node}")]
        return [line for line in ours if not any(word in line for word in HARMLESS)]

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """The job's history."""
        text = (self.directory / ".slurm_plugin" / str(self.id) / "attempts.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def show(self, *fields: str) -> list[str]:
        """squeue's fields (-o letters) of the job, in any state."""
        form = "\t".join(f"%{field}" for field in fields)
        out = self.box.run(["squeue", "-h", "-t", "all", "-j", str(self.id), "-o", f"%i\t{form}"]).stdout
        rows = [line for line in out.splitlines() if line.startswith(f"{self.id}+0\t")]  # of a heterogeneous job
        return (rows[0] if rows else out[:-1]).split("\t")[1:]

    @property
    def state(self) -> str:
        """Slurm's word for its state."""
        return self.show("T")[0]

    @property
    def grant(self) -> Grant:
        """What it was granted and has used."""
        out = self.box.run(["scontrol", "show", "job", str(self.id)]).stdout
        found = [line for line in out.splitlines() if line.strip().startswith("AdminComment=")]
        given = grant.parse(found[0]) if found else None
        assert given is not None, out
        return given

    @property
    def exit_code(self) -> str:
        """Slurm's `code:signal`."""
        out = self.box.run(["scontrol", "-o", "show", "job", str(self.id)]).stdout
        return next(word.removeprefix("ExitCode=") for word in out.split() if word.startswith("ExitCode="))

    def until(self, what: Callable[[], bool], why: str, seconds: float = DEADLINE_S) -> None:
        """Wait for something; fail with the log where it does not come."""
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, f"{why} did not come; the job is {self.show('T', 'r', 'N')}\n{self.log}"
            time.sleep(0.05)

    def until_state(self, *states: str) -> str:
        """Wait for one of these states and return it."""
        self.until(lambda: self.state in states, " or ".join(states))
        return self.state

    @property
    def nodes(self) -> set[str]:
        """The nodes it runs or last ran on."""
        return set(expand(self.show("N")[0]))

    def end(self) -> str:
        """Wait for the job's end and return its state."""
        return self.until_state("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "DEADLINE")


def submit(box: Sandbox, name: str, *, made: bool = False, **spec: Any) -> Job:
    """Submit a job of alice's with a workdir of its own, which may have been made before; a key of None is left out."""
    directory = box.home("alice") / name if made else workdir(box, name)
    fields = {"name": name, "mode": "pytorch", "nodes": 2, "accelerators": {"gpu": 4}, "output": "job.out", **spec}
    fields = {key: value for key, value in fields.items() if value is not None}
    (directory / "job.yaml").write_text(yaml.safe_dump(fields), encoding="utf-8")
    inside = f"/home/alice/{name}"
    said = box.run(["sh", "-c", f"cd {inside} && exec slurm-plugin submit --json job.yaml"])
    return Job(box, json.loads(said.stdout)["job"], directory)


def workdir(box: Sandbox, name: str) -> Path:
    """A directory of alice's that no test before used."""
    directory = box.home("alice") / name
    directory.mkdir()
    os.chown(directory, ALICE_UID, ALICE_UID)
    return directory


def reasons(box: Sandbox) -> dict[str, str]:
    """The nodes that are drained, with their reasons."""
    out = box.run(["sinfo", "-h", "-R", "-o", "%N\t%E"]).stdout
    return {node: text for line in out.splitlines() for nodes, text in [line.split("\t", 1)] for node in expand(nodes)}
