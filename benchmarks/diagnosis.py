"""Measure how often a diagnosis is right, on a directory of labelled logs, and how fast logs are read.

    .venv/bin/python benchmarks/diagnosis.py [LABELS.tsv] [--multi LABELS_MULTI.tsv] [--show] [--smallest] [--large MB]

First a healthy training log is made and read; it must show no failure. With LABELS.tsv, the same is done with its logs,
again and again with other numbers and every tenth word another one. Each speed is that of the standard library, then
that with the extra `fast`, if it is installed; both must give the same events.

LABELS.tsv has the columns file, class, blame, evidence (part of the line that shows the failure), culprit (in words:
`rank 1`, `n3`, `task 0 n5`; one of them must be found) and also_accept (other accepted classes, separated by commas).
LABELS_MULTI.tsv has dir, class, blame, culprit_rank, culprit_node, evidence, evidence_file and note; each directory
contains node0, node1, ... with agent.log, rankN.out, rankN.err and rankN.error.json; evidence_file is one of them. All
of culprit_rank must be found, else the node. An `exclude` is wrong if the fault is neither a node's nor the network's,
or of another node.
"""

import argparse
import csv
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from slurm_plugin.logs import library, scan
from slurm_plugin.logs.diagnosis import Diagnosis, of_files
from slurm_plugin.logs.scan import Event
from slurm_plugin.logs.signature import Signature

MARKS = ("class", "blame", "evidence", "evidence file", "culprit")


class Tally:
    """How often a diagnosis was right."""

    def __init__(self) -> None:
        self.right, self.asked = Counter[str](), Counter[str]()
        self.found = Counter[tuple[str, str]]()  # (class of the label, class of the diagnosis)
        self.false_alarms = self.wrong_excludes = 0

    def add(self, row: Mapping[str, str], found: Diagnosis, paths: Sequence[Path]) -> list[str]:
        """Count one diagnosis. Return what is wrong in it."""
        cause, agrees = found.cause, dict(marked(row, found))
        self.asked.update(agrees.keys())
        self.right.update(name for name, fits in agrees.items() if fits)
        self.found[row["class"], cause.failure] += 1
        wrong = [name for name, fits in agrees.items() if not fits]
        if row["class"] == "none" and cause.failure != "none":
            self.false_alarms += 1
            wrong.append("false alarm")
        if cause.verdict == "exclude" and excluded_wrongly(row, cause.nodes, paths):
            self.wrong_excludes += 1
            wrong.append("exclude")
        return wrong

    def lines(self) -> Iterator[str]:
        """Yield the rates, the confusion table, false alarms and wrong excludes."""
        for name in MARKS:
            if self.asked[name]:
                rate = self.right[name] / self.asked[name]
                yield f"{name}: {self.right[name]} of {self.asked[name]} right, {rate:.0%}"
        classes = sorted({each for pair in self.found for each in pair})
        yield "the classes that were found (columns) for each class of the labels (rows):"
        yield " " * 24 + "".join(f"{number:4}" for number in range(1, len(classes) + 1))
        for number, label in enumerate(classes, 1):
            counts = (self.found[label, each] for each in classes)
            yield f"{number:3} {label:20}" + "".join(f"{count or '.':>4}" for count in counts)
        yield f"false alarms on healthy logs: {self.false_alarms}; wrong excludes: {self.wrong_excludes}"


def marked(row: Mapping[str, str], found: Diagnosis) -> Iterator[tuple[str, bool]]:
    """Yield each property in the label, and whether the diagnosis agrees."""
    cause = found.cause
    accepted = {row["class"], *filter(None, map(str.strip, (row.get("also_accept") or "").split(",")))}
    yield "class", cause.failure in accepted
    yield "blame", cause.whose == row["blame"]
    if row["class"] == "none":  # there is no evidence of what did not happen
        return
    if row["evidence"]:
        yield "evidence", cause.event is not None and row["evidence"] in cause.event.text
    if (file := row.get("evidence_file") or "-") != "-":  # such as node1/rank3.err
        yield "evidence file", cause.event is not None and Path(cause.event.source.name).match(file)
    if ranks := numbers(row.get("culprit_rank")):
        yield "culprit", {*cause.ranks} == ranks
    elif where := names(row.get("culprit_node")):
        yield "culprit", bool(where & {*cause.nodes})
    elif words := row.get("culprit"):
        ranks = {int(each) for each in re.findall(r"(?i)(?:rank|task|proc|process)s?\W*(\d+)", words)}
        yield "culprit", bool(ranks & {*cause.ranks} or names(words) & {*cause.nodes})


def excluded_wrongly(row: Mapping[str, str], nodes: Sequence[str], paths: Sequence[Path]) -> bool:
    """Return whether a node should not be excluded: the label blames another one, or no node at all."""
    if row["blame"] not in ("node", "network"):
        return bool(nodes)
    ranks = numbers(row.get("culprit_rank"))
    of_ranks = {path.parent.name for path in paths if numbers(path.name) & ranks}
    culprits = names(row.get("culprit_node")) or of_ranks or names(row.get("culprit"))
    return bool(culprits) and not {*nodes} <= culprits


