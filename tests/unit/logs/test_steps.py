"""The steps of a program: the lines of public training programs, and a user's own expression."""

import re
from pathlib import Path

import pytest

from slurm_plugin.logs.steps import Step, Steps, own, ratios
from slurm_plugin.records import progress_file

MEGATRON = (
    " iteration       10/     100 | consumed samples:           80 | elapsed time per iteration (ms): 283.9 |"
    " throughput per GPU (TFLOP/s/GPU): 40.4 | learning rate: 1.5E-05 |\n"
)
DEEPSPEED = (
    "[2026-11-07 01:55:23,714] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, "
    "RunningAvgSamplesPerSec=25.02, CurrSamplesPerSec=25.70, MemAllocated=4.32GB, MaxMemAllocated=38.49GB\n"
)
LINES = [
    (MEGATRON, Step(10, 100, 0.2839)),
    (f"0: [2026-11-07 01:55:23]{MEGATRON}", Step(10, 100, 0.2839)),
    (
        "Training epoch 0, iteration 9/99 | lr: 2e-05 | global_batch_size: 4 | global_step: 9 |"
        " reduced_train_loss: 1.31 | train_step_timing in s: 2.153 | consumed_samples: 8\n",
        Step(9, 99, 2.153),
    ),
    ("Training epoch 1, iteration 9/19 | global_step: 29 | train_step_timing in s: 46.84\n", Step(29, None, 46.84)),
    ("Training epoch 0, iteration 3/99 | train_step_timing in s: 2.0\n", Step(3, 99, 2.0)),
    (DEEPSPEED, Step(10)),
    ("\r 12%|█▏        | 12/100 [00:10<01:20,  1.10it/s]", Step(12, 100, 1 / 1.1)),
    ("[rank0]:  12%|█▏        | 12/100 [00:10<01:20,  2.50s/it]\n", Step(12, 100, 2.5)),
    ("  0%|          | 0/100 [00:00<?, ?it/s]\r", Step(0, 100)),
    ("Epoch 0:   4%|▍ | 350/8000 [00:09<03:23, 37.56it/s, v_num=0]\r", Step(350, None, 1 / 37.56)),
    ("Epoch 2:   4%|▍ | 350/8000 [00:09<03:23, 2.00s/it, v_num=0]\r", Step(16350, None, 2.0)),
    ("this iteration hardware time is 2201.521 and e2e time is 3317.794921875 ms.\n", Step(1, None, 3.317794921875)),
]
NO_STEPS = [
    "",
    "iteration 5\n",
    "loss 0.3, lr 1e-5\n",
    "Downloading:  12%|█▏        | 12/100 [00:10<01:20,  1.10MB/s]\r",
    "Loading checkpoint shards: 100%|██████████| 3/3 [00:05<00:00,  1.70s/it]\n",
    "Map:  12%|█▏        | 120/1000 [00:10<01:20, 300.00 examples/s]\r",
    "Validation DataLoader 0:  50%|█████     | 5/10 [00:01<00:01,  4.00it/s]\r",
    " iteration 999999999999999999999999/100 | elapsed time per iteration (ms): 1 |\n",
    "%|" * 20_000,
    "iteration " * 5_000,
]


@pytest.mark.parametrize(("line", "step"), LINES)
def test_known_lines(line: str, step: Step) -> None:
    """Each program has its own; after it other text may follow."""
    found = Steps()
    assert found.read(f"starting\n{line}\nloss 0.3\n")
    assert found.last == step
    assert not found.read("no step\n")
    assert found.last == step


@pytest.mark.parametrize("text", NO_STEPS)
def test_other_lines(text: str) -> None:
    """Bars of downloads, of checkpoints and of validation are no training."""
    found = Steps()
    assert not found.read(text)
    assert found.last is None


def test_the_last_line_of_a_piece_counts() -> None:
    """And the time of the seed's line is added to a count of these lines."""
    found = Steps()
    found.read("".join(f"\r {number}%|█ | {number}/100 [00:10<01:20,  2.00it/s]" for number in range(50)))
    assert found.last == Step(49, 100, 0.5)
    counted = Steps()
    for _ in range(3):
        counted.read("this iteration hardware time is 1.5 and e2e time is 2000 ms.\n" * 2)
    assert counted.last == Step(6, None, 2.0)


