"""The base class of the modes: how to launch a command, with which files and variables. Standard library only.

Several modes launch by srun. For these modes this module builds one step over all nodes, and the exports of each task.
"""

from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple

from hostfiles import Allocation
from slurm_plugin.errors import printable
from slurm_plugin.launch import log_copy, variables
from slurm_plugin.launch.container import PYXIS, Container

LONGEST_SHOWN = 2000
LONGEST_VALUE = 131072 - 64  # bytes of a variable: MAX_ARG_STRLEN (execve(2)), less room for the name
MESSAGES = ("normal", "high-performance", "diagnosis")  # how much a mode's libraries log
HOSTFILE = "hostfile"  # the file of a mode that SLURM_PLUGIN_HOSTFILE names
# Lines of bash that define `finish PID`, to end a process group. Slurm waits for processes that hold a step's output
# open. Start the program with setsid, so that its pid is the number of its group.
FINISH: Final = """\
finish() {
  kill -- "-$1"
  for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 -- "-$1" || return 0; sleep 0.5; done
  kill -KILL -- "-$1"
} 2>/dev/null
"""


class Options(NamedTuple):
    """The options of a spec for one mode."""

    ps: int = 0  # tensorflow: number of parameter servers; 0: all-reduce. In a job of groups they are the last tasks
    chief: bool = False  # tensorflow: rank 0 is the chief, not a worker
    evaluator: bool = False  # tensorflow: the last rank evaluates
    table: bool = True  # ascend: use a rank table; False: use MindSpore's dynamic cluster
    messages: str = MESSAGES[0]  # ascend: how much MindSpore and CANN log


class Group(NamedTuple):
    """The nodes of one group of a heterogeneous job. All have the same size."""

    nodes: int
    slots: int
    cpus: int | None = None  # for each process; None: not given


class Shape(NamedTuple):
    """The size of a program, and other facts that its launch depends on. They are known before the job has nodes."""

    nodes: int
    slots: int  # processes per node (of the first group): one per accelerator, 1 without accelerators
    launch: str = "node"  # `node`: each task is a launcher, one per node; `task`: each task is a rank
    root: bool = False  # whether root runs the job
    env: frozenset[str] = frozenset()  # names of the variables that are set
    hostfile: str = "$SLURM_PLUGIN_HOSTFILE"  # the path of the hostfile, once that exists
    options: Options = Options()
    nodelist: str = ""  # in Slurm's form; set if the program runs on only some of the job's nodes
    again: bool = False  # whether Slurm may still count a step of an earlier attempt: then share the CPUs
    groups: tuple[Group, ...] = ()  # the groups of a heterogeneous job, which uses all of its nodes
    container: Container | None = None  # the container of the program; launchers of MPI run outside
    logs: log_copy.Logs | None = None  # the log files of nodes and ranks, beside the job's log
    grace: bool = False  # whether the program gets time to save, also after scancel

    @property
    def shown_slots(self) -> str:
        """Return the slots of a node for people: `8`, or those of each group, `1,8`."""
        return ",".join(str(each.slots) for each in self.groups) or str(self.slots)

    def inside(self, *words: str) -> tuple[str, ...]:
        """Return the words that start a process of the program, in its container if it has one.

        bash replaces the variables in the words when the process starts.
        """
        words = variables.by_bash(words)
        return self.container.inside(words) if self.container else words

    @property
    def by_srun(self) -> bool:
        """Return whether only srun can start the program, even a single process."""
        return self.container is not None and self.container.runtime == PYXIS


class Place(NamedTuple):
    """The nodes of a job, and the facts that are known only with them."""

    allocation: Allocation
    port: int  # the port on which rank 0 listens
    directory: str  # the job's directory, an absolute path; contains the mode's files
    launch: str = "node"
    interface: str = ""  # the network interface of the first node's address; empty: unknown
    address: str = ""  # the address of the first node
    options: Options = Options()
    grouped: bool = False  # whether the job is heterogeneous: nodes may have different numbers of tasks


