"""Slurm's hooks: each reads its environment, calls the centre, applies what that says, and ends.

They run as root or SlurmUser on strings that users choose, from the deployed copy of this code (`python3 -I -S lib
hook NAME`), behind the `sh` guard that turns every exit code but 0 and 75 into 0.
"""

from importlib import import_module

NODE_IS_BAD = 75  # the one exit code of a hook that lets Slurm act against the node
HOOKS = ("prolog", "epilog", "epilog_slurmctld", "periodic")


def main(args: list[str]) -> int:
    """Run one hook by name; an exception is in the system log, then a traceback and exit 1, which the guard logs."""
    if len(args) != 1 or args[0] not in HOOKS:
        raise SystemExit(f"hook {' '.join(args)!r} is unknown; there are: {', '.join(HOOKS)}")
    try:
        code: int = import_module(f"slurm_plugin.hooks.{args[0]}").main()
    except Exception as error:
        _log(args[0], error)  # slurmd keeps nothing of a hook's stderr
        raise
    return code


def _log(hook: str, error: Exception) -> None:
    import syslog  # noqa: PLC0415 - of no use to a hook that works

    from prechecks.verdict import one_line  # noqa: PLC0415

    syslog.openlog("slurm_plugin")
    syslog.syslog(syslog.LOG_ERR, one_line(f"the {hook} hook: {type(error).__name__}: {error}"))
