"""Reports of Ascend devices: of this node, of all nodes of a job with a fake srun, and in a file."""

import os
import socket
from pathlib import Path

import pytest

from hostfiles import HostfileError, from_lists
from slurm_plugin.cli.nodeside import hosts as hosts_command
from slurm_plugin.errors import MissingError
from slurm_plugin.supervisor import network
from slurm_plugin.supervisor.hosts import devices
from tests.guarded import AGES
from tests.refusals import refusal_of

THREE = from_lists("n[1-3]")
LINES = {name: f"{name} 10.0.0.{place} 0=192.168.{place}.8" for place, name in enumerate(THREE.names, 1)}


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Make this node n1 without a job, at 10.0.0.1, with device 0 in its hccn.conf."""
    for name in os.environ:
        if name.startswith(("SLURM", "ASCEND")):
            monkeypatch.delenv(name)
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: found)
    monkeypatch.setattr(socket, "gethostname", lambda: "n1")
    (tmp_path / "hccn.conf").write_text("address_0=192.168.1.8\n")
    (tmp_path / "davinci0").touch()
    places = {"conf": tmp_path / "hccn.conf", "device_directory": tmp_path}
    monkeypatch.setattr(network.devices, "__kwdefaults__", network.devices.__kwdefaults__ | places)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    return monkeypatch


def srun(tmp_path: Path, script: str) -> None:
    """Write an srun that records its arguments and runs the script."""
    path = tmp_path / "bin" / "srun"
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" > {tmp_path}/asked\n{script}\n')
    path.chmod(0o755)


def says(*names: str) -> str:
    """Return a script that prints the lines of these nodes."""
    return "\n".join(f"echo '{LINES[name]}'" for name in names)


def test_this_node(node: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One line. The name is Slurm's if there is one, else the host's."""
    assert hosts_command.main(["devices"]) == 0
    node.setenv("SLURMD_NODENAME", "gpu7")
    assert hosts_command.main(["devices"]) == 0
    assert hosts_command.main(["devices", "--name=x"]) == 0
    assert capsys.readouterr() == (
        "n1 10.0.0.1 0=192.168.1.8\ngpu7 10.0.0.1 0=192.168.1.8\nx 10.0.0.1 0=192.168.1.8\n",
        "",
    )


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        (b"\xff", "n1: {conf}: no text; lines read address_0=192.168.1.8"),
        (b"x", "n1: /etc/hccn.conf, line 1: 'x'; lines read address_0=192.168.1.8"),
        (b"", "n1: device 0: {conf} has no address of it, and hccn_tool: No such file or directory"),
        (None, "n1: device 0: {conf}: No such file or directory, and hccn_tool: No such file or directory"),
        ("directory", "n1: device 0: {conf}: Is a directory, and hccn_tool: No such file or directory"),
    ],
)
def test_a_node_that_cannot_say(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, conf: bytes | str | None, message: str
) -> None:
    """One line that names the node, exit 2, nothing on stdout."""
    path = tmp_path / "hccn.conf"
    path.unlink()
    if isinstance(conf, bytes):
        path.write_bytes(conf)
    elif conf:
        path.mkdir()
    assert hosts_command.main(["devices"]) == 2
    assert capsys.readouterr() == ("", f"slurm-plugin: {message.format(conf=path)}\n")


