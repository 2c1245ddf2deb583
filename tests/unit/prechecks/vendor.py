"""Captured output of vendors' tools, for the tests of their checks."""

from pathlib import Path

CAPTURED = Path(__file__).parents[2] / "captured"


def captured(name: str, *, of: str = "vendor") -> str:
    """Return a capture without its first line, which names its source."""
    source, _, text = (CAPTURED / of / f"{name}.txt").read_text(encoding="utf-8").partition("\n")
    assert source.startswith("# ")
    return text


def fake(directory: Path, name: str, text: str, status: int = 0) -> str:
    """Write a program that prints this text, and return its path."""
    (directory / f"{name}.said").write_text(text)
    program = directory / name
    program.write_text(f'#!/bin/sh\ncat "{directory}/{name}.said"\nexit {status}\n')
    program.chmod(0o755)
    return str(program)
