"""Slurm's hooks: each reads its environment, calls the centre, applies what that says, and ends.

They run as root or SlurmUser on strings that users choose, from the deployed copy of this code, behind the `sh` guard
that turns every exit code but 0 and 75 into 0.
"""

import sys
import syslog

from slurm_plugin import compiled, trust

NODE_IS_BAD = 75  # the one exit code of a hook that lets Slurm act against the node
HOOKS = ("prolog", "epilog", "epilog_slurmctld", "periodic")


def main(args: list[str]) -> int:
    """Run one hook by name; an exception is a traceback and exit 1, which the guard logs.

    None runs from files that others than root can change: that is a fault of the site's set-up, not of the node.
    """
    if len(args) != 1 or args[0] not in HOOKS:
        raise SystemExit(f"hook {' '.join(args)!r} is unknown; there are: {', '.join(HOOKS)}")
    root = compiled.site_root()
    # argv[0]: the zip as the guard names it, which may be by a link.
    if exposed := trust.exposed(sys.argv[0], f"{root}/{compiled.ARCHIVE}", f"{root}/{compiled.FILE}"):
        said = f"others than root can change {exposed}, and a hook runs from there"
        syslog.openlog("slurm_plugin")
        syslog.syslog(syslog.LOG_ERR, f"{said}; run: chown root:root {exposed} && chmod go-w {exposed}")
        raise SystemExit(f"slurm_plugin: {said}\n  run: chown root:root {exposed} && chmod go-w {exposed}")
    code: int = __import__(f"slurm_plugin.hooks.{args[0]}", fromlist=["main"]).main()  # as in slurm_plugin.__main__
    return code
