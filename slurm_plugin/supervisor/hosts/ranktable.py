"""The file of a rank table: write it in two steps, read it only when it is complete."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hostfiles import ranktable
from hostfiles.nodelist import HostfileError
from hostfiles.ranktable_read import Table, UnfinishedError, parse
from slurm_plugin.records import job_directory

DEADLINE_S = 1800.0  # as long as HCCL waits (HCCL_RANKTABLE_TIMEOUT_S)
EVERY_S = 1.0  # interval between two reads, as in HCCL


@contextmanager
def announced(path: Path) -> Iterator[Callable[[str], None]]:
    """Write `status: initializing` into the file, and yield the function that replaces it with the table.

    If no table was published by the end, with or without an error, remove the file: readers would wait in vain.
    """
    job_directory.write(path, ranktable.INITIALIZING)
    published = False

    def publish(text: str) -> None:
        nonlocal published
        job_directory.write(path, text)
        published = True

    try:
        yield publish
    finally:
        if not published:
            path.unlink(missing_ok=True)


def wait(
    path: Path,
    *,
    deadline_s: float | None = None,
    uneven: bool = False,
    say: Callable[[str], None] = lambda _line: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str, Table]:
    """Wait until the file exists, is complete JSON and has status `completed`. Return its text and its table.

    Call `say` once if it has to wait. Raise HostfileError immediately if a complete table breaks a rule or the file is
    unreadable. Raise it after `deadline_s` seconds (default: DEADLINE_S) with the last problem seen.
    """
    deadline_s = DEADLINE_S if deadline_s is None else deadline_s
    end, waits = clock() + deadline_s, False
    while True:
        try:
            text = path.read_text(encoding="utf-8-sig")
            return text, parse(text, uneven=uneven)
        except FileNotFoundError:
            seen = "there is no such file"
        except UnicodeDecodeError as error:  # a character may be half written
            seen = f"no UTF-8 at byte {error.start}"
        except UnfinishedError as error:
            seen = str(error)
        except OSError as error:
            raise HostfileError(f"{path}: {error.strerror}") from error
        except HostfileError as error:
            raise HostfileError(f"{path}: {error}") from error
        left = end - clock()
        if left <= 0:
            raise HostfileError(f"{path}: no rank table after {deadline_s:g} s; seen last: {seen}")
        if not waits:
            say(f"{path}: waiting up to {deadline_s:g} s for a rank table: {seen}")
        waits = True
        sleep(min(EVERY_S, left))
