"""What a job's user, or a node that somebody prepared, puts in the way of root's hooks: nothing outside is touched, no
node is drained, and the job runs."""

from collections.abc import Callable, Iterator

import pytest

from slurm_plugin.records.token import MAX_COMMENT_BYTES
from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job, reasons, submit, workdir
from tests.cluster.partition import together
from tests.cluster.syslog import Syslog
from tests.waiting import until

pytestmark = pytest.mark.cluster

SAY = "bash -c 'echo ran on $(hostname)'"
JOBS = "/run/slurm_plugin/jobs"
ASKS = "[sp1;retries=1]"
FILL = "'\"`$(touch /tmp/executed)\n../;|&\\*"


def root(box: Sandbox, script: str, node: str = "n2") -> str:
    """Run a script in root's shell on a node, and return its output."""
    return box.run(["sh", "-euc", f"cd /\n{script}"], user="root", node=node).stdout


@pytest.fixture
def victim(cluster: Sandbox) -> Iterator[Callable[[], str]]:
    """Make files of root's and bob's on n2 and n1. Return everything that would show a change of them."""
    nodes = ("n1", "n2")
    look = "find /tmp/victim -printf '%p %u %g %m %s %T@ %C@ %l\\n' | sort; ls -d /tmp/executed* || :"
    for node in nodes:
        root(
            cluster,
            # The hooks that a test broke have left directories.
            f"umount -l {JOBS}/*/user 2>/dev/null || :; rm -rf {JOBS}; umask 022; mkdir -p /tmp/victim/bob;"
            "echo whole >/tmp/victim/file; echo mine >/tmp/victim/bob/file;"
            "chown -R bob: /tmp/victim/bob; chmod 700 /tmp/victim/bob",
            node,
        )
    yield lambda: "".join(root(cluster, look, node) for node in nodes)
    for node in nodes:
        root(cluster, f"umount -l {JOBS}/*/user 2>/dev/null || :; rm -rf /tmp/victim /tmp/executed* {JOBS}", node)


def next_job(box: Sandbox) -> int:
    """Return the id that Slurm will give to the next job."""
    lines = box.run(["scontrol", "show", "config"]).stdout.splitlines()
    return int(next(line.split("=")[1] for line in lines if line.startswith("NEXT_JOB_ID")))


NOT_ROOTS, NO_DIRECTORY = (
    ": not owned by root; remove it",
    "cannot be made: [Errno 20] Not a directory",
)
RUN = f"{JOBS}/ID.0.0"
# What is on n2 before the job's prolog -> the message in the system log; empty if the prolog goes on.
PLANTED = {
    "the directory of all jobs is alice's": (f"mkdir -p {JOBS}; chown alice: {JOBS}", f"{JOBS}{NOT_ROOTS}"),
    "a link in its place": (f"rm -rf {JOBS}; ln -s /tmp/victim {JOBS}", NO_DIRECTORY),
    # Submitted before similar jobs: Slurm gives it the first nodes while they are idle.
    "a link in the place of alice's part": (f"mkdir -p {RUN}; ln -s /tmp/victim/bob {RUN}/user", ""),
    "the run's directory is alice's": (
        f"mkdir -p {RUN}/user; cd {RUN}; mkfifo context.json; echo '{{}}' >report.json; chown -R alice: .",
        f"{{run}}{NOT_ROOTS}",
    ),
    "a file of alice's in its place": (f"mkdir -p {JOBS}; echo >{RUN}; chown alice: {RUN}", NO_DIRECTORY),
    "a link to another user's in its place": (f"mkdir -p {JOBS}; ln -s /tmp/victim/bob {RUN}", NO_DIRECTORY),
    "links in the places of root's files": (
        f"mkdir -p {RUN}; cd {RUN}; for name in report.json context.json; do ln -s /tmp/victim/file $name; done",
        "",
    ),
}


# Those in a place that all jobs share need a separate node each. The others are planted once for each job.
APART = tuple(what for what, (plant, _) in PLANTED.items() if RUN not in plant)
TOGETHER = tuple(what for what in PLANTED if what not in APART)


@pytest.mark.full  # over 5 s
@pytest.mark.parametrize("those", [*((what,) for what in APART), TOGETHER], ids=[*APART, "in the run's place"])
def test_what_stands_in_the_place_of_ours(cluster: Sandbox, victim: Callable[[], str], those: tuple[str, ...]) -> None:
    """It is refused or replaced, never followed, nor read by the epilog. The job runs, on this node or without it."""
    log, before = Syslog(cluster), victim()
    expected = next_job(cluster)
    for number, what in enumerate(those, expected):
        root(cluster, PLANTED[what][0].replace("ID", str(number)))
    spec = {"command": SAY, "retries": 1, "accelerators": {}}
    jobs = {}
    with together(cluster):  # no other job's end may make a node unavailable
        for what in those:
            place = {} if "alice's part" in what else {"nodelist": "n[1-2]"}  # that job goes on without n2
            jobs[what] = submit(cluster, f"planted-{[*PLANTED].index(what)}", **spec, **place)
    assert [job.id for job in jobs.values()] == [*range(expected, expected + len(those))]
    for what, job in jobs.items():
        assert job.end() == "COMPLETED", (what, job.log)
        elsewhere = "alice's part" in what  # its file for TaskProlog cannot be written there
        assert ("n2" in job.nodes, job.grant.requeues, reasons(cluster)) == (not elsewhere, int(elsewhere), {}), what
    until(lambda: set(cluster.states().values()) == {"idle"})
    assert victim() == before
    for what, job in jobs.items():
        said = PLANTED[what][1]
        assert said.format(run=f"{JOBS}/{job.id}.0.0") in log.of("n2"), what
        assert (f"the directory of job {job.id} cannot be made: " in log.of("n2")) == bool(said), what
        assert f"the prolog hook itself failed (exit 1) on job {job.id};" not in log.of("n2"), what
    assert "cannot be made: " not in log.of("n1")


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


