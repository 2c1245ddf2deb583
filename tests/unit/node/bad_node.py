"""A node that a prolog finds bad: the check, its messages, and root's state on the node."""

from pathlib import Path
from typing import Any

from prechecks import Context
from slurm_plugin.records import node_drains
from slurm_plugin.site import compilation
from slurm_plugin.site.configuration import SiteConfig

PROLOG = Context("prolog", "n1", (), (2, 3), infiniband=True)
REASON = "slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]"


def default_site(directory: Path) -> dict[str, Any]:
    """Return the default settings, compiled, with this node's state below `directory`."""
    settings = compilation.compile_site(SiteConfig())
    settings["prechecks"]["state"] = str(directory / "run/state")
    return settings


def remembered(site: dict[str, Any]) -> dict[str, Any]:
    """Return what the node remembers of its own drain."""
    return node_drains.load(site, node_drains.DRAINED)
