"""The hooks on a real Slurm: they give users nothing, and treat users' strings as text."""

from collections.abc import Iterable

import pytest

from slurm_plugin.records import grant
from slurm_plugin.sandbox import Sandbox
from slurm_plugin.sandbox.machine import inside
from tests.cluster.jobs import Job, reasons, submit, workdir
from tests.cluster.partition import together
from tests.cluster.plain import sbatch
from tests.waiting import until

pytestmark = pytest.mark.cluster

WAIT = "bash -c 'echo runs; until [ -e done ]; do sleep 0.1; done'"
# The first attempt runs until its node has lost its last GPU, then fails. The next attempt succeeds.
USE_GPU = """bash -c 'echo runs $SLURM_PLUGIN_ATTEMPT; [ $SLURM_PLUGIN_ATTEMPT = 1 ] && exit 0; \
for i in $(seq 6000); do [ -c /dev/fakegpu3 ] || exit 5; sleep 0.1; done'"""


def test_a_runs_directory_is_roots_and_its_users_alone(cluster: Sandbox) -> None:
    """The job's user can read root's report but not change it. Others see nothing. The epilog removes the directory."""
    job = submit(cluster, "private", command=WAIT, retries=1)
    job.until(lambda: "runs" in job.log, "the program")
    run = f"/run/slurm_plugin/jobs/{job.id}.0.0"

    def said(user: str, command: str) -> tuple[int, str]:
        done = cluster.run(["sh", "-c", f"cd / && {command}"], user=user, node="n2", check=False)
        return done.returncode, done.stdout

    paths = f"{run} {run}/report.json {run}/context.json {run}/user {run}/user/task.sh"
    owners = ["750 root alice", "640 root alice", "640 root alice", "700 alice alice", "600 alice alice"]
    assert said("root", f"stat -c '%a %U %G' {paths}")[1].splitlines() == owners
    code, report = said("alice", f"cat {run}/report.json")
    assert (code, f'"job":{job.id}' in report.replace(" ", "")) == (0, True)
    for command in (
        f"echo >> {run}/report.json",
        f"rm -f {run}/report.json",
        f"touch {run}/x",
        f"mv {run}/user {run}/y",
    ):
        assert said("alice", command)[0] != 0, command
    for command in (f"cat {run}/report.json", f"ls {run}", f"ls {run}/user", f"cat {run}/user/task.sh"):
        assert said("bob", command) in ((1, ""), (2, "")), command
    assert said("root", f"cat {run}/report.json") == (0, report)
    (job.directory / "done").touch()
    assert job.end() == "COMPLETED"
    assert said("root", f"ls -d {run} /run/slurm_plugin/jobs/{job.id}.*")[1] == ""


FILL = """cd "/run/slurm_plugin/jobs/$SLURM_JOB_ID.0.0/user" || exit 1
head -c 64M /dev/zero >big 2>/dev/null; stat -c %s big; rm big
i=0; while true >"$i"; do i=$((i+1)); [ $i -lt 1000 ] || break; done 2>/dev/null; echo "$i"; rm -f ./[0-9]*
sleep 9000 & cd - >/dev/null; echo $! >sleeps; touch ready; until [ -e done ]; do sleep 0.1; done
"""


def test_a_user_cannot_fill_the_run_directory(cluster: Sandbox) -> None:
    """The user's part is a small file system: every step sees it, and it is removed with the job."""
    job = sbatch(cluster, "fills-run", "--nodelist=n1", "--comment=[sp1;retries=1]", script=FILL)
    job.until((job.directory / "ready").exists, "the full file system")
    user = f"/run/slurm_plugin/jobs/{job.id}.0.0/user"
    seen = ["stat", "-c", "%U %m", user]
    step = ["srun", f"--jobid={job.id}", "--overlap", *seen]
    assert cluster.run(step).stdout == cluster.run(seen, "root", "n1").stdout == f"alice {user}\n"
    (job.directory / "done").touch()
    assert job.end() == "COMPLETED"
    size, files = map(int, job.log.split())
    assert size == 4 << 20
    assert 100 < files < 1000
    until(lambda: cluster.states()["n1"] == "idle")
    assert user not in cluster.run(["cat", "/proc/self/mountinfo"], "root", "n1").stdout
    assert f"{job.id}." not in cluster.run(["ls", "/run/slurm_plugin/jobs"], "root", "n1").stdout
    cluster.run(["kill", (job.directory / "sleeps").read_text().strip()], "root", "n1")


