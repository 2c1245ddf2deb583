"""Node lists and hostfiles of 10,000 and 100,000 hosts beside ClusterShell, python-hostlist and scontrol, in one run.

    .venv/bin/python benchmarks/hostfiles.py [--python VENV/bin/python]

Milliseconds of CPU, the best of 5, and in brackets how many times ours. --python names an interpreter that has
`pip install python-hostlist ClusterShell`; without it this one must have them. Exits 1 where expanding takes longer
than python-hostlist's or folding more than a fifth of its time, 3 where something to compare with is missing.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

REPEATS = 5
SIZES = (10_000, 100_000)
ROOT = Path(__file__).parents[1]

# Runs in the interpreter of --python: the same best of 5, for the lists on stdin; answers in the same form.
OTHERS = """
import json, sys, time
import hostlist
from ClusterShell.NodeSet import NodeSet
def best(run):
    times = []
    for _ in range(5):
        start = time.process_time(); run(); times.append(time.process_time() - start)
    return min(times) * 1e3
answers = {}
for text, names in json.load(sys.stdin):
    assert hostlist.expand_hostlist(text) == names == list(NodeSet(text))
    answers[len(names)] = {
        "expand": {"python-hostlist": best(lambda: hostlist.expand_hostlist(text)), "ClusterShell": best(lambda: list(NodeSet(text)))},
        "fold": {"python-hostlist": best(lambda: hostlist.collect_hostlist(names)), "ClusterShell": best(lambda: str(NodeSet.fromlist(names)))},
    }
print(json.dumps(answers))
"""  # noqa: E501 - a script in a string


def best(run: Callable[[], object]) -> float:
    """Milliseconds of CPU, the best of some runs."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times) * 1e3


def ours(text: str, names: list[str]) -> dict[str, float]:
    """Every step from the node list to a file's text, and the fold back."""
    from hostfiles import FORMATS, from_lists  # noqa: PLC0415 - found by the path that main sets
    from hostfiles.nodelist import expand, fold  # noqa: PLC0415

    assert expand(text) == names
    assert expand(fold(names)) == names
    allocation = from_lists(text, slots=8)
    return {
        "expand": best(lambda: expand(text)),
        "fold": best(lambda: fold(names)),
        "allocation": best(lambda: from_lists(text, slots=8)),
        **{form: best(lambda form=form: FORMATS[form](allocation, 61000, 0)) for form in FORMATS},  # type: ignore[misc]
    }


def scontrol(text: str, names: list[str], conf: Path) -> dict[str, float]:
    """`scontrol show hostnames`, and `hostlist` of a file with the names: CPU of the child, its start included."""
    from hostfiles.nodelist import expand  # noqa: PLC0415

    listed = conf.with_name("names")
    listed.write_text("".join(f"{name}\n" for name in names))
    environ = {**os.environ, "SLURM_CONF": str(conf)}

    def run(*words: str) -> tuple[str, float]:
        times = []
        for _ in range(REPEATS):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            said = subprocess.run(["scontrol", "show", *words], check=True, capture_output=True, text=True, env=environ)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return said.stdout, min(times) * 1e3

    expanded, expand_ms = run("hostnames", text)
    folded, fold_ms = run("hostlist", str(listed))
    assert expanded.split() == names == expand(folded.strip())
    return {"expand": expand_ms, "fold": fold_ms}


def main() -> int:
    """Print one table a size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with python-hostlist and ClusterShell")
    options = parser.parse_args()
    if not shutil.which("scontrol"):
        print("no scontrol to compare with: apt-get install slurm-client", file=sys.stderr)
        return 3
    lists = []
    for size in SIZES:  # ranges as scontrol takes them: 65,536 names at most
        parts = [f"{start:06d}-{min(start + 49_999, size):06d}" for start in range(1, size + 1, 50_000)]
        lists.append((f"n[{','.join(parts)}]", [f"n{number:06d}" for number in range(1, size + 1)]))
    asked = subprocess.run(
        [options.python, "-c", OTHERS], input=json.dumps(lists), capture_output=True, text=True, check=False
    )
    if asked.returncode:
        print(f"{options.python} cannot run what we compare with:\n{asked.stderr[-1000:]}", file=sys.stderr)
        print("  try: python3 -m venv /tmp/others && /tmp/others/bin/pip install python-hostlist ClusterShell"
              " && benchmarks/hostfiles.py --python /tmp/others/bin/python", file=sys.stderr)  # fmt: skip
        return 3
    others = json.loads(asked.stdout)
    slow = False
    for text, names in lists:
        mine, theirs = ours(text, names), others[str(len(names))]
        with tempfile.TemporaryDirectory() as directory:
            conf = Path(directory, "slurm.conf")
            conf.write_text("ClusterName=benchmark\nSlurmctldHost=localhost\n")
            for what, milliseconds in scontrol(text, names, conf).items():
                theirs[what]["scontrol"] = milliseconds
        print(f"{len(names)} hosts, ms of CPU")
        for what, own in mine.items():
            beside = [f"{name} {ms:.1f} ({ms / own:.1f}x)" for name, ms in theirs.get(what, {}).items()]
            print("  ".join((f"  {what:<12}{own:8.1f}", *beside)))
        slow |= mine["expand"] > theirs["expand"]["python-hostlist"]
        slow |= mine["fold"] > theirs["fold"]["python-hostlist"] / 5
    return int(slow)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
