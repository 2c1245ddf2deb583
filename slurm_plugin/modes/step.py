"""The launch through srun, which several modes share: one step over all nodes, and what each task of it prints."""

from collections.abc import Mapping
from typing import Final

from slurm_plugin.modes.base import Shape

# Lines of bash that end a process group, `finish PID`: what is left of a step would hold its output open, and Slurm
# waits for that. A program that is to be ended so is started by setsid, which makes its pid the group's number.
FINISH: Final = """\
finish() {
  kill -- "-$1"
  for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 -- "-$1" || return 0; sleep 0.5; done
  kill -KILL -- "-$1"
} 2>/dev/null
"""


def srun(shape: Shape, tasks: int) -> tuple[str, ...]:
    """A step on all nodes of the program with `tasks` tasks on each, that ends when one task fails.

    Without --exact and --cpus-per-task a step gets every CPU, and without --gres every accelerator, that the job has on
    the node (srun(1)): right for one launcher a node. --export=ALL also where the job came with `sbatch --export=NONE`.
    """
    counts = (f"--nodes={shape.nodes}", f"--ntasks={shape.nodes * tasks}", f"--ntasks-per-node={tasks}")
    where: tuple[str, ...] = (f"--nodelist={shape.nodelist}",) if shape.nodelist else ()
    where += ("--overlap", "--mem=0") if shape.again else ()
    return ("srun", *counts, *where, "--kill-on-bad-exit=1", "--export=ALL")


def exports(variables: Mapping[str, str]) -> str:
    """A line of sh that prints an export for each variable, whose values are sh words in double quotes (`$NAME`).

    One printf for all: it is the cost of TaskProlog, paid by every task.
    """
    words = " ".join(f'"{name}={value}"' for name, value in variables.items())
    return f"printf 'export %s\\n' {words}\n"
