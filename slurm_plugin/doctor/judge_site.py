"""What is deployed on a machine, judged: no file is read and no command run here."""

import re
from collections.abc import Sequence
from typing import Final

from slurm_plugin.compiled import ARCHIVE
from slurm_plugin.doctor.finding import ELSEWHERE, Differences, Finding, Owned

OLDEST_PYTHON: Final = (3, 11)
NAMED: Final = 6  # how many files a message names
_ACCOUNT = re.compile(r"(.+)\((\d+)\)", re.ASCII)


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
    """`job_submit.lua` beside slurm.conf. `text` is None where it cannot be read, `ours` where nothing was rendered.

    `install` is the command that puts it there. `chained`: what calls the site's own first, and then ours; None where
    no script of the site's was moved aside.
    """
    name, again = "job_submit.lua", f"run: {install}"
    if not controller:
        return Finding(name, "cannot tell", ELSEWHERE)
    if text is None:
        if there is False:
            return Finding(name, "wrong", f"{path} is not there", again)
        return Finding(name, "cannot tell", f"{path} cannot be read", "run it as root")
    if ours is None:
        return Finding(name, "cannot tell", f"{path} was compared with nothing: see the interpreter")
    if chained and text.startswith("-- slurm_plugin "):
        if text == chained:
            return Finding(name, "ok", f"{path} calls the site's own, and ours")
        return Finding(name, "wrong", f"{path} is not what calls the site's own and ours", again)
    if text == ours:
        return Finding(name, "ok", f"{path} is ours")
    if text.startswith("-- slurm_plugin "):
        return Finding(name, "wrong", f"{path} is of another version or max_retries", again)
    if "pcall(grant" in text:
        parts = [part for part in ours.split("\n\n") if "local function" in part or "local max_retries" in part]
        if all(_code(part) in text for part in parts):
            return Finding(name, "ok", f"{path} is the site's own and holds our functions")
        message = f"{path} is the site's own, and not all of our functions in it are those of this version"
        return Finding(name, "wrong", message, f"copy them again from {rendered}")
    message = f"{path} is the site's own and does not call ours"
    return Finding(name, "wrong", message, f"{again}; it has Slurm call the site's own first, then ours")


def _code(part: str) -> str:
    """A block of Lua without the comments above it."""
    lines = part.splitlines()
    while lines and lines[0].startswith("--"):
        lines.pop(0)
    return "\n".join(lines)


def files(root: str, found: Differences | None, install: str, *, site_file: bool) -> tuple[Finding, ...]:
    """The deployed directory: complete, of this version, from this site file, and only root's to change.

    `install` is the command that writes it again. Without a site file here, what follows from one cannot be judged:
    it may have been rendered on another machine.
    """
    again = f"run: {install}"
    if found is None:
        return (Finding("files", "cannot tell", "were compared with nothing: see the interpreter"),)
    if "." in found.missing:
        return (Finding("files", "wrong", f"{root} is not there", again),)
    settings = "compiled.json" in found.changed
    changed = [name for name in found.changed if name != "compiled.json"]
    if settings and not site_file:
        changed = [name for name in changed if name == ARCHIVE]
    problems = {"missing": found.missing, "other than this version renders": changed, "closed to users": found.closed}
    said = [f"{_named(names)} {what}" for what, names in problems.items() if names]
    if not said:
        whole = Finding("files", "ok", f"{root} is what this version renders")
    else:
        whole = Finding("files", "wrong", f"below {root}: {'; '.join(said)}", again)
    return (whole, *_compiled(found, again, settings=settings, site_file=site_file), _owner(root, found.exposed))


def _compiled(found: Differences, again: str, *, settings: bool, site_file: bool) -> tuple[Finding, ...]:
    name = "compiled.json"
    if name in found.missing:
        return ()  # named among the files
    if not settings:
        return (Finding(name, "ok", "is the site file's" if site_file else "has the defaults"),)
    if site_file:
        return (Finding(name, "wrong", "is not what the site file says now", again),)
    message = "differs from the defaults, and there is no site file here to compare it with"
    return (Finding(name, "cannot tell", message, "run it where the site file is, or with --config FILE"),)


def _owner(root: str, exposed: Sequence[str]) -> Finding:
    if not exposed:
        return Finding("owner", "ok", f"only root may change {root}")
    message = f"others than root may change {_named(exposed)}"
    return Finding("owner", "wrong", message, f"run: chown -R root:root {root}/ && chmod -R go-w {root}/")


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def on_trial(nodes: str) -> Finding:
    """An installation with canaries: nothing is wrong with it."""
    whole = "`slurm-plugin site install --apply` makes it whole"
    return Finding("canary", "ok", f"on trial: a dry run, checks look at {nodes} only; {whole}")


