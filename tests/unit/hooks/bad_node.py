"""A node that a prolog finds bad: the look, the words for it, and what the node remembers."""

from pathlib import Path
from typing import Any

from prechecks import Context
from slurm_plugin import siteconfig
from slurm_plugin.hooks import marker
from slurm_plugin.siteconfig import SiteConfig

PROLOG = Context("prolog", "n1", (), (2, 3), infiniband=True)
REASON = "slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]"


def default_site(directory: Path) -> dict[str, Any]:
    """The default settings, compiled; the state of this node is kept here."""
    settings = siteconfig.compiled(SiteConfig())
    settings["prechecks"]["state"] = str(directory / "run/state")
    return settings


def remembered(site: dict[str, Any]) -> dict[str, Any]:
    """What the node has of its own drain."""
    return marker.load(site, marker.DRAINED)
