"""Whether a program recovered from an exception, as the lines around it show."""

import time
from pathlib import Path

import pytest

from tests.unit.logs.test_aftermath import THROWN, found

MOST_S = 10.0
OK = "all 12 blocks done\nwrote report.csv\n"
ROWS = "".join(f"{epoch:5} {0.5 / epoch:.5f} 0\n" for epoch in range(1, 6))
MORE = "".join(f"{epoch:5} {0.5 / epoch:.5f} 0\n" for epoch in range(6, 9))
SWEEP = "[W 2026-11-28 23:17:01] Trial 4 failed with parameters: {'lr': 0.1} because of the following error: "


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (f"a worker died, restarting the pool, attempt 2/3\n{THROWN}{OK}", "none"),
        (f"2026-11-28 INFO ERROR corrupt image 7.jpg, skipped\n{THROWN}{OK}", "none"),
        (f"download failed; retrying in 1s\n{THROWN}download failed; retrying in 2s\n{THROWN}{OK}", "none"),
        (f"cannot continue\n{THROWN}{OK}", "user_code"),
        (f"attempt 3/3 failed, giving up, no retrying\n{THROWN}{OK}", "user_code"),
        (f"download failed; retrying in 1s\n{THROWN}{THROWN}{OK}", "user_code"),
        (f"download failed; retrying in 1s\n{THROWN}{OK}ERROR: the second stage failed\n", "user_code"),
        (f"{THROWN}{OK}", "user_code"),  # a batch script writes such lines after a program that failed
        (f"{ROWS}{THROWN}{MORE}", "none"),
        (f"{ROWS}{THROWN}{ROWS}", "user_code"),  # another run, from the beginning
        (f"{ROWS}{THROWN}    6 0.08333 0\n", "user_code"),  # a line of another process
        (f"{SWEEP}MemoryError()\n{THROWN}finished: 7 complete, 1 failed\n", "none"),
        (f"{SWEEP}MemoryError()\n{THROWN}{THROWN}", "user_code"),
    ],
)
def test_an_exception_that_the_program_says_it_survived(text: str, failure: str, tmp_path: Path) -> None:
    """It announces that it goes on, and does so; or its counter still rises."""
    assert found(text, tmp_path)[0] == failure


TIDY = "Job ended at Mon Nov 30 10:00:00 UTC 2026\n"
BEATS = "".join(f"[2026-11-28 10:00:{second:02}] heartbeat\n" for second in range(10, 15))
LATER = BEATS.replace("10:00", "10:01")


@pytest.mark.parametrize(
    "text",
    [
        f"Training using the nccl backend\n{THROWN}{TIDY}",  # the line above is about something else
        f"Resuming from checkpoint, continuing at step 100\n{THROWN}wrote {OK}",
        f"Loading checkpoint, skipping optimizer state\n{THROWN}{OK}",
        f"WARNING: ignoring unknown key foo\n{THROWN}{TIDY}",
        f"Attempt 1 failed, retrying\n{THROWN}{TIDY}",  # it did nothing more
        f"Attempt 1 failed, retrying\n{THROWN}Giving up after 3 attempts.\n",
        f"Attempt 1 failed, retrying\n{THROWN}Max retries reached.\n",
        f"Attempt 1 failed, retrying\n{THROWN}All 5 retries failed, aborting\n",
        f"shard unreadable, skipped\n{THROWN}CRITICAL cannot continue: all shards are unreadable\n",
        f"data missing, not retrying\n{THROWN}{OK}",
        f"Epoch 1 complete\nException in thread Thread-3 (loader):\n{THROWN}",  # not all was done
        f"{BEATS}{THROWN}{LATER}",  # a clock goes on, whatever happens
        f"{ROWS}{THROWN}{ROWS}{MORE}",  # another run, from the beginning, further than the first
    ],
)
def test_an_exception_that_only_seems_survived(text: str, tmp_path: Path) -> None:
    """It is the cause: nothing says that the program itself went on."""
    assert found(text, tmp_path)[0] == "user_code"


def test_a_counter_of_very_many_lines(tmp_path: Path) -> None:
    """They are looked at once."""
    before, after = ("".join(f"{number}\n" for number in range(*those)) for those in ((1, 12_000), (12_000, 24_000)))
    began = time.process_time()
    found(f"{before}Traceback (most recent call last):\nBrokenPipeError: [Errno 32] Broken pipe\n{after}", tmp_path)
    assert time.process_time() - began < MOST_S
