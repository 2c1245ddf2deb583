"""slurmctld and its settings, judged: no file is read and no command run here.

`config` is what slurmctld has set, as `Slurm.config()` gives it.
"""

import math
import re
from collections.abc import Mapping, Sequence

from slurm_plugin.doctor.finding import ELSEWHERE, Finding
from slurm_plugin.job.guard import CUT_OFF_S
from slurm_plugin.slurm import releases


def slurmctld(*, up: bool) -> Finding:
    """Whether a controller answers."""
    if up:
        return Finding("slurmctld", "ok", "answers")
    return Finding("slurmctld", "wrong", "does not answer", "on the controller, run: systemctl status slurmctld")


def backend(name: str, lacks: Sequence[str]) -> Finding:
    """How the door asks Slurm; `lacks`: why it is not the way that was asked for."""
    if not lacks:
        return Finding("back end", "ok", name)
    return Finding(
        "back end", "wrong", lacks[0], "pip install pyslurm for this very Slurm, or: export SLURM_PLUGIN_BACKEND=cli"
    )


def version(config: Mapping[str, str]) -> Finding:
    """Whether slurmctld is new enough."""
    text = config.get("SLURM_VERSION", "")
    if not re.match(r"\d+\.\d+", text, re.ASCII):
        return Finding("Slurm version", "cannot tell", f"slurmctld says {text!r}")
    if releases.of(text) is None:
        return Finding(
            "Slurm version", "wrong", f"{text}; {releases.RELEASES[0].name} or later is needed", "upgrade Slurm"
        )
    return Finding("Slurm version", "ok", text)


def message_timeout(config: Mapping[str, str], deadline_s: float) -> Finding:
    """Whether a prolog whose checks use up their deadline still ends within the time that Slurm expects of one."""
    name, has = "MessageTimeout", config.get("MessageTimeout", "")
    seconds = has.removesuffix(" sec")
    if not seconds.isdigit():
        return Finding(name, "cannot tell", f"slurmctld says {has!r}")
    if int(seconds) >= deadline_s:
        return Finding(name, "ok", has)
    message = f"is {has}, shorter than prechecks.deadline, {deadline_s:g} s"
    return Finding(name, "wrong", message, f"slurm.conf: MessageTimeout={math.ceil(deadline_s)}")


def slurmd_timeout(config: Mapping[str, str], node_timeout_s: float) -> Finding:
    """Whether Slurm waits with a node that is cut off until none of a job's ranks on it runs any more.

    Earlier it starts the job elsewhere, and ranks beside the old supervisor go on until that has noticed.
    """
    name, has = "SlurmdTimeout", config.get("SlurmdTimeout", "")
    seconds, least = has.removesuffix(" sec"), math.ceil(node_timeout_s + CUT_OFF_S)
    if not seconds.isdigit():
        return Finding(name, "cannot tell", f"slurmctld says {has!r}")
    if not int(seconds):
        message = f"is 0: not Slurm sets a silent node DOWN; whatever does must wait {least} s"
        return Finding(name, "cannot tell", message, f"slurm.conf: SlurmdTimeout={max(least, 300)}")
    if int(seconds) >= least:
        return Finding(name, "ok", has)
    message = (
        f"is {has}, shorter than recovery.node_timeout and {CUT_OFF_S:g} s: "
        "a job may run elsewhere while a node that is cut off still writes for it"
    )
    return Finding(name, "wrong", message, f"slurm.conf: SlurmdTimeout={least}")


def values(config: Mapping[str, str], name: str) -> tuple[str, ...]:
    """A setting that may be given more than once: `Prolog`, or from 24.05 on `Prolog[0]`, `Prolog[1]`, ..."""
    numbered = (value for key, value in config.items() if key.partition("[")[0] == name)
    return tuple(value for value in numbered if value)


def setting(config: Mapping[str, str], name: str, wanted: str, *, leads: bool | None = None) -> Finding:
    """One line of slurm.conf, against the value that our fragment gives it.

    `leads`: whether the programs that are set lead to ours; None where that cannot be seen here.
    """
    if wanted.startswith("/"):
        return _hook(name, wanted, values(config, name), leads)
    has = config.get(name, "")
    if wanted.isdigit():
        if has.removesuffix(" sec") == wanted:
            return Finding(name, "ok", has)
        return Finding(name, "wrong", f"is {has or 'not set'}", f"slurm.conf: {name}={wanted}")
    words = [word.strip() for word in has.split(",") if word.strip()]
    known = {word.lower().removeprefix("job_submit/") for word in words}
    missing = [word for word in wanted.split(",") if word.lower() not in known]
    if not missing:
        return Finding(name, "ok", has)
    joined = ",".join([*words, *missing])
    return Finding(name, "wrong", f"without {', '.join(missing)}", f"slurm.conf: {name}={joined}")


def _hook(name: str, ours: str, has: Sequence[str], leads: bool | None) -> Finding:
    line = f"slurm.conf: {name}={ours}"
    if ours in has:
        return Finding(name, "ok", ours)
    if not has:
        return Finding(name, "wrong", "is not set", line)
    shown = ", ".join(has)
    if leads is None:
        return Finding(name, "cannot tell", f"is {shown}, which cannot be read here", f"it must run {ours}")
    if leads:
        return Finding(name, "ok", f"{shown}, which names {ours}")
    return Finding(name, "wrong", f"is {shown}, which does not name ours", f"{line}  (or let it run that program)")


def activated(found: Finding, config: Mapping[str, str], *, conf_time: int | None, boot: int | None) -> Finding:
    """EpilogSlurmctld, already found to be set: 22.05 shows one that came by a reconfigure, and never runs it.

    Later releases start slurmctld anew for a reconfigure, and it runs.

    Seconds of the epoch: when slurm.conf was changed last (None: not a controller), and when slurmctld started.
    """
    release = releases.of(config.get("SLURM_VERSION", ""))
    if found.verdict != "ok" or (release and release.reconfigure_starts_epilog_slurmctld):
        return found
    path = config.get("SLURM_CONF", "slurm.conf")
    if conf_time is None or boot is None:
        return Finding(found.name, "cannot tell", f"is set; whether it runs, {ELSEWHERE}")
    if conf_time > boot:
        message = f"is set; whether it runs is not known, {path} is newer than slurmctld's start"
        return Finding(
            found.name, "cannot tell", message, "once after adding the line, run: systemctl restart slurmctld"
        )
    return found
