"""The record of a spec: its keys in the order of the reference page, their descriptions, and derived values."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, get_args

from msgspec import Meta, structs

from slurm_plugin.launch import Group as GroupShape
from slurm_plugin.launch import Options, Shape
from slurm_plugin.launch.container import Container as Contained
from slurm_plugin.launch.log_copy import Logs as LogFiles
from slurm_plugin.records import durations, log_files
from slurm_plugin.spec import command_line
from slurm_plugin.spec.key_types import (
    Accelerators,
    Array,
    Ascend,
    Command,
    Constraint,
    Container,
    Count,
    Cpus,
    Dependency,
    Directory,
    Exclusive,
    Fewest,
    FilePath,
    FilePaths,
    Group,
    HoldTime,
    Hooks,
    HostList,
    Licenses,
    Logs,
    Mail,
    Memory,
    Metadata,
    ModeName,
    Modules,
    Moment,
    Name,
    Nice,
    Nodes,
    Part,
    Performance,
    Retries,
    Share,
    StageIn,
    TensorFlow,
    Word,
    Words,
    YesNo,
)
from slurm_plugin.spec.sbatch_flags import KEY_OF
from slurm_plugin.spec.search_key import Search

ARRAY_OUTPUT: Final = "%x-%A_%a.out"  # the default for a job array
TASK_DIRECTORY: Final = "%x-%a"  # of one of `tasks`: NAME-INDEX
Flags: TypeAlias = Annotated[
    Mapping[str, str],
    Meta(description="a mapping of `flag: value` lines, such as `switches: 1`; `yes` for a flag without a value"),
]

Alternatives: TypeAlias = Annotated[
    tuple[Mapping[str, Any], ...],
    Meta(description="a list of mappings, each with the keys in which it differs, such as `- {nodes: 4}`"),
]


class Key(NamedTuple):
    """A key's description, and its names in other systems."""

    means: str
    others: str = ""  # names of the key in job specs of other systems, in lower case with `_`
    answer: str = ""  # what to write instead of these names; empty: the key


