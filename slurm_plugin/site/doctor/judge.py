"""Judge slurmctld, its settings, and the deployment on a machine. Read no file and run no command.

`config`: the settings of slurmctld, as `Slurm.config()` returns them.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Final, Literal

from prechecks.verdict import first_few
from slurm_plugin.records.site_settings import ARCHIVE, CUT_OFF_S
from slurm_plugin.site import lua, slurmconf
from slurm_plugin.slurm import releases

Verdict = Literal["ok", "wrong", "cannot tell"]
ELSEWHERE: Final = "only a controller can tell"
SHOWN: Final = 6  # names in one message
_ACCOUNT = re.compile(r"(.+)\((\d+)\)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `remedy`: the line to write and its file, or the command to run."""

    name: str
    verdict: Verdict
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Differences:
    """Names below the site directory that differ from this version's rendering; `.` is the directory itself."""

    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()  # unreadable for some users, or not executable
    exposed: tuple[str, ...] = ()  # not owned by root, or writable by others


@dataclass(frozen=True, slots=True)
class Owned:
    """The owner of a directory, and its permission bits."""

    uid: int
    mode: int


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1 if a finding is wrong, else 2 if one could not be judged, else 0."""
    verdicts = {finding.verdict for finding in findings}
    return 1 if "wrong" in verdicts else 2 if "cannot tell" in verdicts else 0


def slurmctld(*, up: bool) -> Finding:
    """Judge whether a controller answers."""
    if up:
        return Finding("slurmctld", "ok", "answers")
    return Finding("slurmctld", "wrong", "does not answer", "on the controller, run: systemctl status slurmctld")


def backend(name: str, lacks: Sequence[str]) -> Finding:
    """Judge the back end in use. `lacks`: why it is not the requested back end."""
    if not lacks:
        return Finding("back end", "ok", name)
    return Finding(
        "back end", "wrong", lacks[0], "pip install pyslurm for this very Slurm, or: export SLURM_PLUGIN_BACKEND=cli"
    )


def version(config: Mapping[str, str]) -> Finding:
    """Judge whether slurmctld is new enough."""
    text = config.get("SLURM_VERSION", "")
    if not re.match(r"\d+\.\d+", text, re.ASCII):
        return Finding("Slurm version", "cannot tell", f"slurmctld says {text!r}")
    if releases.of(text) is None:
        return Finding(
            "Slurm version", "wrong", f"{text}; {releases.RELEASES[0].name} or later is needed", "upgrade Slurm"
        )
    return Finding("Slurm version", "ok", text)


def message_timeout(config: Mapping[str, str], deadline_s: float) -> Finding:
    """Judge whether MessageTimeout is at least the deadline of the checks in a prolog."""
    why = f"shorter than prechecks.deadline, {deadline_s:g} s"
    return _timeout("MessageTimeout", config, math.ceil(deadline_s), why)


def slurmd_timeout(config: Mapping[str, str], node_timeout_s: float) -> Finding:
    """Judge whether a node that is cut off stops the ranks of its job before SlurmdTimeout passes.

    Otherwise Slurm may start the job elsewhere while ranks on the old node still write.
    """
    name, least = "SlurmdTimeout", math.ceil(node_timeout_s + CUT_OFF_S)
    if config.get(name, "").removesuffix(" sec") == "0":
        message = f"is 0: Slurm does not set a silent node DOWN; whatever does must wait {least} s"
        return Finding(name, "cannot tell", message, f"slurm.conf: SlurmdTimeout={max(least, 300)}")
    why = (
        f"shorter than recovery.node_timeout and {CUT_OFF_S:g} s: "
        "a job may run elsewhere while a node that is cut off still writes for it"
    )
    return _timeout(name, config, least, why)


def _timeout(name: str, config: Mapping[str, str], least_s: int, why: str) -> Finding:
    """Judge whether a timeout of Slurm, such as `10 sec`, is long enough."""
    has = config.get(name, "")
    seconds = has.removesuffix(" sec")
    if not seconds.isdigit():
        return Finding(name, "cannot tell", f"slurmctld says {has!r}")
    if int(seconds) >= least_s:
        return Finding(name, "ok", has)
    return Finding(name, "wrong", f"is {has}, {why}", f"slurm.conf: {name}={least_s}")


def values(config: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Return the values of a setting that may repeat: `Prolog`, or since 24.05 `Prolog[0]`, `Prolog[1]`."""
    numbered = (value for key, value in config.items() if key.partition("[")[0] == name)
    return tuple(value for value in numbered if value)


def setting(config: Mapping[str, str], name: str, wanted: str, *, leads: bool | None = None) -> Finding:
    """Compare one setting of slurm.conf with its value in our fragment.

    `leads`: whether the configured programs run our hook; None if this machine cannot read them.
    """
    if wanted.startswith("/"):
        return _hook(name, wanted, values(config, name), leads)
    has = config.get(name, "")
    if wanted.isdigit():
        if has.removesuffix(" sec") == wanted:
            return Finding(name, "ok", has)
        return Finding(name, "wrong", f"is {has or 'not set'}", f"slurm.conf: {name}={wanted}")
    missing = slurmconf.missing(has, wanted)
    if not missing:
        return Finding(name, "ok", has)
    line = f"slurm.conf: {name}={slurmconf.joined(has, wanted)}"
    return Finding(name, "wrong", f"without {', '.join(missing)}", line)


