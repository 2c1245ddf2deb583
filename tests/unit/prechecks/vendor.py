"""What vendors' tools printed on real machines, for the tests of the items that ask them."""

from pathlib import Path

CAPTURED = Path(__file__).parents[2] / "captured"


def captured(name: str, *, of: str = "vendor") -> str:
    """The capture, without its first line, which says where it comes from."""
    source, _, text = (CAPTURED / of / f"{name}.txt").read_text(encoding="utf-8").partition("\n")
    assert source.startswith("# ")
    return text


def fake(directory: Path, name: str, text: str, status: int = 0) -> str:
    """A program that prints this; its path."""
    (directory / f"{name}.said").write_text(text)
    program = directory / name
    program.write_text(f'#!/bin/sh\ncat "{directory}/{name}.said"\nexit {status}\n')
    program.chmod(0o755)
    return str(program)
