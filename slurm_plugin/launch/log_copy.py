"""Copy the output of each process or node into its own log file. The output also goes where it went before.

bash starts the process and a `tee`, or one each for stdout and stderr if they go to two files: one keeps the order of
the lines. There are two forms. A task of srun ends when its first process ends, and Slurm then kills the rest, with the
last lines still in the pipe. So there bash stays, waits for `tee`, and ends as the program ended. mpirun, mpiexec.hydra
and torchrun wait for the end of their ranks' output, or outlive it. There bash becomes the program, which keeps its
pid, its signals and its exit code.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from slurm_plugin.records import log_files

NODE: Final = ("node", "both")  # words of `per` with a file for each node
RANK: Final = ("rank", "both")
HYDRA: Final = ("$PMI_RANK", "$MPI_LOCALRANKID")  # variables with the rank and the local rank, set by each launcher
OPEN_MPI: Final = ("$OMPI_COMM_WORLD_RANK", "$OMPI_COMM_WORLD_LOCAL_RANK")
SLURM: Final = ("$SLURM_PROCID", "$SLURM_LOCALID")
TORCH: Final = ("$RANK", "$LOCAL_RANK")

# `$0` is the stem of the files' paths. A signal to the whole step must not end `tee` before the program. `tee` ends
# when no output takes a line, as on a full disk; `cat` then reads on, or the program would end by SIGPIPE.
_BEGIN: Final = """\
# its output also goes to log files
command -v tee >/dev/null || exec "$@"
[ -d "${0%/*}" ] || mkdir -p -- "${0%/*}"
copy() {
  trap '' HUP INT QUIT TERM USR1 USR2
  tee -a --FILES
  exec cat >/dev/null
}
"""
# A background process of the program may hold the pipes open: wait up to 4 s. bash's own message about a signal is
# dropped, as srun writes one. Dump no second core. The names are no variables that a program may have,
# and bash chooses descriptors that are free: Slurm's pmi2 gives its tasks one.
_STAY: Final = """\
exec {sp_out}> >(copy)
sp_copy_out=$!
exec {sp_err}>&$sp_out
sp_copy_err=
trap : HUP INT QUIT TERM USR1 USR2
exec 2>/dev/null
(exec "$@") >&$sp_out 2>&$sp_err {sp_out}>&- {sp_err}>&-
code=$?
exec {sp_out}>&- {sp_err}>&-
for pause in 0.01 0.03 0.1 0.3 0.6 1 1 1; do
  kill -0 $sp_copy_out $sp_copy_err || break
  sleep $pause
done
"""
_END: Final = """\
trap - HUP INT QUIT TERM USR1 USR2
case $((code - 128)) in
4 | 6 | 7 | 8 | 9 | 11 | 15) ulimit -c 0 && kill -$((code - 128)) $$ ;;
esac
exit $code"""
# Slurm sends the SIGTERM of scancel to the first process of each task only (proctrack/cgroup). It must not end a
# program with `grace`, which the guards tell to save.
_SHIELD: Final = """\
# a signal to the whole step does not end the program
trap : HUP INT QUIT TERM USR1 USR2
exec {sp_err}>&2 2>/dev/null
(exec "$@" 2>&$sp_err {sp_err}>&-)
code=$?
"""
_BECOME: Final = """\
exec > >(copy) 2>&1
MOREexec "$@\""""
_APART: Final = {
    "exec {sp_err}>&$sp_out\nsp_copy_err=": "exec {sp_err}> >(copy >&2)\nsp_copy_err=$!",
    ">(copy) 2>&1": ">(copy) 2> >(copy >&2)",
}


class Logs(NamedTuple):
    """The log files of one attempt."""

    stem: str  # the path that all of them begin with
    per: str  # a word of log_files.PER: which of them there are
    apart: bool = False  # whether stdout and stderr of the job go to two files


def of_task(
    logs: Logs | None, words: tuple[str, ...], *, alone: bool = True, shielded: bool = False
) -> tuple[str, ...]:
    """Return the words of a task of srun with its node's file and, if the task is one process, the process's file.

    `shielded`: a signal of Slurm to the task does not reach the program. With files it never does.
    """
    if logs is None:
        return ("bash", "-p", "-c", _SHIELD + _END, "shield", *words) if shielded else words
    files = [log_files.of_worker("$SLURM_NODEID")] if logs.per in NODE else []
    files += [log_files.of_rank(*SLURM)] if logs.per in RANK and alone else []
    return _started(logs, files, _STAY + _END, words)


def of_rank(
    logs: Logs | None, words: tuple[str, ...], numbers: tuple[str, str], *, slots: int = 0, more: str = ""
) -> tuple[str, ...]:
    """Return the words of a process that another launcher starts, with its file.

    `slots`: the processes of each node, to write the node's file too; 0: not that file. `more`: a line of bash that
    changes the words.
    """
    if logs is None:
        return words
    files = [log_files.of_rank(*numbers)] if logs.per in RANK else []
    files += [log_files.of_worker(f"$(({numbers[0]} / {slots}))")] if logs.per in NODE and slots else []
    return _started(logs, files, _BECOME.replace("MORE", more), words) if files else words


def _started(logs: Logs, files: Iterable[str], end: str, words: tuple[str, ...]) -> tuple[str, ...]:
    names = "".join(f' "$0{name}"' for name in files)
    for one, two in _APART.items() if logs.apart else ():
        end = end.replace(one, two)
    # -p: bash runs no file of BASH_ENV, imports no function of the environment, and passes all of them on.
    return ("bash", "-p", "-c", _BEGIN.replace("FILES", names) + end, logs.stem, *words)


def lacks(logs: Logs, argv: Iterable[str]) -> str:
    """Return `node` or `rank` if the launch with this argv writes no such file, although `logs` wants it; else ''."""
    texts = [word for word in argv if word.startswith(_BEGIN.partition("\n")[0])]
    wanted = (("node", NODE, log_files.of_worker("")[:8]), ("rank", RANK, log_files.of_rank("", "")[:10]))
    return next((kind for kind, per, name in wanted if logs.per in per and not any(name in text for text in texts)), "")
