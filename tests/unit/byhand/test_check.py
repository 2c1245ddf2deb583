"""`slurm-plugin check` as a user types it: words for items, verdicts on the screen, exit codes."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import Verdict, gpu_xid
from slurm_plugin import compiled, siteconfig
from slurm_plugin.__main__ import main
from slurm_plugin.byhand import check
from tests.unit.prechecks.vendor import fake

ROOT = Path(__file__).parents[3]
NODE, JOB, NO = prechecks.NODE_PROBLEM, prechecks.JOB_PROBLEM, prechecks.NO_PROBLEM


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """The option that names a site file with these `prechecks`, outside of any job."""
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)

    def written(text: str) -> list[str]:
        (tmp_path / "site.yaml").write_text(f"prechecks:\n  {text}\n")
        return ["--config", str(tmp_path / "site.yaml")]

    return written


@pytest.mark.parametrize(
    ("words", "items"),
    [
        ([], None),
        (["disk-size.shm"], ("disk-size.shm",)),
        (["mounts", "dns"], ("dns", "mounts.paths", "mounts.local")),
        (["disk-size", "disk-size.shm"], ("disk-size.root", "disk-size.shm", "disk-size.cache", "disk-size.paths")),
    ],
)
def test_items_and_sections(words: list[str], items: tuple[str, ...] | None) -> None:
    """Both name items, each of which is looked at once, in the order of the registry."""
    assert check.chosen(words) == items


@pytest.mark.parametrize(
    ("word", "close"),
    [("disk-sise", "; did you mean disk-size?"), ("GPU-Check", "; did you mean gpu-check?"), ("q", "")],
)
def test_an_item_that_is_none(word: str, close: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage: what was found, the nearest one, all that are accepted, the next command."""
    assert main(["check", word]) == 2
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", f"slurm-plugin: no check has the name {word!r}{close}")
    assert all(each.item in err for each in prechecks.CHECKS)
    assert err.endswith("slurm-plugin check --list\n")


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([("ok", NODE), ("skipped", NODE)], 0),
        ([("ok", NODE), ("failed", NODE)], 1),
        ([("failed", JOB), ("error", NODE)], 1),
        ([("failed", NO), ("ok", NODE)], 0),
        ([("ok", NODE), ("error", NODE)], 2),
        ([("timeout", JOB), ("failed", NO)], 2),
    ],
)
def test_exit_codes(verdicts: list[tuple[str, str]], code: int) -> None:
    """A failure that counts before what is not known; what a site only logs counts as fine."""
    assert check.exit_code([Verdict("a", verdict, problem, "") for verdict, problem in verdicts]) == code


