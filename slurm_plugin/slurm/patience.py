"""Asking again: a slurmctld that restarts or fails over is away for seconds or minutes, and then it is back."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from slurm_plugin.slurm import SlurmAwayError, to_stderr

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 15.0  # every caller on every node asks at its own time; none of them storms the controller

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Patience:
    """For how long a controller that is away is asked again, at growing pauses; `say` hears of the first."""

    seconds: float = 0.0
    say: Callable[[str], None] = to_stderr
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    give_up: Callable[[], bool] = lambda: False  # asked after each pause

    def ask(self, question: Callable[[], Answer], *, repeatable: bool) -> Answer:
        """The answer. What is not `repeatable` is asked again only where the question was surely not sent.

        Raises SlurmAwayError of the last attempt when time is up, or when there is reason to give up.
        """
        end, pause = self.clock() + self.seconds, FIRST_PAUSE_S
        while True:
            try:
                return question()
            except SlurmAwayError as error:
                left = end - self.clock()
                if left <= 0 or (error.sent and not repeatable):
                    raise
                if pause == FIRST_PAUSE_S:
                    self.say(f"{str(error).splitlines()[0]}; asking again for {left:.0f} s")
                self.sleep(min(pause, left))
                if self.give_up():
                    raise
            pause = min(2 * pause, LONGEST_PAUSE_S)