def pyxis(task_prolog: str, mounts: str | None) -> Finding:
    """Whether containers of pyxis have the TaskProlog in them. `mounts`: enroot's, None where there is none here."""
    if mounts is None:
        message = f"is loaded here, and enroot is not: on the nodes each container needs {task_prolog}"
        return Finding(
            "pyxis", "cannot tell", message, "run it on a node; see docs/containers.md, pyxis and TaskProlog"
        )
    if any(line.split()[:2] == [task_prolog] * 2 for line in mounts.splitlines()):
        return Finding("pyxis", "ok", f"its containers have {task_prolog}")
    line = f"{task_prolog} {task_prolog} none x-create=file,bind,ro,nosuid,nodev,private,nofail"
    message = f"runs TaskProlog in its containers, which have no {task_prolog}: no task of a container starts"
    return Finding("pyxis", "wrong", message, f"/etc/enroot/mounts.d/30-taskprolog.fstab on each node: {line}")


def kill_switch(path: str, *, there: bool | None) -> Finding:
    """Whether everything of ours is switched off; None where that cannot be seen."""
    if there is None:
        return Finding("kill switch", "cannot tell", f"{path} cannot be looked for", "run it as root")
    if there:
        return Finding("kill switch", "wrong", f"{path} stands there: no hook does anything", f"run: rm {path}")
    return Finding("kill switch", "ok", "is not set")


def interpreter(python: str, distrust: str, found: tuple[int, int] | None) -> Finding:
    """The hooks' Python. `distrust` is why root cannot trust it, and what to do; `found` its version, where it ran."""
    if distrust:
        message, _, remedy = distrust.partition("\n")
        return Finding("interpreter", "wrong", message, remedy.strip())
    remedy = "site file: python: PATH of a Python >= 3.11 that every node has"
    if found is None:
        return Finding("interpreter", "wrong", f"{python} -I -S does not run", remedy)
    shown = ".".join(map(str, found))
    if found < OLDEST_PYTHON:
        return Finding("interpreter", "wrong", f"{python} is Python {shown}; 3.11 or later is needed", remedy)
    return Finding("interpreter", "ok", f"{python} is Python {shown}, and only root may change it")


def commands(directory: str, missing: Sequence[str], elsewhere: str) -> Finding:
    """The commands of Slurm that hooks call; `elsewhere` is where the PATH has them."""
    if not missing:
        return Finding("slurm_bin", "ok", f"{directory} has the commands that hooks call")
    return Finding(
        "slurm_bin", "wrong", f"{directory} lacks {', '.join(missing)}", f"site file: slurm_bin: {elsewhere}"
    )


def spool(path: str, user: str, found: Owned | str | None, *, controller: bool) -> Finding:
    """The spool directory. `user` is SlurmUser as slurmctld shows it; `found` says why it could not be looked at."""
    name, account = "spool directory", _ACCOUNT.fullmatch(user)
    if not controller:
        return Finding(name, "cannot tell", ELSEWHERE if user else "slurmctld did not say who SlurmUser is")
    if isinstance(found, str) or account is None:
        why = found if isinstance(found, str) else f"SlurmUser is {user!r}"
        return Finding(name, "cannot tell", f"{path}: {why}")
    if found is None:
        return Finding(name, "wrong", f"{path} is not there", f"run: install -d -o {account[1]} -m 0700 {path}")
    if found.uid != int(account[2]):
        return Finding(name, "wrong", f"{path} is not {account[1]}'s", f"run: chown {account[1]} {path}")
    if found.mode & 0o022:
        return Finding(name, "wrong", f"others than {account[1]} may write into {path}", f"run: chmod go-w {path}")
    return Finding(name, "ok", f"{path} is {account[1]}'s")


def munge(auth: str, failure: str | None) -> Finding:
    """Munge on this machine; `auth` is AuthType, `failure` is empty where it works, None where it is not installed."""
    if auth and auth != "auth/munge":
        return Finding("munge", "ok", f"not used: {auth}")
    if failure is None:
        return Finding("munge", "cannot tell", "munge and unmunge are not on the PATH", "run: munge -n | unmunge")
    if failure and not auth:
        return Finding("munge", "cannot tell", f"Slurm's socket is not known; at munge's own: {failure}")
    if failure:
        return Finding("munge", "wrong", failure, "run: systemctl restart munge")
    return Finding("munge", "ok", "encodes and decodes")
