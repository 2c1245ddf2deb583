"""What stands between a job's nodes and its launch: what every node is asked, the files, the hooks, the environment."""

import argparse
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import prechecks
from hostfiles import HostfileError, npu
from hostfiles import ascend as ascend_variables
from hostfiles import ranktable as table_format
from slurm_plugin.container import PYXIS
from slurm_plugin.errors import UsageError
from slurm_plugin.hooks import node_directory
from slurm_plugin.job import (
    barrier,
    changes,
    conda,
    contained,
    fabric,
    files,
    logs,
    network,
    prestart,
    ranktable,
    stage_in,
    taskfile,
)
from slurm_plugin.job.run import Run, free_port, is_free
from slurm_plugin.modes import HOSTFILE, MODES, Group, Launch, Options, Place, Shape
from slurm_plugin.slurm import steps

# What the job whose program submitted this one may have left in its environment. With the first of them, TaskProlog
# would act on the hooks' step, and on the program's own.
_ANOTHER_JOBS = (
    "SLURM_PLUGIN_LAUNCH",
    "SLURM_PLUGIN_HOSTFILE",
    "SLURM_PLUGIN_WORKERS",
    "SLURM_PLUGIN_WORLD_INFO",
    "SLURM_PLUGIN_SPARED",
)


class Preparation:
    """One attempt on its way to the launch."""

    def __init__(
        self,
        options: argparse.Namespace,
        run: Run,
        site: Mapping[str, Any],
        environ: Mapping[str, str],
        say: Callable[[str], None],
        *,
        nodelist: str = "",
        again: bool = False,
        task_prolog: str = "",
        above: Sequence[str] = (),
    ) -> None:
        """`nodelist`: the run's nodes where they are a part of the job's. `again`: not this run's first attempt.

        `task_prolog`: slurm.conf's, which a container of pyxis's has to have in it. `above`: names of variables that
        stand above a container's own, besides those of its options.
        """
        self.nodelist, self.again = nodelist, again
        self.options, self.run, self.site, self.environ, self.say = options, run, site, environ, say
        if options.mode not in MODES:
            raise UsageError(f"--mode={options.mode}: found no such mode; accepted are: {', '.join(MODES)}")
        self.mode = MODES[options.mode]
        self.words: tuple[str, ...] = tuple(options.command)
        self.directory = files.directory(Path.cwd(), run.job_id)
        self.node_directory = taskfile.joined(
            node_directory.name(part, run.restart) for part in run.parts or (run.job_id,)
        )
        found = prestart.beside(self.words, Path.cwd()) if options.found_hooks and not options.script else ()
        self.hooks = (*found, *map(Path, options.before))
        self.logs = logs.directory(options.logs, run.job_id)
        self.hooks_after = tuple(map(Path, options.after))
        self.place = self._place(Options(*(getattr(options, name) for name in Options._fields)))
        self.container = contained.made(options, environ, task_prolog, site.get("stage_in", {}).get("directory", ""))
        self.own_step = self._own_step()
        script = self.mode.task_script(self.place) if self.own_step else None
        if self.container:
            names = dict.fromkeys((*self.container.env, *above, *self.mode.variables(self.place)))
            told = (script or "") if self.container.runtime == PYXIS else ""
            self.container = self.container._replace(env=tuple(names), told=told)
        self.by_prolog = self.own_step and not (self.container and self.container.runtime == PYXIS)
        self.task_script = script if self.by_prolog else None

    def _place(self, options: Options) -> Place:
        allocation, address = self.run.allocation, ""
        if self.mode.by_address(options):
            try:
                address = network.own_address(allocation.names[0])
            except HostfileError as error:
                self.say(str(error))
        place = Place(
            allocation,
            port=0,
            directory=str(self.directory),
            launch=self.options.launch,
            interface=network.interface(address),
            address=address,
            options=options,
            grouped=bool(self.run.groups),
        )
        return place._replace(port=free_port(self.run.job_id, self.run.attempt, self.mode.ports(place), is_free))

    def _own_step(self) -> bool:
        """Whether the launch is an srun of ours: a command that starts its own tasks tells them itself who they are."""
        argv = self.launch(self.environ).argv
        return argv[0] == "srun" and argv != self.words

    @property
    def with_table(self) -> bool:
        """Whether the launch needs to know every node's devices."""
        return self.mode.by_devices(self.place.options)

    @property
    def asks(self) -> bool:
        """Whether the launch needs every node's answer, checks or not.

        Slurm starts the script of a heterogeneous job beside the prologs of all groups but the first.
        """
        return self.tells or bool(self.hooks) or bool(self.run.groups)

    @property
    def tells(self) -> bool:
        """Whether every node has to hear, or to say, what makes the tasks differ: no launch is right without."""
        return self.task_script is not None or self.with_table

    def question(self, hook: str) -> barrier.Request:
        """What every node is asked before a launch (`barrier`) or after a failure (`recheck`)."""
        auto = self.run.partition in self.site["infiniband_partitions"]
        first = hook == "barrier"
        return barrier.Request(
            hook=hook,
            job_id=self.run.job_id,
            directory=self.node_directory,
            run_directory=self.site["run_directory"],
            hosts=self.run.allocation.nodelist,
            infiniband=auto if self.options.infiniband == "auto" else self.options.infiniband == "yes",
            check=self.options.retries > 0,
            settings=self.site["prechecks"],
            task_script=(self.task_script or "") if first and self.asks else None,
            devices=first and self.with_table,
        )

    def write(self, answers: barrier.Answers | None) -> None:
        """Write the files that the launch reads. Raises OSError; HostfileError where no rank table can be made."""
        for name in self.mode.left_behind:  # by another job of this number: of another cluster, or long ago
            shutil.rmtree(self.directory / name, ignore_errors=True)
        for name, text in self.mode.files(self.place).items():
            files.write(self.directory / name, text)
        if not self.with_table or answers is None:
            return
        path = self.directory / table_format.FILE_NAME
        with ranktable.announced(path) as publish:
            complete = npu.complete(self.run.allocation, answers.devices)
            ascend_variables.table_variables(complete, 0, str(path))  # for its rule: one task a device
            publish(table_format.version_1_0(complete))

    def fabric(self, reason: str, give_up: Callable[[], bool]) -> dict[str, prechecks.Verdict]:
        """What the fabric check says of each node, under the MPI of the mode and the python that the command names."""
        hosts = self.run.nodes
        launchers = {"mpich": fabric.hydra(hosts), "intelmpi": fabric.hydra(hosts, intel=True)}
        return fabric.check(
            hosts,
            launcher=launchers.get(self.options.mode) or fabric.open_mpi(hosts, root=os.geteuid() == 0),
            python=self.python,
            environ=without(self.environment(reason, launched=False), "SLURM_EXPORT_ENV"),  # its daemons need it whole
            deadline_s=fabric.DEADLINE_S + fabric.MORE_A_HOST_S * len(hosts),
            say=self.say,
            give_up=give_up,
        )

    @property
    def python(self) -> str:
        """The interpreter on the node itself: the command's own is in the container, where it has one."""
        return "python3" if self.container else prestart.python_of(self.words)

    def hook_step(self, command: Sequence[str], *, after: bool = False) -> tuple[str, ...]:
        """The words that run the hooks before or after the program on each node; `command` is `slurm-plugin` there."""
        request = prestart.Request(
            self.site["run_directory"],
            self.node_directory,
            self.python,
            tuple(map(str, self.hooks_after if after else self.hooks)),
            after=after,
            changed=after and bool(self.hooks),
        )
        return tuple(steps.on_each_node([*command, *request.words()], self.run.nodes, self.run.groups, stop=not after))

    @property
    def data(self) -> stage_in.Request | None:
        """The data that every node is to have; None where there is none."""
        if not (wanted := tuple(self.options.stage_in)):
            return None
        run = f"{self.run.job_id}.{self.run.restart}"
        return stage_in.Request(self.site["stage_in"]["directory"], run, str(self.directory), wanted)

    def data_step(self, request: stage_in.Request, command: Sequence[str]) -> tuple[str, ...]:
        """The words that fetch it once on each node; `command` is `slurm-plugin` there."""
        return tuple(steps.on_each_node([*command, *request.words()], self.run.nodes, self.run.groups, stop=True))

    def launch(self, environ: Mapping[str, str]) -> Launch:
        """What is run for the user's words on these nodes, in this environment."""
        if self.options.script:
            return Launch(self.words, "The script is left as it is, started once, on the first node.")
        shape = Shape(
            nodes=len(self.run.nodes),
            slots=self.options.slots,
            launch=self.options.launch,
            root=os.geteuid() == 0,
            env=frozenset(environ),
            hostfile=str(self.directory / HOSTFILE),
            options=self.place.options,
            nodelist=self.nodelist,
            again=self.again,
            groups=tuple(
                Group(len(names), slots, cpus)
                for names, (slots, cpus) in zip(self.run.groups, self.options.group, strict=True)
            ),
            container=self.container,
        )
        made = self.mode.launch(self.words, shape)
        if made.argv[0] != "srun" or made.argv == self.words:
            return made
        more = logs.options(self.logs, self.options.logs_per, label=self.options.label)
        return made._replace(argv=(made.argv[0], *more, *made.argv[1:]))

    def environment(self, reason: str, *, launched: bool) -> dict[str, str]:
        """What the hooks and the launch get: the caller's environment, the mode's variables, what we tell the program.

        `launched`: this is the launch itself, after the hooks on this node; only there TaskProlog acts.
        """
        ours = {
            "SLURM_PLUGIN_ATTEMPT": str(self.run.attempt),
            "SLURM_PLUGIN_RESTART": str(int(self.run.attempt > 0)),
            "SLURM_PLUGIN_REASON": reason,
            "SLURM_PLUGIN_CHECKPOINT": self.options.checkpoint and str(Path.cwd() / self.options.checkpoint),
            "SLURM_PLUGIN_DIRECTORY": str(self.directory),
        }
        if self.mode.one_program:
            ours["SLURM_PLUGIN_PORT"] = str(self.place.port)
        if HOSTFILE in self.mode.files(self.place):
            ours["SLURM_PLUGIN_HOSTFILE"] = str(self.directory / HOSTFILE)
        if request := self.data:
            ours["SLURM_PLUGIN_DATA"] = stage_in.variable(request.directory, request.run)
        given = without(self.environ, *self.mode.removed, *_ANOTHER_JOBS)
        environ = {
            **self._counted(),
            **self.mode.defaults(self.place),
            **given,
            **self.mode.variables(self.place),
            **ours,
        }
        if not self.container:  # whose paths are not the node's
            set_, note = conda.environment(self.words, environ, PurePosixPath(Path.cwd()), os.path.exists)
            environ = {**environ, **set_}
            if note and launched:
                self.say(note)
        if not launched:
            return environ
        if self.hooks and not self.by_prolog:  # elsewhere each node has its own by TaskProlog
            environ = changes.apply(environ, self._changes())
        if self.asks and (self.by_prolog or not self.own_step):
            environ["SLURM_PLUGIN_LAUNCH"] = self.node_directory
        return {**environ, **(self.container.variables(environ) if self.container else {})}

    def _counted(self) -> dict[str, str]:
        """The accelerators of each group as Slurm says them for --gpus-per-node: `slurm-plugin hosts` asks for them."""
        counts = enumerate(slots for slots, _ in self.options.group)
        return {f"SLURM_GPUS_PER_NODE_HET_GROUP_{group}": str(slots) for group, slots in counts if slots > 1}

    def _changes(self) -> changes.Changes:
        """What the hooks changed on this node; nothing where the user's own file of it is not as they left it."""
        try:
            return prestart.read(self.site["run_directory"], self.node_directory)
        except ValueError as error:
            self.say(f"what the hooks changed cannot be read: {error}")
            return changes.NONE


def without(environ: Mapping[str, str], *names: str) -> dict[str, str]:
    """The environment without these variables."""
    return {name: value for name, value in environ.items() if name not in names}