class Spec(Part, frozen=True, kw_only=True):
    """One job."""

    name: Annotated[Name, Key("The job's name", "jobname title")]
    extends: Annotated[Name | None, Key("A preset of the site; the job's own keys win")] = None
    mode: Annotated[ModeName, Key("How the command is launched", "framework backend launcher kind")]
    nodes: Annotated[Nodes, Key("How many nodes", "num_nodes nnodes n_nodes workers replicas node_count")] = 1
    accelerators: Annotated[Accelerators, Key("Accelerators of each node; each gets a process")] = Accelerators()
    groups: Annotated[
        tuple[Group, ...],
        Key(
            "Nodes of several kinds in one job; the first group has the batch script and rank 0",
            "het hetjob components roles",
            "groups, the resources of each kind of nodes",
        ),
    ] = ()
    cpus: Annotated[
        Cpus | None,
        Key("CPUs for each process", "cpus_per_task cpu cores vcpus ncpus num_cpus", "cpus, those for each process"),
    ] = None
    memory: Annotated[Memory | None, Key("Memory of each node", "ram")] = None
    time: Annotated[
        str | None,
        Key(
            "The longest run time: 90s, 30m, 4h, 2d, UNLIMITED, or as sbatch has it",
            "time_limit walltime timeout timeout_min timeout_s max_time duration",
        ),
    ] = None
    partition: Annotated[Words | None, Key("Partitions; the first to start the job runs it", "queue partitions")] = None
    account: Annotated[Word | None, Key("The account to charge")] = None
    qos: Annotated[Words | None, Key("Quality of service")] = None
    constraint: Annotated[Constraint | None, Key("Features that the nodes must have", "features feature")] = None
    nodelist: Annotated[HostList | None, Key("Nodes that the job must have", "host hosts")] = None
    exclude: Annotated[HostList | None, Key("Nodes that the job must not have")] = None
    reservation: Annotated[Words | None, Key("The reservation whose nodes it takes")] = None
    licenses: Annotated[Licenses | None, Key("Licences that the job holds while it runs")] = None
    exclusive: Annotated[Exclusive, Key("Whether the job has its nodes for itself")] = "no"
    array: Annotated[Array | None, Key("Numbers of the tasks of a job array")] = None
    dependency: Annotated[
        Dependency | None,
        Key("Jobs to wait for", "depends_on needs", "dependency: afterok:JOB"),
    ] = None
    begin: Annotated[Moment | None, Key("The earliest start")] = None
    deadline: Annotated[Moment | None, Key("Slurm removes the job if it cannot end before")] = None
    nice: Annotated[Nice | None, Key("How much its priority is lowered")] = None
    priority: Annotated[
        Literal["normal", "urgent", "very-urgent"], Key("Its place in the queue, as the site maps the word")
    ] = "normal"
    mail: Annotated[
        Mail | None,
        Key("Who gets mail, about which events", "mail_type mail_user email", "mail: {user: ..., type: ...}"),
    ] = None
    sbatch: Annotated[Flags, Key("Any other flag of sbatch", "comment", "sbatch: {comment: ...}")] = {}  # noqa: RUF012 - msgspec copies it
    command: Annotated[
        Command,
        Key("The command to run; only mode script gives it to a shell", "cmd exec executable entrypoint args program"),
    ]
    tasks: Annotated[
        tuple[Command, ...],
        Key(
            "Commands of one submission, each run as a task of an array, with its output in NAME-INDEX/",
            "commands jobs batch",
            "tasks, a list of commands",
        ),
    ] = ()
    env: Annotated[
        Mapping[str, str],
        Key("Variables of the command; values are literal texts", "environment envs env_vars variables"),
    ] = {}
    env_file: Annotated[
        FilePaths, Key("Files with more variables, which are not copied into the script", "env_files dotenv")
    ] = ()
    modules: Annotated[Modules, Key("Modules to load before the command", "module module_load")] = ()
    stage_in: Annotated[
        tuple[StageIn, ...],
        Key(
            "Data that each node copies to its own disk before the command",
            "data datasets dataset inputs",
            "stage_in: [{from: ...}]",
        ),
    ] = ()
    hooks: Annotated[Hooks, Key("Files to run before or after the command, and when the job fails")] = Hooks()
    share: Annotated[
        Share | None,
        Key("A group of users who may see the job, or act on it", "sharing permissions", "share: {group: ...}"),
    ] = None
    container: Annotated[Container | None, Key("The image that the command runs in, with apptainer or pyxis")] = None
    workdir: Annotated[Directory | None, Key("The job's directory", "cwd working_dir working_directory work_dir")] = (
        None
    )
    output: Annotated[FilePath, Key("The log's name, with the patterns of sbatch", "log stdout logfile log_file")] = (
        "%x-%j.out"
    )
    error: Annotated[FilePath | None, Key("A file of its own for stderr", "stderr errors error_file")] = None
    open_mode: Annotated[Literal["append", "truncate"], Key("What happens to an existing log")] = "append"
    logs: Annotated[Logs, Key("Log files of nodes and ranks beside the job's log, rank numbers in that")] = Logs()
    checkpoint: Annotated[
        FilePath | None,
        Key("The directory of the program's checkpoints", "checkpoints checkpoint_dir ckpt", "checkpoint, a directory"),
    ] = None
    progress: Annotated[
        str | None,
        Key("A regular expression that finds the step in a line of the log, if its lines are not known"),
    ] = None
    performance: Annotated[Performance | None, Key("What happens if its iterations are slow", "slow slowness")] = None
    retries: Annotated[
        Retries, Key("The most restarts after faults", "max_retries restarts max_restarts retry resumes")
    ] = 0
    queue_timeout: Annotated[
        str | None, Key("The longest wait after a fault: a time as in `time`; 0 or never for no limit")
    ] = None
    unconditional: Annotated[YesNo, Key("Whether any failure restarts the job")] = "no"
    spares: Annotated[Count, Key("Nodes to replace faulty ones")] = 0
    min_nodes: Annotated[Fewest | None, Key("The fewest nodes that the program can run on")] = None
    grow: Annotated[
        str | None,
        Key("How long more nodes must be free before the job is requeued for them: a time as in `time`", "scale_up"),
    ] = None
    grace: Annotated[str | None, Key("The time to save after SIGUSR1: a time as in `time`")] = None
    hang_timeout: Annotated[
        str | None, Key("The longest time without output before a restart: a time as in `time`")
    ] = None
    hold_on_failure: Annotated[
        HoldTime | None,
        Key("How long to keep the nodes after a failure: a time as in `time`, or yes for 4h", "hold debug"),
    ] = None
    infiniband: Annotated[
        Literal["auto", "yes", "no"], Key("Whether the job uses InfiniBand, whose limits are then checked")
    ] = "auto"
    launch: Annotated[Literal["node", "task"], Key("What a task is: node, a launcher; task, one process")] = "node"
    tensorflow: Annotated[TensorFlow | None, Key("Of mode tensorflow: which tasks are no workers")] = None
    ascend: Annotated[Ascend | None, Key("Of mode ascend: the rank table, and how much is logged")] = None
    prechecks: Annotated[tuple[Literal["fabric"], ...], Key("Checks in addition to the site's")] = ()
    metadata: Annotated[Metadata, Key("Annotations of other training systems")] = Metadata()
    search: Annotated[
        Search | None,
        Key("A search of hyperparameters: each trial runs the command", "searcher hyperparameters sweep hpo", "search"),
    ] = None
    any_of: Annotated[Alternatives, Key("The same job on other nodes; the first to start is the one that runs")] = ()

    @staticmethod
    def meant(key: str) -> str:
        """Return what to write instead of an unknown key; empty if that is not known."""
        return synonyms().get(key.lower().replace("-", "_"), "")

    @property
    def components(self) -> tuple["Spec", ...]:
        """Return each group as a separate spec; without groups, the spec itself."""
        alone = {"groups": (), "tensorflow": None}  # with groups, parameter servers are tasks
        return tuple(structs.replace(self, **alone, **each.own_keys) for each in self.groups) or (self,)

    @property
    def slots(self) -> int:
        """Return the number of processes on a node: one for each accelerator, 1 without accelerators."""
        return self.accelerators.count or 1

    @property
    def queue_timeout_s(self) -> int | None:
        """Return the longest wait after a requeue, in seconds; 0: no limit, None: the site's limit."""
        return None if self.queue_timeout is None else durations.wait(self.queue_timeout)

    @property
    def unconditionally(self) -> bool:
        """Return whether any failure restarts the job."""
        return self.unconditional == "yes" or self.metadata.annotations.unconditional == "true"

    @property
    def outlives_nodes(self) -> bool:
        """Return whether Slurm must keep the job if it loses a node."""
        return self.retries > 0 and (self.spares > 0 or self.least < self.nodes)

    @property
    def least(self) -> int:
        """Return the fewest nodes that the program can run on."""
        return self.nodes if self.min_nodes is None else self.min_nodes

    @property
    def servers(self) -> int:
        """Return the most parameter servers on one node, in addition to its tasks; 0 with groups: servers are tasks."""
        return -(-self.tensorflow.ps // self.least) if self.tensorflow and not self.groups else 0

    @property
    def words(self) -> tuple[str, ...]:
        """Return the command's words; in mode `script`, a call of bash. Raise ValueError for a wrong command."""
        if self.mode == "script":
            if command_line.NOT_IN_A_WORD.search(self.command):
                raise ValueError(command_line.NO_ARGUMENT)
            return ("bash", "-c", self.command)
        return command_line.split(self.command)

    @property
    def shape(self) -> Shape:
        """Return the parts of the spec that the launch depends on."""
        parts, cards = self.tensorflow or TensorFlow(), self.ascend or Ascend()
        options = Options(
            ps=parts.ps,
            chief=parts.chief == "yes",
            evaluator=parts.evaluator == "yes",
            table=cards.table == "yes",
            messages=cards.messages,
        )
        groups = tuple(GroupShape(each.nodes, each.slots, each.cpus) for each in self.components)
        stem = f"{self.logs.directory}/{log_files.stem(self.name, '$SLURM_JOB_ID')}"
        return Shape(
            nodes=sum(each.nodes for each in groups),
            slots=groups[0].slots,
            launch=self.launch,
            env=frozenset(self.env),
            options=options,
            groups=groups if self.groups else (),
            container=self.contained,
            logs=LogFiles(stem, self.logs_per, bool(self.error)) if self.logs_per != log_files.PER[0] else None,
            grace=self.grace is not None,
        )

    @property
    def logs_per(self) -> str:
        """Return which log files there are beside the job's log. Mode `ascend` has all by default."""
        return self.logs.per or ("both" if self.mode == "ascend" else log_files.PER[0])

    @property
    def contained(self) -> Contained | None:
        """Return the container without the job's directory (see `placed`); None without a container."""
        said = self.container
        if said is None or said.runtime is None:
            return None
        gpus = self.accelerators.gpu or any(each.accelerators and each.accelerators.gpu for each in self.groups)
        return Contained(
            said.image,
            said.runtime,
            said.mounts,
            said.workdir or "",
            writable=said.writable == "yes",
            home=said.home == "yes",
            gpu="nv" if gpus else "",
            env=tuple(self.env),
        )


WORDS: Final[Mapping[str, Key]] = {
    field.name: next(each for each in get_args(field.type) if isinstance(each, Key)) for field in structs.fields(Spec)
}
# What to write -> names in other systems for a part of a key, or for several keys.
_PARTS: Final[Mapping[str, str]] = {
    "accelerators: {gpu: N}, those of each node": "gpus gpus_per_node gpus_per_task gpu gres num_gpus ngpus gpu_count",
    "accelerators: {npu: N}, those of each node": "npu npus",
    "accelerators: as many processes on each node as it has of them": (
        "ntasks ntasks_per_node tasks_per_node nproc_per_node slots"
    ),
    "command, or mode: script for a script of your own": "run script wrap commands",
    "command, which begins with the environment's own program: /opt/conda/envs/NAME/bin/python train.py": (
        "conda conda_env conda_environment venv virtualenv python interpreter"
    ),
    "container: {image: ...}": "image docker apptainer singularity enroot pyxis",
    "container: {image: ..., mounts: ...}": "mounts volumes bind_mounts binds",
    "hooks: {after: ...}": "after epilog post_run",
    "hooks: {before: ...}": "before prolog setup pre_run",
    "nodes, accelerators, cpus and memory, keys of their own": "resources",
}


@cache
def synonyms() -> Mapping[str, str]:
    """Return what to write instead of each name of other systems and each flag of sbatch."""
    flags = {flag.replace("-", "_"): key for flag, key in KEY_OF.items() if flag.replace("-", "_") != key}
    whole = {other: words.answer or key for key, words in WORDS.items() for other in words.others.split()}
    parts = {other: answer for answer, others in _PARTS.items() for other in others.split()}
    return {**flags, **whole, **parts}
