"""Prepare a launch: the request to every node, the files, the hooks, the environment and the command line."""

import itertools
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import prechecks
from hostfiles import HostfileError, npu
from hostfiles import ascend as ascend_variables
from hostfiles import ranktable as table_format
from prechecks import files
from prechecks.measure import nvidia
from slurm_plugin.errors import UsageError
from slurm_plugin.launch import HOSTFILE, MODES, Group, Launch, Options, Place, Shape, hooks, variables
from slurm_plugin.launch.container import PYXIS
from slurm_plugin.launch.log_copy import Logs
from slurm_plugin.records import job_directory, launch_record, log_files, node_directory, site_settings, stage_in
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.records.launch_record import Saved
from slurm_plugin.slurm import steps
from slurm_plugin.supervisor import fabric, network, prestart
from slurm_plugin.supervisor.decide import Phase
from slurm_plugin.supervisor.guard import barrier
from slurm_plugin.supervisor.hosts import ranktable
from slurm_plugin.supervisor.preparation import conda, container_step
from slurm_plugin.supervisor.preparation.allocation_part import without
from slurm_plugin.supervisor.run import Run, free_port, is_free, own_variables

# Variables that this job may have inherited from the job that submitted it. With an inherited SLURM_PLUGIN_LAUNCH,
# TaskProlog would act on the hooks' step and on steps that the program starts.
_NAMES = ("LAUNCH", "HOSTFILE", "WORKERS", "SERVERS", "WORLD_INFO", "SPARED")
_ANOTHER_JOBS = tuple(f"SLURM_PLUGIN_{name}" for name in _NAMES)
_PROLOG = "SLURM_TASK_PROLOG"  # as srun's --task-prolog, for all groups
# These, too, unless the user has set them. TaskProlog keeps the user's error files.
_FILES = (_PROLOG, "PET_LOG_DIR", "TORCHELASTIC_ERROR_FILE", *log_files.DUMP_FILES)


