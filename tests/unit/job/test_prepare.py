"""What stands between a job's nodes and its launch, in a directory of the test's own; Slurm's part is not run."""

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hostfiles
from hostfiles import Device, HostfileError, nodelist, npu
from slurm_plugin.errors import UsageError
from slurm_plugin.hooks import node_directory
from slurm_plugin.job import _parser, changes, network, prestart, ranktable, taskfile
from slurm_plugin.job.barrier import Answers
from slurm_plugin.job.prepare import Preparation
from slurm_plugin.job.run import Run, master_port
from slurm_plugin.modes import MODES
from slurm_plugin.wrapper import features

Prepare = Callable[..., Preparation]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The job's working directory; `../run` is the run directory, in which root's Prolog made job 7's."""
    workdir = tmp_path / "work"
    workdir.mkdir()
    monkeypatch.chdir(workdir)
    node_directory.create(str(tmp_path / "run"), "7.0.0", uid=os.getuid(), gid=os.getgid())
    return workdir


@pytest.fixture
def said() -> list[str]:
    """What went into the job's log."""
    return []


@pytest.fixture
def prepare(place: Path, said: list[str]) -> Prepare:
    """Makes one from the words that follow `job supervise`."""

    def make(
        words: str, *, environ: Mapping[str, str] | None = None, nodes: str = "n[1-2]", restart: int = 0, **site: Any
    ) -> Preparation:
        before, _, command = words.partition(" -- ")
        options = _parser().parse_args(["supervise", *before.split(), "--", *command.split()])
        tasks = str(options.slots if options.mode == "ascend" or options.launch == "task" else 1)
        counts = ",".join([tasks] * len(nodelist.expand(nodes)))
        allocation = hostfiles.from_lists(nodes, slots=options.slots, tasks_per_node=counts, job_id=7)
        settings = {
            "run_directory": str(place.parent / "run"),
            "infiniband_partitions": ["ib"],
            "prechecks": {"deadline_s": 10.0},
            **site,
        }
        return Preparation(options, Run(7, restart, "ib", allocation, restart), settings, environ or {}, said.append)

    return make


def hooked(place: Path, *, set_: Mapping[str, str] | None = None, unset: tuple[str, ...] = ()) -> None:
    """A hook beside the program, and what it changed on this node."""
    (place / "ma-pre-start.sh").touch()
    folder = taskfile.folder(str(place.parent / "run"), "7.0.0")
    prestart.hand_on(folder, changes.Changes(set_ or {}, unset, {}))


OURS = {
    "SLURM_PLUGIN_ATTEMPT": "0",
    "SLURM_PLUGIN_RESTART": "0",
    "SLURM_PLUGIN_REASON": "",
    "SLURM_PLUGIN_CHECKPOINT": "",
}


def test_the_whole_environment_of_a_plain_program(place: Path, prepare: Prepare) -> None:
    """The caller's, and what every program is told; nothing else."""
    one = prepare("--mode=single --slots=1 -- ./a.out", environ={"HOME": "/h", "SLURM_PLUGIN_PORT": "1"}, nodes="n1")
    expected = {
        "HOME": "/h",
        **OURS,
        "SLURM_PLUGIN_DIRECTORY": f"{place}/.slurm_plugin/7",
        "SLURM_PLUGIN_PORT": str(one.place.port),
    }
    assert one.environment("", launched=True) == one.environment("", launched=False) == expected


def test_a_restarted_program_is_told_so(prepare: Prepare) -> None:
    """Which attempt it is, that it is another one, why, and where its checkpoints are."""
    again = prepare("--mode=single --slots=1 --checkpoint=/c -- x", nodes="n1", restart=3)
    found = again.environment("n1 broke", launched=True)
    assert (
        found.items()
        >= {
            "SLURM_PLUGIN_ATTEMPT": "3",
            "SLURM_PLUGIN_RESTART": "1",
            "SLURM_PLUGIN_REASON": "n1 broke",
            "SLURM_PLUGIN_CHECKPOINT": "/c",
        }.items()
    )


def test_who_wins(place: Path, prepare: Prepare) -> None:
    """The mode's defaults, then the caller, then the mode's own variables, and ours last."""
    environ = {"GLOG_v": "0", "RANK_SIZE": "99", "SLURM_PLUGIN_ATTEMPT": "99"}
    found = prepare("--mode=ascend --slots=2 -- x", environ=environ).environment("", launched=True)
    assert found["MS_RDR_ENABLE"] == "0"  # a default that stands
    assert (found["GLOG_v"], found["RANK_SIZE"], found["SLURM_PLUGIN_ATTEMPT"]) == ("0", "4", "0")


