"""What a node finds out about its Ascend devices, on file systems and tools that tests make."""

from pathlib import Path

import pytest

from hostfiles import Device, HostfileError, npu
from slurm_plugin.job import ascend, network
from slurm_plugin.slurm.process import Result

CONF = "address_0=192.168.1.8\nnetmask_0=255.255.255.0\naddress_1=192.168.1.9\n"


def no_tool(number: int) -> Result:
    """It must not be asked."""
    raise AssertionError(number)


def answers(result: Result) -> ascend.Tool:
    """A tool that says the same of every device."""
    return lambda _number: result


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A hccn.conf with the addresses of devices 0 and 1."""
    path = tmp_path / "hccn.conf"
    path.write_text(CONF)
    return path


def test_the_jobs_devices(conf: Path) -> None:
    """Those of the environment, with the file's addresses; nothing is started."""
    found = ascend.devices({"SLURM_STEP_GPUS": "1"}, tool=no_tool, conf=conf)
    assert found == (Device(1, "192.168.1.9"),)


def test_all_devices(conf: Path, tmp_path: Path) -> None:
    """Where nobody names any: those that there are, not the driver's other files."""
    for name in ("davinci1", "davinci0", "davinci_manager", "davinci0x", "null"):
        (tmp_path / name).touch()
    found = ascend.devices({}, tool=no_tool, conf=conf, device_directory=tmp_path)
    assert found == (Device(0, "192.168.1.8"), Device(1, "192.168.1.9"))


def test_the_tool_is_asked_for_the_rest(conf: Path) -> None:
    """For a device that the file does not have."""
    tool = answers(Result(0, "ipaddr:192.168.1.10\nnetmask:255.255.255.0\n", ""))
    found = ascend.devices({"SLURM_JOB_GPUS": "0,2"}, tool=tool, conf=conf)
    assert found == (Device(0, "192.168.1.8"), Device(2, "192.168.1.10"))


def test_a_node_alone_needs_no_addresses(conf: Path, tmp_path: Path) -> None:
    """Nobody is asked then."""
    environ = {"SLURM_JOB_GPUS": "1,2"}
    assert ascend.devices(environ, tool=no_tool, alone=True, conf=conf) == (Device(1, "192.168.1.9"), Device(2))
    assert ascend.devices(environ, tool=no_tool, alone=True, conf=tmp_path / "x") == (Device(1), Device(2))


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (Result(None, "", ""), "and hccn_tool said nothing in 10 s"),
        (Result(1, "", "Permission denied\n"), "and hccn_tool ended with 1: Permission denied"),
    ],
)
def test_neither_file_nor_tool(conf: Path, result: Result, words: str) -> None:
    """Both reasons in one line, the file's first."""
    with pytest.raises(HostfileError) as caught:
        ascend.devices({"SLURM_JOB_GPUS": "3"}, tool=answers(result), conf=conf)
    assert str(caught.value) == f"device 3: {conf} has no address of it, {words}"


def test_no_file_and_no_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is installed; this is the real call."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostfileError) as caught:
        ascend.devices({"SLURM_JOB_GPUS": "0"}, tool=ascend._tool, conf=tmp_path / "x")
    assert str(caught.value) == (
        f"device 0: {tmp_path / 'x'}: No such file or directory, and hccn_tool: No such file or directory"
    )


def test_a_tool_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is really run, with the device's number."""
    tool = tmp_path / "hccn_tool"
    tool.write_text("#!/bin/sh\necho ipaddr:10.0.0.$2\necho $1 $3 $4\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ascend._tool(4).out == "ipaddr:10.0.0.4\n-i -ip -g\n"


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    """One line, not a traceback."""
    path = tmp_path / "hccn.conf"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(HostfileError, match=r"hccn\.conf: no text; lines read address_0="):
        ascend.devices({"SLURM_JOB_GPUS": "0"}, tool=no_tool, conf=path)


def test_no_devices(tmp_path: Path) -> None:
    """No variable, no device file."""
    with pytest.raises(HostfileError, match=r"/davinciN here, and none of SLURM_STEP_GPUS, SLURM_JOB_GPUS, "):
        ascend.devices({}, tool=no_tool, device_directory=tmp_path)


def test_the_line(monkeypatch: pytest.MonkeyPatch, conf: Path) -> None:
    """What the first node reads."""
    monkeypatch.setattr(network, "own_address", {"n1": "10.0.0.1"}.__getitem__)
    monkeypatch.setattr(ascend.devices, "__kwdefaults__", ascend.devices.__kwdefaults__ | {"conf": conf})
    said = ascend.line("n1", {"SLURM_STEP_GPUS": "0-1"})
    assert said == npu.line("n1", "10.0.0.1", (Device(0, "192.168.1.8"), Device(1, "192.168.1.9")))
