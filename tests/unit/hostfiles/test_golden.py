"""Every format as whole files under tests/golden/hosts, for each kind of allocation; `write()` makes them again."""

from pathlib import Path

import pytest

from hostfiles import DEVICES, FORMATS, Allocation, Device, Host, from_lists

GOLDEN = Path(__file__).parents[2] / "golden" / "hosts"
ALLOCATIONS = {
    "one": from_lists("n1", slots=4, tasks_per_node="4", job_id=5),
    "four": from_lists("n[08-11]", slots=8, tasks_per_node="8(x4)", job_id=5),
    "heterogeneous": from_lists("b2,a[1-2]", slots=(4, 4, 2), tasks_per_node="4(x2),2", job_id=5),
    "cpu-only": from_lists("n[1-4]", job_id=5),
}
PORT = 61005


def text(form: str, allocation: Allocation) -> str:
    """What a format makes: once for formats of the whole job, else without a task, then for the last one."""
    options = {"uneven": True} if DEVICES.get(form) else {}
    if form in DEVICES:
        allocation = with_devices(allocation)
    whole, last = (FORMATS[form](allocation, PORT, task, **options) for task in (None, allocation.tasks - 1))
    return whole if whole == last else f"{whole}# task {allocation.tasks - 1}\n{last}"


def with_devices(allocation: Allocation) -> Allocation:
    """The same hosts with addresses, and a device a slot: by address 10.0.0.9 is not the first, compared as text."""
    hosts = []
    for place, host in enumerate(allocation.hosts):
        devices = tuple(
            Device(number, f"192.168.{place}.{8 + number}", place * 8 + number) for number in range(host.slots)
        )
        hosts.append(Host(host.name, host.slots, host.tasks, f"10.0.0.{9 + place}", devices))
    return allocation._replace(hosts=tuple(hosts))


def write() -> None:
    """Make the files again, and read the diff: python -c 'import tests.unit.hostfiles.test_golden as t; t.write()'."""
    for form in FORMATS:
        for kind, allocation in ALLOCATIONS.items():
            (GOLDEN / f"{form}-{kind}").write_text(text(form, allocation))


@pytest.mark.parametrize("kind", ALLOCATIONS)
@pytest.mark.parametrize("form", FORMATS)
def test_golden(form: str, kind: str) -> None:
    """The text is that of the file, byte for byte."""
    assert text(form, ALLOCATIONS[kind]) == (GOLDEN / f"{form}-{kind}").read_text()


def test_no_file_is_left_over() -> None:
    """A format that is gone leaves no golden file."""
    assert {path.name for path in GOLDEN.iterdir()} == {f"{form}-{kind}" for form in FORMATS for kind in ALLOCATIONS}