@pytest.mark.parametrize(
    ("mode", "seen"), [("openmpi", "hook"), ("script", "hook"), ("single", "hook"), ("ascend", "caller")]
)
def test_a_hooks_changes_on_this_node_are_those_of_what_starts_here(
    place: Path, prepare: Prepare, mode: str, seen: str
) -> None:
    """A step of ours hands the environment to all nodes: there each node's own changes come by TaskProlog."""
    hooked(place, set_={"MINE": "hook"}, unset=("GONE",))
    one = prepare(f"--mode={mode} --slots=2 -- x", environ={"MINE": "caller", "GONE": "1"})
    found = one.environment("", launched=True)
    assert (found["MINE"], "GONE" in found) == (seen, seen == "caller")


def test_variables_that_the_launch_must_not_find(prepare: Prepare) -> None:
    """Those that the mode removes are gone; another mode leaves them."""
    environ = {"SLURM_NTASKS_PER_NODE": "4", "SLURM_NTASKS": "8"}
    found = {
        mode: prepare(f"--mode={mode} --slots=1 -- x", environ=environ).environment("", launched=True).keys() & environ
        for mode in ("mpich", "openmpi")
    }
    assert found == {"mpich": {"SLURM_NTASKS"}, "openmpi": {"SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"}}


# mode and command -> whether tasks differ, so that every node is asked and TaskProlog acts
ASKS = {
    "--mode=single --slots=1 -- x": False,
    "--mode=script --slots=1 -- bash x": False,
    "--mode=openmpi --slots=1 -- x": False,
    "--mode=pytorch --slots=1 -- x": True,
    "--mode=tensorflow --slots=1 -- x": True,
    "--mode=ascend --slots=1 -- x": True,
    "--mode=ascend --slots=1 --no-table -- x": True,
}


@pytest.mark.parametrize("words", ASKS)
@pytest.mark.parametrize("hook", [False, True])
def test_task_prolog_acts_on_the_launch_alone(
    place: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch, words: str, hook: bool
) -> None:
    """SLURM_PLUGIN_LAUNCH is set where every node is asked, for a hook too, but never for the hooks' own step."""
    monkeypatch.setattr(network, "own_address", lambda _name: "192.0.2.9")
    if hook:
        hooked(place)
    one = prepare(words, nodes="localhost", environ={"SLURM_PLUGIN_LAUNCH": "6.0.0"})
    assert one.asks is (hook or ASKS[words])
    assert "SLURM_PLUGIN_LAUNCH" not in one.environment("", launched=False)
    assert one.environment("", launched=True).get("SLURM_PLUGIN_LAUNCH") == ("7.0.0" if one.asks else None)


@pytest.mark.parametrize("name", ["LAUNCH", "HOSTFILE", "WORKERS", "WORLD_INFO"])
def test_what_another_job_told_its_program_is_not_this_ones(prepare: Prepare, name: str) -> None:
    """A job that was submitted by the program of a job of ours has that one's variables; those of no use here go."""
    one = prepare("--mode=single --slots=1 -- x", environ={f"SLURM_PLUGIN_{name}": "6"}, nodes="n1")
    assert f"SLURM_PLUGIN_{name}" not in one.environment("", launched=True)


@pytest.mark.parametrize("mode", MODES)
def test_the_hostfile_is_named_where_there_is_one(place: Path, prepare: Prepare, mode: str) -> None:
    """SLURM_PLUGIN_HOSTFILE is a file that stands there once all are written; other modes have neither."""
    one = prepare(f"--mode={mode} --slots=1 -- x", nodes="localhost")
    if mode == "ascend":
        one.write(Answers({}, "", (npu.line("localhost", "10.0.0.1", [Device(0)]),)))
    else:
        one.write(None)
    name = one.environment("", launched=True).get("SLURM_PLUGIN_HOSTFILE")
    written = {path.name for path in (place / ".slurm_plugin/7").iterdir()}
    assert name == (f"{place}/.slurm_plugin/7/hostfile" if "hostfile" in written else None)
    assert ("hostfile" in written) == (mode in {"openmpi", "mpich", "intelmpi", "horovod", "deepspeed", "script"})


