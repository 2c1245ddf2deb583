"""Every format as whole files under tests/golden/hosts, for each kind of allocation; `write()` makes them again."""

from pathlib import Path

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
    """Return a format's output: once if it is for the whole job, else without a task and for the last one."""
    options = {"uneven": True} if DEVICES.get(form) else {}
    if form in DEVICES:
        allocation = with_devices(allocation)
    whole, last = (FORMATS[form](allocation, PORT, task, **options) for task in (None, allocation.tasks - 1))
    return whole if whole == last else f"{whole}# task {allocation.tasks - 1}\n{last}"


def with_devices(allocation: Allocation) -> Allocation:
    """Return the hosts with addresses and a device for each slot. Compared as text, 10.0.0.9 is not the first."""
    hosts = []
    for place, host in enumerate(allocation.hosts):
        devices = tuple(
            Device(number, f"192.168.{place}.{8 + number}", place * 8 + number) for number in range(host.slots)
        )
        hosts.append(Host(host.name, host.slots, host.tasks, f"10.0.0.{9 + place}", devices))
    return allocation._replace(hosts=tuple(hosts))


def write() -> None:
    """Write the files, then read the diff: python -c 'import tests.unit.hostfiles.test_golden as t; t.write()'."""
    for form in FORMATS:
        for kind, allocation in ALLOCATIONS.items():
            (GOLDEN / f"{form}-{kind}").write_text(text(form, allocation))


def test_golden() -> None:
    """The text is that of the file, byte for byte."""
    for form in FORMATS:
        for kind, wanted in ALLOCATIONS.items():
            assert text(form, wanted) == (GOLDEN / f"{form}-{kind}").read_text(), (form, kind)


def test_no_file_is_left_over() -> None:
    """A removed format leaves no golden file."""
    assert {path.name for path in GOLDEN.iterdir()} == {f"{form}-{kind}" for form in FORMATS for kind in ALLOCATIONS}
