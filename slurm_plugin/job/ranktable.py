"""The file of a rank table: written in two steps, and read only when it is complete."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hostfiles import ranktable
from hostfiles.errors import HostfileError
from hostfiles.ranktable_read import Table, UnfinishedError, parse
from slurm_plugin.job import files

DEADLINE_S = 1800.0  # as long as HCCL waits (HCCL_RANKTABLE_TIMEOUT_S)
EVERY_S = 1.0  # as often as HCCL looks


@contextmanager
def announced(path: Path) -> Iterator[Callable[[str], None]]:
    """Put `status: initializing` into the file and give what replaces it with the table, each as a whole.

    Without a table at the end, because of an error or not, the file goes: readers shall not wait for nothing.
    """
    files.write(path, ranktable.INITIALIZING)
    published = False

    def publish(text: str) -> None:
        nonlocal published
        files.write(path, text)
        published = True

    try:
        yield publish
    finally:
        if not published:
            path.unlink(missing_ok=True)


def wait(
    path: Path,
    *,
    deadline_s: float = DEADLINE_S,
    uneven: bool = False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str, Table]:
    """The text of the file and its table, as soon as the file is there, whole and `completed`.

    Raises HostfileError at once for a complete table that breaks a rule and for a file that cannot be read, and after
    `deadline_s` seconds with what was seen last.
    """
    end = clock() + deadline_s
    while True:
        try:
            text = path.read_text(encoding="utf-8")
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
        sleep(min(EVERY_S, left))
