"""A Slurm whose answers are given beforehand, and a clock that only sleeps: for what follows a job through time."""

from collections.abc import Sequence

from slurm_plugin.slurm import Job
from tests import fakes


class FakeSlurm(fakes.FakeSlurm):
    """Keeps what was submitted; gives the answers to `job` in order, the last one again and again."""

    def __init__(self, *answers: Job | BaseException) -> None:
        super().__init__()
        self.settings = {"TaskProlog": "/etc/slurm/slurm_plugin/hooks/task_prolog"}
        self.answers = list(answers)
        self.submitted: list[tuple[str, tuple[str, ...], str | None]] = []

    def submit(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> int:
        self.submitted.append((script, tuple(arguments), directory))
        return 17

    def job(self, job_id: int) -> Job:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


class FakeClock:
    """Time that passes only in sleeps."""

    def __init__(self) -> None:
        self.time = 0.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.time += seconds
