"""Slurm's hooks: each reads its environment, calls the centre, applies what that says, and ends.

They run as root or SlurmUser on strings that users choose, from the deployed copy of this code, behind the `sh` guard
that turns every exit code but 0 and 75 into 0.
"""

import sys

from slurm_plugin import compiled, trust

NODE_IS_BAD = 75  # the one exit code of a hook that lets Slurm act against the node
HOOKS = ("prolog", "epilog", "epilog_slurmctld", "periodic")


def main(args: list[str]) -> int:
    """Run one hook by name; an exception is in the system log, then a traceback and exit 1, which the guard logs."""
    if len(args) != 1 or args[0] not in HOOKS:
        raise SystemExit(f"hook {' '.join(args)!r} is unknown; there are: {', '.join(HOOKS)}")
    try:
        _refuse_what_others_can_change()
        code: int = __import__(f"slurm_plugin.hooks.{args[0]}", fromlist=["main"]).main()  # as in slurm_plugin.__main__
    except Exception as error:
        _log(args[0], error)  # slurmd keeps nothing of a hook's stderr
        raise
    return code


def _refuse_what_others_can_change() -> None:
    """Raise PermissionError unless the code, the settings and every directory above them are root's alone."""
    root = compiled.site_root()
    # argv[0]: the zip as the guard names it, which may be by a link.
    if exposed := trust.exposed(sys.argv[0], f"{root}/{compiled.ARCHIVE}", f"{root}/{compiled.FILE}"):
        mend = f"chown root:root {exposed} && chmod go-w {exposed}"
        raise PermissionError(f"others than root can change {exposed}; run: {mend}")


def _log(hook: str, error: Exception) -> None:
    import syslog  # noqa: PLC0415 - of no use to a hook that works

    from prechecks.verdict import one_line  # noqa: PLC0415

    syslog.openlog("slurm_plugin")
    syslog.syslog(syslog.LOG_ERR, one_line(f"the {hook} hook: {type(error).__name__}: {error}"))
