"""What an item has seen of this boot already: a few plain values, in `<state>/<item>.json`.

Root's own, by the rules of `prechecks.remembered`; what another boot has seen is forgotten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from prechecks import remembered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def load(state: str, item: str) -> dict[str, Any]:
    """What `save` was given in this boot; empty where nothing was, or the file is not root's or not whole.

    `state` is the directory. Raises OSError where it is a link, or not root's.
    """
    try:
        directory = remembered.opened(state, make=False)
    except FileNotFoundError:
        return {}
    try:
        text = remembered.read(directory, f"{item}.json")
    finally:
        os.close(directory)
    try:
        found = json.loads(text)
        return dict(found["values"]) if found["boot"] == remembered.boot_id() else {}
    except (ValueError, TypeError, KeyError):
        return {}


def save(state: str, item: str, values: Mapping[str, Any]) -> None:
    """Put these values in the place of those before; of several at once the last one's stay. Raises OSError."""
    directory = remembered.opened(state, make=True)
    try:
        remembered.write(directory, f"{item}.json", json.dumps({"boot": remembered.boot_id(), "values": values}))
    finally:
        os.close(directory)
