"""How a node finds its Ascend devices, with the test's file systems and tools."""

from pathlib import Path

import pytest

from hostfiles import Device, HostfileError, npu
from slurm_plugin.slurm.process import Result
from slurm_plugin.supervisor import network
from tests.refusals import refusal_of

CONF = "address_0=192.168.1.8\nnetmask_0=255.255.255.0\naddress_1=192.168.1.9\n"


def no_tool(number: int) -> Result:
    """Fail if the tool is called."""
    raise AssertionError(number)


def answers(result: Result) -> network.Tool:
    """Return a tool with the same answer for every device."""
    return lambda _number: result


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """Write a hccn.conf with the addresses of devices 0 and 1."""
    path = tmp_path / "hccn.conf"
    path.write_text(CONF)
    return path


def test_the_jobs_devices(conf: Path) -> None:
    """Those of the environment, with the file's addresses. No program starts."""
    found = network.devices({"SLURM_STEP_GPUS": "1"}, tool=no_tool, conf=conf)
    assert found == (Device(1, "192.168.1.9"),)


def test_all_devices(conf: Path, tmp_path: Path) -> None:
    """Without a list of ids: all device files, without the driver's other files."""
    for name in ("davinci1", "davinci0", "davinci_manager", "davinci0x", "null"):
        (tmp_path / name).touch()
    found = network.devices({}, tool=no_tool, conf=conf, device_directory=tmp_path)
    assert found == (Device(0, "192.168.1.8"), Device(1, "192.168.1.9"))


def test_the_tool_is_asked_for_the_rest(conf: Path) -> None:
    """For a device that is not in the file."""
    tool = answers(Result(0, "ipaddr:192.168.1.10\nnetmask:255.255.255.0\n", ""))
    found = network.devices({"SLURM_JOB_GPUS": "0,2"}, tool=tool, conf=conf)
    assert found == (Device(0, "192.168.1.8"), Device(2, "192.168.1.10"))


def test_a_node_alone_needs_no_addresses(conf: Path, tmp_path: Path) -> None:
    """The driver is not queried."""
    environ = {"SLURM_JOB_GPUS": "1,2"}
    assert network.devices(environ, tool=no_tool, alone=True, conf=conf) == (Device(1, "192.168.1.9"), Device(2))
    assert network.devices(environ, tool=no_tool, alone=True, conf=tmp_path / "x") == (Device(1), Device(2))


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (Result(None, "", ""), "and hccn_tool said nothing in 10 s"),
        (Result(1, "", "Permission denied\n"), "and hccn_tool ended with 1: Permission denied"),
    ],
)
def test_neither_file_nor_tool(conf: Path, result: Result, words: str) -> None:
    """Both reasons in one line, the file's first."""
    caught = refusal_of(HostfileError, network.devices, {"SLURM_JOB_GPUS": "3"}, tool=answers(result), conf=conf)
    assert caught == f"device 3: {conf} has no address of it, {words}"


def test_no_file_and_no_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is installed. This is the real call."""
    monkeypatch.setenv("PATH", str(tmp_path))
    said = refusal_of(HostfileError, network.devices, {"SLURM_JOB_GPUS": "0"}, tool=network._tool, conf=tmp_path / "x")
    assert said == f"device 0: {tmp_path / 'x'}: No such file or directory, and hccn_tool: No such file or directory"


def test_a_tool_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It really runs, with the device's number."""
    tool = tmp_path / "hccn_tool"
    tool.write_text("#!/bin/sh\necho ipaddr:10.0.0.$2\necho $1 $3 $4\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert network._tool(4).out == "ipaddr:10.0.0.4\n-i -ip -g\n"


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    """One line, not a traceback."""
    path = tmp_path / "hccn.conf"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(HostfileError, match=r"hccn\.conf: no text; lines read address_0="):
        network.devices({"SLURM_JOB_GPUS": "0"}, tool=no_tool, conf=path)


def test_no_devices(tmp_path: Path) -> None:
    """No variable, no device file."""
    with pytest.raises(HostfileError, match=r"/davinciN here, and none of SLURM_STEP_GPUS, SLURM_JOB_GPUS, "):
        network.devices({}, tool=no_tool, device_directory=tmp_path)


def test_the_line(monkeypatch: pytest.MonkeyPatch, conf: Path) -> None:
    """As the first node reads it."""
    monkeypatch.setattr(network, "own_address", {"n1": "10.0.0.1"}.__getitem__)
    monkeypatch.setattr(network.devices, "__kwdefaults__", network.devices.__kwdefaults__ | {"conf": conf})
    said = network.device_line("n1", {"SLURM_STEP_GPUS": "0-1"})
    assert said == npu.line("n1", "10.0.0.1", (Device(0, "192.168.1.8"), Device(1, "192.168.1.9")))
