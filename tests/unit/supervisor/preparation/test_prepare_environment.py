"""The environment of a job's program: whose value wins, and the variables of each program."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

import hostfiles
from hostfiles import Device, npu
from slurm_plugin.launch import MODES
from slurm_plugin.records import node_directory, site_settings
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.supervisor import network
from slurm_plugin.supervisor.guard.barrier import Answers
from slurm_plugin.supervisor.preparation.prepare import Preparation
from slurm_plugin.supervisor.run import Run, master_port
from tests.unit.supervisor.plans import plan
from tests.unit.supervisor.preparing import Prepare, hooked

OURS = {
    "SLURM_PLUGIN_ATTEMPT": "0",
    "SLURM_PLUGIN_RESTART": "0",
    "SLURM_PLUGIN_REASON": "",
    "SLURM_PLUGIN_CHECKPOINT": "",
}


def test_the_whole_environment_of_a_plain_program(place: Path, prepare: Prepare) -> None:
    """The caller's variables, and those of every program; no others."""
    one = prepare(plan("./a.out"), environ={"HOME": "/h", "SLURM_PLUGIN_PORT": "1"}, nodes="n1")
    expected = {
        "HOME": "/h",
        **OURS,
        "SLURM_PLUGIN_DIRECTORY": f"{place}/.slurm_plugin/7",
        "SLURM_PLUGIN_PORT": str(one.place.port),
    }
    assert one.environment("", launched=True) == one.environment("", launched=False) == expected


def test_a_restarted_program_is_told_so(prepare: Prepare) -> None:
    """The number of the attempt, that it is a restart, the cause, and the checkpoint directory."""
    again = prepare(plan("x", checkpoint="/c"), nodes="n1", restart=3)
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


def test_what_another_job_has_requested(prepare: Prepare) -> None:
    """It does not reach a step of slurm_plugin. A program that starts its own steps keeps the variables."""
    others = {"SLURM_GPUS_PER_NODE": "1", "SLURM_GPUS": "1", "SLURM_GRES": "gpu:1", "SLURM_MEM_PER_NODE": "50"}
    environ = {**others, "SLURM_GPUS_ON_NODE": "4", "SLURM_JOB_GPUS": "0"}
    for given, launched, kept in [
        (plan("x", mode="pytorch", launch="task", slots=4), True, {"SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS"}),
        (plan("x", mode="pytorch"), False, {"SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS", "SLURM_MEM_PER_NODE"}),
        (plan("x", plain=True), True, {*environ}),
        (plan("srun x", mode="pytorch"), True, {*environ}),
    ]:
        found = prepare(given, environ=environ).environment("", launched=launched)
        assert {*found} & {*environ} == kept, (given, launched)


def test_who_wins(place: Path, prepare: Prepare) -> None:
    """The mode's defaults, then the caller, then the mode's own variables, and ours last."""
    environ = {"GLOG_v": "0", "RANK_SIZE": "99", "SLURM_PLUGIN_ATTEMPT": "99"}
    found = prepare(plan("x", mode="ascend", slots=2), environ=environ).environment("", launched=True)
    assert found["MS_RDR_ENABLE"] == "0"  # a default that nobody changed
    assert (found["GLOG_v"], found["RANK_SIZE"], found["SLURM_PLUGIN_ATTEMPT"]) == ("0", "4", "0")


@pytest.mark.parametrize(
    ("mode", "seen"), [("openmpi", "hook"), ("script", "hook"), ("single", "hook"), ("ascend", "caller")]
)
def test_a_hooks_changes_on_this_node_are_those_of_what_starts_here(
    place: Path, prepare: Prepare, mode: str, seen: str
) -> None:
    """Our step passes the environment to all nodes. On them TaskProlog applies each node's own changes."""
    hooked(place, set_={"MINE": "hook"}, unset=("GONE",))
    one = prepare(plan("x", mode=mode, slots=2), environ={"MINE": "caller", "GONE": "1"})
    found = one.environment("", launched=True)
    assert (found["MINE"], "GONE" in found) == (seen, seen == "caller")


def test_variables_that_the_launch_must_not_find(prepare: Prepare) -> None:
    """Those that the mode removes are gone. Other modes keep them."""
    environ = {"SLURM_NTASKS_PER_NODE": "4", "SLURM_NTASKS": "8"}
    found = {
        mode: prepare(plan("x", mode=mode), environ=environ).environment("", launched=True).keys() & environ
        for mode in ("mpich", "openmpi")
    }
    assert found == {"mpich": {"SLURM_NTASKS"}, "openmpi": {"SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"}}


# mode and command -> whether tasks differ, so that every node is asked and TaskProlog acts
ASKS = [
    (plan("x"), False),
    (plan("bash x", mode="script"), False),
    (plan("x", mode="openmpi"), False),
    (plan("x", mode="pytorch"), True),
    (plan("x", mode="tensorflow"), True),
    (plan("x", mode="ascend"), True),
    (plan("x", mode="ascend", table=False), True),
]


