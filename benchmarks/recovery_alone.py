"""Measure the restarts of a user where no admin has installed slurm_plugin, for benchmarks/recovery.py."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.cluster import sandbox
from benchmarks.recovery_deaths import dead_node
from benchmarks.recovery_jobs import BEGIN, END, UNTIL_DONE
from benchmarks.recovery_runs import GPUS, JOB_NODES, NODES, Run, failed_program, submitted
from slurm_plugin.sandbox import Sandbox

FIRST = "n1"
FAILS_ONCE = f"bash -c '{BEGIN}; [ $SLURM_PLUGIN_ATTEMPT != 0 ] || {{ {END}; exit 5; }}; {UNTIL_DONE} sleep 0.05; done'"
# Of the fastest run, on a machine that does nothing else. Slurm's own delay is 121 s.
LIMITS_S: Mapping[str, float] = {
    "a lost GPU, a spare": 4.0,
    "a lost GPU, a requeue by the job's owner": 8.0,
    "the same, with submit --wait": 8.0,
    "a program that failed, `unconditional`": 4.0,
    "a dead node, a spare": 90.0,  # node_timeout is 60 s
    "a dead node, requeued": 40.0,  # SlurmdTimeout is 10 s
    "the first node dies": 100.0,
}


def alone(root: Path | None, runs: int) -> dict[str, list[Run]]:
    """Measure the recovery from each fault. The death of a node is measured once: Slurm alone needs a minute for it."""
    program: Mapping[str, Callable[[Sandbox, str], Run]] = {
        "a lost GPU, a spare": lambda box, name: failed_program(box, name, spares=1),
        "a lost GPU, a requeue by the job's owner": lambda box, name: failed_program(box, name, spares=0),
        "the same, with submit --wait": lambda box, name: failed_program(box, name, spares=0, followed=True),
        "a program that failed, `unconditional`": _unconditional,
    }
    deaths: Mapping[str, tuple[str, int]] = {
        "a dead node, a spare": ("n2", 1),
        "a dead node, requeued": ("n2", 0),
        "the first node dies": (FIRST, 0),
    }
    with sandbox(NODES, GPUS, root, "a", hooks=False) as box:
        (box.directory / "etc/slurm/slurm_plugin.yaml").unlink()  # a user has none
        slurm_conf = box.directory / "etc/slurm/slurm.conf"  # of a plain cluster: the scheduler as it is by default
        slurm_conf.write_text(re.sub("SchedulerParameters=.*\n", "", slurm_conf.read_text(encoding="utf-8")))
        box.run(["scontrol", "reconfigure"], user="slurm")
        found = {
            title: [measure(box, f"alone{place}-{number}") for number in range(runs)]
            for place, (title, measure) in enumerate(program.items())
        }
        return found | {
            title: [dead_node(box, JOB_NODES - 1, spares, victim)] for title, (victim, spares) in deaths.items()
        }


def _unconditional(box: Sandbox, name: str) -> Run:
    """Let a program fail on healthy nodes."""
    job = submitted(box, name, FAILS_ONCE, retries=1, unconditional="yes")
    again = job.began(1)
    ended = max(job.times("end", 0))
    job.finish()
    return Run(again - ended)


def missed(found: Mapping[str, list[Run]]) -> list[str]:
    """Return a message for each limit that the fastest run has missed."""
    fastest = {title: min(run.seconds for run in found[title]) for title in LIMITS_S if title in found}
    return [
        f"no admin: {title}: {seconds:.1f} s, the limit is {LIMITS_S[title]:.0f} s"
        for title, seconds in fastest.items()
        if seconds >= LIMITS_S[title]
    ]
