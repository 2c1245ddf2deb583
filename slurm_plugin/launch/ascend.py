"""Ascend: one task per device, with a rank table or with MindSpore's dynamic cluster, on one node or many.

RANK_ID and ASCEND_DEVICE_ID are the task's SLURM_PROCID and SLURM_LOCALID. The table ranks the hosts in Slurm's order
(block).
"""

from collections.abc import Mapping
from typing import Final

from hostfiles import Allocation, Host
from hostfiles import ascend as variables_format
from hostfiles.ranktable import FILE_NAME
from slurm_plugin.errors import UsageError
from slurm_plugin.launch.mode import FINISH, Launch, Mode, Options, Place, Shape, by_srun, exports

# Rank 0's task starts the program a second time, as the scheduler of the dynamic cluster. The scheduler trains nothing,
# and ends by itself after all workers. If it still runs ten seconds after rank 0 succeeded, the task ends it. If rank 0
# fails, the task ends it immediately.
WITH_SCHEDULER: Final = f"""\
[ "$SLURM_PROCID" = 0 ] || exec "$0" "$@"
{FINISH}trap : HUP TERM USR1 USR2
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
# A path that the user has set overrides this path.
_LOG_PATH: Final = f"${{ASCEND_PROCESS_LOG_PATH:-{_LOGS}/rank_$SLURM_PROCID}}"
# TaskProlog has no PATH, and Slurm reads its stderr, too. If mkdir fails, the task starts anyway.
_MAKE: Final = '[ -d "{0}" ] || /bin/mkdir -p -- "{0}" 2>/dev/null || :\n'
_MINDSPORE: Final = "mindspore/log"  # in the job's directory: MindSpore's logs and recorded data
_PROCESS: Final = {
    "RANK_ID": "$SLURM_PROCID",
    "ASCEND_DEVICE_ID": "$SLURM_LOCALID",
    "DEVICE_ID": "$SLURM_LOCALID",
    "ASCEND_PROCESS_LOG_PATH": _LOG_PATH,
}
_WORKER: Final = {"MS_NODE_ID": "$SLURM_PROCID"}

# The logs of CANN and MindSpore. ASCEND_GLOBAL_LOG_LEVEL and GLOG_v range from 0 (debug) to 3 (error). RDR is
# MindSpore's running data recorder (see its page "Environment Variables").
_MESSAGES: Final[Mapping[str, Mapping[str, str]]] = {
    "normal": {"ASCEND_GLOBAL_LOG_LEVEL": "3", "GLOG_v": "1", "MS_RDR_ENABLE": "0"},
    "high-performance": {"ASCEND_GLOBAL_LOG_LEVEL": "3", "GLOG_v": "3", "MS_RDR_ENABLE": "0"},
    "diagnosis": {"ASCEND_GLOBAL_LOG_LEVEL": "1", "GLOG_v": "1", "MS_RDR_ENABLE": "1"},
}


class Ascend(Mode):
    """Mode `ascend`."""

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Return the launch of one task per device. Override SLURM_DISTRIBUTION: ranks follow the table's order."""
        if shape.options.table:
            note = "The command is left as it is: one task a device, with a rank table."
            return by_srun(shape, words, note, "--distribution=block", ranks=True)
        note = "The command is left as it is: one task a device, and once more as the scheduler, beside rank 0."
        return by_srun(shape, ("bash", "-p", "-c", WITH_SCHEDULER, *words), note, "--distribution=block", ranks=True)

    def by_address(self, options: Options) -> bool:
        """Return True without a table: MindSpore finds its scheduler by this address."""
        return not options.table

    def by_devices(self, options: Options) -> bool:
        """Return True with a rank table."""
        return options.table

    def defaults(self, place: Place) -> dict[str, str]:
        """Return the log variables."""
        logs = f"{place.directory}/{_MINDSPORE}"
        where = {"MS_RDR_PATH": logs, "GLOG_log_dir": logs, "GLOG_logtostderr": "0"}
        return {
            **_MESSAGES[place.options.messages],
            "ASCEND_SLOG_PRINT_TO_STDOUT": "1",
            "ASCEND_GLOBAL_EVENT_ENABLE": "1",
            **(where if place.options.messages == "diagnosis" else {}),
        }

    def variables(self, place: Place) -> dict[str, str]:
        """Return the shared variables: the table's path or the scheduler's address, and the number of processes."""
        return {name: value for name, value in _first(place).items() if name not in {**_PROCESS, **_WORKER}}

    def task_script(self, place: Place) -> str | None:
        """Return shell lines that make log directories and print exports of rank and device. Nodes add physical ids."""
        made = [
            _LOG_PATH,
            *([f"$SLURM_PLUGIN_DIRECTORY/{_MINDSPORE}"] if place.options.messages == "diagnosis" else []),
        ]
        return "".join(map(_MAKE.format, made)) + exports(_PROCESS if place.options.table else {**_PROCESS, **_WORKER})


def _first(place: Place) -> dict[str, str]:
    """Return the variables of the first process."""
    if place.options.table:
        return variables_format.table_variables(place.allocation, 0, f"{place.directory}/{FILE_NAME}")
    if ":" in place.address:
        raise UsageError(
            f"{place.allocation.names[0]} is {place.address} here; MindSpore's dynamic cluster over IPv6 is not built:"
            " use a rank table, or give the nodes IPv4 addresses"
        )
    hosts = tuple(Host(host.name, host.slots, host.tasks, place.address) for host in place.allocation.hosts)
    return variables_format.cluster_variables(Allocation(hosts, place.allocation.job_id), 0, place.port)
