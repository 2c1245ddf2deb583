"""Mirrors slurm_plugin/wrapper/build.py: what the real sbatch is given for a script with features."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from slurm_plugin.job import script as taken_out
from slurm_plugin.wrapper import batch
from slurm_plugin.wrapper.arguments import parse
from slurm_plugin.wrapper.build import RefusedError, Submission, build, sources
from slurm_plugin.wrapper.features import Features

SCRIPT = b"""#!/usr/bin/env python3
#SBATCH --comment="my run" -N2
#PLUGIN retries=2

# a comment
print("ok")
#SBATCH -N3"""
COMMAND = "/opt/slurm plugin/bin/slurm-plugin"
ASKED = "[sp1;retries=2;ib=auto]"


def built(
    line: list[str],
    features: Features,
    script: bytes = SCRIPT,
    name: str = "train.py",
    environ: Mapping[str, str] | None = None,
) -> Submission:
    """The submission of a command line."""
    given = parse(line)
    assert given is not None
    found = sources(given, environ or {}, batch.first_block(script))
    return build(found, features, script, name, COMMAND)


def test_the_whole_submission() -> None:
    """The first block is sbatch's to read; the script stands below, to the byte, and its words behind `--`."""
    made = built(["-W", "train.py", "a b", "--", "$c"], Features(retries=2, checkpoint="my ck"))
    assert made.arguments == [
        *("-W", "--job-name=train.py", "--open-mode=append", "--requeue", f"--comment=my run {ASKED}"),
    ]
    mark = made.script.split(b"\n")[-8].decode()
    assert mark.startswith("#slurm_plugin-script-")
    options = "--mode=script --retries=2 --infiniband=auto '--checkpoint=my ck'"
    assert (
        made.script.decode()
        == f"""\
#!/bin/sh
#SBATCH --comment="my run" -N2

# a comment
# Made by `slurm-plugin sbatch`: this supervises the script below, which runs as it stands, by its own first line.
exec '{COMMAND}' job supervise {options} --script "$0" '{mark}' -- 'a b' -- '$c'
{mark}
{SCRIPT.decode()}"""
    )
    assert taken_out.below(made.script, mark) == SCRIPT


def test_the_shell_hands_every_word_on(tmp_path: Path) -> None:
    """The script's words reach `job supervise` as they were, and the shell reads nothing below its own line."""
    command = tmp_path / "slurm-plugin"
    command.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
    command.chmod(0o755)
    given = parse(["train.py", "it's", "a\nb", "*"])
    assert given is not None
    script = b"#!/bin/sh\n#PLUGIN retries=1\nif ( \xff\n"
    made = build(sources(given, {}, batch.first_block(script)), Features(retries=1), script, "", str(command))
    path = tmp_path / "slurm_script"
    path.write_bytes(made.script)
    path.chmod(0o755)
    said = subprocess.run([path], capture_output=True, check=True, timeout=60).stdout.split(b"\0")[:-1]
    assert said[:5] == [b"job", b"supervise", b"--mode=script", b"--retries=1", b"--infiniband=auto"]
    assert said[5:7] == [b"--script", str(path).encode()]
    assert said[8:] == [b"--", b"it's", b"a\nb", b"*"]
    assert taken_out.below(made.script, said[7].decode()) == script