HOSTILE = {
    "substitution": "$(touch /tmp/executed)`touch /tmp/executed`",
    "quotes": "'; touch /tmp/executed; \"; touch /tmp/executed; '",
    "newline": 'x\ntouch /tmp/executed\nJobId=1 AdminComment=sp1:{"granted":99}\n',
    "unicode": "ünïcödé ✓ \u202e $IFS ${HOME} %j %% \\ \x7f",
    "options": "--help -rf / * ? [a] {a,b} ~ & | < > ( ) ! #",
}


def hostile(box: Sandbox, text: str) -> Job:
    """Submit a job of one node with this text in all places that its user controls."""
    # Slurm's patterns (% and a backslash) in a directory's name change the place of the output, which is correct.
    directory = workdir(box, text.translate(str.maketrans("/%\\", "---"))[:60])
    words = ["--gres=gpu:4", f"--job-name={text}", f"--comment={text} [sp1;retries=1] {text}", "--output=job.out"]
    script = '#!/bin/bash\necho "ran in $PWD"\n'
    said = box.run(["sbatch", "--parsable", *words, f"--chdir=/home/alice/{directory.name}"], input=script)
    return Job(box, int(said.stdout), directory)


def granted(job: Job) -> grant.Grant | None:
    """Wait for the grant of a job whose comment may contain newlines, and return it."""
    words = ["squeue", "-h", "-t", "all", "-j", str(job.id), "-O", "admin_comment:999"]
    given = grant.parse(job.box.run(words).stdout.strip())
    return given if given and given.requeues else None


def over(box: Sandbox, jobs: Iterable[Job]) -> bool:
    """Resume drained nodes: Slurm may drain a node again at a prolog's end. Return whether all jobs have ended."""
    for node in reasons(box):
        box.run(["scontrol", "update", f"nodename={node}", "state=resume"], user="root", check=False)
    return all(job.state in ("COMPLETED", "FAILED", "CANCELLED") for job in jobs)


def test_what_users_write_is_never_executed(cluster: Sandbox) -> None:
    """Jobs with hostile names, comments and directories are checked, restarted and counted like any other."""
    for number in range(len(HOSTILE)):
        cluster.break_node(f"n{number + 1}", "gpu-missing")
    with together(cluster):
        jobs = {what: hostile(cluster, text) for what, text in HOSTILE.items()}
    until(lambda: len(reasons(cluster)) == len(jobs) and all(granted(job) for job in jobs.values()), "all restarts")
    first = {number: node for node, why in reasons(cluster).items() for number in [why.rpartition("[job ")[2][:-1]]}
    for node in first.values():
        cluster.heal_node(node)
    until(lambda: over(cluster, jobs.values()), lambda: f"their ends: {[job.show('T', 'r') for job in jobs.values()]}")
    for what, job in jobs.items():
        assert (job.state, job.log) == ("COMPLETED", f"ran in /home/alice/{job.directory.name}\n"), what
        given = granted(job)
        assert given
        assert (given.granted, given.requeues, given.excluded) == (1, 1, (first[str(job.id)],)), what
        assert job.nodes != {first[str(job.id)]}, what
    for row in cluster.status().machines:
        assert row.pid
        assert not inside(row.pid, "/tmp/executed").exists()


def test_users_cannot_write_a_grant(cluster: Sandbox) -> None:
    """Slurm refuses a user's admin_comment, and editing the comment after submission raises no grant."""
    job = submit(cluster, "greedy", command=USE_GPU, retries=0)
    job.until(lambda: job.log.count("runs 0") == 2, "the program")
    before = job.grant
    more = 'AdminComment=sp1:{"granted":99}'
    refused = cluster.run(["scontrol", "update", f"JobId={job.id}", more], check=False)
    assert (refused.returncode, job.grant) == (1, before)
    cluster.run(["scontrol", "update", f"JobId={job.id}", "Comment=[sp1;retries=99;ib=auto]"])
    assert job.grant == before
    assert before.granted == 0
    cluster.break_node("n2", "gpu-missing")
    assert (job.end(), job.exit_code, job.grant.requeues) == ("FAILED", "5:0", 0)
