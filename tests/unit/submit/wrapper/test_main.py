"""`slurm-plugin sbatch` as users have it, with a fake in place of the real sbatch."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.submit.wrapper.stand_in import ROOT, beside, given, program, run
from tests.unit.test_layering import THIRD_PARTY
from tests.waiting import HANG_S, until

MOST_MODULES = 25  # `re`, `typing` or `json` alone would exceed this
PLAIN = "#!/bin/sh\n#SBATCH -N1\necho \xff\n"
WITH = "#!/bin/sh\n#PLUGIN retries=1\necho\n"


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """Make a directory with our sbatch and the fake one."""
    return beside(tmp_path)


def test_without_features_nothing_is_changed(real: Path) -> None:
    """The same words, and a script on stdin to the byte, although it was read."""
    words = ["-N1", "--comm", "a b", "--", "job.sh", "--wrap=x"]
    (real / "job.sh").write_text(PLAIN)
    assert given(run(real, *words))["argv"] == words
    found = given(run(real, "--parsable", stdin=PLAIN))
    assert (found["argv"], found["stdin"]) == (["--parsable"], PLAIN)


@pytest.mark.parametrize(
    "words", [["--help"], ["-V"], ["--nonsense"], ["-N"], ["none.sh"], ["--wrap=date"], ["--wrap", "date", "x"]]
)
def test_what_sbatch_answers_itself_is_left_to_it(real: Path, words: list[str]) -> None:
    """sbatch reads stdin itself then: #PLUGIN lines in a script do not matter."""
    found = given(run(real, *words, stdin=WITH))
    assert (found["argv"], found["stdin"]) == (words, WITH)


@pytest.mark.parametrize("script", ["", "echo\n#PLUGIN retries=1\n", WITH.replace("\n", "\r\n"), WITH + "\0"])
def test_a_script_that_sbatch_refuses_is_left_to_it(real: Path, script: str) -> None:
    """With sbatch's own message."""
    assert given(run(real, stdin=script))["stdin"] == script


def test_features_make_a_batch_script(real: Path) -> None:
    """From a file, from stdin, and from a descriptor of the shell."""
    (real / "job.sh").write_text(WITH)
    for words, stdin, name in (
        (["-N1", "job.sh", "a"], "", "job.sh"),
        (["-N1"], WITH, ""),
        (["-N1", "/dev/stdin"], WITH, "stdin"),
    ):
        found = given(run(real, *words, stdin=stdin))
        argv = ["-N1", *([f"--job-name={name}"] if name else [])]
        assert found["argv"] == [*argv, "--open-mode=append", "--requeue", "--comment=[sp1;retries=1;ib=auto]"]
        assert str(found["stdin"]).endswith(WITH)
        assert str(found["stdin"]).startswith("#!/bin/bash -p\n# Made by `slurm-plugin sbatch`")
        assert re.search(r'\n/\S+/python\S* -Pc .+\nexec /\S+/slurm-plugin job "\$0"\n#', str(found["stdin"]))


def test_a_script_is_found_where_sbatch_finds_it(real: Path) -> None:
    """In --chdir, on the PATH, and in the directory of submission, as in 22.05.8."""
    (real / "other").mkdir()
    (real / "other" / "job.sh").write_text(WITH)
    assert len(given(run(real, "-Dother", "job.sh"))["argv"]) == 5  # type: ignore[arg-type] # a list
    assert len(given(run(real, "-Dother", "other/job.sh"))["argv"]) == 5  # type: ignore[arg-type] # a list
    assert given(run(real, "-Dother", "./job.sh"))["argv"] == ["-Dother", "./job.sh"]
    assert given(run(real, "job.sh"))["argv"] == ["job.sh"]
    (real / "real" / "job.sh").write_text(WITH)
    assert len(given(run(real, "job.sh"))["argv"]) == 4  # type: ignore[arg-type] # a list


