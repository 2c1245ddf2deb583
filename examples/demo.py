"""The program of ./demo: a real training on 4 of 5 hosts loses a GPU, and finishes by itself on the healthy hosts.

It uses only what a user has: `slurm-plugin submit`, the job's log, `sinfo`. The sandbox makes the fault; slurm_plugin
finds it, drains the node and restarts the job.
"""

import argparse
import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slurm_plugin.sandbox.sandbox import Sandbox

DIRECTORY = Path("/var/lib/slurm_plugin/demo")
EXAMPLES = Path(__file__).resolve().parent
BREAK_AT_STEP, VICTIM, DEADLINE_S = 23, "n2", 120.0
STEP = re.compile(r"train: step (\d+) loss (\S+)")
BEGIN = re.compile(r"train: attempt (\d+): from step (\d+)")
ATTEMPT = re.compile(r"\[slurm_plugin\] attempt \d+ of job (\d+) ")
PASSED = re.compile(r"\[slurm_plugin\] (.+): ok on (\S+)$")


@dataclass
class Training:
    """The losses and attempts in the log, with times."""

    losses: dict[int, str] = field(default_factory=dict)
    begins: list[tuple[float, int]] = field(default_factory=list)  # when, from which step
    step_at: list[tuple[float, int]] = field(default_factory=list)

    def read(self, line: str, now: float) -> None:
        """Parse one line of the log."""
        if found := STEP.match(line):
            self.losses[int(found[1])] = found[2]
            self.step_at.append((now, int(found[1])))
        elif found := BEGIN.match(line):
            self.begins.append((now, int(found[2])))


class Screen:
    """Prints lines with the seconds since the start; passed checks share a line, and training steps are thinned out."""

    def __init__(self) -> None:
        self.start, self.passed = time.monotonic(), {}

    def say(self, text: str) -> None:
        """Print one line."""
        print(f"{time.monotonic() - self.start:6.1f}s  {text}", flush=True)

    def log(self, line: str) -> None:
        """Print one line of the job's log."""
        if found := PASSED.match(line):
            self.passed.setdefault(found[2], []).append(found[1])
            return
        for nodes, keywords in self.passed.items():
            self.say(f"  | passed on {nodes}: {', '.join(keywords)}")
        self.passed.clear()
        found = STEP.match(line)
        if line.startswith(("[slurm_plugin]", "train:")) and not (found and int(found[1]) % 10):
            self.say(f"  | {line}")


def follow(log: Path, ended: "Ended") -> Iterator[str]:
    """Yield the lines of the log, until the job has ended and all are read."""
    text, deadline = "", time.monotonic() + DEADLINE_S
    position = 0
    while True:
        over = ended()
        if log.exists():
            with log.open(encoding="utf-8", errors="replace") as file:
                file.seek(position)
                text += file.read()
                position = file.tell()
        *lines, text = text.split("\n")
        yield from lines
        if over:
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"the job did not end within {DEADLINE_S:.0f} s; see its log: {log}")
        time.sleep(0.05)


class Ended:
    """A `slurm-plugin submit --wait`, and whether it has ended."""

    def __init__(self, sandbox: Sandbox, spec: str) -> None:
        self.process = sandbox.popen(["slurm-plugin", "submit", "--wait", spec], stdout=-3, stderr=-3)

    def __call__(self) -> bool:
        return self.process.poll() is not None


def train(sandbox: Sandbox, screen: Screen, name: str, *, fault: bool) -> tuple[Training, float]:
    """Run one job to its end. Return its training, and the time of the fault (0.0: none)."""
    home, training, broken_at = sandbox.home("alice"), Training(), 0.0
    ended = Ended(sandbox, f"{name}.yaml")
    log = home / f"{name}.out"
    for line in follow(log, ended):
        training.read(line, time.monotonic())
        if fault:
            screen.log(line)
        if fault and not broken_at and BREAK_AT_STEP in training.losses:
            sandbox.break_node(VICTIM, "gpu-missing")
            broken_at = time.monotonic()
            screen.say(f"FAULT: {VICTIM} loses a GPU (slurm-plugin sandbox break {VICTIM} gpu-missing)")
    if ended.process.returncode:
        raise SystemExit(f"job {name} failed; its log: {log}\n{log.read_text() if log.exists() else 'no log'}")
    return training, broken_at


def show(screen: Screen, sandbox: Sandbox, page: Path | None) -> None:
    """Run both trainings and print the summary. Raise SystemExit if a result is wrong.

    `page`: where the report of the second training goes; None: nowhere.
    """
    home = sandbox.home("alice")
    shutil.copy(EXAMPLES / "train.py", home)
    spec = (EXAMPLES / "demo.yaml").read_text(encoding="utf-8")
    (home / "demo.yaml").write_text(spec + "output: demo.out\n", encoding="utf-8")
    quiet = spec.replace("name: demo", "name: quiet").replace(
        "checkpoint: checkpoints", "checkpoint: quiet-checkpoints"
    )
    (home / "quiet.yaml").write_text(quiet + "output: quiet.out\n", encoding="utf-8")

    screen.say("first, for comparison, the same training undisturbed ...")
    reference, _ = train(sandbox, screen, "quiet", fault=False)
    last = max(reference.losses)
    screen.say(f"undisturbed: loss {reference.losses[1]} -> {reference.losses[last]} in {last} steps")
    screen.say("now with a fault: slurm-plugin submit --wait demo.yaml")
    training, broken_at = train(sandbox, screen, "demo", fault=True)
    drained = sandbox.run(["sinfo", "--noheader", "--list-reasons", "--format=%N: %E"]).stdout.strip()
    screen.say(f"sinfo -R says: {drained}")

    reached = max(step for when, step in training.step_at if when < training.begins[-1][0])
    again_at, resumed = training.begins[-1]
    if page:
        job = next(found[1] for line in (home / "demo.out").read_text().splitlines() if (found := ATTEMPT.search(line)))
        page.write_text(sandbox.run(["slurm-plugin", "report", job, "-o", "-"]).stdout, encoding="utf-8")
        screen.say(f"slurm-plugin report {job}: {page}")
    print("\nSummary")
    print(
        f"  from the fault to training again   {again_at - broken_at:.1f} s (plain Slurm waits 121 s after a requeue)"
    )
    print(f"  lost                               {reached - resumed} steps: {reached} done, resumed from {resumed}")
    print(f"  drained                            {drained}")
    print(f"  final loss                         {training.losses[last]}")
    print(f"  final loss of the undisturbed run  {reference.losses[last]}")
    if len(training.begins) != 2 or not drained.startswith(f"{VICTIM}: slurm_plugin: gpu-check"):
        raise SystemExit("the demo did not go as it should: the restart or the drain is missing")
    if training.losses[last] != reference.losses[last]:
        raise SystemExit("the demo did not go as it should: the losses differ")


def main() -> int:
    """Start the sandbox, run the demo, clean up."""
    parser = argparse.ArgumentParser(prog="./demo", description="A training on a real Slurm loses a GPU and goes on.")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the page of `slurm-plugin report` there")
    page = parser.parse_args().report
    screen, sandbox = Screen(), Sandbox(DIRECTORY)
    sandbox.down()  # of a demo that was interrupted
    try:
        sandbox.up(nodes=5, gpus=2)
        screen.say("a real Slurm of 5 hosts is up: slurmctld, munged, 5 x slurmd, each in namespaces of its own")
        show(screen, sandbox, page)
    finally:
        sandbox.down()
    print("  nothing is left behind: processes, namespaces, links, mounts are gone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
