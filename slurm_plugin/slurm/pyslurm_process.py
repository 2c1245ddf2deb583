"""pyslurm in a separate process. library.py starts it, and it ends when its stdin is closed.

The process is separate because libslurm ends a process that finds no slurm.conf, and blocks it while no controller
answers, and because pyslurm is under the GPL. This file imports only the standard library and pyslurm.

Requests and answers are marshal values on stdin and stdout, each after its length in 8 bytes. The first answer says
whether pyslurm works. After that each request (verb, arguments) gets one answer: ("ok", value), or an error.
"""

import marshal
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

LENGTH_BYTES: Final = 8
# pyslurm's attributes, in the order in which library.py unpacks them
JOB: Final = (
    "id", "name", "user_name", "partition", "state", "state_reason", "allocated_nodes", "excluded_nodes",
    "requeue_count", "exit_code", "exit_code_signal", "submit_time", "start_time", "end_time", "comment",
    "admin_comment",
)  # fmt: skip
NODE: Final = ("name", "state", "reason", "reason_user", "reason_time", "partitions", "comment", "configured_gres")
# Fields of a job that pyslurm can set: scontrol's name -> pyslurm's. It can clear only the first, with a comma.
FIELDS: Final = {"ExcNodeList": "excluded_nodes", "AdminComment": "admin_comment", "Comment": "comment"}
STEPS: Final = {"steps": "children", "batch": "batch", "all": "all"}
REFUSED: Final = ("SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR", "SLURM_COMMUNICATIONS_CONNECTION_ERROR")
AWAY: Final = (
    *REFUSED, "SLURMCTLD_COMMUNICATIONS_SEND_ERROR", "SLURMCTLD_COMMUNICATIONS_RECEIVE_ERROR",
    "SLURMCTLD_COMMUNICATIONS_SHUTDOWN_ERROR", "SLURM_COMMUNICATIONS_SEND_ERROR", "SLURM_COMMUNICATIONS_RECEIVE_ERROR",
    "SLURM_COMMUNICATIONS_SHUTDOWN_ERROR", "SLURM_UNEXPECTED_MSG_ERROR", "SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT",
    "SLURM_PROTOCOL_SOCKET_ZERO_BYTES_SENT",
)  # fmt: skip


def main() -> None:
    """Answer requests until stdin is closed."""
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep libslurm's output out of the answers
    try:
        os.environ["PYSLURM_DISABLE_AUTO_INIT"] = "1"  # else the import ends this process if there is no slurm.conf
        import pyslurm  # noqa: PLC0415
    except Exception as error:  # noqa: BLE001 - an extension module may fail in any way
        _write(answers, ("lack", f"pyslurm cannot be imported ({error})"))
        return
    pyslurm.slurm_init()
    _write(answers, ("ok", pyslurm.__version__))
    while (question := _read(asked)) is not None:
        _write(answers, _answer(pyslurm, *question))


def _answer(pyslurm: Any, verb: str, *arguments: Any) -> tuple[Any, ...]:
    try:
        return ("ok", VERBS[verb](pyslurm, *arguments))
    except pyslurm.RPCError as error:
        named = {getattr(pyslurm, name, None): name for name in AWAY}
        away = named.get(error.errno)
        if away:
            return ("away", str(error), away not in REFUSED)
        if error.errno == getattr(pyslurm, "ESLURM_INVALID_JOB_ID", None):
            return ("no job", str(error))
        return ("refused", str(error))
    except Exception as error:  # noqa: BLE001 - a bug in pyslurm: report it to the caller
        return ("refused", f"{type(error).__name__}: {error}")


def _job(pyslurm: Any, job_id: int) -> tuple[Any, ...]:
    return _values(pyslurm.Job.load(job_id), JOB)


def _nodes(pyslurm: Any, names: list[str]) -> list[tuple[Any, ...]]:
    found = pyslurm.Nodes.load()
    return [_values(found[name], NODE) for name in (names or found) if name in found]


def _values(record: Any, attributes: tuple[str, ...]) -> tuple[Any, ...]:
    try:
        return tuple([getattr(record, name) for name in attributes])
    except UnicodeDecodeError:  # users may write any bytes into a comment
        return tuple([_text(record, name) for name in attributes])


def _text(record: Any, name: str) -> Any:
    try:
        return getattr(record, name)
    except UnicodeDecodeError as error:
        return error.object.decode(errors="replace")


def _update_job(pyslurm: Any, job_id: int, fields: Mapping[str, str]) -> None:
    changes: dict[str, Any] = {FIELDS[name]: value for name, value in fields.items() if name in FIELDS}
    if "ExcNodeList" in fields:
        changes["excluded_nodes"] = fields["ExcNodeList"].split(",") if fields["ExcNodeList"] else ","
    if fields.get("StartTime") == "now":
        changes["begin_time"] = "now"
    pyslurm.Job(job_id).modify(pyslurm.JobSubmitDescription(**changes))


def _state(pyslurm: Any, name: str, state: str, reason: str | None) -> None:
    pyslurm.Node(name).modify(pyslurm.Node(state=state, **({"reason": reason} if reason else {})))


VERBS: dict[str, Callable[..., Any]] = {
    "job": _job,
    "nodes": _nodes,
    "update_job": _update_job,
    "requeue": lambda pyslurm, job_id: pyslurm.Job(job_id).requeue(),
    "hold": lambda pyslurm, job_id: pyslurm.Job(job_id).hold(),
    "release": lambda pyslurm, job_id: pyslurm.Job(job_id).release(),
    "signal": lambda pyslurm, job_id, name, to: pyslurm.Job(job_id).send_signal(name, steps=STEPS[to]),
    "cancel": lambda pyslurm, job_id: pyslurm.Job(job_id).cancel(),
    "state": _state,
    "ping": lambda pyslurm: any(each.is_responding for each in pyslurm.slurmctld.ping_all()),
}


def _read(stream: BinaryIO) -> Any:
    """Return the next request; None at the end of the input."""
    head = stream.read(LENGTH_BYTES)
    return marshal.loads(stream.read(int.from_bytes(head, "big"))) if head else None  # noqa: S302 - our own parent's


def _write(stream: BinaryIO, answer: tuple[Any, ...]) -> None:
    text = marshal.dumps(answer)
    stream.write(len(text).to_bytes(LENGTH_BYTES, "big") + text)
    stream.flush()


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(1)
