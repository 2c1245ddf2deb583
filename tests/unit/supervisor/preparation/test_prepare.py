"""The preparation between the barrier and the launch, in a directory of the test. No part of Slurm runs."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

import hostfiles
from slurm_plugin.errors import UsageError
from slurm_plugin.launch import HOSTFILE, MODES
from slurm_plugin.records import features, job_directory
from slurm_plugin.supervisor import network
from slurm_plugin.supervisor.preparation.prepare import Preparation
from slurm_plugin.supervisor.run import Run
from tests.refusals import refusal_of
from tests.unit.supervisor.plans import plan
from tests.unit.supervisor.preparing import Prepare, hooked


def test_the_question(place: Path, prepare: Prepare) -> None:
    """The barrier sends the task's lines and asks for devices. A recheck checks, and asks for the kernel's lines."""
    one = prepare(plan("x", mode="ascend", slots=2, retries=1), run_directory="/r", prechecks={"deadline_s": 3.0})
    first, later = one.question("barrier"), one.question("recheck")
    assert (first.hook, first.job_id, first.directory, first.run_directory) == ("barrier", 7, "7.0.0", "/r")
    assert (first.hosts, first.settings, first.check, first.devices) == ("n[1-2]", {"deadline_s": 3.0}, True, True)
    assert first.task_script == MODES["ascend"].task_script(one.place)
    assert later.kernel_s > first.kernel_s == 0.0
    assert replace(later, kernel_s=0.0) == replace(first, hook="recheck", task_script=None, devices=False, prolog="")


def test_what_is_asked_of_a_mode_whose_tasks_are_alike(place: Path, prepare: Prepare) -> None:
    """Checks only; with a hook an empty file for its changes; without restarts no checks."""
    assert prepare(plan("x", mode="openmpi", retries=1)).question("barrier").task_script is None
    hooked(place)
    asked = prepare(plan("x", mode="openmpi")).question("barrier")
    assert (asked.task_script, asked.check, asked.devices) == ("", False, False)


def test_names_that_are_loopback_addresses(prepare: Prepare) -> None:
    """The modes whose programs use Gloo have the nodes look for them, before a launch."""
    modes = {mode: prepare(plan("x", mode=mode, retries=1)) for mode in MODES}
    asked = {mode for mode, one in modes.items() if one.question("barrier").interface == "GLOO_SOCKET_IFNAME"}
    assert asked == {"pytorch", "deepspeed", "script"}
    assert {one.question("recheck").interface for one in modes.values()} == {""}


def test_a_heterogeneous_job(place: Path) -> None:
    """Every node is asked in every mode: Slurm starts the script beside other groups' prologs. One launch."""
    given = plan("python train.py", mode="pytorch", launch="task", groups=((1, 8), (4, None)))
    allocation = hostfiles.from_lists("n5,n[1-2]", slots=[1, 4, 4], tasks_per_node="1,4(x2)", job_id=7)
    run = Run(7, 0, "cpu", allocation, groups=(("n5",), ("n1", "n2")), parts=(7, 8))
    site = {"run_directory": "/r", "infiniband_partitions": [], "prechecks": {"deadline_s": 3.0}}
    one = Preparation(given, run, site, {}, print)
    assert (one.asks, one.question("barrier").directory) == (True, "7.0.0:8.0.0")
    environ = one.environment("", launched=True)
    assert (environ["SLURM_PLUGIN_LAUNCH"], environ["WORLD_SIZE"]) == ("7.0.0:8.0.0", "9")
    assert (environ["SLURM_GPUS_PER_NODE_HET_GROUP_1"], "SLURM_GPUS_PER_NODE_HET_GROUP_0" in environ) == ("4", False)
    argv = one.launch(environ).argv
    assert [word for word in argv if word.startswith(("--het", "--ntasks=", ":", "--cpus"))] == [
        *("--het-group=0", "--ntasks=1", "--cpus-per-task=8", ":", "--het-group=1", "--ntasks=8"),
    ]
    hooks = one.hook_step(["slurm-plugin"])
    assert [word for word in hooks if word.startswith(("--het", "--nodelist", ":"))] == [
        *("--het-group=0", "--nodelist=n5", ":", "--het-group=1", "--nodelist=n[1-2]"),
    ]
    assert Preparation(given._replace(mode="script"), run, site, {}, print).asks


def test_infiniband(prepare: Prepare) -> None:
    """The job's setting; with `auto` its partition decides."""
    for option, partitions, expected in [
        ("auto", ["ib"], True),
        ("auto", ["cpu"], False),
        ("yes", [], True),
        ("no", ["ib"], False),
    ]:
        one = prepare(plan("x", infiniband=option), nodes="n1", infiniband_partitions=partitions)
        assert [one.question(hook).infiniband for hook in ("barrier", "recheck")] == [expected] * 2, option


def test_hook_step(place: Path, prepare: Prepare) -> None:
    """One step over all nodes, which ends when one fails. Hooks have absolute paths, and the command's interpreter."""
    (place / "src").mkdir()
    for name in ("src/train.py", "src/ma-pre-start.py", "src/startup-hook.sh"):
        (place / name).touch()
    one = prepare(plan("/opt/bin/python3.11 src/train.py", mode="pytorch"))
    step = one.hook_step(["/s/slurm-plugin"])
    assert "--kill-on-bad-exit=1" in step
    assert "--nodelist=n[1-2]" in step
    assert step[step.index("--") :] == (
        *("--", "/s/slurm-plugin", "job", "prestart", "--run-directory", str(place.parent / "run")),
        *("--directory", "7.0.0", "--python", "/opt/bin/python3.11"),
        *("--", f"{place}/src/startup-hook.sh", f"{place}/src/ma-pre-start.py"),
    )