@pytest.mark.parametrize("options", [["--json"], [], ["--list"]])
def test_a_stale_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """Where the site file was changed since it was deployed, a line on stderr says so; the look is what hooks see."""
    path, root = tmp_path / "site.yaml", tmp_path / "deployed"
    path.write_text("prechecks: {disk-size: {shm: 1B}}\n")
    root.mkdir()
    compiled_file = root / compiled.FILE
    compiled_file.write_text(json.dumps(siteconfig.compiled(siteconfig.load(path), siteconfig.site_file(path))))
    monkeypatch.setattr(compiled, "DEFAULT_ROOT", str(root))
    assert main(["check", "disk-size.shm", *options]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    path.write_text("prechecks: {disk-size: {shm: 900TB}}\n")
    assert main(["check", "disk-size.shm", *options]) == 0
    again, err = capsys.readouterr()
    line = f"{path} was changed since it was deployed; run: slurm-plugin site install --apply"
    assert err == f"slurm-plugin: {compiled_file} is old: {line}\n"
    assert "was changed" not in again
    assert again.count("\n") == out.count("\n")


def test_a_reader_that_ends(config: Callable[[str], list[str]]) -> None:
    """As `head` does: no traceback, and the exit code that a shell has for it."""
    argv = [sys.executable, "-m", "slurm_plugin", "check", "disk-size.shm", "--watch=0.1", *config("mandatory: []")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        assert started.stdout.readline().startswith("ITEM")
        started.stdout.close()
        assert started.stderr.read() == ""
    assert started.returncode == 141


def test_a_look(config: Callable[[str], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What fails is in the table, in the summary and in the exit code; there are no colours in a pipe."""
    options = config(f"disk-size: {{paths: ['{tmp_path} 1B', '/nonexistent 1GB']}}")
    assert main(["check", "disk-size.paths", *options]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ITEM", "VERDICT", "SECONDS", "VALUE", "THRESHOLD", "MESSAGE"]
    assert re.fullmatch(r"disk-size\.paths  failed +\d\.\d\d +1 +2 +/nonexistent: no such directory", lines[1])
    assert lines[3].endswith(": 1 failed (disk-size.paths), 0 passed")
    assert lines[4] == "  what that means: slurm-plugin check --list disk-size.paths"
    assert "\x1b" not in "".join(lines)


def test_what_a_site_only_logs(config: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    """Is said to be so, and counts as fine."""
    options = config("disk-size: {paths: ['/nonexistent 1GB'], on-failure: log}")
    assert main(["check", "disk-size.paths", *options]) == 0
    assert "log only: /nonexistent: no such directory" in capsys.readouterr().out


def test_json(config: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    """One line, which is a report."""
    assert main(["check", "mounts.paths", "inodes.root", "--json", "--hook", "periodic", *config("{}")]) in (0, 1)
    (line,) = capsys.readouterr().out.splitlines()
    report = prechecks.Report.from_json(line)
    assert (report.job, report.hook) == (None, "periodic")
    assert [item.item for item in report.items] == ["inodes.root", "mounts.paths"]
    assert report.items[1].verdict == "skipped"


def test_hooks_are_told_apart(config: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    """`--hook` looks as that hook does: the site wants this item before a job, and not by hand."""
    options = config("inodes: {hooks: [prolog]}")
    assert main(["check", "inodes.root", *options]) == 0
    assert "not looked at in the hand hook" in capsys.readouterr().out
    main(["check", "inodes.root", "--hook", "prolog", *options])
    assert "skipped" not in capsys.readouterr().out


def test_root_by_hand_takes_no_xid_away(
    tmp_path: Path,
    config: Callable[[str], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever hook is played: a line that the prolog has not seen stays new to it."""
    line = "6,1,1,-;NVRM: Xid (PCI:0000:52:00): 79, GPU has fallen off the bus."
    monkeypatch.setattr(gpu_xid, "records", lambda: [line])
    tool = fake(tmp_path, "smi", "")
    (tmp_path / "site.yaml").write_text(
        f"run_directory: {tmp_path}/run\nprechecks: {{gpu-check: {{tool: {tool}}}}}\n", encoding="utf-8"
    )
    for _ in range(2):
        assert main(["check", "gpu-xid", "--hook", "prolog", "--config", str(tmp_path / "site.yaml")]) == 1
        assert "Xid 79 on 0000:52:00: it fell off the bus" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()


def test_watch_ends_with_an_interrupt(
    config: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One report a look; Ctrl-C is 130, as of the other commands."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(check.time, "sleep", sleep)
    assert main(["check", "--watch=0.5", "--json", "mounts.paths", *config("{}")]) == 130
    assert [json.loads(line)["hook"] for line in capsys.readouterr().out.splitlines()] == ["hand"] * 3
    assert pauses == [0.5] * 3


@pytest.mark.parametrize("options", [["--watch=0"], ["--watch=soon"], ["--hook", "lunch"], ["--nope"]])
def test_wrong_usage(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and what is accepted."""
    with pytest.raises(SystemExit) as caught:
        main(["check", *options])
    assert caught.value.code == 2
    assert "slurm-plugin check: error:" in capsys.readouterr().err


def test_colours_of_a_terminal() -> None:
    """The verdict alone is coloured, and columns stand below each other all the same."""
    verdicts = [Verdict("dns", "ok", JOB, "1 name", value=1, threshold=1), Verdict("memory", "failed", NODE, "bad")]
    plain, painted = check.table(verdicts, on=False), check.table(verdicts, on=True)
    assert "\x1b[1;31mfailed \x1b[0m" in painted[2]
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in painted] == plain


@pytest.mark.parametrize(
    ("value", "size", "cell"),
    [(None, False, ""), (3085511, False, "3085511"), (0.01, False, "0.01"), (2 << 30, True, "2 GB"), (2, True, "2"),
     ("max locked memory 64, open files 20000", False, "max locked memory 64,...")],
)  # fmt: skip
def test_cells(value: Any, size: bool, cell: str) -> None:
    """Bytes as people say them, texts cut: the report has them whole."""
    assert check.short(value, size=size) == cell


def test_the_summary() -> None:
    """Names what failed and what could not be told, and counts the rest; nothing of it without them."""
    items = (
        Verdict("dns", "ok", JOB, ""), Verdict("memory", "error", NODE, ""), Verdict("clock", "skipped", NODE, ""),
        Verdict("ports", "failed", NO, ""),
    )  # fmt: skip
    assert check.summary(prechecks.Report("n2", None, "hand", 0.0, items)) == [
        "n2: 1 could not be told (memory), 2 passed, 1 skipped: they do not apply here"
    ]