def test_a_node_without_devices(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """No variable, no device file."""
    (tmp_path / "davinci0").unlink()
    assert hosts_command.main(["devices"]) == 2
    assert capsys.readouterr().err.startswith(f"slurm-plugin: n1: no {tmp_path}/davinciN here, and none of SLURM_")


def test_a_name_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """It would break the line."""
    assert hosts_command.main(["devices", "--name=a b"]) == 2
    assert capsys.readouterr().err == "slurm-plugin: 'a b' is no host name; give this node's with --name\n"


def test_the_only_node_of_a_job_needs_no_addresses(
    node: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its line fits the table that the job itself makes."""
    (tmp_path / "hccn.conf").unlink()
    node.setenv("SLURM_JOB_NUM_NODES", "1")
    assert hosts_command.main(["devices"]) == 0
    assert capsys.readouterr().out == "n1 10.0.0.1 0=\n"
    node.setenv("SLURM_HET_SIZE", "2")  # the number is that of the first group
    assert hosts_command.main(["devices"]) == 2


def test_one_node_starts_no_step() -> None:
    """No srun is started for the node that asks."""
    assert devices.ask(from_lists("n1"), {"SLURMD_NODENAME": "n1"}) == ["n1 10.0.0.1 0=192.168.1.8"]


def test_all_nodes_in_one_step(tmp_path: Path) -> None:
    """In any order, between other output."""
    srun(tmp_path, f"{says('n3', 'n1')}\necho loaded modules\n{says('n2')}")
    assert devices.ask(THREE, {"SLURMD_NODENAME": "n1"}) == [LINES["n3"], LINES["n1"], LINES["n2"]]
    words = (tmp_path / "asked").read_text().split()
    assert words[:9] == [
        "--quiet", "--overlap", "--mem=0", "--kill-on-bad-exit=0", "--export=ALL",
        "--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--nodelist=n[1-3]",
    ]  # fmt: skip
    assert words[-2:] == ["hosts", "devices"]


def test_a_heterogeneous_job(tmp_path: Path) -> None:
    """Each group separately, all in one srun. A group without a node of the step is left out."""
    srun(tmp_path, says("n1", "n2", "n3"))
    groups = {"SLURM_HET_SIZE": "3"}
    for place, names in enumerate(("n1", "n9", "n[2-3]")):
        groups[f"SLURM_JOB_NODELIST_HET_GROUP_{place}"] = names
    assert len(devices.ask(THREE, groups)) == 3
    first, second = (tmp_path / "asked").read_text().split(" : ")
    assert first.startswith("--het-group=0 --quiet ")
    assert " --nodelist=n1 -- " in first
    assert second.startswith("--het-group=2 --quiet ")
    assert " --nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=n[2-3] -- " in second


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            f"{says('n1')}\necho 'slurm-plugin: n3: none' >&2; echo 'slurm-plugin: n2: device 0: why' >&2; exit 2",
            "n2: device 0: why (1 more said nothing either)",
        ),
        (
            f"{says('n1', 'n3')}\necho 'srun: error: n2: task 1: Exited with exit code 2' >&2\n"
            "echo 'slurm-plugin: n2 is 127.0.1.1 here' >&2; exit 2",
            "n2 is 127.0.1.1 here",
        ),
        (
            f"{says('n1', 'n2')}\necho 'srun: error: Node failure on n3' >&2; exit 1",
            "n3 said nothing of its devices: srun: error: Node failure on n3",
        ),
        (says("n1", "n2"), "n3 said nothing of its devices: srun ended with 0"),
    ],
)
def test_a_node_that_says_nothing(node: pytest.MonkeyPatch, tmp_path: Path, script: str, message: str) -> None:
    """Its own message if it has one, the first host's before another's; else srun's."""
    node.setattr(devices, "DEADLINE_S", AGES)
    srun(tmp_path, script)
    assert refusal_of(HostfileError, devices.ask, THREE, {}) == message


def test_a_node_that_does_not_answer_in_time(node: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names it, not those that answered. If these were late, too, it suggests more time."""
    srun(tmp_path, f"{says('n1', 'n2')}\nexec sleep 3000")
    for deadline_s in (1.0, 10.0, 100.0):
        node.setattr(devices, "DEADLINE_S", deadline_s)
        caught = refusal_of(HostfileError, devices.ask, THREE, {})
        if caught.startswith("n3 "):
            break
    said = f"n3 said nothing of its devices in {deadline_s:g} s; try srun slurm-plugin hosts devices"
    assert caught == said


def test_no_srun(node: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Exit 3."""
    node.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match="srun was not found"):
        devices.ask(THREE, {})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "{file}: No such file or directory; --devices takes what `hosts devices` prints"),
        (b"\xff", "{file}: no text; --devices takes what `hosts devices` prints"),
        (b" \n\n", "{file}: empty; --devices takes a line of each node, as `hosts devices` prints it"),
    ],
)
def test_a_file_without_lines(tmp_path: Path, content: bytes | None, message: str) -> None:
    """The error has its name and the expected content."""
    path = tmp_path / "lines"
    if content is not None:
        path.write_bytes(content)
    assert refusal_of(HostfileError, devices.read, str(path)) == message.format(file=path)
