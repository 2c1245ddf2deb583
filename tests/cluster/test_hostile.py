"""What a job's user, or a node that somebody prepared, puts in the way of root's hooks: nothing outside is touched, no
node is drained, and the job runs."""

from collections.abc import Callable, Iterator

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.token import MAX_COMMENT_BYTES
from tests.cluster.command import until
from tests.cluster.jobs import Job, reasons, submit, workdir
from tests.cluster.syslog import Syslog

pytestmark = pytest.mark.cluster

SAY = "bash -c 'echo ran on $(hostname)'"
JOBS = "/run/slurm_plugin/jobs"
ASKS = "[sp1;retries=1]"
FILL = "'\"`$(touch /tmp/executed)\n../;|&\\*"


def root(box: Sandbox, script: str, node: str = "n2") -> str:
    """What root's shell on a node says to a script."""
    return box.run(["sh", "-euc", f"cd /\n{script}"], user="root", node=node).stdout


@pytest.fixture
def victim(cluster: Sandbox) -> Iterator[Callable[[], str]]:
    """Files of root's and bob's on n2 and n1: all that shows whether somebody had a hand in them."""
    nodes = ("n1", "n2")
    look = "find /tmp/victim -printf '%p %u %g %m %s %T@ %C@ %l\\n' | sort; ls -d /tmp/executed* || :"
    for node in nodes:
        root(
            cluster,
            "umask 022; mkdir -p /tmp/victim/bob; echo whole >/tmp/victim/file; echo mine >/tmp/victim/bob/file;"
            "chown -R bob: /tmp/victim/bob; chmod 700 /tmp/victim/bob",
            node,
        )
    yield lambda: "".join(root(cluster, look, node) for node in nodes)
    for node in nodes:
        root(cluster, f"rm -rf /tmp/victim /tmp/executed* {JOBS}", node)


def next_job(box: Sandbox) -> int:
    """The id that Slurm gives to the next job."""
    lines = box.run(["scontrol", "show", "config"]).stdout.splitlines()
    return int(next(line.split("=")[1] for line in lines if line.startswith("NEXT_JOB_ID")))


NOT_ROOTS, NO_DIRECTORY = "PermissionError: {run}: not owned by root all the way; remove it", "NotADirectoryError: "
RUN = f"{JOBS}/ID.0.0"
# What stands on n2 before the job's prolog -> what the system log says of it; nothing where the prolog goes on.
PLANTED = {
    "the directory of all jobs is alice's": (f"mkdir -p {JOBS}; chown alice: {JOBS}", NOT_ROOTS),
    "a link in its place": (f"rm -rf {JOBS}; ln -s /tmp/victim {JOBS}", NO_DIRECTORY),
    "the run's directory is alice's": (
        f"mkdir -p {RUN}/user; cd {RUN}; mkfifo context.json; echo '{{}}' >report.json; chown -R alice: .",
        NOT_ROOTS,
    ),
    "a file of alice's in its place": (f"mkdir -p {JOBS}; echo >{RUN}; chown alice: {RUN}", NO_DIRECTORY),
    "a link to another user's in its place": (f"mkdir -p {JOBS}; ln -s /tmp/victim/bob {RUN}", NO_DIRECTORY),
    "links in the places of root's files": (
        f"mkdir -p {RUN}; cd {RUN}; for name in report.json context.json; do ln -s /tmp/victim/file $name; done",
        "",
    ),
    "a link in the place of alice's part": (f"mkdir -p {RUN}; ln -s /tmp/victim/bob {RUN}/user", ""),
}


@pytest.mark.parametrize("what", PLANTED)
def test_what_stands_in_the_place_of_ours(cluster: Sandbox, victim: Callable[[], str], what: str) -> None:
    """It is refused or replaced, never followed, nor read by the epilog; the job runs, here or without this node."""
    plant, said = PLANTED[what]
    log, before = Syslog(cluster), victim()
    expected = next_job(cluster)
    root(cluster, plant.replace("ID", str(expected)))
    job = submit(cluster, f"planted-{[*PLANTED].index(what)}", command=SAY, retries=1)
    assert job.id == expected
    assert job.end() == "COMPLETED", job.log
    elsewhere = "alice's part" in what  # where its file for TaskProlog cannot be written
    assert ("n2" in job.nodes, job.grant.requeues, reasons(cluster)) == (not elsewhere, int(elsewhere), {})
    until(lambda: set(cluster.states().values()) == {"idle"}, 30)
    assert victim() == before
    assert said.format(run=f"{JOBS}/{job.id}.0.0") in log.of("n2")
    for words in ("the prolog hook: ", "the prolog hook itself failed (exit 1)"):
        assert (words in log.of("n2")) == bool(said)
    assert "hook itself failed" not in log.of("n1")


PLANT = """\
cd /run/slurm_plugin/jobs/$SLURM_JOB_ID.0.0/user || exit 1
rm -f task.sh
ln -s /tmp/victim/file task.sh
ln -s /tmp/victim all
ln -s / everything
mkfifo pipe
mkdir -m 0 closed
touch -- -rf '$(touch /tmp/executed.1)' '`touch /tmp/executed.2`' $'\\n/tmp/victim\\n' '*' ' ' "'" '"'
(for i in $(seq 300); do mkdir d && cd d; done; touch deep)
rm -rf ../report.json ../context.json .. 2>/dev/null
mv ../../$SLURM_JOB_ID.0.0 ../../x 2>/dev/null
echo planted $(ls -A | wc -l)
"""


