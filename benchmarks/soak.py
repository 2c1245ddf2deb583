"""Provoke the races of a recovery at random moments, on a real Slurm, until the time is over or a round fails.

    .venv/bin/python benchmarks/soak.py [--minutes 5 | --rounds 20 | --smallest] [--scenarios spare cut | --night]
                                        [--seed 7] [--root DIR]

In most scenarios a training run writes down every step of every rank. A round asserts how the job ended, that no
attempt wrote after the next one had begun, that a restart lost no step and repeated at most one, that the program ran
at most 1 + retries times, and that only broken nodes are drained. Exits 1 at the first round that fails, and prints its
seed, its number and the job's log; `--seed SEED --only NUMBER` repeats the choices of that round. --smallest: one round
of each scenario, with a tenth of the small jobs. --night: for 8 hours, three jobs at once and a random row of faults,
healed nodes, restarts of slurmctld, cancelled jobs and failing programs. Afterwards the end of every job must be
explained by its own exit, its user or its restarts, and every node must be idle that was healthy or was healed.
"""

import random
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.cluster import sandbox
from benchmarks.measure import arguments
from benchmarks.soak_night import night
from benchmarks.soak_scenarios import GPUS, NODES, SCENARIOS, Round
from slurm_plugin.sandbox import Sandbox
from slurm_plugin.sandbox.pool import restore
from tests.cluster import jobs

SIZE = 50  # small jobs per round
NIGHT = "night"
MINUTES, NIGHT_MINUTES = 5.0, 480.0


def played(box: Sandbox, seed: int, number: int, scenario: str, size: int) -> str:
    """Play one round. Return the error with the job's log; empty without an error."""
    name = f"r{number}-{scenario}"
    trial = Round(box, name, random.Random(f"{seed} {number} {scenario}"), size)  # noqa: S311 - not for secrets
    started = time.monotonic()
    try:
        {**SCENARIOS, NIGHT: night}[scenario](trial)
        trial.holds()
        restore(box)
    except Exception as error:  # noqa: BLE001 - any error is the result of its round
        place = "".join(traceback.format_tb(error.__traceback__))
        what = f"{place}{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        log = trial.job.log if trial.job else ""
        return "\n".join([what, *(line for line in log.splitlines() if not any(map(line.__contains__, jobs.HARMLESS)))])
    where = f" broke {', '.join(sorted(trial.broken))}" if trial.broken else ""
    print(f"{number:5d} {scenario:8}{time.monotonic() - started:7.1f} s{where}{trial.note}", flush=True)
    for directory in box.home("alice").glob(f"{name}*"):
        shutil.rmtree(directory, ignore_errors=True)
    return ""


def soaked(box: Sandbox, options: Any) -> str:
    """Play rounds, the scenarios in turn. Return the message about a failed round; empty if none failed."""
    end = time.monotonic() + options.minutes * 60
    most = options.only or options.rounds * len(options.scenarios)
    number = options.only or 1
    while number <= most if most else time.monotonic() < end:
        scenario = options.scenarios[(number - 1) % len(options.scenarios)]
        if wrong := played(box, options.seed, number, scenario, options.size):
            return f"round {number} ({scenario}) of seed {options.seed} went wrong:\n{wrong}"
        number += 1
    return ""


def main() -> int:
    """Play the rounds, and print whether one failed."""
    parser = arguments(__doc__)
    parser.add_argument("--minutes", type=float, help="begin no round afterwards [default: 5, with --night 480]")
    parser.add_argument("--rounds", type=int, default=0, help="of each scenario, in place of minutes")
    parser.add_argument("--scenarios", nargs="+", choices=[*SCENARIOS], default=[*SCENARIOS])
    parser.add_argument("--night", action="store_true", help="random faults while several jobs run")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", type=int, default=0, metavar="NUMBER", help="this round alone")
    parser.add_argument("--root", type=Path, help="the root of another release, as for `sandbox up --root`")
    parser.set_defaults(size=SIZE)
    options = parser.parse_args()
    if options.smallest:
        options.rounds, options.size = options.rounds or 1, 5
    if options.night:
        options.scenarios = [NIGHT]
    options.minutes = options.minutes or (NIGHT_MINUTES if options.night else MINUTES)
    print(f"seed {options.seed}", flush=True)
    with sandbox(NODES, GPUS, options.root) as box:
        wrong = soaked(box, options)
    print(wrong or "nothing went wrong", file=sys.stderr if wrong else sys.stdout)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