@pytest.mark.parametrize(("given", "asks"), ASKS)
@pytest.mark.parametrize("hook", [False, True])
def test_task_prolog_acts_on_the_launch_alone(
    place: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch, given: JobPlan, asks: bool, hook: bool
) -> None:
    """SLURM_PLUGIN_LAUNCH is set if every node is asked, also for a hook, but never for the hooks' own step."""
    monkeypatch.setattr(network, "own_address", lambda _name: "192.0.2.9")
    if hook:
        hooked(place)
    one = prepare(given, nodes="localhost", environ={"SLURM_PLUGIN_LAUNCH": "6.0.0"})
    assert one.asks is (hook or asks)
    assert "SLURM_PLUGIN_LAUNCH" not in one.environment("", launched=False)
    assert one.environment("", launched=True).get("SLURM_PLUGIN_LAUNCH") == ("7.0.0" if one.asks else None)


@pytest.mark.parametrize(
    ("given", "deployed", "prolog", "own"),
    [
        (plan("x", mode="pytorch"), False, "/etc/slurm/slurm_plugin/hooks/task_prolog", True),
        (plan("x", mode="pytorch"), True, "/etc/slurm/slurm_plugin/hooks/task_prolog", False),
        (plan("x", mode="tensorflow"), True, "/etc/slurm/task_prolog", True),
        (plan("x", mode="tensorflow"), True, "", True),
        (plan("x", mode="openmpi"), False, "", False),
        (plan("x"), False, "", False),
    ],
)
def test_the_task_prolog_of_a_job(
    place: Path, monkeypatch: pytest.MonkeyPatch, given: JobPlan, deployed: bool, prolog: str, own: bool
) -> None:
    """srun runs one of the job's own, unless slurm.conf's is slurm_plugin's or no task needs any.

    If the file with the variables is gone, it ends the task.
    """
    monkeypatch.setattr(site_settings, "deployed", lambda: deployed)
    monkeypatch.setattr(site_settings, "site_root", lambda: "/etc/slurm/slurm_plugin")
    allocation = hostfiles.from_lists("n[1-2]", slots=1, job_id=7)
    settings = {"run_directory": str(place.parent / "run"), "infiniband_partitions": [], "prechecks": {}}
    run, outer = Run(7, 0, "", allocation, 0), {"SLURM_TASK_PROLOG": "/w/.slurm_plugin/6/task_prolog.sh"}
    one = Preparation(given, run, settings, outer, print, task_prolog=lambda: prolog)
    one.write_prolog()
    path = place / ".slurm_plugin/7/task_prolog.sh"
    assert one.question("barrier").prolog == (str(path) if own else "")
    assert one.environment("", launched=True).get("SLURM_TASK_PROLOG") == (str(path) if own else None)
    assert path.exists() is own
    if own:
        place_of_tasks = node_directory.user_folder(settings["run_directory"], "7.0.0")
        node_directory.write_user_file(place_of_tasks, "task.sh", "echo export RANK=$SLURM_NODEID\n")
        name = one.node_directory
        environ = {"SLURM_PLUGIN_LAUNCH": name, "SLURM_NODEID": "1", "SLURMD_NODENAME": "n2", "SLURM_JOB_ID": "7"}
        done = subprocess.run([path], env=environ, capture_output=True, text=True, check=True)
        own_value = "unset SLURM_TASK_PROLOG\n"
        assert (done.stdout, done.stderr) == (f"{own_value}export RANK=1\nunset SLURM_PLUGIN_LAUNCH\n", "")
        Path(place_of_tasks, "task.sh").unlink()  # /tmp was cleaned
        done = subprocess.run([path], env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f" n2 lost {place_of_tasks}/task.sh, so this task does not start" in done.stdout


@pytest.mark.parametrize("code", [0, 3])
def test_the_users_own_task_prolog(
    tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The job's runs it first, and leaves its name to the program. If it fails, the task fails, as with srun."""
    monkeypatch.setattr(network, "own_address", lambda _name: "192.0.2.9")
    users = tmp_path / "user's prolog"
    users.write_text(f"#!/bin/sh\necho export A=1\nexit {code}\n")
    users.chmod(0o755)
    one = prepare(plan("x", mode="pytorch"), nodes="localhost", environ={"SLURM_TASK_PROLOG": str(users)})
    one.write_prolog()
    done = subprocess.run([str(one.own_prolog)], capture_output=True, text=True, check=False)
    left = "" if code else f"export SLURM_TASK_PROLOG={users}\n"
    assert (done.returncode, done.stdout, done.stderr) == (code, f"export A=1\n{left}", "")


def test_what_another_job_told_its_program_is_not_this_ones(prepare: Prepare) -> None:
    """A job that a job's program submitted inherits that job's variables. The wrong ones are removed."""
    for name in ["LAUNCH", "HOSTFILE", "WORKERS", "WORLD_INFO"]:
        one = prepare(plan("x"), environ={f"SLURM_PLUGIN_{name}": "6"}, nodes="n1")
        assert f"SLURM_PLUGIN_{name}" not in one.environment("", launched=True), name
    errors = {"PET_LOG_DIR": "/mine/logs", "TORCHELASTIC_ERROR_FILE": "/w/.slurm_plugin/6/errors/0/n1/error.json"}
    found = prepare(plan("x"), environ=errors, nodes="n1").environment("", launched=True)
    assert [name for name in errors if name in found] == ["PET_LOG_DIR"]


@pytest.mark.parametrize("mode", MODES)
def test_the_hostfile_is_named_where_there_is_one(place: Path, prepare: Prepare, mode: str) -> None:
    """SLURM_PLUGIN_HOSTFILE names a file that exists when all are written. Other modes have neither."""
    one = prepare(plan("x", mode=mode), nodes="localhost")
    if mode == "ascend":
        one.write(Answers({}, "", (npu.line("localhost", "10.0.0.1", [Device(0)]),)))
    else:
        one.write(None)
    name = one.environment("", launched=True).get("SLURM_PLUGIN_HOSTFILE")
    written = {path.name for path in (place / ".slurm_plugin/7").iterdir()}
    assert name == (f"{place}/.slurm_plugin/7/hostfile" if "hostfile" in written else None)
    assert ("hostfile" in written) == (mode in {"openmpi", "mpich", "intelmpi", "horovod", "deepspeed", "script"})


def environment_of(place: Path) -> None:
    """Make a conda environment in the working directory."""
    (place / "env/bin").mkdir(parents=True)
    (place / "env/conda-meta").mkdir()
    (place / "env/bin/python").touch()


@pytest.mark.parametrize("path", [{}, {"PATH": ""}, {"PATH": "/bin"}])
def test_a_conda_environment(place: Path, prepare: Prepare, said: list[str], path: dict[str, str]) -> None:
    """Its variables are also set for hooks, whatever PATH was. The log has one line, at the launch."""
    environment_of(place)
    one = prepare(plan("env/bin/python x.py"), environ=path, nodes="n1")
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
    """The hook sees the environment, so its change of PATH wins."""
    environment_of(place)
    hooked(place, set_={"PATH": "/hook/bin"}, unset=("CONDA_PREFIX",))
    one = prepare(plan("env/bin/python x.py"), environ={"PATH": "/bin"}, nodes="n1")
    found = one.environment("", launched=True)
    assert found["PATH"] == "/hook/bin"
    assert "CONDA_PREFIX" not in found
    assert one.environment("", launched=False)["CONDA_PREFIX"] == f"{place}/env"


def test_values_that_are_no_text(prepare: Prepare) -> None:
    """A value in another encoding is passed on byte for byte, and never printed."""
    value = os.fsdecode(b"\xff\xfe caf\xe9")
    one = prepare(plan("x", mode="pytorch"), environ={"NAME": value})
    assert os.fsencode(one.environment("", launched=True)["NAME"]) == b"\xff\xfe caf\xe9"


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
    """The caller's value reaches the ranks, and so does a hook's. Ours is set only without both."""
    hooked(place, set_=hook[0], unset=hook[1])
    one = prepare(plan("x", mode="openmpi"), environ=caller)
    argv = one.launch(one.environment("", launched=True)).argv
    assert argv[argv.index("-x") + 1] == handed_on


def test_an_address_that_others_cannot_reach(prepare: Prepare, said: list[str]) -> None:
    """For MPI the log has a line, and Hydra chooses its network itself."""
    one = prepare(plan("x", mode="mpich"), nodes="localhost")
    assert said == ["localhost is 127.0.0.1 here, which no other node can reach; mend /etc/hosts"]
    assert "HYDRA_IFACE" not in one.environment("", launched=True)


def test_the_interface_of_the_first_node(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    """That with the address of the first node's name."""
    monkeypatch.setattr(network, "own_address", {"n1": "127.0.0.1"}.__getitem__)
    assert prepare(plan("x", mode="mpich")).environment("", launched=True)["HYDRA_IFACE"] == "lo"


def test_the_port(prepare: Prepare) -> None:
    """The job's port if it is free, else another one. Every variable has the same."""
    words = plan("x", mode="pytorch")
    restart = os.getpid()  # a port that no other test run uses
    usual = master_port(7, restart)
    with socket.create_server(("", usual)):
        found = prepare(words, restart=restart).environment("", launched=True)
    assert found["MASTER_PORT"] == found["SLURM_PLUGIN_PORT"] != str(usual)
    assert prepare(words, restart=restart).environment("", launched=True)["MASTER_PORT"] == str(usual)