def test_what_a_user_leaves_in_its_own_place(cluster: Sandbox, victim: Callable[[], str]) -> None:
    """Root's epilog removes it all, and nothing that it leads to."""
    before = victim()
    (workdir(cluster, "planter") / "plant.sh").write_text(PLANT)
    (cluster.home("alice") / "planter" / "plant.sh").chmod(0o644)
    job = submit(cluster, "plants", mode="openmpi", command="bash /home/alice/planter/plant.sh", retries=1)
    assert job.end() == "COMPLETED", job.log
    assert job.log.count("planted ") >= 2, job.log
    until(lambda: set(cluster.states().values()) == {"idle"}, 30)
    for node in ("n1", "n2"):
        assert root(cluster, f"ls -A {JOBS}", node) == ""
    assert (victim(), reasons(cluster)) == (before, {})


def sbatch(box: Sandbox, name: str, comment: str, *more: str) -> Job:
    """A plain job of alice's over two nodes with this comment."""
    directory = workdir(box, name)
    words = ["sbatch", "--parsable", "--nodes=2", "--gres=gpu:4", "--output=job.out", f"--comment={comment}"]
    where = f"--chdir=/home/alice/{name}"
    said = box.run([*words, where, *more], input='#!/bin/bash\necho "ran in $PWD"\n')
    return Job(box, int(said.stdout), directory)


def filled(token: str, before: int) -> str:
    """A comment as long as Slurm takes one, of `before` bytes that ask for trouble, the token, and more of them."""
    text = FILL * (MAX_COMMENT_BYTES // len(FILL) + 1)
    return text[:before] + token + text[: MAX_COMMENT_BYTES - before - len(token)]


@pytest.mark.parametrize("before", [0, 500, MAX_COMMENT_BYTES - len(ASKS)])
def test_the_longest_comment(cluster: Sandbox, victim: Callable[[], str], before: int) -> None:
    """Its token counts wherever it stands: the node is checked and taken out, and the job runs on others."""
    untouched = victim()
    cluster.break_node("n1", "gpu-missing")
    comment = filled(ASKS, before)
    assert len(comment.encode()) == MAX_COMMENT_BYTES
    job = sbatch(cluster, f"longest-{before}", comment, "--job-name=../../../../tmp/victim/file")
    assert job.end() == "COMPLETED", job.log
    assert job.log == f"ran in /home/alice/longest-{before}\n"
    assert reasons(cluster) == {"n1": f"slurm_plugin: gpu-check: 3 of 4 GPUs [job {job.id}]"}
    assert "n1" not in job.nodes
    assert victim() == untouched


NO_TOKENS = {
    "two": f"{ASKS} {ASKS}",
    "a command": "[sp1;retries=$(touch /tmp/executed)]",
    "a path": "[sp1;retries=1;ib=../../tmp/victim]",
    "a large number": "[sp1;retries=999999999999]",
    "no end": "[sp1;retries=1".ljust(MAX_COMMENT_BYTES, ";"),
    "too long": f"[sp1;retries=1;a={'x' * 200}]",
    "a line break": "[sp1;retries=\n1]",
    "other digits": "[sp1;retries=\u0661]",
}


@pytest.mark.parametrize("what", NO_TOKENS)
def test_a_token_that_is_none(cluster: Sandbox, victim: Callable[[], str], what: str) -> None:
    """It asks for nothing: the system log says so without its words, no node is checked, and the job runs."""
    untouched, log = victim(), Syslog(cluster)
    cluster.break_node("n1", "gpu-missing")
    job = sbatch(cluster, f"none-{what.replace(' ', '-')}", NO_TOKENS[what])
    assert job.end() == "COMPLETED", job.log
    assert (job.nodes, reasons(cluster)) == ({"n1", "n2"}, {})
    until(lambda: set(cluster.states().values()) == {"idle"}, 30)
    for node in ("n1", "n2"):
        assert f"job {job.id}: its comment holds no token that can be read\n" in log.of(node)
        assert "failed" not in log.of(node)
        assert "touch" not in log.of(node)
        assert root(cluster, f"ls -A {JOBS}", node) == ""
    assert victim() == untouched


@pytest.mark.parametrize("name", ["a/../../../tmp/victim", "x/./..//../alice/paths-2"])
def test_a_path_that_leads_elsewhere(cluster: Sandbox, victim: Callable[[], str], name: str) -> None:
    """A job's directory is the user's own affair: no hook of root's writes there."""
    untouched, log = victim(), Syslog(cluster)
    workdir(cluster, f"paths-{len(name)}")
    done = cluster.run(
        ["sbatch", "--wait", "--nodes=2", f"--comment={ASKS}", f"--chdir=/home/alice/{name}", "--output=/dev/null"],
        input="#!/bin/sh\nexit 0\n",
        check=False,
    )
    assert done.returncode in (0, 1)  # slurmd runs it in /tmp, or not at all
    until(lambda: set(cluster.states().values()) == {"idle"}, 30)
    assert (victim(), reasons(cluster)) == (untouched, {})
    assert "hook itself failed" not in log.of("n1") + log.of("n2")
