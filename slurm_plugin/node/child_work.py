"""Work on a file system that may hang: in a child process, with a deadline, and only once at a time."""

from __future__ import annotations

from collections.abc import Callable

from prechecks import quickjson
from prechecks.child import Child, load_stuck, store_stuck

TYPE_CHECKING = False  # as in prechecks: `typing` costs a hook 3 ms
if TYPE_CHECKING:
    from typing import Any


def run(state: str, what: str, work: Callable[[], Any], deadline_s: float, place: str = "") -> tuple[Any, str]:
    """Run `work` in a child process. Return its result, passed as JSON, and an empty text; or None and a message.

    Kill the child at the deadline. If it does not end, record it in the directory `state` under the name `what`. While
    a recorded process is stuck, do not start a child for the same `what` or `place`: return the record as the message.
    """
    for done, left in load_stuck(state).items():
        if done == what or (place and left.place == place):
            return None, str(left)
    child = Child(lambda _: _answer(work))
    if not child.collect(child.start + deadline_s):
        store_stuck(state, {what: (child.pid, place)})
        return None, f"not done after {deadline_s:g} s"
    if child.status or not child.output:
        return None, "its process died"
    result, why = quickjson.loads(child.output.decode())
    return result, why


def _answer(work: Callable[[], Any]) -> bytes:
    """Return the JSON of the result and an empty text, or of None and the error."""
    try:
        return quickjson.dumps([work(), ""]).encode()
    except OSError as error:
        return quickjson.dumps([None, str(error)]).encode()