def environment_of(place: Path) -> None:
    """A conda environment in the working directory."""
    (place / "env/bin").mkdir(parents=True)
    (place / "env/conda-meta").mkdir()
    (place / "env/bin/python").touch()


@pytest.mark.parametrize("path", [{}, {"PATH": ""}, {"PATH": "/bin"}])
def test_a_conda_environment(place: Path, prepare: Prepare, said: list[str], path: dict[str, str]) -> None:
    """Its variables are set for the hooks too, whatever PATH was; the log hears of it once, at the launch."""
    environment_of(place)
    one = prepare("--mode=single --slots=1 -- env/bin/python x.py", environ=path, nodes="n1")
    prefix = f"{place}/env"
    wanted = {
        "PATH": ":".join([f"{prefix}/bin", *filter(None, [path.get("PATH", os.defpath)])]),
        "CONDA_PREFIX": prefix,
        "CONDA_DEFAULT_ENV": prefix,
    }
    assert one.environment("", launched=False).items() >= wanted.items()
    assert said == []
    assert one.environment("", launched=True).items() >= wanted.items()
    assert said == [f"conda environment {prefix}: PATH, CONDA_PREFIX, CONDA_DEFAULT_ENV set as its activation does"]


def test_a_hook_comes_after_the_conda_environment(place: Path, prepare: Prepare) -> None:
    """It found the environment, so what it made of PATH stands."""
    environment_of(place)
    hooked(place, set_={"PATH": "/hook/bin"}, unset=("CONDA_PREFIX",))
    one = prepare("--mode=single --slots=1 -- env/bin/python x.py", environ={"PATH": "/bin"}, nodes="n1")
    found = one.environment("", launched=True)
    assert found["PATH"] == "/hook/bin"
    assert "CONDA_PREFIX" not in found
    assert one.environment("", launched=False)["CONDA_PREFIX"] == f"{place}/env"


def test_values_that_are_no_text(prepare: Prepare) -> None:
    """A value in another encoding is handed on byte for byte, and nothing of ours prints it."""
    value = os.fsdecode(b"\xff\xfe caf\xe9")
    one = prepare("--mode=pytorch --slots=1 -- x", environ={"NAME": value})
    assert os.fsencode(one.environment("", launched=True)["NAME"]) == b"\xff\xfe caf\xe9"


def test_the_question(place: Path, prepare: Prepare) -> None:
    """The barrier hands out the task's lines and asks for devices; a recheck after a failure only checks."""
    one = prepare("--mode=ascend --slots=2 --retries=1 -- x", run_directory="/r", prechecks={"deadline_s": 3.0})
    first, later = one.question("barrier"), one.question("recheck")
    assert (first.hook, first.job_id, first.directory, first.run_directory) == ("barrier", 7, "7.0.0", "/r")
    assert (first.hosts, first.settings, first.check, first.devices) == ("n[1-2]", {"deadline_s": 3.0}, True, True)
    assert first.task_script == MODES["ascend"].task_script(one.place)
    assert later == replace(first, hook="recheck", task_script=None, devices=False)


def test_what_is_asked_of_a_mode_whose_tasks_are_alike(place: Path, prepare: Prepare) -> None:
    """Checks alone; with a hook an empty file for it to add to; without restarts no checks."""
    assert prepare("--mode=openmpi --slots=1 --retries=1 -- x").question("barrier").task_script is None
    hooked(place)
    asked = prepare("--mode=openmpi --slots=1 -- x").question("barrier")
    assert (asked.task_script, asked.check, asked.devices) == ("", False, False)


@pytest.mark.parametrize(
    ("option", "partitions", "expected"),
    [("auto", ["ib"], True), ("auto", ["cpu"], False), ("yes", [], True), ("no", ["ib"], False)],
)
def test_infiniband(prepare: Prepare, option: str, partitions: list[str], expected: bool) -> None:
    """What the job says; where it leaves it to the site, its partition decides."""
    one = prepare(f"--mode=single --slots=1 --infiniband={option} -- x", nodes="n1", infiniband_partitions=partitions)
    assert [one.question(hook).infiniband for hook in ("barrier", "recheck")] == [expected] * 2


