"""The launch through srun, which several modes share: one step over all nodes, and what each task of it prints."""

from collections.abc import Mapping
from typing import Final

from slurm_plugin.modes.base import Group, Shape

# Lines of bash that end a process group, `finish PID`: what is left of a step would hold its output open, and Slurm
# waits for that. A program that is to be ended so is started by setsid, which makes its pid the group's number.
FINISH: Final = """\
finish() {
  kill -- "-$1"
  for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 -- "-$1" || return 0; sleep 0.5; done
  kill -KILL -- "-$1"
} 2>/dev/null
"""


def srun(shape: Shape, *more: str, ranks: bool = False) -> tuple[str, ...]:
    """A step on all nodes of the program that ends when one task fails: one task a node, or (`ranks`) one a slot.

    Without --exact and --cpus-per-task a step gets every CPU, and without --gres every accelerator, that the job has on
    the node (srun(1)): right for one launcher a node. --export=ALL also where the job came with `sbatch --export=NONE`.
    A step over the groups of a heterogeneous job is told of each by itself; ranks are counted over all, in their order.
    """
    where: tuple[str, ...] = (f"--nodelist={shape.nodelist}",) if shape.nodelist else ()
    where += ("--overlap", "--mem=0") if shape.again else ()
    container = shape.container.step if shape.container else ()
    rest = (*where, "--kill-on-bad-exit=1", "--export=ALL", *container, *more)
    if not shape.groups:
        return ("srun", *_counts(Group(shape.nodes, shape.slots), ranks=ranks), *rest)
    words: list[str] = []
    for number, group in enumerate(shape.groups):
        cpus = [f"--cpus-per-task={group.cpus}"] if ranks and group.cpus else []
        words += [":"] if words else ["srun"]
        words += [f"--het-group={number}", *_counts(group, ranks=ranks), *cpus, *rest]
    return tuple(words)


def _counts(group: Group, *, ranks: bool) -> tuple[str, ...]:
    tasks = group.slots if ranks else 1
    return f"--nodes={group.nodes}", f"--ntasks={group.nodes * tasks}", f"--ntasks-per-node={tasks}"


def once(shape: Shape, words: tuple[str, ...]) -> tuple[str, ...]:
    """What starts the program once, on the one node: nothing of ours, unless it runs in a container."""
    return (*(srun(shape) if shape.by_srun else ()), *shape.inside(*words))


def exports(variables: Mapping[str, str]) -> str:
    """A line of sh that prints an export for each variable, whose values are sh words in double quotes (`$NAME`).

    One printf for all: it is the cost of TaskProlog, paid by every task.
    """
    words = " ".join(f'"{name}={value}"' for name, value in variables.items())
    return f"printf 'export %s\\n' {words}\n"
