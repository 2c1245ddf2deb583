"""Check the syntax of many shell scripts in one process."""

import subprocess
from collections.abc import Iterable

# bash parses the whole branch and runs nothing in it. PATH is empty, so that a mistake here starts no program either.
READS = r"""
PATH= number=0
while IFS= read -r -d '' script; do
  eval "if false; then :"$'\n'"$script"$'\n'"fi" || { echo "script $number cannot be read" >&2; exit 1; }
  number=$((number + 1))
done
echo $number
"""


def assert_bash_reads(scripts: Iterable[str]) -> None:
    """Fail with bash's message and the script if bash finds a syntax error."""
    texts = list(scripts)
    stdin = "".join(f"{text}\0" for text in texts)
    done = subprocess.run(["bash", "-c", READS], input=stdin, capture_output=True, text=True, check=False, cwd="/")
    assert done.stderr == ""
    assert done.stdout == f"{len(texts)}\n"