def test_hooks_that_the_job_names(place: Path, prepare: Prepare) -> None:
    """After those beside the program, which may be disabled. Those after the program have a separate step."""
    (place / "startup-hook.sh").touch()
    given = plan("x", mode="script", before=("/h/a.sh", "/h/b.py"), after=("/h/c.sh",))
    one = prepare(given)
    step = one.hook_step(["s"])
    assert step[step.index("python3") :] == ("python3", "--", f"{place}/startup-hook.sh", "/h/a.sh", "/h/b.py")
    after = one.hook_step(["s"], after=True)
    assert after[after.index("python3") :] == ("python3", "--after", "--changed", "--", "/h/c.sh")
    assert "--kill-on-bad-exit=0" in after
    alone = prepare(given._replace(found_hooks=False))
    assert [str(path) for path in alone.hooks] == ["/h/a.sh", "/h/b.py"]
    none = prepare(plan("x", mode="script", after=("/h/c.sh",), found_hooks=False)).hook_step(["s"], after=True)
    assert none[none.index("python3") :] == ("python3", "--after", "--", "/h/c.sh")


@pytest.mark.parametrize("uid", [0, 20001])
def test_the_launch(prepare: Prepare, monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    """As many processes as slots. root's mpirun gets the option for root."""
    made = prepare(plan("./a.out -v", mode="openmpi", slots=4))
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    argv = made.launch({}).argv
    assert argv[argv.index("-np") + 1] == "8"
    assert argv[-2:] == ("./a.out", "-v")
    assert ("--allow-run-as-root" in argv) == (uid == 0)


def test_the_launch_names_the_hostfile_by_its_path(place: Path, prepare: Prepare) -> None:
    """If an option contains it: no shell would expand a variable."""
    argv = prepare(plan("x", mode="intelmpi")).launch({}).argv
    assert argv[argv.index("-machinefile") + 1] == f"{place}/.slurm_plugin/7/hostfile"


def test_a_mode_that_is_none(prepare: Prepare) -> None:
    """A script that was edited, or made by a newer version: one line with the accepted modes."""
    with pytest.raises(UsageError, match=r"^mode: slurm: found no such mode; accepted are: single, openmpi, "):
        prepare(plan("x", mode="slurm"))


def test_a_name_is_resolved_only_for_who_needs_it(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hanging name service does not delay other modes."""
    asked: list[str] = []

    def address(name: str) -> str:
        asked.append(name)
        return "127.0.0.1"

    monkeypatch.setattr(network, "own_address", address)
    needs = set()
    for mode in set(MODES) - {"single"}:
        prepare(plan("x", mode=mode))
        needs |= {mode} if asked else set()
        asked.clear()
    assert needs == {"mpich", "horovod", "script"}


def test_a_working_directory_that_cannot_be_written(place: Path, prepare: Prepare) -> None:
    """Only a mode that writes a file cannot start: an OSError, which `job supervise` reports in one line."""
    (place / ".slurm_plugin").touch()
    prepare(plan("x"), nodes="n1").write(None)
    with pytest.raises(NotADirectoryError, match=r"\.slurm_plugin"):
        prepare(plan("x", mode="openmpi"), nodes="n1").write(None)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("mode", ["openmpi", "mpich", "intelmpi", "horovod", "script", "deepspeed"])
def test_a_full_working_directory(
    mode: str, code: int, place: Path, prepare: Prepare, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostfile that only the first node reads is then in the run's directory there. DeepSpeed's is read on each."""
    write = job_directory.write

    def full(path: Path, text: str) -> None:
        if path.is_relative_to(place):
            raise OSError(code, os.strerror(code), str(path))
        write(path, text)

    monkeypatch.setattr(job_directory, "write", full)
    one = prepare(plan("x", mode=mode), nodes="localhost")
    if mode == "deepspeed":
        assert refusal_of(OSError, one.write, None).startswith(f"[Errno {code}]")
        return
    one.write(None)
    folder = place.parent / "run/jobs/7.0.0/user"
    environ = one.environment("", launched=True)
    assert environ["SLURM_PLUGIN_HOSTFILE"] == str(folder / HOSTFILE)
    assert (folder / HOSTFILE).read_text().startswith("localhost")
    named = [value for value in environ.values() if value.endswith(HOSTFILE)]
    assert {value.rpartition("/")[0] for value in named} == {str(folder)}
    assert str(place) not in " ".join(one.launch(environ).argv)
    assert said[-1] == f"{one.directory} is full: the hostfile is in {folder} on this node"


@pytest.mark.parametrize("mode", features.MODES)
def test_a_whole_script_is_started_as_it_is_in_every_mode_that_it_may_have(
    prepare: Prepare, place: Path, mode: str
) -> None:
    """Once, not in a step, with the mode's variables. Hooks beside it are not used."""
    hooked(place)
    found = prepare(plan("/x/slurm_script.0 train.py", mode=mode, slots=4, checkpoint="ck", mark="mark"))
    assert found.launch({}).argv == found.words == ("/x/slurm_script.0", "train.py")
    assert (found.hooks, found.plugin_step, found.task_script, found.tells) == ((), False, None, False)
    environ = found.environment("", launched=True)
    assert environ["SLURM_PLUGIN_CHECKPOINT"] == str(place / "ck")
    assert "RANK" not in environ
    assert ("MASTER_ADDR" in environ) == (mode in ("script", "pytorch", "deepspeed"))
    assert ("SLURM_PLUGIN_HOSTFILE" in environ) == (mode != "pytorch")
