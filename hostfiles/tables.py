"""The formats of Ascend as FORMATS has them: each loads what it needs when it is asked for.

A prolog imports this package for its node lists, on every node of every job; rank tables would cost it 3 ms there.
"""

from __future__ import annotations

from hostfiles.allocation import Allocation


def ranktable_1_0(allocation: Allocation, _port: int, _task: int | None, *, uneven: bool = False) -> str:
    """`hostfiles.ranktable.version_1_0`."""
    from hostfiles import ranktable  # noqa: PLC0415 - see above

    return ranktable.version_1_0(allocation, uneven=uneven)


def ranktable_2(allocation: Allocation, _port: int, _task: int | None, *, uneven: bool = False) -> str:
    """`hostfiles.ranktable.template_2`."""
    from hostfiles import ranktable  # noqa: PLC0415

    return ranktable.template_2(allocation, uneven=uneven)


def ranktable_1_2(allocation: Allocation, _port: int, _task: int | None, *, uneven: bool = False) -> str:
    """`hostfiles.ranktable.version_1_2`, all hosts in one super pod."""
    from hostfiles import ranktable  # noqa: PLC0415

    return ranktable.version_1_2(allocation, uneven=uneven)


def ascend(allocation: Allocation, port: int, task: int | None, *, table: str = "") -> str:
    """`hostfiles.ascend.text`: variables of a process with the rank table in this file, or of the dynamic cluster's."""
    from hostfiles import ascend as variables  # noqa: PLC0415

    return variables.text(allocation, port, task, table=table)