class Preparation:
    """The preparation of one attempt."""

    def __init__(
        self,
        plan: JobPlan,
        run: Run,
        site: Mapping[str, Any],
        environ: Mapping[str, str],
        say: Callable[[str], None],
        *,
        nodelist: str = "",
        again: bool = False,
        task_prolog: Callable[[], str] = lambda: "",
        above: Sequence[str] = (),
    ) -> None:
        """Prepare an attempt. `again`: not the first one. `nodelist`: the attempt's nodes; empty for all of the job.

        `task_prolog`: returns slurm.conf's. `above`: names of variables above those of the image.
        """
        self.nodelist, self.again, self.began = nodelist, again, time.monotonic()
        self.plan, self.run, self.site, self.environ, self.say = plan, run, site, environ, say
        if plan.mode not in MODES:
            raise UsageError(f"mode: {plan.mode}: found no such mode; accepted are: {', '.join(MODES)}")
        self.mode = MODES[plan.mode]
        self.words = variables.words(plan.command) if plan.variables else plan.command
        self.directory = job_directory.directory(Path.cwd(), run.job_id)
        self.node_directory = node_directory.joined_names(
            node_directory.name(part, run.restart) for part in run.parts or (run.job_id,)
        )
        beside = plan.found_hooks and not plan.mark
        found = hooks.program_hooks(variables.with_values(self.words, environ), Path.cwd(), say) if beside else ()
        self.hooks = (*found, *map(Path, plan.before))
        stem = log_files.stem(environ.get("SLURM_JOB_NAME", ""), run.job_id, run.attempt)
        apart = bool(plan.logs) and not os.path.sameopenfile(1, 2)
        self.logs = Logs(f"{plan.logs}/{stem}", plan.logs_per, apart) if plan.logs else None
        self.hooks_after = tuple(map(Path, plan.after))
        self.place = self._place(Options(*(getattr(plan, name) for name in Options._fields)))
        copies = site.get("stage_in", {}).get("directory", "")
        if plan.logs:
            with suppress(OSError):  # tee reports it, and the program goes on
                os.makedirs(plan.logs, exist_ok=True)  # noqa: PTH103
        self.container = container_step.job_container(plan, environ, task_prolog, copies)
        # Whether slurm_plugin's own srun starts the tasks. Any other launcher sets the ranks of its tasks.
        self.plugin_step = self.launch(self.environ).plugin_step(self.words)
        script = self.mode.task_script(self.place) if self.plugin_step else None
        if self.container:
            names = dict.fromkeys((*self.container.env, *above, *self.mode.variables(self.place)))
            told = (script or "") if self.container.runtime == PYXIS else ""
            self.container = self.container._replace(env=tuple(names), told=told)
        self.by_prolog = self.plugin_step and not (self.container and self.container.runtime == PYXIS)
        self.task_script = script if self.by_prolog else None
        ours = site_settings.deployed() and task_prolog().startswith(f"{site_settings.site_root()}/")
        needed = self.by_prolog and self.asks and not ours
        self.own_prolog = self.directory / node_directory.OWN_PROLOG if needed else None

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
            launch=self.plan.launch,
            interface=network.interface(address),
            address=address,
            options=options,
            grouped=bool(self.run.groups),
        )
        return place._replace(port=free_port(self.run.job_id, self.run.attempt, self.mode.ports(place), is_free))

    @property
    def slots(self) -> list[int]:
        """The number of ranks on each node; empty if only the command knows."""
        return [] if self.plan.mode in ("", "single", "script") else [host.slots for host in self.run.allocation.hosts]

    @property
    def launch_level(self) -> str:
        """What a task of srun is: `node`, a launcher of its node, or `task`, a rank."""
        return "task" if self.plan.mode == "ascend" else self.plan.launch

    @property
    def with_table(self) -> bool:
        """Whether the launch needs every node's devices, for a rank table."""
        return self.mode.by_devices(self.place.options)

    @property
    def asks(self) -> bool:
        """Whether the launch needs every node's answer, even without checks.

        For a heterogeneous job, Slurm starts the batch script while the prologs of the later groups may still run.
        """
        return self.tells or bool(self.hooks) or bool(self.run.groups)

    @property
    def tells(self) -> bool:
        """Whether every node must receive the task script or report its devices. Without that the launch fails."""
        return self.task_script is not None or self.with_table

    def question(self, hook: str) -> barrier.Request:
        """Return the request to every node. `hook`: `barrier` before a launch, `recheck` after a failure."""
        auto = self.run.partition in self.site["infiniband_partitions"]
        first = hook == "barrier"
        return barrier.Request(
            hook=hook,
            job_id=self.run.job_id,
            directory=self.node_directory,
            run_directory=self.site["run_directory"],
            hosts=self.run.allocation.nodelist,
            infiniband=auto if self.plan.infiniband == "auto" else self.plan.infiniband == "yes",
            check=self.plan.retries > 0,
            settings=self.site["prechecks"],
            task_script=(self.task_script or "") if first and self.asks else None,
            devices=first and self.with_table,
            prolog=str(self.own_prolog or "") if first else "",
            gpus={} if nvidia.has_mig(self.environ) else self.run.gpus,
            interface=self.mode.interface if first else "",
            partition=self.run.partition,
            kernel_s=0.0 if first else time.monotonic() - self.began,
        )

    def write_prolog(self) -> None:
        """Write the TaskProlog of this job, if it needs one of its own. Raise OSError."""
        if self.own_prolog:
            users = "" if f"/{job_directory.OURS}/" in (had := self.environ.get(_PROLOG, "")) else had
            text = node_directory.own_task_prolog(self.site["run_directory"], users)
            files.replace(self.own_prolog, text, mode=0o755)

    def write(self, answers: barrier.Answers | None) -> None:
        """Write the files that the launch reads. Raise OSError, and HostfileError if the rank table cannot be made."""
        for name in self.mode.left_behind:  # files of an old job, or of another cluster's job, with this number
            shutil.rmtree(self.directory / name, ignore_errors=True)
        log_files.prune_errors(self.directory, self.run.attempt)
        if (texts := self.mode.files(self.place)) or self.with_table:
            shared = self.plugin_step or self.with_table or self.plan.mode == "deepspeed"  # other nodes read them
            spare = partial(node_directory.user_folder, self.site["run_directory"], self.node_directory)
            written = job_directory.write_texts(Path.cwd(), self.run.job_id, texts, None if shared else spare)
            if written.parent.name != job_directory.OURS:
                self.say(f"{self.directory} is full: the hostfile is in {written} on this node")
            self.place = self.place._replace(directory=str(written))
        if not self.with_table or answers is None:
            return
        with ranktable.announced(path := self.directory / table_format.FILE_NAME) as publish:
            complete = npu.complete(self.run.allocation, answers.devices)
            ascend_variables.table_variables(complete, 0, str(path))  # checks the rule: one task per device
            publish(table_format.version_1_0(complete))

    def fabric(self, reason: str, give_up: Callable[[], bool]) -> dict[str, prechecks.Verdict]:
        """Run the fabric check with the mode's MPI and the command's Python. Return each node's verdict."""
        hosts = self.run.nodes
        return fabric.check(
            hosts,
            launcher=fabric.launcher(self.plan.mode, hosts),
            python=self.python,
            environ=without(self.environment(reason, launched=False), "SLURM_EXPORT_ENV"),  # for the launcher's daemons
            deadline_s=fabric.DEADLINE_S + fabric.MORE_A_HOST_S * len(hosts),
            say=self.say,
            give_up=give_up,
        )

    @property
    def python(self) -> str:
        """The Python on the node: the command's Python, or python3 if the command runs in a container."""
        return "python3" if self.container else hooks.python_of(variables.with_values(self.words, self.environ))

    def hook_step(self, command: Sequence[str], *, after: bool = False) -> tuple[str, ...]:
        """Return the step that runs the hooks before or `after` the program on each node. `command`: `slurm-plugin`."""
        request = prestart.Request(
            self.site["run_directory"],
            self.node_directory,
            self.python,
            tuple(map(str, self.hooks_after if after else self.hooks)),
            after=after,
            changed=after and bool(self.hooks),
        )
        words, run = [*command, *request.words()], self.run
        return tuple(steps.on_each_node(words, run.nodes, run.groups, stop=not after, devices=run.devices))

    @property
    def data(self) -> stage_in.Request | None:
        """The data to copy to every node; None if the plan has none."""
        if not (wanted := self.plan.stage_in):
            return None
        run = f"{self.run.job_id}.{self.run.restart}"
        place, keep_s = self.site["stage_in"]["directory"], self.site["stage_in"]["keep_s"]
        return stage_in.Request(place, run, str(self.directory), wanted, 0.0 if site_settings.deployed() else keep_s)

    def data_step(self, request: stage_in.Request, command: Sequence[str]) -> tuple[str, ...]:
        """Return the step that copies the data once on each node. `command` starts `slurm-plugin` there."""
        return tuple(steps.on_each_node([*command, *request.words()], self.run.nodes, self.run.groups, stop=True))

    def launch(self, environ: Mapping[str, str]) -> Launch:
        """Return the launch of the user's command on the attempt's nodes in this environment."""
        if self.plan.mark:
            return Launch(self.words, "The script is left as it is, started once, on the first node.")
        shape = Shape(
            nodes=len(self.run.nodes),
            slots=self.plan.slots,
            launch=self.plan.launch,
            root=os.geteuid() == 0,
            env=frozenset(environ),
            hostfile=f"{self.place.directory}/{HOSTFILE}",
            options=self.place.options,
            nodelist=self.nodelist,
            again=self.again,
            groups=tuple(
                Group(len(names), slots, cpus)
                for names, (slots, cpus) in zip(self.run.groups, self.plan.groups, strict=True)
            ),
            container=self.container,
            logs=self.logs,
            grace=self.plan.grace_s > 0,
        )
        made = self.mode.launch(self.words, shape)
        if not made.plugin_step(self.words):
            return made
        label = ("--label",) if self.plan.label else ()
        return made._replace(argv=(made.argv[0], *label, *made.argv[1:]))

    def record(self, phase: Phase, environ: Mapping[str, str]) -> Saved:
        """Return the record of a launch with this environment, or of a phase before the launch."""
        ranks = self.plugin_step and self.plan.launch == "task"
        tasks = [host.slots if ranks else 1 for host in self.run.allocation.hosts]
        container = self.container
        return Saved(
            job=self.run.job_id,
            restart=self.run.restart,
            attempt=self.run.attempt,
            phase=phase,
            state="running",
            code=None,
            nodes=self.run.nodes,
            firsts=(0, *itertools.accumulate(tasks[:-1])),
            groups=self.run.groups,
            cwd=str(Path.cwd()),
            words=self.words,
            argv=self.launch(environ).argv,
            environ=launch_record.of_the_job(environ),
            slurm_plugin=tuple(site_settings.plugin_command()),
            run_directory=self.site["run_directory"],
            node_directory=self.node_directory,
            inside=container.inside(()) if container else (),
            step=container.step if container else (),
            told=container.told if container else "",
        )

    def environment(self, reason: str, *, launched: bool) -> dict[str, str]:
        """Return the environment of the hooks or the launch: the caller's, the mode's and this package's variables.

        `launched`: for the launch, with the hooks' changes and the variable on which TaskProlog acts. Else for hooks.
        """
        ran = self.plan.continued if self.plan.trial else self.run.attempt > 0
        ours = {
            "SLURM_PLUGIN_ATTEMPT": str(self.run.attempt),
            "SLURM_PLUGIN_RESTART": str(int(self.again or ran)),
            "SLURM_PLUGIN_REASON": reason,
            "SLURM_PLUGIN_CHECKPOINT": self.plan.checkpoint and str(Path.cwd() / self.plan.checkpoint),
            "SLURM_PLUGIN_DIRECTORY": str(self.directory),
        }
        if self.mode.one_program and not self.plan.plain:
            ours["SLURM_PLUGIN_PORT"] = str(self.place.port)
        if HOSTFILE in self.mode.files(self.place):
            ours["SLURM_PLUGIN_HOSTFILE"] = f"{self.place.directory}/{HOSTFILE}"
        if request := self.data:
            ours["SLURM_PLUGIN_DATA"] = stage_in.variable(request.directory, request.run)
        theirs = (name for name in _FILES if f"/{job_directory.OURS}/" in self.environ.get(name, ""))
        given = without(self.environ, *self.mode.removed, *_ANOTHER_JOBS, *theirs)
        if self.plugin_step or not launched:  # the options of these steps say what they need
            given = without(own_variables(given), *steps.DEVICES, *(steps.MEMORY if launched else ()))
        environ = {**self._counted(), **self.mode.defaults(self.place), **given}
        environ |= {**self.mode.variables(self.place), **ours}
        if not self.container:  # paths inside a container differ
            set_, note = conda.environment(
                variables.with_values(self.words, environ), environ, PurePosixPath(Path.cwd()), os.path.exists
            )
            environ = {**environ, **set_}
            if note and launched:
                self.say(note)
        if not launched:
            return environ
        if self.hooks and not self.by_prolog:  # otherwise TaskProlog applies them on each node
            environ = prestart.apply(environ, self._changes())
        if self.asks and (self.by_prolog or not self.plugin_step):
            environ["SLURM_PLUGIN_LAUNCH"] = self.node_directory
        if self.own_prolog:
            environ[_PROLOG] = str(self.own_prolog)
        return {**environ, **(self.container.variables(environ) if self.container else {})}

    def _counted(self) -> dict[str, str]:
        """Return the accelerators of each group as --gpus-per-node sets them, for `slurm-plugin hosts`."""
        counts = enumerate(slots for slots, _ in self.plan.groups)
        return {f"SLURM_GPUS_PER_NODE_HET_GROUP_{group}": str(slots) for group, slots in counts if slots > 1}

    def _changes(self) -> prestart.Changes:
        """Return the hooks' changes on this node; no changes if their result file is invalid."""
        try:
            return prestart.read(self.site["run_directory"], self.node_directory)
        except ValueError as error:
            self.say(f"what the hooks changed cannot be read: {error}")
            return prestart.NONE
