"""The commands of Slurm that slurm_plugin runs, and their answers."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.slurm import Node, Slurm, SlurmDeniedError, SlurmError, Submitted
from slurm_plugin.slurm.parse import form
from tests.refusals import refusal_of
from tests.unit.slurm.fake_commands import Bin, record
from tests.unit.slurm.test_records_scontrol import NODE, OURS, SETTINGS, SHOWN

N1 = Node("n1", frozenset({"IDLE"}), "", partitions=("all", "long"), gres=("gpu:4",))

CAPTURED = Path(__file__).parents[2] / "captured"
CALLS: dict[str, tuple[Callable[[Slurm], object], list[str]]] = {
    "update_job": (
        lambda door: door.update_job(7, Comment="a 'b' $(c)\nd", ExcNodeList=""),
        ["scontrol", "update", "JobId=7", "Comment=a 'b' $(c)\nd", "ExcNodeList="],
    ),
    "requeue": (lambda door: door.requeue(7), ["scontrol", "requeue", "7"]),
    "hold": (lambda door: door.hold(7), ["scontrol", "hold", "7"]),
    "release": (lambda door: door.release(7), ["scontrol", "release", "7"]),
    "drain": (
        lambda door: door.drain("n1", OURS),
        ["scontrol", "update", "NodeName=n1", "State=DRAIN", f"Reason={OURS}"],
    ),
    "resume": (lambda door: door.resume("n1"), ["scontrol", "update", "NodeName=n1", "State=RESUME"]),
    "nodes": (lambda door: door.nodes(["n1", "n2"]), ["scontrol", "show", "node", "n[1-2]"]),
    "reservations": (
        lambda door: door.reservations(),
        ["scontrol", "--oneliner", "show", "reservation"],
    ),
    "all nodes": (lambda door: door.nodes([]), ["scontrol", "show", "node"]),
    "config": (lambda door: door.config(), ["scontrol", "show", "config"]),
    "ping": (lambda door: door.ping(), ["scontrol", "ping"]),
    "cancel": (lambda door: door.cancel(7), ["scancel", "7"]),
    "notify": (lambda door: door.notify(7, "a 'b'"), ["scontrol", "notify", "7", "a 'b'"]),
    "signal to the steps": (lambda door: door.signal(7, "USR1"), ["scancel", "--signal=USR1", "7"]),
    "signal to the script": (
        lambda door: door.signal(7, "USR1", "batch"),
        ["scancel", "--signal=USR1", "--batch", "7"],
    ),
    "signal to all": (lambda door: door.signal(7, "TERM", "all"), ["scancel", "--signal=TERM", "--full", "7"]),
}


SBATCH = """\
case "$*" in
  --help) cat {help} ;;
  --hint) echo "sbatch: option '--hint' requires an argument" >&2; exit 255 ;;
  --known) echo "sbatch: error: Batch script is empty!" >&2; exit 1 ;;
  *) echo "sbatch: unrecognized option '$*'" >&2; exit 255 ;;
