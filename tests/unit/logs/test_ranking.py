"""Which line of several counts, and what the lines next to it say."""

from typing import Any

from slurm_plugin.logs import judge, ranking
from slurm_plugin.logs.endings import Ended
from slurm_plugin.logs.scan import Event, Source
from tests.unit.logs.test_scan import made

CRASH = made("crash", "EXIT CODE: 139", "EXIT CODE: 139", **{"class": "segfault"})
SIGNAL = made("ompi-segfault", r"(?P<node>n\d): Signal", "n2: Signal: Aborted", **{"class": "segfault"})
FULL = made("full", "bad_alloc", "bad_alloc", **{"class": "host_oom", "sure": True})
HEAD = made("hydra-running-at", "RUNNING AT", "PID 7 RUNNING AT n2", **{"class": "unknown", "role": "symptom"})
CLOSED = made("closed", "Connection closed", "Connection closed", **{"class": "symptom_only", "role": "symptom"})
NETWORK = made("net", "is unreachable", "OSError: [Errno 101] Network is unreachable", **{"class": "net_fabric"})
SERVICE = made("http", "URLError", "URLError: <[Errno 101] Network is unreachable>", **{"class": "external_service"})
OTHER = made("http2", "HTTPError", "HTTPError: 403", **{"class": "external_service"})


SHELL = made("module-unknown", "unknown module", "unknown module", **{"class": "import_env", "sure": True})
LOST = made("torch-rendezvous-timeout", "Rendezvous", "RendezvousConnectionError", **{"class": "rendezvous"})
ENDS = made("torch-closing", "closing signal", "closing signal SIGTERM", **{"class": "", "role": "teardown"})


def event(signature: Any, offset: int, node: str = "", *, time: float | None = None, rank: int | None = None) -> Event:
    """A line of one log."""
    return Event(signature, Source("log"), 1, offset, rank, node, None, signature.example, time=time)


def test_the_line_that_names_the_node() -> None:
    """It is next to the cause, and not a line that accuses another node, or is far away."""
    named = [event(CLOSED, 0, "n9"), event(HEAD, 100, "n2"), event(CRASH, 150)]
    assert judge.cause(named).nodes == judge.cause([*named, event(HEAD, 160)]).nodes == ("n2",)
    assert judge.cause([event(HEAD, 0, "n2"), event(CRASH, ranking.NEXT + 1)]).nodes == ()
    assert judge.cause([event(FULL, 0), event(SIGNAL, 90, "n2")]).nodes == ("n2",)


def test_the_rank_in_the_head_of_an_error_stack() -> None:
    """MPI's line about MPI_Init names it; that line points to the cause below it."""
    head = made("mpich-init", "in PMPI_Init", "in PMPI_Init", **{"class": "rendezvous", "role": "pointer"})
    ofi = made("ofi", "OFI failed", "OFI failed", **{"class": "net_fabric"})
    assert judge.cause([event(head, 0, rank=114), event(ofi, 90)]).ranks == (114,)


def test_a_step_that_srun_ended_after_a_task_called_abort() -> None:
    """The task is the cause, not the end of the step; without such a task it is that end."""
    aborted = made("slurm-task-aborted", "Aborted", "task 3: Aborted", **{"class": "segfault", "role": "symptom"})
    over = made("over", "CANCELLED", "CANCELLED", **{"class": "cancelled", "role": "symptom"})
    task, end = event(aborted, 0)._replace(peer=3, peer_node="n3"), event(over, 90, rank=0)
    found = judge.cause([task, end], {3: Ended(-6, "n3", first=True)})
    assert (found.failure, found.ranks, found.event) == ("segfault", (3,), task)
    assert judge.cause([end]).failure == "cancelled"


def test_a_loopback_address_that_a_line_accuses() -> None:
    """It is no node."""
    attach = made("attach", "attach", "attach", **{"class": "rendezvous"})
    assert judge.cause([event(attach, 0)._replace(peer_node="127.0.0.1")]).nodes == ()
    assert judge.cause([event(attach, 0)._replace(peer_node="10.0.0.1")]).nodes == ("10.0.0.1",)


def test_an_error_of_a_shell_before_the_one_that_ended_the_program() -> None:
    """The script went on after it. Alone it is the cause."""
    assert judge.cause([event(SHELL, 0), event(CRASH, 500)]).failure == "segfault"
    assert judge.cause([event(SHELL, 0), event(CLOSED, 500)]).failure == "import_env"


def test_a_launcher_that_lost_the_store_after_its_ranks() -> None:
    """The launcher with the store had ended: that is no cause. Before its ranks ran it is."""
    assert judge.cause([event(ENDS, 0), event(LOST, 500), event(CRASH, 900)]).failure == "segfault"
    assert judge.cause([event(LOST, 0), event(ENDS, 500), event(CRASH, 900)]).failure == "rendezvous"


def test_a_request_that_failed_for_the_network() -> None:
    """The last exception of the chain repeats the words of the first. Another request proves nothing."""
    assert judge.cause([event(NETWORK, 0), event(SERVICE, 500)]).failure == "external_service"
    assert judge.cause([event(NETWORK, 0), event(OTHER, 500)]).failure == "net_fabric"


def test_a_line_before_the_first_time_stamp() -> None:
    """It is not later than that one."""
    first, last = event(CRASH, 0, rank=0), event(CRASH, 500, time=9.0, rank=2)
    assert ranking.roots([last, first], [], {})[0] == first


def test_a_fault_of_the_node_without_a_table_of_ranks() -> None:
    """The rank that speaks is the culprit."""
    ecc = made("ecc", "ECC error", "ECC error", **{"class": "gpu_hw"})
    assert judge.cause([event(ecc, 0, rank=1)]).ranks == (1,)


def test_several_tasks_that_srun_saw_end_first() -> None:
    """All of them are named, if others ended later."""
    summary = made("exit", "Exited with", "Exited with", **{"class": "unknown", "role": "symptom", "summary": True})
    ended = {rank: Ended(1, "n1", first=rank in (1, 3)) for rank in range(4)}
    assert judge.cause([event(summary, 0, "n1")], ended).ranks == (1, 3)
    assert judge.cause([event(summary, 0, "n1")], {rank: Ended(1, "n1", first=True) for rank in range(4)}).ranks == ()