def numbers(text: str | None) -> set[int]:
    """Return the numbers in a text: `2,3`, `rank2.err`; none for `-`."""
    return set(map(int, re.findall(r"\d+", text or "")))


def names(text: str | None) -> set[str]:
    """Return the names of nodes, and addresses, in a text: `n3`, `task 0 n5`, `n2<->10.2.0.5`; none for `-`."""
    return {each for each in re.findall(r"[\w.-]+", text or "") if re.search(r"[a-zA-Z].*\d|\d\.\d", each)}


def healthy(path: Path, megabytes: int) -> None:
    """Write a training log without a failure."""
    chance = random.Random(1)  # noqa: S311 - the same log in each run
    line = "[default{}]: iteration {}/ 500000 | elapsed time (ms): {:.1f} | lm loss: {:.6E} | grad norm: {:.3f}\n"
    with path.open("w") as file:
        while file.tell() < megabytes * 1_000_000:
            for rank in range(8):
                file.write(line.format(rank, file.tell(), *(chance.random() * 1000 for _ in range(3))))


def failing(path: Path, megabytes: int, logs: Sequence[Path]) -> None:
    """Write real logs of failures again and again, each time with other numbers and words."""
    chance = random.Random(1)  # noqa: S311
    texts = [each.read_bytes() for each in logs]
    words = [bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz", k=chance.randint(4, 9))) for _ in range(5000)]

    def other(word: re.Match[bytes]) -> bytes:
        return chance.choice(words) if chance.random() < 0.1 else word[0]

    with path.open("wb") as file:
        while file.tell() < megabytes * 1_000_000:
            text = re.sub(rb"\d", lambda _: b"%d" % chance.randrange(10), chance.choice(texts))
            file.write(re.sub(rb"\b[a-z]{4,9}\b", other, text))


def speed(name: str, path: Path, signatures: Sequence[Signature]) -> Sequence[Event]:
    """Read a log with and without Hyperscan, print MB/s of CPU time, and return the events. Exits 1 if they differ."""
    found: dict[str, Sequence[Event]] = {}
    megabytes = path.stat().st_size / 1e6
    for label, worth in (("", sys.maxsize), (", with Hyperscan", 0)):
        scan.WORTH = worth  # type: ignore[misc]
        if not worth and not scan.finder(tuple(signatures)):
            continue
        scanner = scan.Scanner(signatures)
        begin = time.process_time()
        with path.open("rb") as file:
            scanner.read(file, scan.Source(name))
        print(f"{name} of {megabytes:.0f} MB{label}: {megabytes / (time.process_time() - begin):.0f} MB/s of CPU time")
        found[label] = scanner.events
    if len({*map(tuple, found.values())}) > 1:
        sys.exit("Hyperscan finds other events")
    return found[""]


def main() -> None:
    """Diagnose all logs and print the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=Path, nargs="?")
    parser.add_argument("--multi", type=Path)
    parser.add_argument("--show", action="store_true", help="print each log that is judged wrongly")
    parser.add_argument("--smallest", action="store_true", help="read 1 MB of a healthy log, not 30")
    parser.add_argument("--large", type=int, metavar="MB", help="read so much of each log that is made")
    options = parser.parse_args()
    signatures = library.load()
    size = options.large or (1 if options.smallest else 30)
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "large.log")
        healthy(log, size)
        if alarms := [each for each in speed("a healthy log", log, signatures) if each.signature.role == "root"]:
            sys.exit(f"a false alarm: {alarms[0].text}")
        if options.labels:
            failing(log, size, sorted(options.labels.parent.rglob("*.log")))
            speed("logs of failures", log, signatures)
    if not (options.labels or options.multi):
        return
    tally, size, begin = Tally(), 0, time.perf_counter()
    for labels in filter(None, (options.labels, options.multi)):
        with labels.open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        for row in rows:
            place = labels.parent / (row.get("file") or row.get("dir") or "")
            paths = sorted(filter(Path.is_file, place.glob("node*/*"))) if place.is_dir() else [place]
            found = of_files(paths, signatures)
            size += sum(path.stat().st_size for path in paths)
            if (wrong := tally.add(row, found, paths)) and options.show:
                cause = found.cause
                said = f"{cause.event.signature.id}: {cause.event.text[:80]}" if cause.event else "no event"
                where = f"{cause.ranks} {cause.nodes}"
                print(f"{place.name}: {', '.join(wrong)}: found {cause.failure} ({cause.whose}) {where}; {said}")
    seconds = time.perf_counter() - begin
    print("\n".join(tally.lines()))
    print(f"{size / 1e6:.1f} MB in {seconds:.1f} s: {size / 1e6 / seconds:.1f} MB/s")


if __name__ == "__main__":
    main()
