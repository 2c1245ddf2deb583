"""The supported releases of Slurm, and the differences between them that change what slurm_plugin does.

tests/releases.py lists the other differences. tests/cluster/test_releases*.py prove both lists on a real Slurm.
docs/reference/releases.md shows both lists as a table. For a release that is not listed, `of` returns the newest listed
release before it.
"""

import re
from dataclasses import dataclass, replace
from typing import Final

SECOND_S: Final = 1.02  # a whole second and a margin for a clock that is being adjusted
_SERIES: Final = re.compile(r"(\d{1,4})\.(\d{1,4})(?!\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Release:
    """One release of Slurm."""

    series: tuple[int, int]
    # Whether `scontrol reconfigure` activates an EpilogSlurmctld that was not set when slurmctld started. 22.05 shows
    # the new value, but runs it only after a restart. In later releases a reconfigure restarts slurmctld.
    reconfigure_starts_epilog_slurmctld: bool
    # Whether Prolog, Epilog and EpilogSlurmctld may occur several times in slurm.conf. If so, Slurm runs them in order
    # up to the first that fails. If not, Slurm uses only the last line.
    hooks_repeat: bool
    # Seconds that a requeued job must be pending before it may start on nodes of its last run. Until then slurmd still
    # has the revoked credential: the start fails, and Slurm drains the node. 22.05 forgets revoked credentials every
    # other second (_clear_expired_job_states in src/common/slurm_cred.c).
    settle_s: float
    # Whether the job must also wait for the next second of the controller's clock: Slurm revokes credentials as of a
    # whole second (cred_handle_reissue in src/slurmd/slurmd/cred_context.c). 26.05 identifies them by the run's SLUID.
    settle_second: bool
    # Whether a running job that has lost a node cannot be updated until it runs again, if there is no slurmdbd:
    # slurmctld waits 5 s and answers "the DB index is being set" (_update_job in src/slurmctld/job_mgr.c).
    lost_node_bars_changes: bool
    # Whether the path of an `include` in an included file is relative to slurm.conf, and not to that file.
    includes_beside_slurm_conf: bool

    @property
    def name(self) -> str:
        """The release as Slurm writes it, such as `22.05`."""
        return f"{self.series[0]}.{self.series[1]:02}"

    def settles_in(self, pending_at: float) -> float:
        """Return the seconds after `pending_at`, a time of the controller's clock, until a requeued job may start."""
        return max(self.settle_s, SECOND_S - pending_at % 1 if self.settle_second else 0.0)


_24_11: Final = Release(
    series=(24, 11),
    reconfigure_starts_epilog_slurmctld=True,
    hooks_repeat=True,
    settle_s=0.0,
    settle_second=True,
    lost_node_bars_changes=False,
    includes_beside_slurm_conf=True,
)
# Oldest first.
RELEASES: Final = (
    Release(
        series=(22, 5),
        reconfigure_starts_epilog_slurmctld=False,
        hooks_repeat=False,
        settle_s=2.0,
        settle_second=True,
        lost_node_bars_changes=True,
        includes_beside_slurm_conf=False,
    ),
    _24_11,
    replace(_24_11, series=(26, 5), settle_second=False),
)


def of(version: str) -> Release | None:
    """Return the newest listed release up to `version`, such as `24.11.5`; None if it is older or unreadable."""
    found = _SERIES.match(version)
    if found is None:
        return None
    series = int(found[1]), int(found[2])
    return next((release for release in reversed(RELEASES) if release.series <= series), None)
