"""Mirrors slurm_plugin/records/features.py: the features of a script, which mean the same as in a job spec."""

from slurm_plugin.errors import UsageError
from slurm_plugin.launch import MODES
from slurm_plugin.records import features, job_plan
from slurm_plugin.records.features import KEYS, Features, read
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.spec import Spec, load
from slurm_plugin.submit.wrapper import recovery_options
from slurm_plugin.submit.wrapper.batch_script import Line

NUMBERS = ("0", "1", "128", "129", "1024", "1025", "65536", "65537", "-1", "1.5", "x", "00", "1000000")
TIMES = ("90s", "30m", "4h", "2d", "1:30:00", "1-0", "0", "never", "30x", "0s", "999999s", "1000000s", "12d")
VALUES = {
    "mode": (*MODES, "pytorh"),
    "retries": NUMBERS,
    "queue_timeout": TIMES,
    "unconditional": ("yes", "no", "true", "1"),
    "spares": NUMBERS,
    "min_nodes": NUMBERS,
    "grace": TIMES,
    "hang_timeout": TIMES,
    "hold_on_failure": (*TIMES, "yes", "no", "true", "on"),
    "infiniband": ("auto", "yes", "no", "true", "maybe"),
    "prechecks": ("fabric", "fabrik"),
    "progress": (
        r"step (\d+)/(?P<of>\d+)",
        r"\d+",
        "(",
        "",
        r"it=(\d+)$",
        "(" + "x" * 1022 + ")",
        "(" + "x" * 1023 + ")",
    ),
    "checkpoint": ("ck", "/a b/c", "~/x", "a$b", 'a"b', "a\\b", "x" * 1024, "x" * 1025),
}


def spec(key: str, value: str) -> Spec | None:
    """Return a spec with this key, None if it is refused."""
    value = f"[{value}]" if key == "prechecks" else f"'{value}'"
    text = f"name: a\nmode: script\ncommand: x\n{key}: {value}\n"
    text += "" if key == "retries" else "retries: 1\n"
    text += "nodes: 65536\n" if key != "mode" else ""
    try:
        return load((text.replace("mode: script\n", "") if key == "mode" else text).encode(), "a")
    except UsageError:
        return None


def test_a_value_is_accepted_where_a_spec_accepts_it() -> None:
    """The same values, except modes whose tasks differ. Every key is tried."""
    for key in KEYS:
        for value in VALUES[key]:
            same = spec(key, value)
            site = {"retries": "1"} if key != "retries" else {}
            found, problems = read(
                [Line(2, f' {key}="{value}"' if '"' not in value else f" {key}='{value}'")], site, "65536"
            )
            accepted = not problems
            if value in ("single", "tensorflow", "ascend"):
                assert not accepted, key
                assert "leave `mode` out" in problems[0].text or "slurm-plugin hosts" in problems[0].text, key
                continue
            assert accepted == (same is not None), (key, value, problems)
            if same is not None and key != "mode":
                assert recovery_options.plan_fields(found) == recovery_options.plan_fields(same), (key, value)
                assert str(recovery_options.token(found)) == str(recovery_options.token(same)), key
                assert (list(recovery_options.flags(found)), recovery_options.node_count(found)) == (
                    list(recovery_options.flags(same)),
                    recovery_options.node_count(same),
                ), key


def test_nothing_asked_is_nothing() -> None:
    """Every default is a spec's."""
    assert read([], {}, None) == (Features(), [])
    default = load(b"name: a\nmode: script\ncommand: x\n", "a")
    fields = recovery_options.plan_fields(Features())
    assert fields == recovery_options.plan_fields(default)
    assert job_plan.changed(JobPlan(**fields)) == {}
    assert str(recovery_options.token(Features())) == str(recovery_options.token(default))


def test_every_problem_is_told_at_once() -> None:
    """With its line, what was found, what is accepted, and the nearest key."""
    lines = [
        Line(2, " retris=3 grace=5"),
        Line(3, " grace=6 spares"),
        Line(5, " time=4h infiniband=mabe"),
        Line(6, ""),
        Line(7, ' checkpoint="a b"c'),
        Line(8, " container.image=t.sif"),
    ]
    _, problems = read(lines, {}, None)
    accepted = ", ".join(KEYS)
    starts = "a script starts its containers itself: srun apptainer exec IMAGE PROGRAM"
    starts += ", or srun --container-image=IMAGE PROGRAM"
    assert problems == [
        (2, f"retris: unknown key; accepted: {accepted}; did you mean retries?"),
        (3, "found 'spares'; accepted: key=value"),
        (3, "grace: found twice, first in line 2"),
        (5, "time: a script uses sbatch's option for it: --time"),
        (5, "infiniband: found 'mabe'; accepted: auto, yes, no"),
        (6, "found nothing; accepted: key=value"),
        (7, "found 'checkpoint=\"a b\"c'; accepted: key=value"),
        (8, f"container.image: {starts}"),
    ]


def test_blanks_around_the_equals_sign() -> None:
    """`retries = 1` once gave three errors. A line with another sign gives one."""
    found, problems = read([Line(2, ' retries = 1  grace= "5m"'), Line(3, " unconditional =true")], {}, None)
    assert (found.retries, found.grace, found.unconditional, problems) == (1, "5m", "yes", [])
    _, problems = read([Line(2, " retries: 1"), Line(3, " --retries 1")], {}, None)
    assert problems == [(2, "found 'retries:'; accepted: key=value"), (3, "found '--retries'; accepted: key=value")]


def test_a_scripts_own_lines_win_over_the_sites() -> None:
    """Key by key."""
    found, problems = read([Line(2, " retries=5")], {"retries": "1", "grace": "1m"}, None)
    assert (found.retries, found.grace, problems) == (5, "1m", [])


def test_what_does_not_go_together() -> None:
    """With the number of restarts, or of nodes."""
    cases = [
        (" spares=1", "2", "spares: found it without restarts; give `retries=1` or more, or leave it out"),
        (" retries=1 spares=1", None, "spares: needs a number of nodes; found no --nodes; give sbatch --nodes=N"),
        (" min_nodes=1", "2-4", "min_nodes: needs a number of nodes; found --nodes=2-4; give sbatch --nodes=N"),
        (" min_nodes=3", "2", "min_nodes: found 3; accepted: 1 to 2, sbatch's --nodes"),
    ]
    for line, nodes, problem in cases:
        assert read([Line(2, line)], {}, nodes)[1] == [(2, problem)], line


def test_modes_of_scripts_are_modes() -> None:
    """Each mode is accepted, or refused with a message of its own."""
    assert {*features.MODES, *features._NOT_FOR_SCRIPTS} == set(MODES)