@pytest.mark.parametrize(
    ("line", "environ", "features", "ours"),
    [
        ([], {}, Features(retries=2), ["--open-mode=append", "--requeue", f"--comment=my run {ASKED}"]),
        (["--requeue=expedite"], {}, Features(retries=2), ["--open-mode=append", f"--comment=my run {ASKED}"]),
        (["--open-mode=truncate"], {}, Features(retries=2), ["--requeue", f"--comment=my run {ASKED}"]),
        ([], {"SBATCH_OPEN_MODE": "t"}, Features(retries=2), ["--requeue", f"--comment=my run {ASKED}"]),
        (["--no-requeue"], {}, Features(hold_on_failure="1m"), ["--comment=my run [sp1;retries=0;ib=auto]"]),
        (["--no-requeue", "--requeue"], {}, Features(retries=2),
         ["--open-mode=append", "--requeue", f"--comment=my run {ASKED}"]),
        (["--requeue"], {"SBATCH_NO_REQUEUE": ""}, Features(retries=2),
         ["--open-mode=append", "--requeue", f"--comment=my run {ASKED}"]),
        (["--comment=x"], {}, Features(retries=2), ["--open-mode=append", "--requeue", f"--comment=x {ASKED}"]),
        ([], {}, Features(retries=2, spares=1, nodes=2),
         ["--open-mode=append", "--requeue", "--no-kill", "--nodes=3", f"--comment=my run {ASKED}"]),
        ([], {}, Features(retries=2, min_nodes=1, nodes=2, grace="2m"),
         ["--open-mode=append", "--requeue", "--no-kill", "--signal=B:USR1@120", "--nodes=1-2",
          f"--comment=my run {ASKED}"]),
    ],
)  # fmt: skip
def test_our_own_options(line: list[str], environ: dict[str, str], features: Features, ours: list[str]) -> None:
    """What a spec would ask, where the user has not said it already; the comment is the one that counts."""
    assert built([*line, "x"], features, name="", environ=environ).arguments == [*line, *ours]


@pytest.mark.parametrize(
    ("line", "environ", "name"),
    [(["-Jx"], {}, []), ([], {"SBATCH_JOB_NAME": "x"}, []), ([], {}, ["--job-name=train.py"])],
)
def test_the_jobs_name(line: list[str], environ: dict[str, str], name: list[str]) -> None:
    """Is what sbatch would have made of the file, where nobody gives one."""
    made = built([*line, "train.py"], Features(retries=1), environ=environ)
    assert [word for word in made.arguments if "job-name" in word] == name


def test_a_wrapped_command() -> None:
    """Its option is taken out: the script is made of it already. What stands behind `--` is no option of ours."""
    made = built(["-N1", "--wrap", "date", "--"], Features(retries=1), b"#!/bin/sh\ndate\n", "wrap")
    assert made.arguments[:2] == ["-N1", "--job-name=wrap"]
    assert "--wrap" not in made.arguments
    assert "--" not in made.arguments


def test_no_kill_of_the_users_own_is_told_to_the_supervisor() -> None:
    """A restart then takes the lost node for gone."""
    assert b" --no-kill " in built(["-k", "x"], Features(retries=1)).script
    assert b" --no-kill " not in built(["-k", "x"], Features(hold_on_failure="1m")).script


@pytest.mark.parametrize(
    ("line", "environ", "features", "what"),
    [
        (["--no-requeue"], {}, Features(retries=1), "--no-requeue: found it with retries"),
        ([], {"SBATCH_NO_REQUEUE": "1"}, Features(retries=1), "--no-requeue: found it with retries"),
        (["--no-kill=off"], {}, Features(retries=1, spares=1), "--no-kill=off: found it with spares"),
        (["--signal=TERM@60"], {}, Features(grace="1m"), "--signal=TERM@60: found it with grace"),
        (["--comment=[sp1;retries=1]"], {}, Features(retries=1), "found a request of ours"),
        (["--comment=" + "x" * 1003], {}, Features(retries=1), "--comment: 1027 bytes .* accepted: 1024"),
    ],
)
def test_a_flag_that_contradicts_a_feature_is_refused(
    line: list[str], environ: dict[str, str], features: Features, what: str
) -> None:
    """Whoever gave which of them."""
    with pytest.raises(RefusedError, match=what):
        built([*line, "x"], features, environ=environ)


def test_an_edited_batch_script_is_told() -> None:
    """A plug-in of the site's may have changed it."""
    with pytest.raises(Exception, match="has no line #slurm_plugin-script-x"):
        taken_out.below(b"#!/bin/sh\nx\n", "#slurm_plugin-script-x")