class Launch(NamedTuple):
    """The words that start a job, and a note that says what was added to the user's command."""

    argv: tuple[str, ...]
    note: str  # contains no text of the user

    def plugin_step(self, words: tuple[str, ...]) -> bool:
        """Return whether a step of slurm_plugin starts the tasks, and not the user's own words."""
        from slurm_plugin.records import launch_record  # noqa: PLC0415 - it needs prechecks, which a render does not

        return launch_record.plugin_step(self.argv, words)

    @property
    def shown(self) -> str:
        """Return the words as one line for people: the first line of each word, at most 2000 characters.

        Unprintable characters become `?`.
        """
        text = variables.joined(word if "\n" not in word else f"{word.partition(chr(10))[0]} ..." for word in self.argv)
        line = printable(text[:LONGEST_SHOWN])
        return line if len(text) <= LONGEST_SHOWN else f"{line}..."


def unchanged(words: tuple[str, ...]) -> Launch:
    """Return the launch of a command that starts its own tasks."""
    return Launch(words, "The command names its launcher: left as it is, started once, on the first node.")


class Mode:
    """One way to launch. `launch` also runs at submission, to show the line; other methods run on the first node."""

    one_program: ClassVar[bool] = True  # whether the job has only one rank 0: all steps share its port
    left_behind: ClassVar[tuple[str, ...]] = ()  # names in the job's directory to remove before a launch
    removed: ClassVar[tuple[str, ...]] = ()  # variables to remove before a launch
    # The variable with a node's network interface, for a library that would use the first address of the node's name.
    interface: ClassVar[str] = ""

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Return the launch of the user's words (at least one), which keep their order."""
        raise NotImplementedError

    def files(self, place: Place) -> Mapping[str, str]:
        """Return the texts of the files for the job's directory, by name. Users get the path of `HOSTFILE`."""
        return {}

    def defaults(self, place: Place) -> Mapping[str, str]:
        """Return variables of the launch that the user or a hook may override."""
        return {}

    def variables(self, place: Place) -> Mapping[str, str]:
        """Return the variables of the launch, the same for every task."""
        return {}

    def task_script(self, place: Place) -> str | None:
        """Return lines of sh that TaskProlog sources in each task, to print `export NAME=value`; None if not needed."""
        return None

    def by_address(self, options: Options) -> bool:
        """Return whether the mode needs the address of the first node. A name service that hangs costs seconds."""
        return False

    def by_devices(self, options: Options) -> bool:
        """Return whether the mode needs the list of every node's accelerators, for a rank table."""
        return False

    def ports(self, place: Place) -> int:
        """Return how many ports, from `place.port` on, must be free on the first node."""
        return 1


def srun(shape: Shape, *more: str, ranks: bool = False) -> tuple[str, ...]:
    """Return a step on all nodes that ends when one task fails: one task per node, or with `ranks` one per slot.

    Without --exact, --cpus-per-task and --gres a step gets all CPUs and accelerators that the job has on the node
    (srun(1)). That suits one launcher per node. --export=ALL overrides `sbatch --export=NONE`. A step over the groups
    of a heterogeneous job names each group. Slurm counts ranks over all groups, in order.
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


def by_srun(
    shape: Shape, words: tuple[str, ...], note: str, *options: str, ranks: bool = False, alone: bool = True
) -> Launch:
    """Return the launch of a program by a step of `srun`, in the program's container if it has one.

    `alone`: whether each task is one process of the program, not a launcher of several.
    """
    inside = log_copy.of_task(shape.logs, shape.inside(*words), alone=alone, shielded=shape.grace)
    return Launch((*srun(shape, *options, ranks=ranks), *inside), note)


def once(shape: Shape, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that start the program once, on one node, in its container if it has one."""
    inside = log_copy.of_task(shape.logs, shape.inside(*words), shielded=shape.grace and shape.by_srun)
    return (*(srun(shape) if shape.by_srun else ()), *inside)


def exports(variables: Mapping[str, str]) -> str:
    """Return a line of sh that prints an export for each variable. sh expands `$NAME` in a value.

    One printf for all variables keeps TaskProlog cheap: every task runs it.
    """
    words = " ".join(f'"{name}={value}"' for name, value in variables.items())
    return f"printf 'export %s\\n' {words}\n"
