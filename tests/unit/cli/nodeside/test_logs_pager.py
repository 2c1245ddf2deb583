"""`slurm-plugin logs --grep` on a terminal: colours, and a pager that steps through the matches."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.logs import reader
from slurm_plugin.records import job_directory, log_files
from slurm_plugin.views import log

CODE = (
    "import sys; from slurm_plugin.cli.nodeside import job_lookup, logs; from slurm_plugin.__main__ import main\n"
    "from tests.fakes import FakeSlurm, job\n"
    "logs.LARGE, logs.LARGE_FOR_A_PAGER = map(int, sys.argv.pop(1).split())\n"
    "fake = FakeSlurm([job(state='COMPLETED')]); fake.directories[7] = sys.argv[1]\n"
    "job_lookup.connect = lambda **_: fake\n"
    "sys.exit(main(['logs', '7', *sys.argv[2:]]))\n"
)


@pytest.mark.parametrize(
    ("words", "pattern", "command"),
    [
        (["less"], "a+", ["less", "-R", "+/a+"]),
        (["/usr/bin/less", "-S"], "!x", ["/usr/bin/less", "-S", "-R", "+/\\!x"]),
        (["more"], "a", ["more"]),
        (["less"], r"(?i)step \d+ [\d.]+(?:s|ms)?", ["less", "-R", "-I", "+/step [0-9]+ [0-9.]+(s|ms)?"]),
        (["less"], r"a.*?\\d\(\?", ["less", "-R", r"+/a.*\\d\(\?"]),
    ],
)
def test_the_pager_s_command(words: list[str], pattern: str, command: list[str]) -> None:
    """less gets the pattern; another pager only the text."""
    assert log.pager(words, pattern) == command


def test_colours() -> None:
    """Lines of slurm_plugin and Slurm are dim, matches are red; without a terminal there are no colours."""
    import re

    own = reader.entry(b"[slurm_plugin] x", 0.0, None, reader.Wanted())
    other = reader.entry(b"3: KeyError: 'x'", 0.0, None, reader.Wanted())
    assert log.line(own, on=True) == "\x1b[2m[slurm_plugin] x\x1b[0m"
    assert log.line(other, on=True, pattern=re.compile("Key|z*")) == "3: \x1b[1;31mKey\x1b[0mError: 'x'"
    assert log.line(other, on=False, pattern=re.compile("Key")) == "3: KeyError: 'x'"
    assert log.speaker_line("rank 3", other, 8, on=False) == "  rank 3 | KeyError: 'x'"
    assert [log.size(count) for count in (0, 1023, 2048, 5 << 20, 3 << 50)] == [
        "0 B", "1023 B", "2 KB", "5.0 MB", "3072.0 TB",
    ]  # fmt: skip


def on_a_terminal(tmp_path: Path, *words: str, pager: str, large: str = "1000 1000") -> tuple[str, int]:
    """What a terminal shows, and the exit code."""
    own = job_directory.directory(tmp_path, 7)
    log_files.write_output(own, log_files.Output("train", str(tmp_path / "out")))
    (tmp_path / "out").write_text("[slurm_plugin] x\nKeyError\nend\n")
    master, slave = pty.openpty()
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4]), "PAGER": pager, "TERM": "xterm"}
    environ.pop("NO_COLOR", None)
    argv = [sys.executable, "-c", CODE, large, str(tmp_path), *words]
    with subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=environ) as process:
        os.close(slave)
        shown = b""
        try:
            while block := os.read(master, 4096):
                shown += block
        except OSError:  # the terminal is closed at the end
            pass
        code = process.wait()
    os.close(master)
    return shown.decode().replace("\r\n", "\n"), code


def test_a_search_on_a_terminal(tmp_path: Path) -> None:
    """The pager gets the whole log with the matches in colour; the exit code says whether there is one."""
    pager = tmp_path / "my-pager"
    pager.write_text("#!/bin/sh\necho pager $#\nexec cat\n")
    pager.chmod(0o755)
    shown = "pager 0\n\x1b[2m[slurm_plugin] x\x1b[0m\n\x1b[1;31mKey\x1b[0mError\nend\n"
    assert on_a_terminal(tmp_path, "--grep", "Key", pager=str(pager)) == (shown, 0)
    assert on_a_terminal(tmp_path, "--grep", "nothing", pager=str(pager))[1] == 1
    assert on_a_terminal(tmp_path, pager=str(pager)) == ("\x1b[2m[slurm_plugin] x\x1b[0m\nKeyError\nend\n", 0)


def test_a_search_in_a_log_that_is_too_large_for_a_pager(tmp_path: Path) -> None:
    """All of it is searched, and the lines that match are printed."""
    shown = "\x1b[1;31mKey\x1b[0mError\n"
    assert on_a_terminal(tmp_path, "--grep", "Key", pager="/nonexistent/pager", large="1 2") == (shown, 0)
    assert on_a_terminal(tmp_path, "--grep", "nothing", pager="/nonexistent/pager", large="1 2")[1] == 1


def test_pagers_that_do_not_work(tmp_path: Path) -> None:
    """One that is not there is an error with the way out; one that ends early is none."""
    shown, code = on_a_terminal(tmp_path, "--grep", "Key", pager="/nonexistent/pager")
    assert code == 2
    assert "without a pager: PAGER=cat" in shown
    assert on_a_terminal(tmp_path, "--grep", "Key", pager="true") == ("", 0)
