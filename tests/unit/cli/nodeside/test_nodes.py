"""`slurm-plugin nodes` as a user types it, with a fake Slurm."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.records import node_drains
from slurm_plugin.slurm import Job
from slurm_plugin.slurm.resources import DeviceUse, Event, Gres, Resources
from tests.fakes import FakeSlurm, job, node

HAS = Resources(8, 4, 4000, 0, (Gres("gpu", "", 4),), (Gres("gpu", "", 2, frozenset({0, 1})),))
COMMENT = node_drains.with_drain("", ["gpu-check"], 1_795_276_800)
SPEC = "name: x\nmode: single\ncommand: python train.py\naccelerators: {gpu: 3}\n"


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """Return a door with three nodes, and a job that uses two GPUs of n1."""
    train: Job = job(7, state="RUNNING", reason="", nodes="n1", name="train")
    fake = FakeSlurm(
        [train],
        [
            node("n1", "MIXED", partitions=("main",)),
            node("n2", partitions=("main", "long"), comment=COMMENT),
            node("n3", "IDLE", "DRAIN", reason="slurm_plugin: gpu-check: 3 of 4 GPUs", partitions=("main",)),
        ],
    )
    fake.resources = {"n1": HAS, "n2": HAS._replace(cpus_used=0, used=()), "n3": HAS._replace(cpus_used=0, used=())}
    fake.uses = [DeviceUse(7, "n1", (Gres("gpu", "", 2, frozenset({0, 1})),))]
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    monkeypatch.setenv("SLURM_PLUGIN_CONFIG", str(tmp_path / "site.yaml"))
    (tmp_path / "site.yaml").write_text("command: /nonexistent/slurm-plugin\n")
    monkeypatch.chdir(tmp_path)
    return fake


def test_the_table(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes, their sums, and those out of service."""
    assert main(["nodes", "--utc"]) == 0
    assert capsys.readouterr().out == (
        "NODE  STATE    CPUS  MEM GB  GPU  USED BY\n"
        "n1    mixed    4/8   0/3.9   2/4  0-1:train\n"
        "n2    idle     0/8   0/3.9   0/4\n"
        "n3    drained  0/8   0/3.9   0/4\n"
        "3 nodes: 1 mixed, 1 idle, 1 drained\n"
        "\n"
        "OUT  SINCE  BY            BACK     BECAUSE\n"
        "n3   ?      slurm_plugin  by hand  gpu-check: 3 of 4 GPUs\n"
    )


def test_some_nodes(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """By name, partition and state. An unknown name is an error, a node that does not match is left out."""
    cases = {
        ("n[1-2]",): ["n1", "n2"],
        ("--partition", "long"): ["n2"],
        ("--state", "DRAINED"): ["n3"],
        ("n1", "--state", "idle"): [],
    }
    for words, names in cases.items():
        assert main(["nodes", "--json", *words]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["v"], [each["node"] for each in found["nodes"]]) == (1, names), words
    assert main(["nodes", "n1", "--state", "idle"]) == 0
    assert capsys.readouterr().out == "no node matches\n"
    assert main(["nodes", "n[1-4]"]) == 1
    assert capsys.readouterr().err == "slurm-plugin: Slurm has no node n4\n  see its nodes with: sinfo -N\n"
    assert main(["nodes", "n[1-"]) == 2
    assert "accepted are names and lists such as n[1-4],n9" in capsys.readouterr().err


def test_how_many_requests(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Two, and one more if jobs have devices."""
    asked: list[str] = []
    for name in ("machines", "listing", "device_uses"):
        method = getattr(slurm, name)
        setattr(slurm, name, lambda *args, name=name, method=method, **kw: asked.append(name) or method(*args, **kw))
    assert main(["nodes"]) == 0
    assert sorted(asked) == ["device_uses", "listing", "machines"]
    slurm.resources = {}
    asked.clear()
    assert main(["nodes"]) == 0
    assert sorted(asked) == ["listing", "machines"]


def test_free(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each node is marked; exit 1 if too few fit at all."""
    path = tmp_path / "job.yaml"
    path.write_text(SPEC)
    assert main(["nodes", "--free", "job.yaml"]) == 0
    assert capsys.readouterr().out == (
        "NODE  FIT    STATE    CPUS  MEM GB  GPU  LACKS\n"
        "n2    idle   idle     0/8   0/3.9   0/4\n"
        "n1    tight  mixed    4/8   0/3.9   2/4  2 of 3 gpu free\n"
        "n3    tight  drained  0/8   0/3.9   0/4  drained\n"
        "job.yaml wants 1 node; 1 idle, 2 tight, 0 never: enough are idle\n"
        "when it would start, with the queue: slurm-plugin forecast job.yaml\n"
    )
    path.write_text(SPEC.replace("gpu: 3", "gpu: 8"))
    assert main(["nodes", "--free", "job.yaml", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["jobs"] == [[{"nodes": 1, "idle": 0, "tight": 0, "never": 3}]]
    assert [(each["fit"], each["lacks"]) for each in found["nodes"]] == [("never", "4 of 8 gpu")] * 3
    path.write_text(f"{SPEC}any_of: [{{partition: long}}, {{accelerators: {{gpu: 8}}}}]\n")
    assert main(["nodes", "--free", "job.yaml"]) == 0
    said = capsys.readouterr().out
    assert "job.yaml, alternative 1: wants" not in said
    assert "job.yaml, alternative 1 wants 1 node; 1 idle, 0 tight, 2 never: enough are idle" in said
    assert "job.yaml, alternative 2 wants 1 node; 0 idle, 0 tight, 3 never: too few fit" in said


def test_history(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """From the Comment without slurmdbd, else from its events; from the Comment also if slurmdbd is away."""
    assert main(["nodes", "--history", "n2", "--utc"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(
        "FROM              UNTIL  FOR  BY            BACK     BECAUSE\n"
        "2026-11-21 16:00  ?      ?    slurm_plugin  by hand  gpu-check\n"
        "the last drains by slurm_plugin, from the node's Comment"
    )
    slurm.settings["AccountingStorageType"] = "accounting_storage/slurmdbd"
    start = datetime(2026, 11, 20, 10, tzinfo=UTC)
    slurm.events = [Event(start, start.replace(hour=11), "DOWN", "slurm", "Not responding")]
    assert main(["nodes", "--history", "n2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["node"], found["source"], [each["because"] for each in found["times"]]) == (
        "n2",
        "slurmdbd",
        ["Not responding"],
    )
    slurm.refusals[("node_events", "n2")] = 1
    assert main(["nodes", "--history", "n2", "--json"]) == 0
    done = capsys.readouterr()
    assert (json.loads(done.out)["source"], bool(done.err)) == ("comment", True)
    assert main(["nodes", "--history", "n1"]) == 0
    assert main(["nodes", "--history", "n9"]) == 1
    assert main(["nodes", "--history", "n[1-2]"]) == 2
