"""What a mode is: how a command is launched on a job's nodes, and what it finds there. Standard library only."""

import shlex
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from hostfiles import Allocation
from slurm_plugin.container import PYXIS, Container
from slurm_plugin.errors import printable

LONGEST_SHOWN = 2000
LONGEST_VALUE = 131072 - 64  # bytes of a variable: MAX_ARG_STRLEN (execve(2)), less its name
MESSAGES = ("normal", "high-performance", "diagnosis")  # how much a mode's libraries tell
HOSTFILE = "hostfile"  # the file of a mode that SLURM_PLUGIN_HOSTFILE names


class Options(NamedTuple):
    """What a spec says to one mode alone."""

    ps: int = 0  # tensorflow: parameter servers; 0 is all-reduce
    chief: bool = False  # tensorflow: rank 0 is a chief, no worker
    evaluator: bool = False  # tensorflow: the last rank evaluates
    table: bool = True  # ascend: with a rank table; without, MindSpore's dynamic cluster
    messages: str = MESSAGES[0]  # ascend: how much MindSpore and CANN tell


class Group(NamedTuple):
    """The nodes of one group of a heterogeneous job: they are alike."""

    nodes: int
    slots: int
    cpus: int | None = None  # for each process, where the job says so


class Shape(NamedTuple):
    """How large a program is, and what else its launch depends on: known before the job has nodes."""

    nodes: int
    slots: int  # processes that a node has room for: its accelerators, 1 without any; of groups, the first one's
    launch: str = "node"  # what one task of the step is: `node`, a launcher on each node; `task`, one rank
    root: bool = False  # whether root runs it
    env: frozenset[str] = frozenset()  # names of the variables that are set
    hostfile: str = "$SLURM_PLUGIN_HOSTFILE"  # its path, once there is one
    options: Options = Options()
    nodelist: str = ""  # the nodes, in Slurm's form, where they are a part of the job's
    again: bool = False  # whether a step of an attempt before may still be there for Slurm: the new one shares with it
    groups: tuple[Group, ...] = ()  # of a heterogeneous job, all of whose nodes it runs on; none of any other
    container: Container | None = None  # what the program runs in; launchers of ours on other nodes stand outside

    @property
    def shown_slots(self) -> str:
        """The slots of a node for people: `8`, or those of each group, `1,8`."""
        return ",".join(str(each.slots) for each in self.groups) or str(self.slots)

    def inside(self, *words: str) -> tuple[str, ...]:
        """The words that start a process of the program, in its container where it has one."""
        return self.container.inside(words) if self.container else words

    @property
    def by_srun(self) -> bool:
        """Whether only an srun can start the program, one alone too."""
        return self.container is not None and self.container.runtime == PYXIS


class Place(NamedTuple):
    """A job on its nodes."""

    allocation: Allocation
    port: int  # where rank 0 listens
    directory: str  # the job's own, absolute: where the mode's files are
    launch: str = "node"
    interface: str = ""  # the network interface of the first node's own address, where it is known
    address: str = ""  # that address
    options: Options = Options()
    grouped: bool = False  # whether it is a heterogeneous job, whose launch counts each node's tasks for itself


class Launch(NamedTuple):
    """The words that start a job, and a sentence that says what was done to the user's own."""

    argv: tuple[str, ...]
    note: str  # without any text of the user

    @property
    def shown(self) -> str:
        """The words as one line for people, of a word of several lines the first; at most 2000 characters.

        What cannot be printed is `?`.
        """
        text = shlex.join(word if "\n" not in word else f"{word.partition(chr(10))[0]} ..." for word in self.argv)
        line = printable(text[:LONGEST_SHOWN])
        return line if len(text) <= LONGEST_SHOWN else f"{line}..."


class Mode:
    """One way to launch. `launch` also runs at submission, to show it; the rest runs on the first node."""

    one_program: ClassVar[bool] = True  # whether rank 0 of the job is one program's: all its steps tell one port
    left_behind: ClassVar[tuple[str, ...]] = ()  # files and directories of the job's own that no launch may find
    removed: ClassVar[tuple[str, ...]] = ()  # variables that the launch must not find

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """The words that are run, for the words that the user wrote (at least one); these stay whole and in order."""
        raise NotImplementedError

    def ended_by_usr1(self, words: tuple[str, ...], shape: Shape) -> str:
        """The launcher of the ranks that SIGUSR1 ends, and them with it; empty where we know of none."""
        return ""

    def files(self, place: Place) -> Mapping[str, str]:
        """The files of the job's directory that the launch reads, by name; `HOSTFILE` is the one users are told of."""
        return {}

    def defaults(self, place: Place) -> Mapping[str, str]:
        """Variables that the user's own and those of a hook replace."""
        return {}

    def variables(self, place: Place) -> Mapping[str, str]:
        """What the launch finds in its environment, the same for every task."""
        return {}

    def task_script(self, place: Place) -> str | None:
        """Lines of sh that TaskProlog sources in each task: they print `export NAME=value`. None: nothing differs."""
        return None

    def by_address(self, options: Options) -> bool:
        """Whether it needs the address of the first node, which a name service that hangs may cost seconds."""
        return False

    def by_devices(self, options: Options) -> bool:
        """Whether it needs every node's accelerators: a rank table."""
        return False

    def ports(self, place: Place) -> int:
        """How many ports, from `place.port` on, are to be free on the first node."""
        return 1
