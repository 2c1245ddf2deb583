"""The man pages: one compared whole, all of them checked by groff and mandoc."""

import re
import subprocess
from pathlib import Path

import pytest

from slurm_plugin import __version__
from slurm_plugin.__main__ import main
from slurm_plugin.cli.group import DefinedCommand
from slurm_plugin.cli.nodeside.definition import JSON, Command, Parameter
from slurm_plugin.cli.reference import command, tree
from slurm_plugin.cli.reference.tree import Node

LOOK = Command(
    "look",
    "Look at `JOB` - or not.\n\n.Further words\\n.\n\nExit 0: seen; 1: not seen.",
    (
        Parameter("job", "a job's number", "JOB"),
        Parameter("places", "'where'", "DIR", nargs="*"),
        Parameter("--often", "Repeat.", "SECONDS", without_value=5),
        Parameter("--how", "A word.", choices=("well", "badly")),
        JSON,
    ),
    lambda _: 0,
)
PAGE = f"""\
.TH "SLURM\\-PLUGIN\\-LOOK" 1 "" "slurm_plugin {__version__}" "slurm_plugin"
.nh
.ad l
.SH NAME
slurm\\-plugin\\-look \\- Look at it
.SH SYNOPSIS
\\fBslurm\\-plugin look\\fR [OPTIONS] JOB [DIR]...
.SH DESCRIPTION
Look at \\fBJOB\\fR \\- or not.
.PP
\\&.Further words\\en.
.SH ARGUMENTS
.TP
\\fBJOB\\fR
a job's number
.TP
\\fB[DIR]...\\fR
\\&'where'
.SH OPTIONS
.TP
\\fB\\-\\-often[=SECONDS]\\fR
Repeat.
.TP
\\fB\\-\\-how well|badly\\fR
A word.
.TP
\\fB\\-\\-json\\fR
Print one JSON object.
.TP
\\fB\\-h, \\-\\-help\\fR
Show this message and exit.
.SH EXIT STATUS
0: seen; 1: not seen.
.SH SEE ALSO
\\fBslurm\\-plugin\\fR(1)
"""


def test_a_page() -> None:
    """What roff would read as a request or an escape is text."""
    parent = Node(("slurm-plugin",), "", (), (), ())
    found = tree.read(DefinedCommand(LOOK), ("slurm-plugin", "look"), "Look at it.")
    assert command.page(found, parent) == PAGE


def test_every_command_has_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str], whole: Node) -> None:
    """`man` writes a page for each command, and each names only pages that exist."""
    assert main(["man", str(tmp_path)]) == 0
    pages = {path.name for path in (tmp_path / "man1").iterdir()}
    assert f"written: {len(pages)} pages" in capsys.readouterr().out
    assert {"slurm-plugin.1", "slurm-plugin-submit.1", "slurm-plugin-experiment-status.1"} <= pages
    assert len(pages) == len(list(whole.walk()))
    for node in whole.walk():
        text = (tmp_path / "man1" / f"{'-'.join(node.path)}.1").read_text()
        seen = re.findall(r"\\fB(\S+)\\fR\(1\)", text.partition(".SH SEE ALSO")[2].replace("\\-", "-"))
        assert seen, node.name
        assert {f"{name}.1" for name in seen} <= pages, node.name


def test_the_formatters_have_no_complaint(tmp_path: Path) -> None:
    """Neither groff nor mandoc finds anything to warn of."""
    main(["man", str(tmp_path)])
    paths = sorted(map(str, (tmp_path / "man1").iterdir()))
    groff = subprocess.run(["groff", "-ww", "-man", "-Tutf8", "-z", *paths], capture_output=True, text=True, check=True)
    assert groff.stderr == ""
    lint = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", *paths], capture_output=True, text=True, check=False
    )
    assert [line for line in lint.stdout.splitlines() if "missing date" not in line] == []


def test_a_directory_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1, with the file and the reason."""
    (tmp_path / "file").touch()
    assert main(["man", str(tmp_path / "file")]) == 2
    assert main(["man", str(tmp_path / "file/below")]) == 1
    assert "Not a directory\n  name a directory that you may write" in capsys.readouterr().err
