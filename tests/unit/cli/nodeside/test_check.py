"""`slurm-plugin check` as a user types it."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import prechecks
from prechecks.checks import gpu_xid
from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import check
from slurm_plugin.records import site_settings
from slurm_plugin.site import compilation, configuration
from tests.refusals import refusal_of
from tests.unit.prechecks.vendor import fake

ROOT = Path(__file__).parents[4]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Return --config with a site file of these `prechecks`, outside a job."""
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)

    def written(text: str) -> list[str]:
        (tmp_path / "site.yaml").write_text(f"prechecks:\n  deadline: 60s\n  {text}\n")
        return ["--config", str(tmp_path / "site.yaml")]

    return written


def test_items_and_sections() -> None:
    """Both name items; each item runs once, in the order of the registry."""
    cases = [
        ([], None),
        (["disk-size.shm"], ("disk-size.shm",)),
        (["mounts", "dns"], ("dns", "mounts.paths", "mounts.local")),
        (["disk-size", "disk-size.shm"], ("disk-size.root", "disk-size.shm", "disk-size.cache", "disk-size.paths")),
    ]
    for words, items in cases:
        assert check.select_items(words) == items, words


def test_an_item_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown item is wrong usage: the message names it, the nearest one, the accepted ones and the next command."""
    for word, close in [
        ("disk-sise", "; did you mean disk-size?"),
        ("GPU-Check", "; did you mean gpu-check?"),
        ("q", ""),
    ]:
        assert main(["check", word]) == 2, word
        out, err = capsys.readouterr()
        assert (out, err.splitlines()[0]) == ("", f"slurm-plugin: no check has the name {word!r}{close}"), word
        assert all(each.item in err for each in prechecks.CHECKS), word
        assert err.endswith("slurm-plugin check --list\n"), word


@pytest.mark.parametrize("options", [["--json"], [], ["--list"]])
def test_a_stale_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """A site file that changed after its deployment gives a line on stderr; the checks use the deployed settings."""
    path, root = tmp_path / "site.yaml", tmp_path / "deployed"
    path.write_text("prechecks: {disk-size: {shm: 1B}}\n")
    root.mkdir()
    compiled_file = root / site_settings.FILE
    compiled_file.write_text(
        json.dumps(compilation.compile_site(configuration.load(path), compilation.site_file(path)))
    )
    monkeypatch.setattr(site_settings, "DEFAULT_ROOT", str(root))
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
    """A reader that ends, such as `head`, gives exit code 141 without a traceback."""
    argv = [sys.executable, "-m", "slurm_plugin", "check", "disk-size.shm", "--watch=0.1", *config("mandatory: []")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        assert started.stdout.readline().startswith("ITEM")
        started.stdout.close()
        assert started.stderr.read() == ""
    assert started.returncode == 141


def test_a_look(config: Callable[[str], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A failure is in the table, the summary and the exit code. A pipe gets no colours."""
    options = config(f"disk-size: {{paths: ['{tmp_path} 1B', '/nonexistent 1GB']}}")
    assert main(["check", "disk-size.paths", *options]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ITEM", "VERDICT", "SECONDS", "VALUE", "THRESHOLD", "MESSAGE"]
    assert re.fullmatch(r"disk-size\.paths  failed +\d\.\d\d +1 +2 +/nonexistent: no such directory", lines[1])
    assert lines[3].endswith(": 1 failed (disk-size.paths), 0 passed")
    assert lines[4] == "  what that means: slurm-plugin check --list disk-size.paths"
    assert "\x1b" not in "".join(lines)


def test_what_a_site_only_logs(config: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    """A failure that the site only logs is marked, and counts as passed."""
    options = config("disk-size: {paths: ['/nonexistent 1GB'], on-failure: log}")
    assert main(["check", "disk-size.paths", *options]) == 0
    assert "log only: /nonexistent: no such directory" in capsys.readouterr().out


def test_json(config: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints the report as one line."""
    options = ["--json", "--hook", "periodic", *config("mandatory: []")]
    assert main(["check", "mounts.paths", "inodes.root", *options]) in (0, 1)
    (line,) = capsys.readouterr().out.splitlines()
    report = prechecks.Report.from_json(line)
    assert (report.job, report.hook) == (None, "periodic")
    assert [item.item for item in report.items] == ["inodes.root", "mounts.paths"]
    assert report.items[1].verdict == "skipped"


def test_hooks_are_told_apart(config: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    """`--hook` runs the items of that hook."""
    options = config("inodes: {hooks: [prolog]}")
    assert main(["check", "inodes.root", *options]) == 0
    assert "not run in the hand hook" in capsys.readouterr().out
    main(["check", "inodes.root", "--hook", "prolog", *options])
    assert "skipped" not in capsys.readouterr().out


def test_root_by_hand_takes_no_xid_away(
    tmp_path: Path,
    config: Callable[[str], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A check by hand with --hook leaves a kernel log line new for the prolog."""
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
    """--watch prints a report each time; Ctrl-C gives exit code 130."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(check.time, "sleep", sleep)
    assert main(["check", "--watch=0.5", "--json", "mounts.paths", *config("mandatory: []")]) == 130
    assert [json.loads(line)["hook"] for line in capsys.readouterr().out.splitlines()] == ["hand"] * 3
    assert pauses == [0.5] * 3


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong options give exit code 2 and the usage."""
    for options in [["--watch=0"], ["--watch=soon"], ["--hook", "lunch"], ["--nope"]]:
        assert refusal_of(SystemExit, main, ["check", *options]) == "2", options
        assert "Usage: slurm-plugin check [OPTIONS] [ITEM]...\n" in capsys.readouterr().err, options