def test_the_file_beside_the_script(real: Path) -> None:
    """sbatch gets the batch script in the script's directory, whose path Slurm keeps as Command. Then it is removed."""
    (real / "d").mkdir()
    (real / "d" / "job.sh").write_text(WITH)
    before = list((real / "d").iterdir())
    for words in (["d/job.sh", "a"], ["./d/job.sh"], [f"{real}/d/job.sh"], ["-Dd", "job.sh"], ["-Dreal", "d/job.sh"]):
        command = Path(str(given(run(real, *words))["command"]))
        assert command.is_absolute(), words
        assert (command.parent.resolve(), command.stem) == (real / "d", ".job.sh"), words
        until(lambda: list((real / "d").iterdir()) == before, "the removal of the file")
    for words, stdin in ((["/dev/stdin"], WITH), ([], WITH)):
        assert given(run(real, *words, stdin=stdin))["command"] == "", words


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_file_is_removed_when_a_signal_ends_sbatch(real: Path, number: signal.Signals) -> None:
    """The signal goes to the whole process group. sbatch has replaced our process."""
    program(real / "real" / "sbatch", "#!/bin/sh\necho $$\nexec sleep 1h\n")
    (real / "job.sh").write_text(WITH)
    with subprocess.Popen(
        [real / "ours" / "sbatch", "job.sh"],
        stdout=subprocess.PIPE,
        cwd=real,
        env={"PATH": f"{real}/real:/usr/bin:/bin"},
        start_new_session=True,
    ) as process:
        assert process.stdout
        assert int(process.stdout.readline()) == process.pid
        assert len(list(real.glob(".job.sh.*"))) == 1
        os.killpg(process.pid, number)
        assert process.wait(HANG_S) == -number
        assert process.stdout.read() == b""  # no other process keeps it open
        until(lambda: not list(real.glob(".job.sh.*")), "the removal of the file")


def test_everything_wrong_is_told_and_nothing_submitted(real: Path) -> None:
    """Exit code 2."""
    (real / "job.sh").write_text("#!/bin/sh\n#PLUGIN retris=1 grace=x\n#SBATCH --no-requeue\n")
    done = run(real, "job.sh")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().splitlines()[0] == "slurm-plugin: job.sh: 2 problems, nothing was submitted"
    assert done.stderr.decode().splitlines()[-1].endswith("see: slurm-plugin schema")
    (real / "job.sh").write_text("#!/bin/sh\n#PLUGIN retries=1\n#SBATCH --no-requeue\n")
    done = run(real, "job.sh")
    assert done.returncode == 2
    assert b"--no-requeue: found it with retries" in done.stderr
    (real / "job.sh").write_text("#!/bin/sh\n#PLUGIN retries=1\n#SBATCH hetjob\n")
    assert b"line 2: a heterogeneous job has no features" in run(real, "job.sh").stderr


@pytest.mark.parametrize(
    "line",
    [
        *("# PLUGIN retries=2", "#PLUGINS retries=2", "#plugin retries=2", "##PLUGIN retries=2", " #PLUGIN retries=2"),
        *(
            "#PLUGINS\tretries=2",
            "#PLUGIN:retries=2",
            "#PLUGIN=retries=2",
            "#PLUGINretries=2",
            "#\u00a0PLUGIN: retries=2",
        ),
    ],
)
def test_a_line_that_looks_like_ours_is_told(real: Path, line: str) -> None:
    """The script is submitted unchanged. Prose with the word gives no warning."""
    (real / "job.sh").write_text(f"#!/bin/sh\n{line}\n# plugin x=y\n# plugin settings: retries=1\ntrue\n")
    done = run(real, "job.sh")
    assert (done.returncode, json.loads(done.stdout)["argv"]) == (7, ["job.sh"])
    assert done.stderr == b"slurm-plugin: line 2 is not read; write: #PLUGIN retries=2\n"


def test_a_line_that_looks_like_ours_with_blanks(real: Path) -> None:
    """The warning has the line's own text, which is accepted."""
    (real / "job.sh").write_text("#!/bin/sh\n# PLUGIN retries = 2 spares = 1\ntrue\n")
    assert run(real, "job.sh").stderr == b"slurm-plugin: line 2 is not read; write: #PLUGIN retries = 2 spares = 1\n"


def test_a_line_below_the_first_command_is_told(real: Path) -> None:
    """The script is submitted unchanged. Lines of a script inside it, and prose, give no warning."""
    inside = "cat >b.sh <<EOF\n#!/bin/sh\n#PLUGIN retries=3\nEOF\n"
    (real / "job.sh").write_text(f"#!/bin/sh\ntrue\n#PLUGIN retries=2\n#PLUGIN is fine\n{inside}")
    done = run(real, "job.sh")
    assert (done.returncode, json.loads(done.stdout)["argv"]) == (7, ["job.sh"])
    says = b"slurm-plugin: line 3 is not read; move it above the first command: #PLUGIN retries=2\n"
    assert done.stderr == says