def _hook(name: str, ours: str, has: Sequence[str], leads: bool | None) -> Finding:
    """Judge the programs `has` of a hook; `ours` is the path of slurm_plugin's."""
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
    """Judge whether slurmctld runs the EpilogSlurmctld of `found`. 22.05 runs a new one only after a restart.

    `conf_time`: the modification time of slurm.conf; None if this machine is not a controller. `boot`: the start of
    slurmctld. Both in seconds since the epoch.
    """
    release = releases.of(config.get("SLURM_VERSION", ""))
    if found.verdict != "ok" or (release and release.reconfigure_starts_epilog_slurmctld):
        return found
    path = config.get("SLURM_CONF", "slurm.conf")
    if conf_time is None or boot is None:
        return Finding(found.name, "cannot tell", f"is set; whether it runs, {ELSEWHERE}")
    if conf_time > boot:
        message = f"is set; whether it runs is unknown: {path} is newer than slurmctld's start"
        return Finding(
            found.name, "cannot tell", message, "once after adding the line, run: systemctl restart slurmctld"
        )
    return found


def job_submit(
    path: str,
    text: str | None,
    ours: str | None,
    rendered: str,
    install: str,
    *,
    controller: bool,
    there: bool | None = None,
    chained: str | None = None,
) -> Finding:
    """Judge `job_submit.lua` beside slurm.conf.

    `text` is None if the file cannot be read, `ours` if nothing was rendered. `install`: the command that installs it.
    `chained`: the script that calls the site's own and then ours; None if the site's own was not renamed.
    """
    name, again = "job_submit.lua", f"run: {install}"
    if not controller:
        return Finding(name, "cannot tell", ELSEWHERE)
    if text is None:
        if there is False:
            return Finding(name, "wrong", f"{path} is missing", again)
        return Finding(name, "cannot tell", f"{path} cannot be read", "run it as root")
    if ours is None:
        return Finding(name, "cannot tell", f"{path} was not compared: see the interpreter")
    kind = lua.kind(text.encode())
    if kind == "ours":
        if text == (chained or ours):
            return Finding(name, "ok", f"{path} calls the site's own, and ours" if chained else f"{path} is ours")
        why = "not the script that calls the site's own and ours" if chained else "of another version or max_retries"
        return Finding(name, "wrong", f"{path} is {why}", again)
    if kind == "calls ours":
        parts = [part for part in ours.split("\n\n") if "local function" in part or "local max_retries" in part]
        if all(_code(part) in text for part in parts):
            return Finding(name, "ok", f"{path} is the site's own and holds our functions")
        message = f"{path} is the site's own, and not all of our functions in it are those of this version"
        return Finding(name, "wrong", message, f"copy them again from {rendered}")
    message = f"{path} is the site's own and does not call ours"
    return Finding(name, "wrong", message, f"{again}; it has Slurm call the site's own first, then ours")


def _code(part: str) -> str:
    """Return a block of Lua without its leading comments."""
    return "\n".join(dropwhile(lambda line: line.startswith("--"), part.splitlines()))


def files(root: str, found: Differences | None, install: str, *, site_file: bool) -> tuple[Finding, ...]:
    """Judge whether the site directory is complete, fits this version and site file, and is writable by root alone.

    `install`: the command that writes it again. If this machine has no site file, the settings cannot be judged:
    another machine may have rendered them.
    """
    again = f"run: {install}"
    if found is None:
        return (Finding("files", "cannot tell", "were not compared: see the interpreter"),)
    if "." in found.missing:
        return (Finding("files", "wrong", f"{root} is missing", again),)
    settings = "compiled.json" in found.changed
    changed = [name for name in found.changed if name != "compiled.json"]
    if settings and not site_file:
        changed = [name for name in changed if name == ARCHIVE]
    problems = {"missing": found.missing, "other than this version renders": changed, "closed to users": found.closed}
    said = [f"{first_few(names, SHOWN)} {what}" for what, names in problems.items() if names]
    if not said:
        whole = Finding("files", "ok", f"{root} is what this version renders")
    else:
        whole = Finding("files", "wrong", f"below {root}: {'; '.join(said)}", again)
    return (whole, *_compiled(found, again, settings=settings, site_file=site_file), _owner(root, found.exposed))


def _compiled(found: Differences, again: str, *, settings: bool, site_file: bool) -> tuple[Finding, ...]:
    """Judge compiled.json. `settings`: it differs from this version's rendering."""
    name = "compiled.json"
    if name in found.missing:
        return ()  # `files` reports it
    if not settings:
        return (Finding(name, "ok", "is the site file's" if site_file else "has the defaults"),)
    if site_file:
        return (Finding(name, "wrong", "is not what the site file says now", again),)
    message = "differs from the defaults, and there is no site file here to compare it with"
    return (Finding(name, "cannot tell", message, "run it where the site file is, or with --config FILE"),)


