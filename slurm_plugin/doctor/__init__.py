"""`slurm-plugin doctor`: how this site is set up, seen from this machine, measured and judged."""

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from slurm_plugin import siteconfig
from slurm_plugin.compiled import KILL_SWITCH
from slurm_plugin.doctor import judge_site, judge_slurm, measure
from slurm_plugin.doctor.finding import Finding
from slurm_plugin.install import chain
from slurm_plugin.siteconfig import DEFAULT_ROOT
from slurm_plugin.sitefile import DEFAULT_PATH
from slurm_plugin.slurm import Slurm, SlurmError

__all__ = ["Finding", "examine"]


def examine(slurm: Slurm, site_file: Path | None, root: str, lacks: Sequence[str] = ()) -> tuple[Finding, ...]:
    """Everything that was found, the controller first. Raises UsageError for a site file that is wrong.

    `lacks`: what the door said of itself when it was made.
    """
    site = siteconfig.load(site_file)
    config = _config(slurm)
    controller = measure.is_controller(config, os.uname().nodename)
    file = site_file or (DEFAULT_PATH if DEFAULT_PATH.exists() else None)
    here = file is not None
    distrust = measure.distrust(site.python)
    trial = measure.canaries(root)
    wanted = None if distrust else measure.rendered(site, root, measure.source(root, file), trial)
    install = _install_command(site_file, root, trial)

    def findings() -> Iterator[Finding]:
        yield judge_slurm.slurmctld(up=slurm.ping())
        yield judge_slurm.backend(slurm.backend, lacks)
        if config:
            yield judge_slurm.version(config)
            yield from _slurm_conf(config, site, root, controller=controller)
            yield _job_submit(config, wanted, root, install, controller=controller, site_file=here)
            if (task_prolog := config.get("TaskProlog", "")).startswith("/") and measure.pyxis(config):
                yield judge_site.pyxis(task_prolog, measure.enroot_mounts())
        else:
            yield Finding("slurm.conf", "cannot tell", "slurmctld did not show its settings")
        found = None if wanted is None else measure.differences(Path(root), wanted)
        yield from judge_site.files(root, found, install, site_file=here)
        if trial:
            yield judge_site.on_trial(trial)
        switch = f"{root}/{KILL_SWITCH}"
        yield judge_site.kill_switch(switch, there=measure.there(switch))
        yield judge_site.interpreter(site.python, distrust, None if distrust else measure.python_version(site.python))
        elsewhere = str(Path(shutil.which("scontrol") or "/usr/bin/scontrol").parent)
        yield judge_site.commands(site.slurm_bin, measure.missing_commands(site.slurm_bin), elsewhere)
        spool, user = site.spool_directory, config.get("SlurmUser", "")
        yield judge_site.spool(spool, user, measure.owned(spool), controller=controller)
        yield judge_site.munge(config.get("AuthType", ""), measure.munge(config))

    return tuple(findings())


def _config(slurm: Slurm) -> Mapping[str, str]:
    """slurmctld's settings; nothing where it does not answer."""
    try:
        return slurm.config()
    except SlurmError:
        return {}


def _slurm_conf(
    config: Mapping[str, str], site: siteconfig.SiteConfig, root: str, *, controller: bool
) -> Iterator[Finding]:
    """A finding for each line of our fragment, and for what our hooks need besides."""
    for name, value in measure.lines(site, root).items():
        leads = measure.leads(judge_slurm.values(config, name), value) if value.startswith("/") else None
        found = judge_slurm.setting(config, name, value, leads=leads)
        if name == "EpilogSlurmctld":
            changed = measure.changed_at(config.get("SLURM_CONF", "")) if controller else None
            found = judge_slurm.activated(found, config, conf_time=changed, boot=measure.boot(config))
        yield found
    yield judge_slurm.message_timeout(config, siteconfig.seconds(site.prechecks.deadline))
    yield judge_slurm.slurmd_timeout(config, siteconfig.seconds(site.recovery.node_timeout))


def _job_submit(
    config: Mapping[str, str],
    wanted: Mapping[str, measure.Rendered] | None,
    root: str,
    install: str,
    *,
    controller: bool,
    site_file: bool,
) -> Finding:
    path = str(Path(config.get("SLURM_CONF") or "/etc/slurm/slurm.conf").with_name("job_submit.lua"))
    deployed = f"{root}/job_submit.lua"
    ours = (wanted["job_submit.lua"].content or b"").decode() if wanted else None
    if ours and not site_file:  # max_retries may come from a site file elsewhere: the deployed one has it
        copy = measure.text(deployed) or ""
        ours = copy if copy.partition("\n")[0] == ours.partition("\n")[0] else ours
    text, there = measure.text(path), measure.there(path)
    own = str(Path(path).with_name(chain.OWN_LUA))
    chained = chain.lua(own, deployed, ours.encode()) if ours and measure.there(own) else None
    return judge_site.job_submit(
        path, text, ours, deployed, install, controller=controller, there=there, chained=chained
    )


def _install_command(site_file: Path | None, root: str, canaries: str) -> str:
    """What puts the site directory, and what stands beside slurm.conf, there again; on trial as before."""
    given = ["--config", str(site_file)] if site_file else []
    given += ["--root", root] if root != DEFAULT_ROOT else []
    given += ["--canary", canaries] if canaries else []
    return shlex.join(["slurm-plugin", "site", "install", *given, "--apply"])
