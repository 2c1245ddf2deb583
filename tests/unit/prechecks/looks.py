"""Checks with a given behaviour, run by the runner."""

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import pytest

import prechecks
from prechecks import Check, Context, Finding, Verdict
from prechecks.child import Child
from tests.unit.prechecks.pace import descriptors

CONTEXT = Context("prolog", "n1")


class Looks(Check):
    """A check with a given behaviour."""

    problem = "node_problem"
    condition = "not wanted"

    def __init__(
        self, item: str, look: Callable[[], Finding], *, forked: bool = True, wanted: bool = True, quick: bool = False
    ) -> None:
        self.item, self.does, self.forked, self.wanted, self.quick = item, look, forked, wanted, quick

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        return self.wanted

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        return self.does()


def fine() -> Finding:
    return Finding("ok", f"process {os.getpid()}", 1, 2)


def raise_it() -> NoReturn:
    raise PermissionError("no\nway")


def kill_it() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def leave() -> NoReturn:
    os._exit(0)


def run(*checks: Check, deadline_s: float = 30.0, **settings: Any) -> tuple[Verdict, ...]:
    """Run these checks. Assert that no child process and no descriptor is left."""
    before, children = descriptors(), list[Child]()
    with pytest.MonkeyPatch.context() as patch:
        begin = Child.__init__

        def noted(child: Child, *words: Any) -> None:
            begin(child, *words)
            children.append(child)

        patch.setattr(Child, "__init__", noted)
        verdicts = prechecks.run(CONTEXT, {"deadline_s": deadline_s, **settings}, checks=checks)
    assert descriptors() == before
    for child in children:
        with pytest.raises(ChildProcessError):
            os.waitpid(child.pid, os.WNOHANG)
    return verdicts