@pytest.mark.full  # 6 s
def test_what_a_user_leaves_in_its_own_place(cluster: Sandbox, victim: Callable[[], str]) -> None:
    """Root's epilog removes all of it, but nothing to which it leads."""
    before = victim()
    (workdir(cluster, "planter") / "plant.sh").write_text(PLANT)
    (cluster.home("alice") / "planter" / "plant.sh").chmod(0o644)
    job = submit(cluster, "plants", mode="openmpi", command="bash /home/alice/planter/plant.sh", retries=1)
    assert job.end() == "COMPLETED", job.log
    assert job.log.count("planted ") >= 2, job.log
    until(lambda: set(cluster.states().values()) == {"idle"})
    for node in ("n1", "n2"):
        assert root(cluster, f"ls -A {JOBS}", node) == ""
    assert (victim(), reasons(cluster)) == (before, {})


def sbatch(box: Sandbox, name: str, comment: str, *more: str) -> Job:
    """Submit a plain job of alice's with this comment."""
    directory = workdir(box, name)
    words = ["sbatch", "--parsable", "--output=job.out", f"--comment={comment}"]
    where = f"--chdir=/home/alice/{name}"
    said = box.run([*words, where, *more], input='#!/bin/bash\necho "ran in $PWD"\n')
    return Job(box, int(said.stdout), directory)


def filled(token: str, before: int) -> str:
    """Return a comment of the greatest length: `before` hostile bytes, the token, and more hostile bytes."""
    text = FILL * (MAX_COMMENT_BYTES // len(FILL) + 1)
    return text[:before] + token + text[: MAX_COMMENT_BYTES - before - len(token)]


@pytest.mark.full  # over 5 s
def test_the_longest_comment(cluster: Sandbox, victim: Callable[[], str]) -> None:
    """The token counts wherever it is: the node is checked and drained, and the job runs on another."""
    untouched, jobs = victim(), []
    for node in ("n1", "n2", "n3"):
        cluster.break_node(node, "gpu-missing")
    with together(cluster):
        for before in (0, 500, MAX_COMMENT_BYTES - len(ASKS)):
            comment = filled(ASKS, before)
            assert len(comment.encode()) == MAX_COMMENT_BYTES
            more = ("--nodes=1", "--gres=gpu:4", "--job-name=../../../../tmp/victim/file")
            jobs.append(sbatch(cluster, f"longest-{before}", comment, *more))
    found = {f"slurm_plugin: gpu-check: 3 of 4 GPUs [job {job.id}]" for job in jobs}
    for job in jobs:
        assert job.end() == "COMPLETED", job.log
        assert job.log == f"ran in /home/alice/{job.directory.name}\n"
        assert job.nodes <= {"n4", "n5"}
    assert set(reasons(cluster)) == {"n1", "n2", "n3"}
    assert set(reasons(cluster).values()) == found
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


def test_a_token_that_is_none(cluster: Sandbox, victim: Callable[[], str]) -> None:
    """It requests nothing: the system log reports it without its text, no node is checked, and the job runs."""
    untouched, log = victim(), Syslog(cluster)
    cluster.break_node("n1", "gpu-missing")
    jobs = {
        what: sbatch(cluster, f"none-{what.replace(' ', '-')}", comment, "--nodes=2", "--nodelist=n[1-2]")
        for what, comment in NO_TOKENS.items()
    }
    for what, job in jobs.items():
        assert job.end() == "COMPLETED", (what, job.log)
        assert job.nodes == {"n1", "n2"}, what
    assert reasons(cluster) == {}
    until(lambda: set(cluster.states().values()) == {"idle"})
    ours = {f"{job.id}.0.0" for job in jobs.values()}  # a test before may have left a run without an epilog
    for node in ("n1", "n2"):
        said = log.of(node)
        for what, job in jobs.items():
            assert f"job {job.id}: its comment contains no valid token\n" in said, what
        assert "failed" not in said
        assert "touch" not in said
        until(lambda node=node: not ours & set(root(cluster, f"ls -A {JOBS}", node).split()))  # type: ignore[misc]
    assert victim() == untouched


def test_a_path_that_leads_elsewhere(cluster: Sandbox, victim: Callable[[], str]) -> None:
    """A job's directory is the user's own affair: no hook of root's writes there."""
    untouched, log = victim(), Syslog(cluster)
    for name in ("a/../../../tmp/victim", "x/./..//../alice/paths"):
        words = ["sbatch", "--wait", "--nodes=2", f"--comment={ASKS}", "--output=/dev/null"]
        done = cluster.run([*words, f"--chdir=/home/alice/{name}"], input="#!/bin/sh\nexit 0\n", check=False)
        assert done.returncode in (0, 1), name  # slurmd runs the script in /tmp, or not at all
    until(lambda: set(cluster.states().values()) == {"idle"})
    assert (victim(), reasons(cluster)) == (untouched, {})
    assert "hook itself failed" not in log.of("n1") + log.of("n2")