def test_two_kinds_of_lines() -> None:
    """Of a program with two of them the one that says more is believed, also if it comes later."""
    found = Steps()
    assert found.read(DEEPSPEED)
    assert found.read(DEEPSPEED + MEGATRON)
    assert not found.read(DEEPSPEED.replace("=10,", "=11,"))
    assert found.last == Step(10, 100, 0.2839)


def test_a_bar_of_an_evaluation() -> None:
    """It has no description with Hugging Face's Trainer, and fewer steps than the training."""
    found = Steps()
    found.read("\r 10%|█ | 10/100 [00:10<01:20,  2.00it/s]\r")
    assert not found.read("\r 50%|█ | 4/8 [00:10<01:20,  2.00it/s]\r")
    assert found.read("\r 11%|█ | 11/100 [00:10<01:20,  2.00it/s]\r")
    assert found.last == Step(11, 100, 0.5)


def test_a_users_own_expression() -> None:
    """The step is the group `step`, else the first without a name."""
    text = "it=5 of 70 in 250 ms\nit=6 of 70 in 500 ms\n"
    cases = [
        (r"it=(\d+)", Step(6)),
        (r"it=(?P<step>\d+) of (?P<of>\d+) in (?P<step_ms>[\d.]+)", Step(6, 70, 0.5)),
        (r"of (?P<of>\d+) in (?P<step_s>\d+)", Step(None, 70, 500.0)),
        (r"(?P<of>70) in (\d+)", Step(500, 70)),
    ]
    for expression, last in cases:
        progress_file.check(expression)
        assert own(expression, text)[-1] == last, expression
    lines = "[slurm_plugin] step 9\nstep 7\r  step 8\n"
    assert own(r"^ *step (\d+)$", lines) == [Step(7), Step(8)]
    for expression in (r"of (x)?", r"it=\d+ (of)", r"(?P<other>\d+)", r"(it=5)"):
        assert own(expression, text) == [], expression
    assert own(r"(.*)", "nan\ninf\n-1\n1e99\n") == []


@pytest.mark.parametrize(("expression", "why"), [("(", "in this one"), ("x", "with a group"), ("(" * 2000, "1024")])
def test_expressions_that_are_refused(expression: str, why: str) -> None:
    """With what is accepted."""
    with pytest.raises(ValueError, match=re.escape(why)):
        progress_file.check(expression)


def test_the_signatures_logs_have_no_steps() -> None:
    """Logs of failed programs, which this repository has for the diagnosis, are read without an error."""
    paths = sorted((Path(__file__).parents[2] / "captured").rglob("*.txt"))
    assert paths
    for path in paths:
        Steps().read(path.read_text(errors="replace"))


def test_a_checkpoint_before_a_step() -> None:
    """Marks this step, whose time may include the writing; slow or not, the step counts."""
    line = "{}/100 [00:10<01:20,  2.00it/s]\n"
    text = "  1%|x| " + line.format(1) + "Saving the model\n  2%|x| " + line.format(2) + "  3%|x| " + line.format(3)
    found = Steps()
    assert found.read(text)
    assert [(each.step, each.saves) for each in found.fresh] == [(1, False), (2, True), (3, False)]


def test_hardware_times() -> None:
    """The known line, also behind a rank's number, or a user's own with names or without; not slurm_plugin's lines."""
    known = "0: this iteration hardware time is 1500.5 and e2e time is 3001 ms.\n"
    assert ratios("", known * 2 + f"[slurm_plugin] {known}") == [0.5, 0.5]
    assert ratios("", "this iteration hardware time is 1 and e2e time is 0 ms.\n") == []
    assert ratios(r"hw (\d+) of (\d+)", "hw 1 of 4\rhw x of 4\n") == [0.25]
    assert ratios(r"of (?P<e2e>\d+), (?P<hardware>\d+) busy", "of 4, 3 busy\n") == [0.75]