def _owner(root: str, exposed: Sequence[str]) -> Finding:
    """Judge whether only root may change the files."""
    if not exposed:
        return Finding("owner", "ok", f"only root may change {root}")
    message = f"others than root may change {first_few(exposed, SHOWN)}"
    return Finding("owner", "wrong", message, f"run: chown -R root:root {root}/ && chmod -R go-w {root}/")


def on_trial(nodes: str) -> Finding:
    """Report a canary installation. It is not a problem."""
    whole = "`slurm-plugin site install --apply` makes it whole"
    return Finding("canary", "ok", f"on trial: a dry run, checks look at {nodes} only; {whole}")


def pyxis(task_prolog: str, mounts: str | None) -> Finding:
    """Judge whether pyxis containers contain the TaskProlog. `mounts`: enroot's mounts; None if it is not installed."""
    if mounts is None:
        message = f"is loaded here, but enroot is not installed: on the nodes each container needs {task_prolog}"
        return Finding("pyxis", "cannot tell", message, "on a node with enroot, run: slurm-plugin doctor")
    if any(line.split()[:2] == [task_prolog] * 2 for line in mounts.splitlines()):
        return Finding("pyxis", "ok", f"its containers have {task_prolog}")
    line = f"{task_prolog} {task_prolog} none x-create=file,bind,ro,nosuid,nodev,private,nofail"
    message = f"runs TaskProlog in its containers, which have no {task_prolog}: no task of a container starts"
    return Finding("pyxis", "wrong", message, f"/etc/enroot/mounts.d/30-taskprolog.fstab on each node: {line}")


def kill_switch(path: str, *, there: bool | None) -> Finding:
    """Judge the kill switch. `there` is None if this user may not see the file."""
    if there is None:
        return Finding("kill switch", "cannot tell", f"{path} cannot be read", "run it as root")
    if there:
        return Finding("kill switch", "wrong", f"{path} exists: no hook does anything", f"run: rm {path}")
    return Finding("kill switch", "ok", "is not set")


def interpreter(python: str, found: tuple[int, int] | str, *, psutil: bool) -> Finding:
    """Judge the hooks' Python. `found`: its version, or why hooks cannot use it."""
    if isinstance(found, str):
        message, _, remedy = found.partition("\n")
        return Finding("interpreter", "wrong", message, remedy.strip())
    lacks = "" if psutil else "; without psutil (python3-psutil) jobs' use of CPU, memory and disks is not recorded"
    return Finding("interpreter", "ok", f"{python} is Python {found[0]}.{found[1]}, and only root may change it{lacks}")


def commands(directory: str, missing: Sequence[str], elsewhere: str) -> Finding:
    """Judge the directory of Slurm's commands. `elsewhere`: the directory on the PATH that has them."""
    if not missing:
        return Finding("slurm_bin", "ok", f"{directory} has the commands that hooks call")
    return Finding(
        "slurm_bin", "wrong", f"{directory} lacks {', '.join(missing)}", f"site file: slurm_bin: {elsewhere}"
    )


def spool(path: str, user: str, found: Owned | str | None, *, controller: bool) -> Finding:
    """Judge the spool directory. `user`: SlurmUser as slurmctld shows it. A text in `found` is an error."""
    name, account = "spool directory", _ACCOUNT.fullmatch(user)
    if not controller:
        return Finding(name, "cannot tell", ELSEWHERE if user else "slurmctld did not report SlurmUser")
    if isinstance(found, str) or account is None:
        why = found if isinstance(found, str) else f"SlurmUser is {user!r}"
        return Finding(name, "cannot tell", f"{path}: {why}")
    if found is None:
        return Finding(name, "wrong", f"{path} is missing", f"run: install -d -o {account[1]} -m 0700 {path}")
    if found.uid != int(account[2]):
        return Finding(name, "wrong", f"{path} is not {account[1]}'s", f"run: chown {account[1]} {path}")
    if found.mode & 0o022:
        return Finding(name, "wrong", f"others than {account[1]} may write into {path}", f"run: chmod go-w {path}")
    return Finding(name, "ok", f"{path} is {account[1]}'s")


def munge(auth: str, failure: str | None) -> Finding:
    """Judge munge on this machine. `auth`: AuthType. `failure`: empty if munge works, None if it is not installed."""
    if auth and auth != "auth/munge":
        return Finding("munge", "ok", f"not used: {auth}")
    if failure is None:
        return Finding("munge", "cannot tell", "munge and unmunge are not on the PATH", "run: munge -n | unmunge")
    if failure and not auth:
        return Finding("munge", "cannot tell", f"Slurm's socket is not known; at munge's own: {failure}")
    if failure:
        return Finding("munge", "wrong", failure, "run: systemctl restart munge")
    return Finding("munge", "ok", "encodes and decodes")
