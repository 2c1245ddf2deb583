"""Mirrors slurm_plugin/submit/wrapper/build.py: the input of the real sbatch for a script with features."""

import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from slurm_plugin.records import job_plan, token
from slurm_plugin.records.features import Features
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.submit.wrapper import batch_script
from slurm_plugin.submit.wrapper.arguments import parse
from slurm_plugin.submit.wrapper.build import RefusedError, Submission, build, sources
from slurm_plugin.supervisor import script as taken_out
from tests.refusals import refusal_of

SCRIPT = b"""#!/usr/bin/env python3
#SBATCH --comment="my run" -N2
#PLUGIN retries=2

# a comment
print("ok")
#SBATCH -N3"""
COMMAND = "/opt/env/bin/slurm-plugin"
ASKED = "[sp1;retries=2;ib=auto]"


def built(
    line: list[str],
    features: Features,
    script: bytes = SCRIPT,
    name: str = "train.py",
    environ: Mapping[str, str] | None = None,
) -> Submission:
    """Return the submission of a command line."""
    given = parse(line)
    assert given is not None
    found = sources(given, environ or {}, batch_script.first_block(script))
    return build(found, features, script, name, COMMAND)


def test_the_whole_submission() -> None:
    """The first block is for sbatch. The script is below it, unchanged, and its arguments after `--`."""
    made = built(["-W", "train.py", "a b", "--", "$c"], Features(retries=2, checkpoint="my ck"))
    assert made.arguments == [
        *("-W", "--job-name=train.py", "--open-mode=append", "--requeue", f"--comment=my run {ASKED}"),
    ]
    mark = made.script.split(b"\n")[-8].decode()
    assert mark.startswith("#slurm_plugin-script-")
    assert (
        made.script.decode()
        == f"""\
#!{COMMAND} job
#SBATCH --comment="my run" -N2

# a comment
# Made by `slurm-plugin sbatch`: the script below runs as it stands, by its own first line.
#slurm_plugin-plan {{
#slurm_plugin-plan   "mode": "single",
#slurm_plugin-plan   "command": ["a b", "--", "$c"],
#slurm_plugin-plan   "retries": 2,
#slurm_plugin-plan   "checkpoint": "my ck",
#slurm_plugin-plan   "plain": true,
#slurm_plugin-plan   "mark": "{mark}"
#slurm_plugin-plan }}
{mark}
{SCRIPT.decode()}"""
    )
    assert taken_out.user_script(made.script, mark) == SCRIPT


