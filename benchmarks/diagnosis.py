"""Measure how often a diagnosis is right, on a directory of labelled logs, and how fast logs are read.

    .venv/bin/python benchmarks/diagnosis.py [LABELS.tsv] [--multi LABELS_MULTI.tsv] [--show] [--smallest] [--large MB]

First a healthy training log is made and read; it must show no failure. With LABELS.tsv, the same is done with its logs,
again and again with other numbers and every tenth word another one. Each speed is that of the standard library, then
that with the extra `fast`, if it is installed; both must give the same events.

LABELS.tsv has the columns file, class, blame, evidence (part of the line that shows the failure), culprit and
also_accept (other accepted classes, separated by commas). LABELS_MULTI.tsv has dir, class, blame, culprit_rank,
culprit_node, evidence and evidence_file; each directory contains node0, node1, ... with agent.log, rankN.out, rankN.err
and rankN.error.json.
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

MARKS = ("class", "blame", "evidence", "culprit")


def marked(row: Mapping[str, str], found: Diagnosis) -> Iterator[tuple[str, bool]]:
    """Yield each property in the label, and whether the diagnosis agrees."""
    cause = found.cause
    accepted = {row["class"], *filter(None, map(str.strip, (row.get("also_accept") or "").split(",")))}
    yield "class", cause.failure in accepted
    yield "blame", cause.whose == row["blame"]
    if row["evidence"]:
        yield "evidence", cause.event is not None and row["evidence"] in cause.event.text
    if row.get("culprit_rank"):
        yield "culprit", cause.ranks == tuple(map(int, row["culprit_rank"].split(",")))
    elif row.get("culprit_node"):
        yield "culprit", row["culprit_node"] in cause.nodes


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
        if not options.labels:
            return
        failing(log, size, sorted(options.labels.parent.rglob("*.log")))
        speed("logs of failures", log, signatures)
    right, asked, confusion = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    false_alarms = wrong_excludes = size = 0
    begin = time.perf_counter()
    for labels in filter(None, (options.labels, options.multi)):
        with labels.open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        for row in rows:
            place = labels.parent / (row.get("file") or row.get("dir") or "")
            paths = sorted(each for each in place.rglob("*") if each.is_file()) if place.is_dir() else [place]
            found = of_files(paths, signatures)
            size += sum(path.stat().st_size for path in paths)
            cause = found.cause
            agrees = dict(marked(row, found))
            asked.update(agrees.keys())
            right.update(name for name, fits in agrees.items() if fits)
            confusion[row["class"], cause.failure] += not agrees["class"]
            false_alarms += row["class"] == "none" and cause.failure != "none"
            wrong_excludes += (
                bool(cause.nodes) and cause.verdict == "exclude" and row["blame"] not in ("node", "network")
            )
            if options.show and not all(agrees.values()):
                wrong = ", ".join(name for name, fits in agrees.items() if not fits)
                said = f"{cause.event.signature.id}: {cause.event.text[:80]}" if cause.event else "no event"
                print(
                    f"{place.name}: {wrong}: found {cause.failure} ({cause.whose}) {cause.ranks} {cause.nodes}; {said}"
                )
    seconds = time.perf_counter() - begin
    for name in MARKS:
        if asked[name]:
            print(f"{name}: {right[name]} of {asked[name]} right, {right[name] / asked[name]:.0%}")
    for (wanted, found_class), count in sorted(confusion.items()):
        if count:
            print(f"confused: {wanted} taken for {found_class}: {count}")
    print(f"false alarms on healthy logs: {false_alarms}; wrong excludes: {wrong_excludes}")
    print(f"{size / 1e6:.1f} MB in {seconds:.1f} s: {size / 1e6 / seconds:.1f} MB/s")


if __name__ == "__main__":
    main()