def test_the_real_one_is_left_what_ours_was_given(real: Path) -> None:
    """The environment, which Python extends in a plain locale, and SIGPIPE, which Python ignores."""
    program(real / "real" / "sbatch", "#!/bin/sh\nunset PWD\nenv\ngrep SigIgn /proc/self/status\n")
    done = subprocess.run(
        [real / "ours" / "sbatch", "-N1", "x"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": f"{real}/real:/usr/bin:/bin", "A": "b\nc"},
    )
    told = re.findall("^SigIgn:\t([0-9a-f]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    ignored = int(told[0], 16) & ~(1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)  # a child does not inherit these
    (pid,) = re.findall("^SLURM_PLUGIN_SBATCH=([0-9]+):", done.stdout, re.MULTILINE)
    assert sorted(done.stdout.splitlines()) == sorted(
        [
            f"PATH={real}/real:/usr/bin:/bin",
            "A=b",
            "c",
            f"SLURM_PLUGIN_SBATCH={pid}:{real}/real/sbatch",
            f"SigIgn:\t{ignored:016x}",
        ]
    )


def test_without_a_stdin(real: Path) -> None:
    """A script with features is on stdin nevertheless."""
    (real / "job.sh").write_text(WITH)
    line = f"exec {real}/ours/sbatch job.sh <&-"
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        capture_output=True,
        check=False,
        cwd=real,
        env={"PATH": str(real / "real")},
    )
    assert str(given(done)["stdin"]).endswith(WITH)


def test_it_does_not_find_itself(real: Path, tmp_path: Path) -> None:
    """A link to it, a copy of it, and a script that calls it again are skipped."""
    (real / "copies").mkdir()
    program(real / "copies" / "sbatch", (real / "slurm-plugin").read_text())
    assert given(run(real, "-N1", "x", path="ours:copies:real"))["argv"] == ["-N1", "x"]
    (real / "calls").mkdir()
    program(real / "calls" / "sbatch", f'#!/bin/sh\nPATH="{real}/ours:$PATH" exec sbatch "$@"\n')
    found = given(run(real, "-N1", stdin=WITH, path="ours:calls:real"))
    assert found["argv"][0] == "-N1"  # type: ignore[index] # a list
    assert str(found["stdin"]).count("# Made by") == 1
    done = run(real, "x", path="ours:copies")
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"sbatch was not found" in done.stderr


def test_no_package_is_imported_without_features(real: Path) -> None:
    """And few of our own modules: it runs before every submission of a site."""
    (real / "job.sh").write_text(PLAIN)
    code = (
        f"import sys, os; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules)\n"
        "told = lambda: os.write(1, ' '.join(set(sys.modules) - before).encode())\n"
        "sys.addaudithook(lambda event, _: event == 'os.exec' and told())\n"
        "from slurm_plugin.__main__ import main\n"
        "sys.argv = ['/x/sbatch', 'job.sh']; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=real,
        env={"PATH": str(real / "real")},
    )
    loaded = set(done.stdout.partition("{")[0].split())
    assert {name for name in loaded if name.startswith("slurm_plugin")} == {
        "slurm_plugin",
        "slurm_plugin.__main__",
        "slurm_plugin.records",
        "slurm_plugin.records.site_settings",
        "slurm_plugin.submit",
        "slurm_plugin.submit.wrapper",
        "slurm_plugin.submit.wrapper.arguments",
        "slurm_plugin.submit.wrapper.batch_script",
    }
    assert not {name.partition(".")[0] for name in loaded} & {*THIRD_PARTY}
    assert len(loaded) < MOST_MODULES, sorted(loaded)


def test_a_site_turns_features_on(tmp_path: Path, real: Path) -> None:
    """For scripts without #PLUGIN lines, and for --wrap. A script that contradicts them is unchanged."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "compiled.json").write_text(
        json.dumps({"v": 1, "slurm_bin": "/nonexistent", "sbatch": {"retries": "1"}, "command": sys.executable})
    )
    text = (real / "slurm-plugin").read_text().replace("'/nonexistent'", repr(str(site)))
    (real / "slurm-plugin").write_text(text)
    for words, name in ((["--wrap=date"], "--job-name=wrap"), (["-Jx", "job.sh"], "-Jx")):
        (real / "job.sh").write_text(PLAIN)
        found = given(run(real, *words))
        assert found["argv"] == [name, "--open-mode=append", "--requeue", "--comment=[sp1;retries=1;ib=auto]"]
        assert sys.executable in str(found["stdin"])
        assert bool(found["command"]) is (words[-1] == "job.sh")
    for words in (["--no-requeue", "job.sh"], ["-N1", ":", "-N2", "job.sh"]):
        assert given(run(real, *words))["argv"] == words
    assert os.environ.get("SLURM_PLUGIN_SBATCH") is None


@pytest.mark.parametrize(("prolog", "said"), [("(null)", True), ("/nonexistent/hooks/prolog", False)])
def test_what_a_cluster_without_an_installation_lacks(real: Path, prolog: str, said: bool) -> None:
    """It is said on stderr before sbatch runs, if slurm.conf names no file of the site directory."""
    program(real / "real" / "scontrol", f"#!/bin/sh\necho 'Prolog                  = {prolog}'\n")
    done = run(real, stdin=WITH.replace("=1", "=3"))
    assert done.returncode == 7
    assert ("retries: the job restarts itself, at most 3 times" in done.stderr.decode()) is said
    assert not run(real, stdin=WITH.replace("retries=1", "mode=openmpi")).stderr
