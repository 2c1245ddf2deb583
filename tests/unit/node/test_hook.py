"""All hooks: a known name runs, and a failure goes to the system log."""

from typing import NoReturn

import pytest

from prechecks import files
from slurm_plugin.node import hook, prolog
from slurm_plugin.records import site_settings, syslog


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Return the lines of the system log."""
    lines: list[tuple[int, str]] = []
    monkeypatch.setattr(syslog, "syslog", lambda priority, line: lines.append((priority, line)))
    monkeypatch.setattr(files, "exposed", lambda *_: "")  # as where these are deployed
    return lines


def test_files_that_others_can_change(monkeypatch: pytest.MonkeyPatch, said: list[tuple[int, str]]) -> None:
    """The hook does not run; the line has the path and the remedy."""
    monkeypatch.setattr(prolog, "main", lambda: hook.NODE_IS_BAD)
    monkeypatch.setattr(files, "exposed", lambda *_: "/etc/slurm")
    with pytest.raises(PermissionError):
        hook.main(["prolog"])
    line = "others than root can change /etc/slurm; run: chown root:root /etc/slurm && chmod go-w /etc/slurm"
    assert said == [(syslog.LOG_ERR, f"the prolog hook: PermissionError: {line}")]


def test_its_exit_code_is_handed_on(monkeypatch: pytest.MonkeyPatch, said: list[tuple[int, str]]) -> None:
    """Nothing is logged."""
    monkeypatch.setattr(prolog, "main", lambda: hook.NODE_IS_BAD)
    assert hook.main(["prolog"]) == 75
    assert said == []


def test_a_count_that_fails(monkeypatch: pytest.MonkeyPatch, said: list[tuple[int, str]]) -> None:
    """A bad node stays one if the run cannot be counted, as with the settings of an older release."""
    monkeypatch.setattr(prolog, "main", lambda: hook.NODE_IS_BAD)
    monkeypatch.setattr(site_settings, "read", lambda _: {})
    assert hook.main(["prolog"]) == 75
    assert said == [(syslog.LOG_ERR, "the prolog hook: KeyError: 'metrics_directory'")]


def test_a_failure_of_ours_is_one_line(monkeypatch: pytest.MonkeyPatch, said: list[tuple[int, str]]) -> None:
    """The line has the cause, whatever text of a user is in it; the exit code is 1."""

    def fail() -> NoReturn:
        raise PermissionError("no\nway\x1b[2J" + "x" * 500)

    monkeypatch.setattr(prolog, "main", fail)
    with pytest.raises(PermissionError):
        hook.main(["prolog"])
    ((priority, line),) = said
    assert priority == syslog.LOG_ERR
    assert line.startswith("the prolog hook: PermissionError: no way?[2Jxxx")
    assert (len(line), line.isprintable()) == (200, True)


@pytest.mark.parametrize("args", [[], ["nothing"], ["prolog", "epilog"], ["../prolog"]])
def test_another_name(args: list[str]) -> None:
    """It is refused, with the list of hooks."""
    with pytest.raises(SystemExit, match="there are: prolog, epilog, "):
        hook.main(args)
