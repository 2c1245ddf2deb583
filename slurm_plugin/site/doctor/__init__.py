"""`slurm-plugin doctor`: measure the installation from this machine, and judge it."""

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from slurm_plugin.errors import UsageError
from slurm_plugin.records import grant
from slurm_plugin.records.site_settings import DEFAULT_ROOT, KILL_SWITCH, names_hooks
from slurm_plugin.site import compilation, configuration, lua
from slurm_plugin.site.doctor import judge, measure, site_names
from slurm_plugin.site.doctor.judge import Finding
from slurm_plugin.site.files import Entry, fragment, rendered
from slurm_plugin.site.slurmconf import fragment_lines, settings
from slurm_plugin.slurm import Slurm
from slurm_plugin.spec import submit_config
from slurm_plugin.spec.submit_config import DEFAULT_PATH

__all__ = ["Finding", "examine"]

ADDED: Final = (
    "bad nodes are drained, checks run as root and on idle nodes, restarts take less time, policy, notices, metrics"
)


def examine(slurm: Slurm, site_file: Path | None, root: str, lacks: Sequence[str] = ()) -> tuple[Finding, ...]:
    """Return all findings; the first one is about slurmctld. Raise UsageError for problems in the site file.

    `lacks`: the warnings of `connect`.
    """
    site = configuration.load(site_file)
    config = measure.config(slurm)
    controller = measure.is_controller(judge.values(config, "SlurmctldHost"), os.uname().nodename)
    file = site_file or (DEFAULT_PATH if DEFAULT_PATH.exists() else None)
    here = file is not None
    python = measure.interpreter(site.python)
    trial = compilation.canaries(root)
    source = compilation.source(root, file)
    wanted = None if isinstance(python, str) else rendered(site, root, source, trial)
    install = _install_command(site_file, root, trial)

    def findings() -> Iterator[Finding]:
        yield judge.slurmctld(up=slurm.ping())
        yield judge.backend(slurm.backend, lacks)
        if config:
            yield judge.version(config)
            if os.geteuid() and not Path(root).exists() and not names_hooks(config, root):
                yield from _alone(config)
                return
            yield from _slurm_conf(config, site, root, controller=controller)
            yield _job_submit(config, wanted, root, install, controller=controller, site_file=here)
            if (task_prolog := config.get("TaskProlog", "")).startswith("/") and measure.pyxis(config):
                yield judge.pyxis(task_prolog, measure.enroot_mounts())
        else:
            yield Finding("slurm.conf", "cannot tell", "slurmctld did not report its settings")
        found = None if wanted is None else measure.differences(Path(root), wanted)
        yield from judge.files(root, found, install, site_file=here)
        if trial:
            yield judge.on_trial(trial)
        names = site_names.known(measure.nodes(slurm), settings(measure.text(config.get("SLURM_CONF", "")) or ""))
        yield site_names.judge(site_names.unknown(site, names), names)
        switch = f"{root}/{KILL_SWITCH}"
        yield judge.kill_switch(switch, there=measure.there(switch))
        yield judge.interpreter(site.python, python, psutil=measure.has_psutil(site.python))
        elsewhere = str(Path(shutil.which("scontrol") or "/usr/bin/scontrol").parent)
        yield judge.commands(site.slurm_bin, measure.missing_commands(site.slurm_bin), elsewhere)
        spool, user = site.spool_directory, config.get("SlurmUser", "")
        yield judge.spool(spool, user, measure.owned(spool), controller=controller)
        yield judge.munge(config.get("AuthType", ""), measure.munge(config))
        if os.geteuid():
            yield own_settings()

    return tuple(findings())


def _slurm_conf(
    config: Mapping[str, str], site: configuration.SiteConfig, root: str, *, controller: bool
) -> Iterator[Finding]:
    """Yield a finding for each line of our fragment, and for the timeouts that our hooks rely on."""
    for name, value in fragment_lines(fragment(site, root)).items():
        leads = measure.leads(judge.values(config, name), value) if value.startswith("/") else None
        found = judge.setting(config, name, value, leads=leads)
        if name == "EpilogSlurmctld":
            changed = measure.changed_at(config.get("SLURM_CONF", "")) if controller else None
            found = judge.activated(found, config, conf_time=changed, boot=measure.boot(config))
        yield found
    yield judge.message_timeout(config, configuration.seconds(site.prechecks.deadline))
    yield judge.slurmd_timeout(config, configuration.seconds(site.recovery.node_timeout))


def _job_submit(
    config: Mapping[str, str],
    wanted: Mapping[str, Entry] | None,
    root: str,
    install: str,
    *,
    controller: bool,
    site_file: bool,
) -> Finding:
    """Compare job_submit.lua beside slurm.conf with our script, or the chain of the site's script and ours."""
    path = str(Path(config.get("SLURM_CONF") or "/etc/slurm/slurm.conf").with_name("job_submit.lua"))
    deployed = f"{root}/job_submit.lua"
    ours = (wanted["job_submit.lua"].content or b"").decode() if wanted else None
    if ours and not site_file:  # no site file here: the deployed copy has another machine's max_retries
        copy = measure.text(deployed) or ""
        ours = copy if copy.partition("\n")[0] == ours.partition("\n")[0] else ours
    text, there = measure.text(path), measure.there(path)
    own = str(Path(path).with_name(lua.OWN))
    chained = lua.chain(own, deployed, ours.encode()) if ours and measure.there(own) else None
    return judge.job_submit(path, text, ours, deployed, install, controller=controller, there=there, chained=chained)


def _install_command(site_file: Path | None, root: str, canaries: str) -> str:
    """Return the command that installs again, with the same options and canaries."""
    given = ["--config", str(site_file)] if site_file else []
    given += ["--root", root] if root != DEFAULT_ROOT else []
    given += ["--canary", canaries] if canaries else []
    return shlex.join(["slurm-plugin", "site", "install", *given, "--apply"])


def _alone(config: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what this user has as he is, then what an installation would add."""
    yield Finding("installation", "ok", "none; you have what follows all the same")
    site_has = config.get("TaskProlog", "")
    beside = f", beside {site_has}" if site_has.startswith("/") else ""
    yield Finding("modes", "ok", f"all; a TaskProlog of the job's own gives the tasks their ranks{beside}")
    yield Finding("checks", "ok", "those that you can make, before the program of a spec with `retries` starts")
    usual = grant.wait_of_owner_s(config) == grant.USUAL_WAIT_S
    after = f"{'2 to 4 s' if usual else '5 to 50 s'} after a requeue, 2 to 4 s with submit --wait"
    yield Finding("restarts", "ok", f"`retries` of the spec, in the allocation and by a requeue; {after}")
    yield own_settings()
    yield Finding("an admin adds", "ok", ADDED, "for an admin: slurm-plugin site install")


def own_settings() -> Finding:
    """Judge the user's own file."""
    where = submit_config.own_path()
    if not where or not os.path.lexists(where):
        return Finding("your settings", "ok", f"none; {where or 'a file'} may set {', '.join(submit_config.OWN_KEYS)}")
    try:
        configuration.load_for_user()
    except UsageError as error:
        return Finding("your settings", "wrong", error.one_line, f"correct {where}")
    return Finding("your settings", "ok", str(where))
