"""Lines of logs as a terminal shows them, and who wrote them."""

import pytest

from slurm_plugin.logs import lines


@pytest.mark.parametrize(
    ("raw", "rank", "text"),
    [
        (b"[default3]:ValueError: x", 3, "ValueError: x"),
        (b"[default0]:[rank12]:[E817 17:40:34] x", 12, "[E817 17:40:34] x"),
        (b"[rank0]: ValueError: x", 0, "ValueError: x"),
        (b"[1,12]<stderr>:ValueError: x", 12, "ValueError: x"),
        (b"3: ValueError: x", 3, "ValueError: x"),
        (b"[1,2]<stderr>:KeyError[1,2]<stderr>:: [1,2]<stderr>:'x'[1,2]<stderr>:", 2, "KeyError: 'x'"),
        (b"2026-01-01T10:00:00.5Z: [1,2]<stderr>:KeyError", 2, "KeyError"),
        (b"(EngineCore_DP0 pid=7) ERROR 09-18 10:00:00 [core.py:718] KeyError", None, "KeyError"),
        (b"(RayWorker pid=7, ip=10.0.0.1) KeyError", None, "KeyError"),
        (b"(pid=2417663, ip=10.0.0.1) KeyError", None, "KeyError"),
        (b"Sun Oct  1 17:01:10 2017[1,30]<stdout>:KeyError", 30, "KeyError"),  # mpirun --timestamp-output
        (b"Sun Oct  1 17:01:10 2017 KeyError", None, "Sun Oct  1 17:01:10 2017 KeyError"),
        (
            b"1: [tape/HorovodAllreduce_a_0, tape/HorovodAllreduce_b_0]",
            None,
            "1: [tape/HorovodAllreduce_a_0, tape/HorovodAllreduce_b_0]",
        ),
        (b"1: [rank1]: KeyError", 1, "[rank1]: KeyError"),
        (b"12:30: lunch", None, "12:30: lunch"),
        (b" [Rank 5] Watchdog caught", 5, " [Rank 5] Watchdog caught"),
        (b"\x1b[31mred\x1b[0m \x07bell\x00", None, "red bell"),
        (b"10%|#  |\r100%|###|\n", None, "100%|###|"),
        (b"caf\xe9", None, "caf�"),
    ],
)
def test_a_line(raw: bytes, rank: int | None, text: str) -> None:
    """Prefixes of launchers name the rank. What a terminal would not show is removed."""
    assert lines.read(raw) == lines.Line(text, rank, local=raw.startswith(b"[default3]"))


def test_a_long_line() -> None:
    """Both ends are kept."""
    text = lines.shown(b"a" * 10**6 + b"end")
    assert len(text) < 3 * lines.LONGEST
    assert text.startswith("aaa")
    assert text.endswith("end")
