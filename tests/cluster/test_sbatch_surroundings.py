"""A job of `slurm-plugin sbatch` has the same environment, limits, signals and descriptors as under sbatch."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job, workdir

pytestmark = pytest.mark.cluster

OURS = "/etc/slurm/slurm_plugin/bin/slurm-plugin"
TABLE = Path(__file__).parents[2] / "docs/reference/sbatch.md"
# Perl, which neither ignores a signal nor changes its environment as Python and shells do.
DUMP = r"""#!/usr/bin/perl
%s
print "its output\n";
print STDERR "its error\n";
my %%files = map { $_ => readlink "/proc/self/fd/$_" } 0 .. 99;
my @files = map { "$_ $files{$_}\n" } grep { $files{$_} && $files{$_} ne $0 } sort { $a <=> $b } keys %%files;
open my $out, ">", "found" or die;
for my $name ("environ", "limits", "status", "oom_score_adj", "timerslack_ns", "personality", "cgroup", "cwd") {
  my $file;
  my $text = $name eq "cwd" ? readlink "/proc/self/cwd" : open($file, "<", "/proc/self/$name") ? join("", <$file>) : "";
  print $out "== $name\n$text\n";
}
print $out "== files\n", @files, "== rest\n", join(" ", getpriority(0, 0), @ARGV), "\n";
print $out "== leads\n", getpgrp() == $$ ? 1 : 0, "\n";
"""
# Functions and variables that one shell or another would lose or change; a value that is no UTF-8.
BEFORE = r"""
module() { echo "it's $1"; }; export -f module; export LD_LIBRARY_PATH=/none:/none/too
trap '' USR2 XFSZ; ulimit -n 777; umask 027
exec env a.b=1 'c-d=x
y' 'MANY=1

2 "$HOME" `id` \' $'BYTES=\xff\xfe' EMPTY= ' =blank' PATH="$HOME/surroundings/bin:$PATH" \
  sbatch --parsable --job-name=dump --nodelist=n1 --output=job.out --export=ALL "$@" job.pl one 'two  three'
"""
OF_EACH_JOB = rb"(SLURM_(?:JOB_?ID|TASK_PID|JOB_(?:START|END)_TIME|JOB_SLUID))=\w+"
OF_A_PROCESS = (
    "SigB",
    "SigI",
    "SigC",
    "ShdPnd",
    "Umask",
    "Uid",
    "Gid",
    "Groups",
    "Cap",
    "NoNewPrivs",
    "Seccomp",
    "Mems_",
)
# From docs/reference/sbatch.md: features without a mode.
ADDED = {
    *(f"SLURM_PLUGIN_{name}".encode() for name in ("ATTEMPT", "CHECKPOINT", "DIRECTORY", "REASON", "RESTART")),
    b"SLURM_OPEN_MODE",
}
TOLD = ("(variables.md) too", "the script finds `SLURM_OPEN_MODE=a`")


def found(box: Sandbox, directory: Path, line: str, *, ours: bool) -> dict[str, bytes]:
    """Return what a script of alice's finds, section by section, without what differs for each job."""
    box.run(["sh", "-c", "cd surroundings && rm -rf bin job.out found && mkdir -p bin"])
    if ours:
        (directory / "bin/sbatch").symlink_to(OURS)
    (directory / "job.pl").write_text(DUMP % line)
    (directory / "submit").write_text(BEFORE)
    said = box.run(["bash", "-c", "cd surroundings; bash submit"])
    job = Job(box, int(said.stdout), directory)
    assert job.end() == "COMPLETED", job.log
    assert sorted(job.log.splitlines()) == ["its error", "its output"]
    raw = (directory / "found").read_bytes()
    parts = re.split(rb"^== (\w+)\n", raw, flags=re.MULTILINE)[1:]
    sections = {parts[at].decode(): parts[at + 1] for at in range(0, len(parts), 2)}
    sections["environ"] = re.sub(OF_EACH_JOB, rb"\1=N", sections["environ"])
    sections["cgroup"] = sections["cgroup"].replace(b"job_%d" % job.id, b"job_N")
    lines = sections.pop("status").decode().splitlines()
    return sections | {each.partition(":")[0]: each.encode() for each in lines if each.startswith(OF_A_PROCESS)}


def variables(sections: dict[str, bytes]) -> dict[bytes, bytes]:
    """Return the environment by name."""
    return dict(each.split(b"=", 1) for each in sections["environ"].rstrip(b"\n").split(b"\0") if each)  # type: ignore[misc]


def different(one: Mapping[Any, object], other: Mapping[Any, object]) -> dict[Any, tuple[object, object]]:
    """Return the names with different values, and both values."""
    return {name: (one.get(name), other.get(name)) for name in {*one, *other} if one.get(name) != other.get(name)}


@pytest.mark.full  # over 5 s
def test_the_same_surroundings(cluster: Sandbox) -> None:
    """Plain and through our sbatch: equal to the last byte. With features but no mode: only the table's differences."""
    directory = workdir(cluster, "surroundings")
    plain = found(cluster, directory, "", ours=False)
    told = variables(plain)
    assert told[b"BASH_FUNC_module%%"] == b"""() {  echo "it's $1"\n}"""
    assert (told[b"a.b"], told[b"c-d"], told[b"BYTES"], told[b"EMPTY"]) == (b"1", b"x\ny", b"\xff\xfe", b"")
    wrapped = found(cluster, directory, "", ours=True)
    assert different(variables(wrapped), told) == {}
    assert wrapped == plain
    features = found(cluster, directory, "#PLUGIN retries=1", ours=True)
    theirs = variables(features)
    assert different({name: theirs.get(name) for name in told}, told) == {}
    assert theirs.keys() - told.keys() == ADDED
    assert all(words in TABLE.read_text() for words in TOLD)
    assert [name for name in theirs if name in told] == [*told]  # in the same order
    assert different({**features, "environ": plain["environ"]}, plain) == {}


SUBMIT = r"""
module() { echo "it's $1"; }; export -f module
exec env a.b=1 'c-d=x
y' $'BYTES=\xff' slurm-plugin submit --json job.json
"""
SHOW = r"print map { qq([$_=$ENV{$_}]\n) } sort grep { /module|a\.b|c-d|BYTES/ } keys %ENV;" + "\n"


@pytest.mark.full  # over 5 s
@pytest.mark.parametrize("mode", ["single", "pytorch"])
def test_submit_hands_on_what_a_shell_would_lose(cluster: Sandbox, mode: str) -> None:
    """An exported function, and variables whose names a shell does not accept, reach the program of a spec."""
    directory = workdir(cluster, f"submit-function-{mode}")
    (directory / "show.pl").write_text(SHOW)
    spec = {"name": "function", "mode": mode, "nodes": 1, "output": "job.out", "command": "/usr/bin/perl show.pl"}
    (directory / "job.json").write_text(json.dumps(spec | ({"launch": "task"} if mode == "pytorch" else {})))
    said = cluster.run(["bash", "-c", f"cd {directory.name}; {SUBMIT}"])
    job = Job(cluster, json.loads(said.stdout)["job"], directory)
    assert job.end() == "COMPLETED", job.log
    printed = (directory / "job.out").read_bytes()
    for wanted in (b"""[BASH_FUNC_module%%=() {  echo "it's $1"\n}]\n""", b"[BYTES=\xff]\n", b"[a.b=1]\n[c-d=x\ny]\n"):
        assert wanted in printed, job.log
