"""A job's directory that is shared: root is its user, and bob, dan and eve are others."""

import json
import os
from pathlib import Path
from typing import Any

from slurm_plugin.records import job_directory, requests
from slurm_plugin.supervisor.share import access
from slurm_plugin.supervisor.share.serve import Shared

BOB, DAN, EVE = 20002, 20004, 20005
TEAM = 20100
RUN = Shared(7, 0, "ours", os.getppid(), TEAM)
STOP = {"v": 1, "verb": "stop", "arguments": {}, "job": 7, "restart": 0, "cluster": "ours"}


class Directory:
    """The directory of job 7, and its open descriptor."""

    def __init__(self, workdir: Path) -> None:
        self.path = job_directory.directory(workdir, 7)
        self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        access.set_directory(self.fd, TEAM)
        access.set_requests(self.fd, TEAM)
        self.box = self.path / requests.DIRECTORY

    def close(self) -> None:
        os.close(self.fd)

    def ask(self, uid: int = BOB, number: int = 1, text: str | None = None, **changed: Any) -> Path:
        """Write a request of a user."""
        path = self.box / f"{number}-{uid}.json"
        path.write_text(json.dumps({**STOP, **changed}) if text is None else text)
        os.chown(path, uid, TEAM)
        return path

    @property
    def left(self) -> list[str]:
        """The names in `requests/`, and what is left beside it of taken ones."""
        beside = [each.name for each in self.path.iterdir() if each.name.startswith(".")]
        return sorted([*(each.name for each in self.box.iterdir()), *beside])


def said(shared: Directory) -> list[tuple[int, str, bool, str]]:
    """Return the answers."""
    return [(each.uid, each.verb, each.done, each.said) for each in requests.answers(shared.path)]
