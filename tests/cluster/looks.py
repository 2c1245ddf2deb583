"""The periodic check of a sandbox's nodes, called as slurmd calls it."""

from slurm_plugin.sandbox import Sandbox

HOOK = "/etc/slurm/slurm_plugin/hooks/periodic"
PASSES = 3  # in a row bring a node back


def look(box: Sandbox, node: str, times: int = 1) -> None:
    """The periodic check, with the environment that slurmd gives it."""
    for _ in range(times):
        said = box.run(["env", "-i", f"SLURMD_NODENAME={node}", HOOK], user="root", node=node)
        assert (said.stdout, said.stderr) == ("", "")


def forget(box: Sandbox) -> None:
    """Have every node remember nothing, as after a boot."""
    for node in box.states():
        box.run(["rm", "-rf", "/run/slurm_plugin/state"], user="root", node=node)
