"""The form of a check. Beside its class, each file has the parts of `look` as functions: what touches the machine,
and a pure `judge` of plain values."""

from __future__ import annotations

from collections.abc import Mapping

from prechecks.verdict import Context, Finding

TYPE_CHECKING = False  # as in `typing`, which is too slow to import here (see prechecks.verdict)
if TYPE_CHECKING:
    from typing import Any


class Check:
    """One item. `settings` is the whole `prechecks` part of the compiled site file."""

    item: str  # its id, without spaces
    problem: str  # what a failure of it means: NODE_PROBLEM or JOB_PROBLEM
    condition: str  # why it is skipped where it does not apply, for people
    forked = True  # False only where measuring can never hang: no file system, no network

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Whether this job on this node is to be checked; reads nothing but its arguments."""
        raise NotImplementedError

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """Measure, then judge. May hang or raise: the runner sees to it."""
        raise NotImplementedError

    def mandatory(self, settings: Mapping[str, Any]) -> bool:
        """Whether the site wants this item for every job."""
        return self.item in settings.get("mandatory", ())
