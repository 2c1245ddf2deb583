"""A Slurm with prepared answers, and a clock that only `sleep` advances. For tests that follow a job over time."""

from collections.abc import Sequence

from slurm_plugin.slurm import Job, Submitted
from tests import fakes


class FakeSlurm(fakes.FakeSlurm):
    """Record submissions. Answer `job` with the given answers in order, then repeat the last one."""

    def __init__(self, *answers: Job | BaseException) -> None:
        super().__init__()
        self.settings = {"TaskProlog": "/etc/slurm/slurm_plugin/hooks/task_prolog"}
        self.answers = list(answers)
        self.submitted: list[tuple[str, tuple[str, ...], str | None]] = []
        self.made = Submitted(17)

    def submit(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> Submitted:
        self.submitted.append((script, tuple(arguments), directory))
        return self.made

    def job(self, job_id: int) -> Job:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


class FakeClock:
    """A clock that only `sleep` advances."""

    def __init__(self) -> None:
        self.time = 0.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.time

    monotonic = now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.time += seconds
