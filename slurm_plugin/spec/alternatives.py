"""`any_of:` of a spec: the same job on other nodes. All are submitted; the first that starts is the one that runs."""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from slurm_plugin.nearest import suggestion
from slurm_plugin.spec.presets import merged
from slurm_plugin.validate import Problem
from slurm_plugin.yamltext import Document, Path, found

KEY: Final = "any_of"
MOST: Final = 8  # their job ids stand in the token of each
# What may differ: where the job runs, and what follows from that.
KEYS: Final = (
    "nodes", "min_nodes", "spares", "accelerators", "cpus", "memory", "time", "partition", "account", "qos",
    "constraint", "nodelist", "exclude", "reservation", "licenses", "exclusive", "sbatch", "launch", "command", "env",
    "env_file", "modules", "container",
)  # fmt: skip


class Alternative(Struct, frozen=True):
    """One of them as a document of its own, and where its keys stand in the whole one."""

    document: Document
    place: Path = ()
    own: frozenset[str] = frozenset()

    def placed(self, problems: tuple[Problem, ...]) -> Iterator[Problem]:
        """Its problems, each where it stands."""
        for each in problems:
            yield replace(each, path=(*self.place, *each.path)) if each.path[:1] and each.path[0] in self.own else each


def parted(document: Document) -> tuple[tuple[Alternative, ...], tuple[Problem, ...]]:
    """The document's alternatives, and what is wrong with the list; the document itself where it has none.

    A key of an alternative takes the place of the spec's own; of a mapping, each key for itself.
    """
    listed = document.fields.get(KEY)
    if listed is None:
        return (Alternative(document),), ()
    if (
        not isinstance(listed, list)
        or not all(isinstance(each, dict) for each in listed)
        or not 2 <= len(listed) <= MOST
    ):
        many = f"{len(listed)} of them" if isinstance(listed, list) else found(listed)
        text = f"found {many}; accepted: a list of 2 to {MOST} mappings, each with the keys in which it differs"
        return (), (Problem((KEY,), text),)
    alternatives, problems = [], []
    for number, own in enumerate(listed):
        place = (KEY, str(number))
        problems += [
            Problem((*place, key), f"no alternative can change it; accepted: {', '.join(KEYS)}{suggestion(key, KEYS)}")
            for key in own
            if key not in KEYS
        ]
        merged_keys = {key: merged(document.fields.get(key), value) for key, value in own.items() if key in KEYS}
        fields = {**document.fields, **merged_keys}
        if "nodes" in own and "min_nodes" not in own:
            fields.pop("min_nodes", None)  # it belongs to the spec's own number
        alternatives.append(Alternative(replace(document, fields=fields), place, frozenset(merged_keys)))
    return tuple(alternatives), tuple(problems)
