"""A page of the tutorial: the files that it tells the reader to save, and its commands."""

import os
import re
from pathlib import Path

from tests.cluster.jobs import ALICE_UID

TUTORIALS = Path(__file__).parents[2] / "docs/tutorial"
FILE = re.compile(r"Save this as `([\w.]+)`:\n\n```\w+\n(.*?)```", re.DOTALL)
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def read(name: str, home: Path) -> tuple[list[str], list[str]]:
    """Save the page's files for alice in `home`. Return their names, and the blocks of commands."""
    page = (TUTORIALS / name).read_text(encoding="utf-8")
    files = FILE.findall(page)
    for file, text in files:
        (home / file).write_text(text, encoding="utf-8")
        os.chown(home / file, ALICE_UID, ALICE_UID)
    return [file for file, _ in files], BLOCK.findall(page)
