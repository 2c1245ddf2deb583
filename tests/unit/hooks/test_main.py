"""What all hooks share: one of a known name runs, and a failure of ours is said in the system log."""

import syslog
from typing import NoReturn

import pytest

from slurm_plugin import hooks, trust
from slurm_plugin.hooks import prolog


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """What the system log got."""
    lines: list[tuple[int, str]] = []
    monkeypatch.setattr(syslog, "syslog", lambda priority, line: lines.append((priority, line)))
    monkeypatch.setattr(trust, "exposed", lambda *_: "")  # as where these are deployed
    return lines


def test_files_that_others_can_change(monkeypatch: pytest.MonkeyPatch, said: list[tuple[int, str]]) -> None:
    """The hook does not run; the line says which, and what to do."""
    monkeypatch.setattr(prolog, "main", lambda: hooks.NODE_IS_BAD)
    monkeypatch.setattr(trust, "exposed", lambda *_: "/etc/slurm")
    with pytest.raises(PermissionError):
        hooks.main(["prolog"])
    line = "others than root can change /etc/slurm; run: chown root:root /etc/slurm && chmod go-w /etc/slurm"
    assert said == [(syslog.LOG_ERR, f"the prolog hook: PermissionError: {line}")]


def test_its_exit_code_is_handed_on(monkeypatch: pytest.MonkeyPatch, said: list[tuple[int, str]]) -> None:
    """And nothing is said."""
    monkeypatch.setattr(prolog, "main", lambda: hooks.NODE_IS_BAD)
    assert hooks.main(["prolog"]) == 75
    assert said == []


def test_a_failure_of_ours_is_one_line(monkeypatch: pytest.MonkeyPatch, said: list[tuple[int, str]]) -> None:
    """With its cause, whatever a user has put into it; the guard sees exit 1."""

    def fail() -> NoReturn:
        raise PermissionError("no\nway\x1b[2J" + "x" * 500)

    monkeypatch.setattr(prolog, "main", fail)
    with pytest.raises(PermissionError):
        hooks.main(["prolog"])
    ((priority, line),) = said
    assert priority == syslog.LOG_ERR
    assert line.startswith("the prolog hook: PermissionError: no way?[2Jxxx")
    assert (len(line), line.isprintable()) == (200, True)


@pytest.mark.parametrize("args", [[], ["nothing"], ["prolog", "epilog"], ["../prolog"]])
def test_another_name(args: list[str]) -> None:
    """Is refused with those that there are."""
    with pytest.raises(SystemExit, match="there are: prolog, epilog, "):
        hooks.main(args)
