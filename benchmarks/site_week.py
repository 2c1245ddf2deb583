"""Simulate a week of a site of 200 nodes, and print its goodput with and without slurm_plugin.

    .venv/bin/python benchmarks/site_week.py [--weeks 40] [--nodes 200] [--faults 3.79] [--checkpoint 30]
                                             [--notice 60] [--admin 60] [--repair 24] [--seed 1] [--sandbox]
                                             [--smallest]

A discrete-event simulation; no Slurm runs. Each week is simulated once for each way, with the same jobs and the same
faults of the same nodes at the same times:

sbatch: a job whose program fails ends, and its user submits it again after `--notice` minutes.
requeue: as sbatch, but the job's script requeues itself.
slurm_plugin: `retries` and `unconditional: yes`. slurm_plugin.supervisor.decide decides after each attempt.
spares: as slurm_plugin, and a job of 8 nodes or more requests a spare node.

Goodput is the share of all time of all nodes in which programs made progress that a later failure did not undo. Faults
per 1,000 node-days: 3.79 is 419 unexpected interruptions in 54 days on 2,048 nodes (The Llama 3 Herd of Models,
arXiv:2407.21783, table 5, as are the kinds of faults). Other clusters of its owner had 6.5 and 2.34 (Revisiting
Reliability in Large-Scale Machine Learning Research Clusters, arXiv:2410.21680).

benchmarks/site_week_model.py lists what the model assumes, and the measured times that it uses. --sandbox measures the
two times of a recovery from a failed program anew, on a real Slurm. --smallest: two weeks. Results:
docs/explanation/measurements.md.
"""

import statistics
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.cluster import sandbox
from benchmarks.measure import arguments, judged
from benchmarks.recovery_runs import GPUS, NODES, failed_program
from benchmarks.site_week_model import SHARES, WAYS, Site, Week
from benchmarks.site_week_simulation import simulated

MINUTE_S, HOUR_S = 60.0, 3600.0


def site(options: Namespace) -> Site:
    """Return the site that the options describe."""
    found = Site(
        nodes=options.nodes,
        faults=options.faults,
        checkpoint_s=options.checkpoint * MINUTE_S,
        notice_s=options.notice * MINUTE_S,
        admin_s=options.admin * MINUTE_S,
        repair_s=options.repair * HOUR_S,
    )
    if not options.sandbox:
        return found
    with sandbox(NODES, GPUS) as box:
        again, requeue = (failed_program(box, f"fault{spares}", spares).seconds for spares in (1, 0))
    print(f"measured: {again:.1f} s in the allocation, {requeue:.1f} s with a requeue")
    return replace(found, again_s=again, requeue_s=requeue)


def shown(weeks: Mapping[str, Sequence[Week]]) -> list[str]:
    """Print the table; return a message if the goodput is not better with slurm_plugin than without."""
    print(f"{'mean of the weeks, % of the time of all nodes':46}" + "".join(f"{way:>14}" for way in weeks))
    for share in SHARES:
        means = (statistics.mean(week.share(share) for week in found) for found in weeks.values())
        print(f"{share:46}" + "".join(f"{mean * 100:14.2f}" for mean in means))
    for name in ("restarts", "failures"):
        means = (statistics.mean(getattr(week, name) for week in found) for found in weeks.values())
        print(f"{f'{name} in a week':46}" + "".join(f"{mean:14.1f}" for mean in means))
    for name, of in {"median": statistics.median, "mean": statistics.mean}.items():
        away = ([seconds for week in found for seconds in week.away_s] for found in weeks.values())
        hours = (of(each) / HOUR_S if each else 0.0 for each in away)
        print(f"{f'hours until a stopped job computes, {name}':46}" + "".join(f"{each:14.2f}" for each in hours))
    goodput = {way: [week.share("goodput") for week in found] for way, found in weeks.items()}
    for way in ("sbatch", "requeue"):
        gains = [(with_us - plain) * 100 for with_us, plain in zip(goodput["slurm_plugin"], goodput[way], strict=True)]
        error = statistics.stdev(gains) / len(gains) ** 0.5
        print(f"slurm_plugin - {way}: {statistics.mean(gains):.2f} points of goodput, standard error {error:.2f}")
    mean_of = {way: statistics.mean(found) for way, found in goodput.items()}
    ours = mean_of["slurm_plugin"]
    return [f"goodput is not better than with {way}" for way in ("sbatch", "requeue") if ours <= mean_of[way]]


def main() -> int:
    """Simulate, print and judge."""
    parser = arguments(__doc__)
    parser.add_argument("--weeks", type=int, default=40)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--faults", type=float, default=419 / 54 / 2048 * 1000, help="per 1,000 node-days")
    parser.add_argument("--checkpoint", type=float, default=30.0, help="minutes between checkpoints")
    parser.add_argument("--notice", type=float, default=60.0, help="minutes until a user sees a failed or hung job")
    parser.add_argument("--admin", type=float, default=60.0, help="minutes until an admin drains a bad node")
    parser.add_argument("--repair", type=float, default=24.0, help="hours until a drained node is back")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sandbox", action="store_true", help="measure the times of a recovery first (root)")
    options = parser.parse_args()
    if options.smallest:
        options.weeks = 2
    described = site(options)
    weeks = {way: [simulated(described, way, options.seed + week) for week in range(options.weeks)] for way in WAYS}
    return judged(shown(weeks), smallest=options.smallest)


if __name__ == "__main__":
    sys.exit(main())