def test_hook_step(place: Path, prepare: Prepare) -> None:
    """One step over all nodes that ends when one fails; the hooks by absolute paths, the interpreter the command's."""
    (place / "src").mkdir()
    for name in ("src/train.py", "src/ma-pre-start.py", "src/startup-hook.sh"):
        (place / name).touch()
    one = prepare("--mode=pytorch --slots=1 -- /opt/bin/python3.11 src/train.py")
    step = one.hook_step(["/s/slurm-plugin"])
    assert "--kill-on-bad-exit=1" in step
    assert "--nodelist=n[1-2]" in step
    assert step[step.index("--") :] == (
        *("--", "/s/slurm-plugin", "job", "prestart", "--run-directory", str(place.parent / "run")),
        *("--directory", "7.0.0", "--python", "/opt/bin/python3.11"),
        *("--", f"{place}/src/startup-hook.sh", f"{place}/src/ma-pre-start.py"),
    )


@pytest.mark.parametrize("uid", [0, 20001])
def test_the_launch(prepare: Prepare, monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    """As many processes as the nodes have slots; root's mpirun is told that it is root's."""
    made = prepare("--mode=openmpi --slots=4 -- ./a.out -v")
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    argv = made.launch({}).argv
    assert argv[argv.index("-np") + 1] == "8"
    assert argv[-2:] == ("./a.out", "-v")
    assert ("--allow-run-as-root" in argv) == (uid == 0)


def test_the_launch_names_the_hostfile_by_its_path(place: Path, prepare: Prepare) -> None:
    """Where its options name it: nothing expands a variable in a command that no shell reads."""
    argv = prepare("--mode=intelmpi --slots=1 -- x").launch({}).argv
    assert argv[argv.index("-machinefile") + 1] == f"{place}/.slurm_plugin/7/hostfile"


@pytest.mark.parametrize(
    ("caller", "hook", "handed_on"),
    [
        ({}, ({}, ()), "NCCL_DEBUG=INFO"),
        ({"NCCL_DEBUG": "WARN"}, ({}, ()), "NCCL_DEBUG"),
        ({}, ({"NCCL_DEBUG": "WARN"}, ()), "NCCL_DEBUG"),
        ({"NCCL_DEBUG": "WARN"}, ({}, ("NCCL_DEBUG",)), "NCCL_DEBUG=INFO"),
    ],
)
def test_nccl_debug(
    place: Path,
    prepare: Prepare,
    caller: dict[str, str],
    hook: tuple[dict[str, str], tuple[str, ...]],
    handed_on: str,
) -> None:
    """The caller's own value reaches the ranks, and so does a hook's; ours only where there is neither."""
    hooked(place, set_=hook[0], unset=hook[1])
    one = prepare("--mode=openmpi --slots=1 -- x", environ=caller)
    argv = one.launch(one.environment("", launched=True)).argv
    assert argv[argv.index("-x") + 1] == handed_on


def test_a_mode_that_is_none(prepare: Prepare) -> None:
    """A script that was edited, or made by a newer version: what is accepted, in one line."""
    with pytest.raises(UsageError, match=r"^--mode=slurm: found no such mode; accepted are: single, openmpi, "):
        prepare("--mode=slurm --slots=1 -- x")


def answers(*nodes: str, devices: int = 2) -> Answers:
    """What these nodes said of their devices."""
    lines = (
        npu.line(node, f"10.0.0.{node[1:]}", [Device(each, f"10.1.{node[1:]}.{each}") for each in range(devices)])
        for node in nodes
    )
    return Answers({}, "", tuple(lines))


@pytest.fixture
def table(place: Path) -> Path:
    """Where the rank table is, with the one of an earlier attempt in it."""
    path = place / ".slurm_plugin/7/jobstart_hccl.json"
    path.parent.mkdir(parents=True)
    path.write_text("stale")
    return path


def test_a_rank_table_of_all_nodes(prepare: Prepare, table: Path) -> None:
    """It replaces the earlier attempt's, complete, in the nodes' own order whoever answered first."""
    prepare("--mode=ascend --slots=2 -- x").write(answers("n2", "n1"))
    _, found = ranktable.wait(table, deadline_s=0.0)
    assert [(server.id, [device.id for device in server.devices]) for server in found.servers] == [
        ("10.0.0.1", [0, 1]),
        ("10.0.0.2", [0, 1]),
    ]
    assert list(table.parent.iterdir()) == [table]


@pytest.mark.parametrize(
    ("said_by", "why"),
    [
        (answers("n1"), "n2 did not say its devices, one of 1; each host says one line"),
        (answers(), "n1 did not say its devices, one of 2; each host says one line"),
        (answers("n1", "n2", devices=1), "n1: 2 tasks and 1 devices; one task a device"),
    ],
)
def test_no_rank_table(prepare: Prepare, table: Path, said_by: Answers, why: str) -> None:
    """A node that is missing, or has another number of devices than tasks: an error, and no old table is left."""
    with pytest.raises(HostfileError) as caught:
        prepare("--mode=ascend --slots=2 -- x").write(said_by)
    assert str(caught.value) == why
    assert not table.exists()


def test_a_dynamic_cluster_has_no_table(prepare: Prepare, monkeypatch: pytest.MonkeyPatch, table: Path) -> None:
    """Nobody is asked for devices, and a file of that name is not ours to touch."""
    monkeypatch.setattr(network, "own_address", lambda _name: "192.0.2.9")
    one = prepare("--mode=ascend --slots=2 --no-table -- x")
    assert not one.question("barrier").devices
    one.write(answers())
    assert table.read_text() == "stale"


def test_an_address_that_others_cannot_reach(prepare: Prepare, said: list[str]) -> None:
    """For MPI it is a line of the log, and Hydra chooses its network itself."""
    one = prepare("--mode=mpich --slots=1 -- x", nodes="localhost")
    assert said == ["localhost is 127.0.0.1 here, which no other node can reach; mend /etc/hosts"]
    assert "HYDRA_IFACE" not in one.environment("", launched=True)


def test_the_interface_of_the_first_node(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the address which the first node's name has."""
    monkeypatch.setattr(network, "own_address", {"n1": "127.0.0.1"}.__getitem__)
    assert prepare("--mode=mpich --slots=1 -- x").environment("", launched=True)["HYDRA_IFACE"] == "lo"


def test_a_name_is_resolved_only_for_who_needs_it(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name service that hangs costs other modes nothing."""
    asked: list[str] = []

    def address(name: str) -> str:
        asked.append(name)
        return "127.0.0.1"

    monkeypatch.setattr(network, "own_address", address)
    needs = set()
    for mode in set(MODES) - {"single"}:
        prepare(f"--mode={mode} --slots=1 -- x")
        needs |= {mode} if asked else set()
        asked.clear()
    assert needs == {"mpich", "horovod", "script"}


def test_the_port(prepare: Prepare) -> None:
    """The job's own where nothing listens there, another one where something does; every variable names the same."""
    words = "--mode=pytorch --slots=1 -- x"
    restart = os.getpid()  # a port that no other run of these tests listens on
    usual = master_port(7, restart)
    with socket.create_server(("", usual)):
        found = prepare(words, restart=restart).environment("", launched=True)
    assert found["MASTER_PORT"] == found["SLURM_PLUGIN_PORT"] != str(usual)
    assert prepare(words, restart=restart).environment("", launched=True)["MASTER_PORT"] == str(usual)


def test_a_working_directory_that_cannot_be_written(place: Path, prepare: Prepare) -> None:
    """The job's directory cannot be made: an OSError, which `job supervise` says in one line."""
    (place / ".slurm_plugin").touch()
    with pytest.raises(NotADirectoryError, match=r"\.slurm_plugin"):
        prepare("--mode=single --slots=1 -- x", nodes="n1")


@pytest.mark.parametrize("mode", features.MODES)
def test_a_whole_script_is_started_as_it_is_in_every_mode_that_it_may_have(
    prepare: Prepare, place: Path, mode: str
) -> None:
    """Once, in no step of ours, with the mode's variables; no hook that lies about is looked for."""
    hooked(place)
    found = prepare(f"--mode={mode} --slots=4 --checkpoint=ck --script batch mark -- /x/slurm_script.0 train.py")
    assert found.launch({}).argv == found.words == ("/x/slurm_script.0", "train.py")
    assert (found.hooks, found.own_step, found.task_script, found.tells) == ((), False, None, False)
    environ = found.environment("", launched=True)
    assert environ["SLURM_PLUGIN_CHECKPOINT"] == str(place / "ck")
    assert "RANK" not in environ
    assert ("MASTER_ADDR" in environ) == (mode in ("script", "pytorch", "deepspeed"))
    assert ("SLURM_PLUGIN_HOSTFILE" in environ) == (mode != "pytorch")
