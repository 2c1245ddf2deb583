"""Ascend: one task a device (row B7), with a rank table or with MindSpore's dynamic cluster; one node or many alike.

RANK_ID and ASCEND_DEVICE_ID are Slurm's numbers of the task; the table ranks the hosts in the same order (block).
"""

from collections.abc import Mapping
from typing import Final

from hostfiles import Allocation, Host
from hostfiles import ascend as variables_format
from hostfiles.ranktable import FILE_NAME
from slurm_plugin.errors import UsageError
from slurm_plugin.modes import step
from slurm_plugin.modes.base import Launch, Mode, Options, Place, Shape

# The dynamic cluster's one process more: the same program beside rank 0, where it trains nothing and serves the others.
# It ends by itself when all workers have; it is ended where it does not.
WITH_SCHEDULER: Final = f"""\
[ "$SLURM_PROCID" = 0 ] || exec "$0" "$@"
{step.FINISH}trap : HUP TERM USR1 USR2
setsid env -u MS_NODE_ID -u RANK_ID -u ASCEND_DEVICE_ID -u DEVICE_ID MS_ROLE=MS_SCHED "$0" "$@" &
"$0" "$@"
code=$?
for _ in 1 2 3 4 5 6 7 8 9 10; do
  [ $code = 0 ] && kill -0 $! 2>/dev/null || break
  sleep 1
done
finish $!
exit $code"""

_LOGS: Final = "$SLURM_PLUGIN_DIRECTORY/ascend/process_log"
_PROCESS: Final = {
    "RANK_ID": "$SLURM_PROCID",
    "ASCEND_DEVICE_ID": "$SLURM_LOCALID",
    "DEVICE_ID": "$SLURM_LOCALID",
    # Row B8. A path of the user's own is kept.
    "ASCEND_PROCESS_LOG_PATH": f"${{ASCEND_PROCESS_LOG_PATH:-{_LOGS}/rank_$SLURM_PROCID}}",
}
_WORKER: Final = {"MS_NODE_ID": "$SLURM_PROCID"}

# What CANN and MindSpore tell (row B8): the levels of ASCEND_GLOBAL_LOG_LEVEL are 0 debug to 3 error, those of GLOG_v
# the same; RDR is MindSpore's running data recorder (its page "Environment Variables").
_MESSAGES: Final[Mapping[str, Mapping[str, str]]] = {
    "normal": {"ASCEND_GLOBAL_LOG_LEVEL": "3", "GLOG_v": "1", "MS_RDR_ENABLE": "0"},
    "high-performance": {"ASCEND_GLOBAL_LOG_LEVEL": "3", "GLOG_v": "3", "MS_RDR_ENABLE": "0"},
    "diagnosis": {"ASCEND_GLOBAL_LOG_LEVEL": "1", "GLOG_v": "1", "MS_RDR_ENABLE": "1"},
}


class Ascend(Mode):
    """Mode `ascend`."""

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """One task a device. Ranks follow the table's order whatever SLURM_DISTRIBUTION says."""
        srun = step.srun(shape, "--distribution=block", ranks=True)
        if shape.options.table:
            note = "The command is left as it is: one task a device, with a rank table."
            return Launch((*srun, *shape.inside(*words)), note)
        note = "The command is left as it is: one task a device, and once more as the scheduler, beside rank 0."
        return Launch((*srun, *shape.inside("bash", "-c", WITH_SCHEDULER, *words)), note)

    def by_address(self, options: Options) -> bool:
        """MindSpore's scheduler is found by it."""
        return not options.table

    def by_devices(self, options: Options) -> bool:
        """For the table."""
        return options.table

    def defaults(self, place: Place) -> dict[str, str]:
        """The log variables."""
        folder = f"{place.directory}/mindspore"
        where = {"MS_RDR_PATH": folder, "GLOG_log_dir": f"{folder}/log", "GLOG_logtostderr": "0"}
        return {
            **_MESSAGES[place.options.messages],
            "ASCEND_SLOG_PRINT_TO_STDOUT": "1",
            "ASCEND_GLOBAL_EVENT_ENABLE": "1",
            **(where if place.options.messages == "diagnosis" else {}),
        }

    def variables(self, place: Place) -> dict[str, str]:
        """What all processes share: the table's file, or the cluster's scheduler, and how many they are."""
        return {name: value for name, value in _first(place).items() if name not in {**_PROCESS, **_WORKER}}

    def task_script(self, place: Place) -> str | None:
        """The rank and the device; a node adds its own devices' physical ids."""
        return step.exports(_PROCESS if place.options.table else {**_PROCESS, **_WORKER})


def _first(place: Place) -> dict[str, str]:
    """The variables of the first process."""
    if place.options.table:
        return variables_format.table_variables(place.allocation, 0, f"{place.directory}/{FILE_NAME}")
    if ":" in place.address:
        raise UsageError(
            f"{place.allocation.names[0]} is {place.address} here; MindSpore's dynamic cluster over IPv6 is not built:"
            " use a rank table, or give the nodes IPv4 addresses"
        )
    hosts = tuple(Host(host.name, host.slots, host.tasks, place.address) for host in place.allocation.hosts)
    return variables_format.cluster_variables(Allocation(hosts, place.allocation.job_id), 0, place.port)
