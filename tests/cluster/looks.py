"""The periodic check of a sandbox's nodes, called as slurmd calls it."""

from collections.abc import Callable

from slurm_plugin.sandbox import Sandbox
from tests.cluster.syslog import Syslog
from tests.waiting import until

HOOK = "/etc/slurm/slurm_plugin/hooks/periodic"
PASSES = 3  # this number in a row resumes a node


def look(box: Sandbox, node: str, times: int = 1) -> None:
    """Run the periodic check, with the environment that slurmd gives it."""
    for _ in range(times):
        said = box.run(["env", "-i", f"SLURMD_NODENAME={node}", HOOK], user="root", node=node)
        assert (said.stdout, said.stderr) == ("", "")


def look_until(box: Sandbox, node: str, sign: Callable[[], bool]) -> None:
    """Run the periodic check until `sign` is true. A check to which Slurm does not answer in 5 s changes nothing."""
    log = Syslog(box)
    until(lambda: look(box, node) or sign(), lambda: f"what looks at {node} come to: {log.of(node)[-4000:]}")  # type: ignore[func-returns-value]


def forget(box: Sandbox) -> None:
    """Remove the state of every node, as a boot does."""
    for node in box.states():
        box.run(["rm", "-rf", "/run/slurm_plugin/state"], user="root", node=node)
