"""compiled.json: the settings of the site file as hooks read them, with sizes in bytes and times in seconds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

import prechecks
from hostfiles import HostfileError, nodelist
from prechecks import check
from prechecks.check import Setting
from slurm_plugin.errors import UsageError
from slurm_plugin.records import durations, site_settings
from slurm_plugin.site.configuration import SiteConfig, plain, seconds
from slurm_plugin.spec import policy_language, submit_config

CANARY: Final = "canary"  # the key for the nodes of a canary installation; hooks ignore it


class SiteFile(NamedTuple):
    """The path of a site file and its checksum; `crc32` is None if there is no file."""

    path: str
    crc32: int | None


def site_file(path: Path | None = None) -> SiteFile:
    """Return the site file that `configuration.load` reads."""
    where = str((path or submit_config.DEFAULT_PATH).absolute())
    return SiteFile(where, site_settings.fingerprint(where))


def compile_site(config: SiteConfig, source: SiteFile | None = None) -> dict[str, Any]:
    """Return the settings as plain JSON values. `source` is the site file that they come from."""
    checks = msgspec.to_builtins(config.prechecks)
    return {
        "v": site_settings.VERSION,
        "site_file": source and source._asdict(),
        "infiniband_partitions": list(config.infiniband_partitions),
        "max_retries": config.max_retries,
        "check_partitions": list(config.policy.checks),
        "max_hold_s": policy_language.hold_s(config.max_hold),
        "max_grace_s": policy_language.hold_s(config.max_grace),
        "share": config.share,
        "extend_time_s": policy_language.hold_s(config.extend_time),
        "priorities": policy_language.compiled_priorities(config.priorities),
        "hold_rules": policy_language.holds(config.policy),
        "drain_cap": config.drain_cap,
        "repeat_drains": config.repeat_drains,
        "dry_run": config.dry_run == "yes",
        "notify": config.notify or "",
        "metrics_directory": config.metrics_directory or "",
        "gpu_job_map": list(config.gpu_job_map),
        "periodic": {"failures": config.periodic.failures, "passes": config.periodic.passes},
        "burn_in": {
            "command": list(config.burn_in.command),
            "deadline_s": policy_language.hold_s(config.burn_in.deadline),
        },
        "repair": {item: list(steps) for item, steps in config.repair.items()},
        "recovery": {
            "queue_timeout_s": durations.wait(config.recovery.queue_timeout),
            "nice": config.recovery.nice,
            "node_timeout_s": seconds(config.recovery.node_timeout),
        },
        "stage_in": {
            "directory": config.stage_in.directory or "",
            "keep_s": durations.seconds(config.stage_in.keep),
        },
        "logs": {
            "keep_s": durations.seconds(config.logs.keep),
            "diagnosis_s": policy_language.hold_s(config.logs.diagnosis),
        },
        "clean": list(config.clean),
        "sbatch": dict(config.sbatch),
        "command": config.command,
        "slurm_bin": config.slurm_bin,
        "run_directory": config.run_directory,
        "spool_directory": config.spool_directory,
        "prechecks": {
            "deadline_s": seconds(config.prechecks.deadline),
            "mandatory": list(config.prechecks.mandatory),
            "state": f"{config.run_directory}/state",  # where checks keep values between two runs
            "equipment": [
                {"nodes": nodes, **msgspec.to_builtins(has), "interfaces": list(has.interfaces)}
                for nodes, has in config.equipment.items()
            ],
            **{section: _section(own, checks[section]) for section, own in prechecks.SECTIONS.items()},
        },
    }


def _section(own: Mapping[str, Setting], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of one check, and the common settings that the site has set."""
    common = {name: each for name, each in check.COMMON.items() if values[name] is not None}
    return {name: plain(each, values[name]) for name, each in {**own, **common}.items()}


def on_trial(config: SiteConfig, nodes: str) -> SiteConfig:
    """Return the settings as a dry run, with each check limited to `nodes`.

    Raise UsageError if `nodes` is not a node list.
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
        # If the check's own nodes include no canary, no hook runs the check.
        parts[field] = msgspec.structs.replace(part, **({"nodes": ",".join(own)} if own else {"hooks": ()}))
    checks = msgspec.structs.replace(config.prechecks, **parts)
    return msgspec.structs.replace(config, dry_run="yes", prechecks=checks)


def canaries(root: str) -> str:
    """Return the canary nodes of the deployed site; empty if there are none or they cannot be read."""
    try:
        return str(site_settings.read(root).get(CANARY) or "")
    except (OSError, ValueError):
        return ""


def source(root: str, site_file: Path | None) -> SiteFile | None:
    """Return the source that compiled.json should name: the deployed path, with the checksum of `site_file`.

    `site_file` is None if this machine has no site file; then keep the deployed checksum.
    """
    try:
        known = site_settings.read(root).get("site_file")
        deployed = SiteFile(**known) if known else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    if deployed is None or site_file is None:
        return deployed
    return deployed._replace(crc32=site_settings.fingerprint(str(site_file)))
