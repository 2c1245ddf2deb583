"""A first installation on trial: a dry run, in which checks look at a few nodes only. Settings in, settings out."""

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

import prechecks
from hostfiles import HostfileError, nodelist
from slurm_plugin.errors import UsageError
from slurm_plugin.siteconfig import SiteConfig

KEY: Final = "canary"  # of compiled.json; hooks pass over it


def on_trial(config: SiteConfig, nodes: str) -> SiteConfig:
    """The settings with `dry_run`, and with every check's condition `nodes` narrowed to these.

    Raises UsageError where `nodes` is no node list.
    """
    try:
        canaries = nodelist.expand(nodes)
    except HostfileError as error:
        raise UsageError(f"--canary {nodes}: {error}\n  a node list such as n[1-4] is accepted") from error
    parts = {}
    for section in prechecks.SECTIONS:
        field = section.replace("-", "_")
        part = getattr(config.prechecks, field)
        own = canaries if part.nodes is None else [name for name in nodelist.expand(part.nodes) if name in canaries]
        # None of the check's own nodes is a canary: it is looked at in no hook.
        parts[field] = msgspec.structs.replace(part, **({"nodes": ",".join(own)} if own else {"hooks": ()}))
    checks = msgspec.structs.replace(config.prechecks, **parts)
    return msgspec.structs.replace(config, dry_run="yes", prechecks=checks)


def marked(compiled: bytes, nodes: str) -> bytes:
    """compiled.json that says so."""
    return (json.dumps(json.loads(compiled) | {KEY: nodes}, indent=1) + "\n").encode()


def of(compiled: Mapping[str, Any]) -> str:
    """The canary nodes of a compiled site; empty where it is not on trial."""
    return str(compiled.get(KEY) or "")
