"""Whether a program is slow: the shares of hardware time, the steps against the best ones, facts about nodes."""

import pytest

from slurm_plugin.logs.steps import Step
from slurm_plugin.records.usage import Accelerator, Sample
from slurm_plugin.supervisor.recording.slowness import Facts, Ratios, StepTimes


def test_the_median_of_twenty_iterations_counts() -> None:
    """Not one of them, nor too few; not what equals the threshold."""
    judge = Ratios(0.8)
    assert judge.added([0.9] * 19) == ""
    assert judge.added([0.9]) == "hardware time is 0.9 of e2e time in 20 iterations, above 0.8 (performance)"
    assert judge.added([0.8] * 12) == ""
    assert judge.added([*[0.7] * 19, 50.0]) == ""


class Program:
    """A program whose log is read every 10 s."""

    def __init__(self, *, tells: bool = True) -> None:
        self.times, self.now, self.step, self.tells = StepTimes(), 0.0, 0, tells

    def runs(self, seconds: float, step_s: float, *, every: int = 0) -> str:
        """Run on; return what is found first. `every`: the steps between two checkpoints, each of which takes 60 s."""
        end = self.now + seconds
        while self.now < end:
            self.now += 10
            steps = []
            for _ in range(max(1, int(10 / step_s))):
                self.step += 1
                saves = bool(every) and self.step % every == 0
                steps.append(Step(self.step, None, (60.0 if saves else step_s) if self.tells else None, saves))
            if found := self.times.added(steps, self.now):
                return found
        return ""


@pytest.mark.parametrize("tells", [True, False], ids=["the time stands in the log", "the steps alone"])
def test_slow_steps(tells: bool) -> None:
    """Five minutes above 1.2 times the best: not a shorter time, and not a little more."""
    program = Program(tells=tells)
    assert program.runs(3000, 0.5) == ""
    assert program.runs(3000, 0.5882) == ""  # a look sees 17 of these, and 20 of the others
    assert program.runs(180, 1.0) == ""
    assert program.runs(600, 0.5) == ""
    began = program.now
    found = program.runs(3000, 1.0)
    assert found.startswith("a step takes 1 s for 5 min") and found.endswith("2 times as long as at the best of this "
        "attempt (0.5 s)"), found  # fmt: skip
    assert 300 <= program.now - began <= 520


def test_what_is_left_out() -> None:
    """The first steps, which may be the fastest, and checkpoint steps, even every second step."""
    program = Program()
    assert program.runs(10, 0.5) == ""  # 20 steps
    assert program.runs(3000, 1.0) == ""
    assert program.runs(3000, 1.0, every=2) == ""
    assert Program().runs(9000, 5.0, every=3) == ""


def test_without_a_hundred_steps_there_is_no_best() -> None:
    """So nothing is slower than it; a slow beginning is not slow either."""
    assert Program().runs(7000, 100.0) == ""


def test_times_that_are_rounded_to_zero() -> None:
    """Nothing can be compared with them."""
    times = Program().times
    found = [times.added([Step(second, None, 0.0 if second < 400 else 0.1)], second) for second in range(1000)]
    assert set(found) == {""}


def sample(node: str, *cards: tuple[float, float, int], links: float | None = None) -> Sample:
    """Return a sample: (watts, clock, throttle) of each accelerator."""
    accelerators = tuple(
        Accelerator(number, 1.0, watts=watts, clock=clock, throttle=throttle)
        for number, (watts, clock, throttle) in enumerate(cards)
    )
    return Sample(1.0, 0, node, links=links, accelerators=accelerators)


def test_suspects_are_facts() -> None:
    """Throttling by heat or power supply, a lower clock, fewer watts, new link errors; nothing if there is none."""
    fine = (700.0, 1980.0, 0x4)  # the power cap of a busy GPU is no fault
    facts = Facts({}, {})
    for each in (sample("n1", fine, fine, links=7.0), sample("n2", fine, fine, links=1.0), Sample(1.0, 0, "n3")):
        facts.take(each)
    assert facts.suspects() == []
    facts.take(sample("n2", fine, (400.0, 1200.0, 0x60), links=3.0))
    assert facts.suspects() == [
        "n2: accelerator 1 is throttled: heat, heat (hardware)",
        "n2: accelerator 1 runs at 1200 MHz, the median of the job is 1980",
        "n2: accelerator 1 draws 400 W, the median of the job is 700",
        "n2: 2 more link errors in this attempt",
    ]
    facts.take(sample("n1", *[(0.0, 100.0, 0x8)] * 2, links=8.0))
    assert len(facts.suspects()) == 5 and facts.suspects()[-1].startswith("and ")
