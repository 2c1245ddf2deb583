"""Submit batch scripts with sbatch, and ask it when they would start.

A site may have a program in front of sbatch that prints more than the job's id, or that fails after the submission. A
job whose id is not the only number in the answer is found by the session of the command, which Slurm records as
AllocSID. If Slurm does not know it, the last number counts.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.slurm import calls, parse
from slurm_plugin.slurm.model import Forecast, Slurm, SlurmAwayError, SlurmError, Submitted, to_stderr
from slurm_plugin.slurm.process import AWAY, Command, CommandRunner

CLOCKS_S: Final = 300.0  # two clocks of a cluster differ by less: munge refuses older credentials
SESSIONS: Final = "ArrayJobID:0|,AllocSID:0|,SubmitTime:0"  # ArrayJobID of a job that is no array is its own id
# A line of sbatch with --parsable, or without: a program in front of it may drop the option.
_SUBMITTED = re.compile(r"(?:Submitted batch job )?([0-9]{1,10})(?:(?:;| on cluster )([\w.-]+))?", re.ASCII)
_WOULD_NOT = "allocation failure: "  # sbatch --test-only prints this before slurmctld's refusal
_BROKEN = re.compile("[Aa]uthentication|[Cc]ommunication|[Mm]unge|timed out")  # errors that the job did not cause


class Batch(CommandRunner):
    """The methods of `slurm_plugin.slurm.Slurm` that run sbatch."""

    def submit(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> Submitted:
        """Submit a batch script on stdin and return the job. Drop sbatch's warnings if it succeeds."""
        command = Command(["sbatch", "--parsable", *arguments], script, directory)
        return self._patience.ask(lambda: self._submitted(command), repeatable=False)

    def forecast(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> Forecast:
        """Return the expected start of a batch script, from stderr of `sbatch --test-only`."""
        local = {"SLURM_TIME_FORMAT": "standard"}  # the caller's time zone, as for --begin in the script
        command = Command(["sbatch", "--test-only", *arguments], script, directory, local)
        return self._patience.ask(lambda: self._forecast(command), repeatable=True)

    def sbatch_flags(self, names: Sequence[str] = ()) -> Mapping[str, str]:
        """Read the flags in sbatch's help. Try each of `names` that it lacks, such as `hint`, with an empty script."""
        words = {"LC_ALL": "C"}
        found = parse.sbatch_flags(self._stdout(Command(["sbatch", "--help"], variables=words), calls.READ_FLAGS))
        lacking = [
            each for each in names if parse.FLAG_NAME.fullmatch(each) and not any(has.startswith(each) for has in found)
        ]
        asked = [Command(["sbatch", f"--{each}"], variables=words) for each in lacking]
        results = self._run(asked, time.monotonic() + self._deadline_s) if asked else []
        takes = {name: probed_flag(result.err) for name, result in zip(lacking, results, strict=True)}
        return found | {name: kind for name, kind in takes.items() if kind}

    def _submitted(self, command: Command) -> Submitted:
        now = time.time()
        (result,) = self._run([command], time.monotonic() + self._deadline_s)
        try:
            found = submitted(self._check("sbatch", result, calls.SUBMIT))
            if len(found) > 1 and result.session:  # one of the numbers means something else
                own = self._of_session(result.session, now)
                found = [each for each in found if each.id == own] or found
            return found[-1]
        except SlurmError as error:
            sent = not isinstance(error, SlurmAwayError) or error.sent
            job_id = self._of_session(result.session, now) if sent and result.session else None
            if job_id is None:
                raise
            self._patience.say(f"job {job_id} was submitted, although {str(error).splitlines()[0]}")
            return Submitted(job_id)

    def _of_session(self, session: int, since: float) -> int | None:
        """Return the caller's waiting or running job that was submitted from this session; None without one."""
        command = Command(["squeue", "--noheader", "--me"], variables={"SQUEUE_FORMAT2": SESSIONS})
        try:
            rows = [line.split("|") for line in self._stdout(command, calls.READ_JOBS).splitlines()]
        except SlurmPluginError:
            return None
        times = {int(row[0]): parse.utc(row[2]) for row in rows if len(row) == 3 and row[1] == str(session)}
        found = (job_id for job_id, at in times.items() if at and at.timestamp() > since - CLOCKS_S)
        return min(found, default=None)  # of a heterogeneous job, the first part

    def _forecast(self, command: Command) -> Forecast:
        (result,) = self._run([command], time.monotonic() + self._deadline_s)
        if result.code and _WOULD_NOT in result.err and not (AWAY.search(result.err) or _BROKEN.search(result.err)):
            return Forecast(refused=result.err.strip())
        self._check("sbatch", result, calls.FORECAST)
        found = parse.forecast(result.err)
        if found is None:
            raise calls.FORECAST.refused("sbatch", result.err.strip() or "nothing")
        return found


def withdraw(door: Slurm, jobs: Iterable[Submitted]) -> None:
    """Cancel jobs that were submitted in vain. Name those on stderr that cannot be cancelled."""
    for job in jobs:
        try:
            door.on(job.cluster).cancel(job.id)
        except SlurmError as error:
            to_stderr(f"job {job.name} is left: {str(error).splitlines()[0]}\n  try: scancel {job.options}")


def submitted(text: str) -> list[Submitted]:
    """Return the jobs that whole lines of sbatch's answer name. Raise SlurmError without such a line."""
    lines = (line.strip() for line in text.splitlines(keepends=True) if line.endswith("\n"))
    found = [match for line in lines if (match := _SUBMITTED.fullmatch(line))]
    if not found:
        raise SlurmError(f"sbatch answered {text.strip()!r} in place of a job id\n  look for the job with: squeue --me")
    return list(dict.fromkeys(Submitted(int(each[1]), each[2] or "") for each in found))


def probed_flag(said: str) -> str:
    """Return the kind of a flag that the help does not list, from sbatch's error for it with an empty script.

    Return "" for an unknown flag. getopt_long(3) also accepts an abbreviated flag, so callers must not try the
    beginning of another flag.
    """
    if "unrecognized option" in said or "ambiguous" in said:
        return ""
    return parse.VALUE if "requires an argument" in said else parse.OPTIONAL