@pytest.mark.parametrize("name", ["slurm-plugin", "it's slurm-plugin"])
def test_the_environment_and_every_word_come_through(tmp_path: Path, name: str) -> None:
    """Words, variables that no shell accepts, exported functions and the order, to the byte."""
    command = tmp_path / name
    program = f"#!{sys.executable} -IS\nimport os, sys\n"
    program += 'print([*map(os.fsencode, sys.argv[1:])], ",", open("/proc/self/environ", "rb").read())\n'
    command.write_text(program)
    command.chmod(0o755)
    given = parse(["train.py", "it's", "a\nb", "*", "\udcff"])
    assert given is not None
    script = b"#!/bin/sh\n#PLUGIN retries=1\nif ( \xff\n"
    made = build(sources(given, {}, batch_script.first_block(script)), Features(retries=1), script, "", str(command))
    path = tmp_path / "slurm_script"
    path.write_bytes(made.script)
    path.chmod(0o755)
    environ = {"BASH_FUNC_module%%": "() {  echo hi\n}", "a.b": "1", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    told = subprocess.run([path], capture_output=True, text=True, check=True, env=environ).stdout
    said, environment = ast.literal_eval(told)
    assert said == [b"job", str(path).encode()]
    found = dict(line.split(b"=", 1) for line in environment.split(b"\0") if line)
    ours = {name: value for name, value in found.items() if name not in (b"PWD", b"SHLVL", b"_")}
    assert ours == {name.encode(): value.encode() for name, value in environ.items()}
    if " " not in name:  # else bash starts it
        assert found == ours
    plan = job_plan.read_batch_script(str(path))
    asked = JobPlan(mode="single", plain=True, retries=1, command=("it's", "a\nb", "*", "\udcff"))
    assert plan == asked._replace(mark=plan.mark, batch_script=str(path))
    assert taken_out.user_script(made.script, plan.mark) == script


def test_our_own_options() -> None:
    """Those of a spec, except options that the user gave. The last comment counts."""
    cases = [
        ([], {}, Features(retries=2), ["--open-mode=append", "--requeue", f"--comment=my run {ASKED}"]),
        (["--requeue=expedite"], {}, Features(retries=2), ["--open-mode=append", f"--comment=my run {ASKED}"]),
        (["--open-mode=truncate"], {}, Features(retries=2), ["--requeue", f"--comment=my run {ASKED}"]),
        ([], {"SBATCH_OPEN_MODE": "t"}, Features(retries=2), ["--requeue", f"--comment=my run {ASKED}"]),
        (["--no-requeue"], {}, Features(hold_on_failure="1m"), ["--comment=my run [sp1;retries=0;ib=auto]"]),
        (["--no-requeue", "--requeue"], {}, Features(retries=2),
         ["--open-mode=append", "--requeue", f"--comment=my run {ASKED}"]),
        (["--requeue"], {"SBATCH_NO_REQUEUE": ""}, Features(retries=2),
         ["--open-mode=append", "--requeue", f"--comment=my run {ASKED}"]),
        (["--comment= x"], {}, Features(retries=2), ["--open-mode=append", "--requeue", f"--comment= x {ASKED}"]),
        (["--comment=x"], {}, Features(retries=2), ["--open-mode=append", "--requeue", f"--comment=x {ASKED}"]),
        ([], {}, Features(retries=2, spares=1, nodes=2),
         ["--open-mode=append", "--requeue", "--no-kill", "--nodes=3", f"--comment=my run {ASKED}"]),
        ([], {}, Features(retries=2, min_nodes=1, nodes=2, grace="2m"),
         ["--open-mode=append", "--requeue", "--no-kill", "--signal=B:USR1@120", "--nodes=1-2",
          f"--comment=my run {ASKED}"]),
    ]  # fmt: skip
    for line, environ, features, ours in cases:
        assert built([*line, "x"], features, name="", environ=environ).arguments == [*line, *ours], line


def test_the_jobs_name() -> None:
    """sbatch's name for the file, if no other is given."""
    for line, environ, name in [
        (["-Jx"], {}, []),
        ([], {"SBATCH_JOB_NAME": "x"}, []),
        ([], {}, ["--job-name=train.py"]),
    ]:
        made = built([*line, "train.py"], Features(retries=1), environ=environ)
        assert [word for word in made.arguments if "job-name" in word] == name, line


def test_a_wrapped_command() -> None:
    """--wrap is removed: the script already contains its text. Words after `--` are not our options."""
    made = built(["-N1", "--wrap", "date", "--"], Features(retries=1), b"#!/bin/sh\ndate\n", "wrap")
    assert made.arguments[:2] == ["-N1", "--job-name=wrap"]
    assert "--wrap" not in made.arguments
    assert "--" not in made.arguments


def test_no_kill_of_the_users_own_is_told_to_the_supervisor() -> None:
    """A restart then treats the lost node as gone."""
    assert b'"no_kill": true' in built(["-k", "x"], Features(retries=1)).script
    assert b'"no_kill"' not in built(["-k", "x"], Features(hold_on_failure="1m")).script


def test_a_flag_that_contradicts_a_feature_is_refused() -> None:
    """Whether the user or the site set it."""
    cases = [
        (["--no-requeue"], {}, Features(retries=1), "--no-requeue: found it with retries"),
        ([], {"SBATCH_NO_REQUEUE": "1"}, Features(retries=1), "--no-requeue: found it with retries"),
        (["--no-kill=off"], {}, Features(retries=1, spares=1), "--no-kill=off: found it with spares"),
        (["--signal=TERM@60"], {}, Features(grace="1m"), "--signal=TERM@60: found it with grace"),
        (["-t", "UNLIMITED"], {}, Features(grace="1m"), "--time=UNLIMITED: found it with grace"),
        (["--time=infinite"], {"SBATCH_TIMELIMIT": "5"}, Features(grace="1m"), "--time=infinite: found it with grace"),
        ([], {"SBATCH_TIMELIMIT": "0"}, Features(grace="1m"), "--time=0: found it with grace"),
        (["--comment=[sp1;retries=1]"], {}, Features(retries=1), "found slurm_plugin's token"),
        (["--comment=" + "x" * 824], {}, Features(retries=1), "--comment: 824 bytes; accepted: 823, because "),
        (["-m", "Arbitrary,nopack"], {}, Features(retries=1), "--distribution=arbitrary.* accepted .*: block, cyclic"),
        ([], {"SBATCH_DISTRIBUTION": "arbitrary"}, Features(retries=1), "--distribution=arbitrary"),
        ([], {"SLURM_DISTRIBUTION": "arbitrary"}, Features(retries=1), "--distribution=arbitrary"),
        (["-m", "block"], {"SLURM_HOSTFILE": "hosts"}, Features(retries=1), "SLURM_HOSTFILE"),
    ]
    for line, environ, features, what in cases:
        assert re.search(what, refusal_of(RefusedError, built, [*line, "x"], features, environ=environ)), line


def test_the_longest_comment_has_room_for_a_requeue() -> None:
    """The supervisor writes into the token which run it requeues, and without which nodes."""
    made = built(["--comment=" + "x" * 823, "x"], Features(retries=1, queue_timeout=999999)).arguments
    comment = [each.partition("=")[2] for each in made if each.startswith("--comment=")][-1]
    had, mark = token.Had(99, 65536), token.Mark(99, tuple(range(10)))
    found = token.find(token.update(comment, again=99, had=had, mark=mark))
    assert found is not None
    assert found.mark == mark


def test_a_distribution_that_is_not_arbitrary_after_all() -> None:
    """An option overrides the inherited variable, and with --nodelist sbatch ignores the hostfile."""
    for line, variable in [(["-m", "block"], "SLURM_DISTRIBUTION=arbitrary"), (["-w", "n1"], "SLURM_HOSTFILE=hosts")]:
        assert built([*line, "x"], Features(retries=1), environ=dict([variable.split("=")])).arguments[:2] == line


def test_an_edited_batch_script_is_told() -> None:
    """A plug-in of the site may have changed it."""
    with pytest.raises(Exception, match="has no line #slurm_plugin-script-x"):
        taken_out.user_script(b"#!/bin/sh\nx\n", "#slurm_plugin-script-x")
