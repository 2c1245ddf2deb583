"""Which file is of which rank and node, and what the files of several nodes say together."""

import json
from pathlib import Path

from slurm_plugin.logs import library
from slurm_plugin.logs.diagnosis import Place, of_files
from slurm_plugin.logs.known import Known
from tests.unit.logs.test_diagnosis import CLOSED, RAISED


def test_files_of_two_nodes(tmp_path: Path) -> None:
    """Directories name the nodes; an error file is the evidence only where the log of its rank lacks the line."""
    for rank in range(4):
        place = tmp_path / f"logs/node{rank // 2}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"rank{rank}.err").write_text("" if rank == 2 else CLOSED)
        (place / f"rank{rank}.out").write_text("step 3\n")
    error = {"message": {"message": "KeyError: 'tokens'", "extraInfo": {"py_callstack": RAISED, "timestamp": "1"}}}
    (tmp_path / "logs/node1/rank2.error.json").write_text(json.dumps(error))
    (tmp_path / "logs/node1/rank3.error.json").write_text("{")
    for said, evidence in (("", "rank2.error.json"), (RAISED, "rank2.err")):
        (tmp_path / "logs/node1/rank2.err").write_text(said)
        found = of_files(sorted(each for each in tmp_path.rglob("*") if each.is_file()), library.load())
        assert (found.cause.failure, found.cause.ranks, found.cause.nodes) == ("user_code", (2,), ("node1",))
        assert found.place == Place("/home/ada/model.py", 4, "step")
        assert found.cause.event is not None
        assert Path(found.cause.event.source.name).name == evidence


def test_a_launcher_that_did_not_come(tmp_path: Path) -> None:
    """It is named by what the others do not say, not the nodes that waited for it."""
    for node in ("node0", "node1", "node2"):
        (tmp_path / node).mkdir()
        said = "" if node == "node1" else "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n"
        (tmp_path / node / "agent.log").write_text(said)
    cause = of_files(sorted(tmp_path.rglob("*.log")), library.load()).cause
    assert (cause.failure, cause.nodes, cause.verdict) == ("rendezvous", ("node1",), "check")


def test_error_files_that_torchrun_wrote_for_a_job(tmp_path: Path) -> None:
    """Their paths name the node and its first rank; that of torchrun itself is of no rank."""
    error = {"message": {"message": "KeyError: 'tokens'", "extraInfo": {"py_callstack": RAISED, "timestamp": "1"}}}
    place = tmp_path / ".slurm_plugin/7/errors/0/n2/first-4/none_x/attempt_0/1/error.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(error))
    found = of_files([place], library.load())
    assert (found.cause.failure, found.cause.ranks, found.cause.nodes) == ("user_code", (5,), ("n2",))
    alone = tmp_path / ".slurm_plugin/7/errors/0/n2/error.json"
    place.rename(alone)
    found = of_files([alone], library.load())
    assert (found.cause.failure, found.cause.ranks) == ("user_code", ())


def test_a_local_rank_in_a_log_of_several_nodes(tmp_path: Path) -> None:
    """It names no rank, and so no node, unless the log is that of one node. PyTorch's own prefix does."""
    four = Known(nodes={0: "n1", 1: "n1", 2: "n2", 3: "n2"})
    raised = "KeyError: 'tokens'\n"
    for name, text, known, ranks in (
        ("a", f"[default0]:{raised}", four, ()),
        ("b", f"[default0]:[rank2]:{raised}", four, (2,)),
        ("c", f"[default0]:{raised}", Known(nodes={0: "n1", 1: "n1"}), (0,)),
        ("node1/slurm.out", f"[default0]:{raised}", Known(nodes={0: "node0", 1: "node0", 2: "node1"}), (2,)),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        assert of_files([tmp_path / name], library.load(), known=known).cause.ranks == ranks, name