esac
echo "$*" >>{asked}"""


def test_flags_of_sbatch(commands: Bin) -> None:
    """Flags come from the help and from a trial; a prefix of a flag, or a word that is no name, is none."""
    asked = commands.directory / "asked"
    commands.script("sbatch", SBATCH.format(help=CAPTURED / "sbatch-help-22.05.txt", asked=asked))
    found = commands.door().sbatch_flags(["hint", "known", "nosuch", "swit", "switches", "-x", "a b"])
    assert {name: found.get(name) for name in ("hint", "known", "switches", "contiguous")} == {
        "hint": "value",
        "known": "optional",
        "switches": "value",
        "contiguous": "none",
    }
    assert not {"nosuch", "swit", "-x", "a b"} & set(found)
    assert asked.read_text() == "--help\n"


def test_call(commands: Bin) -> None:
    """A change is one command without a shell; each text is one argument, and stdin is empty."""
    for name, (call, argv) in CALLS.items():
        commands.recorded(argv[0])
        call(commands.door())
        assert commands.argv() == argv[1:], name
        assert commands.read("stdin") == "", name
        assert commands.read("pwd") == f"{Path.cwd()}\n", name


BANNER = "-----\n  Welcome to Example3\n--> Verifying valid jobname...OK\n"


def test_submit(commands: Bin) -> None:
    """The script goes to stdin, and the job comes back: the last whole line that names one."""
    script = "#!/bin/bash\necho 'größer'\r\n"
    for answer, job in (
        ("12\n", Submitted(12)),
        ("12;beta\n", Submitted(12, "beta")),
        (f"{BANNER}12\n", Submitted(12)),
        (f"{BANNER}7\n12;beta\r\nGoodbye, 3 jobs left\n", Submitted(12, "beta")),
        (f"{BANNER}Submitted batch job 12\nbye", Submitted(12)),
        ("Submitted batch job 12 on cluster beta\n", Submitted(12, "beta")),
    ):
        commands.recorded("sbatch", answer, "sbatch: warning: can't run 1 processes on 2 nodes\n")
        assert commands.door().submit(script, arguments=["--hold", "--comment=a b"], directory="/usr") == job, answer
        assert commands.argv() == ["--parsable", "--hold", "--comment=a b"]
        assert (commands.directory / "stdin").read_bytes() == script.encode()
        assert commands.read("pwd") == "/usr\n"


def test_submit_without_a_whole_number(commands: Bin) -> None:
    """An answer without a whole line with a job id is an error that says how to find the job."""
    for answer in ("Submitted", "", "\n", "1", "12", "12;clus", "x12\n", "-12\n", "12;\n", BANNER):
        commands.recorded("sbatch", answer)
        words = f"sbatch answered {answer.strip()!r} in place of a job id\n  look for the job with: squeue --me"
        assert refusal_of(SlurmError, commands.door().submit, "") == words


# sbatch records the number of its session, and ends as a site's program in front of it may end.
LOST = 'cat >/dev/null; cut -d" " -f6 /proc/$$/stat >{at}/session; echo 1 is nothing; {then}'
# A job of an earlier process with this number, a heterogeneous job of this one, and a later job of another one.
SESSION_JOBS = """now=$(date -u +%Y-%m-%dT%H:%M:%S); own=$(cat {at}/session)
echo "5|$own|2024-05-01T09:00:00"; echo "9|$own|$now"; echo "8|$own|$now"; echo "10|1|$now"; echo cut; echo "7|$own|N/A"
echo "$SQUEUE_FORMAT2 $*" >{at}/asked"""


def test_submit_finds_a_job_that_sbatch_does_not_name(commands: Bin, capsys: pytest.CaptureFixture[str]) -> None:
    """By the session of the command, whether sbatch failed or printed no id. Without a job it is an error."""
    at = commands.directory
    for then, words in (
        ("exit 0", "sbatch answered '1 is nothing' in place of a job id"),
        ("echo 8; exit 3", "could not submit the job: sbatch said: 1 is nothing"),
    ):
        commands.script("sbatch", LOST.format(at=at, then=then))
        commands.script("squeue", SESSION_JOBS.format(at=at))
        assert commands.door().submit("") == Submitted(8), then
        assert (at / "asked").read_text() == "ArrayJobID:0|,AllocSID:0|,SubmitTime:0 --noheader --me\n"
        assert capsys.readouterr().err == f"slurm_plugin: job 8 was submitted, although {words}\n"
        commands.script("squeue", "exit 0")
        with pytest.raises(SlurmError, match=re.escape(words)):
            commands.door().submit("")


def test_submit_with_several_numbers_in_the_answer(commands: Bin) -> None:
    """The one that this session has submitted is the job; the last one if Slurm knows none of them."""
    commands.script("sbatch", LOST.format(at=commands.directory, then='echo 8; echo "hours left:"; echo 1200'))
    commands.script("squeue", SESSION_JOBS.format(at=commands.directory))
    assert commands.door().submit("") == Submitted(8)
    commands.script("squeue", "exit 1")
    assert commands.door().submit("") == Submitted(1200)


def test_another_cluster(commands: Bin) -> None:
    """Each request about it names it; sbatch and the commands about this cluster do not."""
    for name, (call, argv) in CALLS.items():
        commands.recorded(argv[0])
        call(commands.door().on("beta"))
        assert commands.argv() == ["--clusters=beta", *argv[1:]], name
        call(commands.door().on("beta").on(""))
        assert commands.argv() == argv[1:], name
    commands.squeue([record()])
    assert commands.door().on("beta").job(7).id == 7
    assert commands.asked()[0].argv[0] == "--clusters=beta"
    commands.recorded("sbatch", "12\n")
    commands.door().on("beta").submit("")
    assert commands.argv() == ["--parsable"]


def test_nodes(commands: Bin) -> None:
    """Parsed as in test_records_scontrol.py."""
    commands.recorded("scontrol", NODE.format(state="IDLE", reason=""))
    assert commands.door().nodes(["n1"]) == {"n1": N1}


def test_nodes_of_which_slurm_does_not_know_one(commands: Bin) -> None:
    """An unknown node is absent, and hides no other, although scontrol refuses the whole list (22.05 to 26.05)."""
    there = NODE.format(state="IDLE", reason="")
    commands.script(
        "scontrol",
        f"""case "$*" in *n9*) printf 'Node n9 not found\n'; exit 1 ;; esac\ncat <<'END'\n{there}END""",
    )
    door = commands.door()
    expected = {"n1": N1}
    assert door.nodes(["n1", "n9"]) == expected
    assert door.nodes(["n1", "no name"]) == expected
    assert door.nodes(["n9"]) == door.nodes(["no name"]) == {}
    commands.script("scontrol", "echo 'slurm_load_node: refused' >&2; exit 1")
    with pytest.raises(SlurmError, match="refused"):
        door.nodes(["n1"])


def test_settings(commands: Bin) -> None:
    """As records.py reads them; the release is one of them, and nowhere else."""
    commands.recorded("scontrol", SHOWN)
    door = commands.door()
    assert door.config() == SETTINGS
    assert refusal_of(SlurmError, door.version) == (
        "could not read slurmctld's settings: scontrol said: no SLURM_VERSION\n  try: scontrol show config"
    )
    commands.recorded("scontrol", f"{SHOWN}SLURM_VERSION           = 24.11.5\n")
    assert door.version() == "24.11.5"


def test_ping(commands: Bin) -> None:
    """One controller that answers is enough; no answer is no error."""
    for script, up in (
        ("echo 'Slurmctld(primary) at ctl is UP'", True),
        ("echo 'Slurmctld(primary) at a is DOWN'; echo 'Slurmctld(backup) at b is UP'", True),
        ("echo 'Slurmctld(primary) at ctl is DOWN'", False),
        ("echo 'Slurmctld(primary) at ctl is DOWN'; exit 1", False),
    ):
        commands.script("scontrol", script)
        assert commands.door().ping() is up, script
    commands.script("scontrol", "exec sleep 3600")
    assert commands.door(0.2).ping() is False


PRIVATE, SEE = "this site does not show", "to users (PrivateData in slurm.conf); an administrator sees them"
REFUSED: dict[str, tuple[Callable[[Slurm], object], str, str, str]] = {
    "submit": (
        lambda door: door.submit(""), "submit the job", "sbatch", "try the same script with: sbatch --test-only"
    ),
    "jobs": (lambda door: door.jobs([7]), "read the jobs", "squeue", "try: squeue --all"),
    "job": (lambda door: door.job(7), "read the jobs", "squeue", "try: squeue --all"),
    "jobs_of": (lambda door: door.jobs_of(20001, "n1"), "read the jobs", "squeue", "try: squeue --all"),
    "nodes": (lambda door: door.nodes(["n1"]), "read the nodes", "scontrol", f"{PRIVATE} nodes {SEE}"),
    "reservations": (
        lambda door: door.reservations(), "read the reservations", "scontrol", f"{PRIVATE} reservations {SEE}"
    ),
    "update_job": (
        lambda door: door.update_job(7, Comment="x", Nice="1"),
        "update job 7 (Comment, Nice)", "scontrol", "see it with: scontrol show job 7",
    ),
    "requeue": (lambda door: door.requeue(7), "requeue job 7", "scontrol", "see it with: scontrol show job 7"),
    "hold": (lambda door: door.hold(7), "hold job 7", "scontrol", "see it with: scontrol show job 7"),
    "release": (lambda door: door.release(7), "release job 7", "scontrol", "see it with: scontrol show job 7"),
    "signal": (
        lambda door: door.signal(7, "USR1"), "send USR1 to job 7", "scancel", "see it with: scontrol show job 7"
    ),
    "cancel": (lambda door: door.cancel(7), "cancel job 7", "scancel", "see it with: scontrol show job 7"),
    "drain": (lambda door: door.drain("n1", "x"), "drain node n1", "scontrol", "see it with: scontrol show node n1"),
    "resume": (lambda door: door.resume("n1"), "resume node n1", "scontrol", "see it with: scontrol show node n1"),
    "config": (lambda door: door.config(), "read slurmctld's settings", "scontrol", "try: scontrol show config"),
}  # fmt: skip


def test_refusal(commands: Bin) -> None:
    """An error has the purpose, Slurm's words and the next command."""
    for call, asked, program, hint in REFUSED.values():
        commands.script(program, "echo Access/permission denied >&2; exit 1")
        with pytest.raises(SlurmError) as caught:
            call(commands.door())
        assert str(caught.value) == f"could not {asked}: {program} said: Access/permission denied\n  {hint}"
        assert isinstance(caught.value, SlurmDeniedError)


def test_refusal_on_stdout(commands: Bin) -> None:
    """scontrol writes some errors to stdout."""
    commands.recorded("scontrol", "No nodes in the system\n", "", 1)
    with pytest.raises(SlurmError, match="could not read the nodes: scontrol said: No nodes in the system"):
        commands.door().nodes(["n9"])


def test_silent_refusal(commands: Bin) -> None:
    """Without output the error has the exit code."""
    commands.script("scontrol", "exit 4")
    with pytest.raises(SlurmError, match="scontrol said: exit code 4, no message"):
        commands.door().requeue(7)


def test_words_of_the_question_for_jobs(commands: Bin) -> None:
    """One question asks for all jobs in any state and partition, with whole fields."""
    commands.squeue([])
    commands.door().jobs([7, 9])
    (asked,) = commands.asked()
    assert asked.argv == ["--noheader", "--all", "--array", "--states=all", "--jobs=7,9"]
    assert asked.variable == "SQUEUE_FORMAT2"
    assert asked.form == form(asked.nonce)
