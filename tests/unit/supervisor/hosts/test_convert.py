"""`slurm-plugin hosts convert`: a rank table in, another out; or one clear line and no table."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slurm_plugin.cli.nodeside import hosts as hosts_command
from tests.waiting import HANG_S, until

GOLDEN = Path(__file__).parents[3] / "golden/ranktable"
TO = "--to=ranktable-1.0"


def test_template_2(capsys: pytest.CaptureFixture[str]) -> None:
    """It becomes a table of 1.0, which is accepted and does not change."""
    for name in ["card", "node", "nodes"]:
        assert hosts_command.main(["convert", str(GOLDEN / f"2-{name}.json"), TO]) == 0, name
        first = capsys.readouterr()
        assert '"version": "1.0"' in first.out, name
        assert first.err == "", name


def test_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Into a file, atomically. Converted again it is the same, byte for byte."""
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert hosts_command.main(["convert", str(GOLDEN / "2-nodes.json"), TO, f"--output={first}"]) == 0
    assert hosts_command.main(["convert", str(first), TO, f"--output={second}"]) == 0
    assert first.read_bytes() == second.read_bytes() != b""
    assert capsys.readouterr() == ("", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.json", "second.json"]


def test_unequal_servers(capsys: pytest.CaptureFixture[str]) -> None:
    """Refused, unless an option accepts them."""
    argv = ["convert", str(GOLDEN / "2-uneven.json"), TO]
    assert hosts_command.main(argv) == 2
    assert capsys.readouterr().out == ""
    assert hosts_command.main([*argv, "--uneven"]) == 0


BAD = {
    "not there": (None, "there is no such file"),
    "never complete": ('{"status": "initializing"}', "initializing"),
    "cut off": ('{"status": "completed", "group_count": "1"', "seen last"),
    "super pods": ((GOLDEN / "1.2-nodes.json").read_text(), "use it as it is"),
}


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_what_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str) -> None:
    """One line with the file's name or the fault, exit 2, and no output."""
    file, out = tmp_path / "table.json", tmp_path / "out.json"
    if text is not None:
        file.write_text(text)
    assert hosts_command.main(["convert", str(file), TO, f"--output={out}", "--wait=0"]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.count("\n") == 1
    assert said in found.err
    assert not out.exists()


def test_a_table_that_comes_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is waited for without an option, with a line on stderr; also by `hosts ascend --table`."""
    for argv in (["convert", TO], ["ascend", "--task=0", "--table"]):
        file = tmp_path / f"{argv[0]}.json"
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(hosts_command.main, [*argv, str(file)])
            said = until(lambda: capsys.readouterr().err)
            file.write_text((GOLDEN / "1.0-node.json").read_text())
            assert ended.result(HANG_S) == 0, argv
        assert said == f"slurm-plugin: {file}: waiting up to 1800 s for a rank table: there is no such file\n", argv
        assert capsys.readouterr().err == "", argv


def test_output_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names it, and nothing is left."""
    out = tmp_path / "gone" / "out.json"
    assert hosts_command.main(["convert", str(GOLDEN / "2-card.json"), TO, f"--output={out}"]) == 2
    assert f"{out}: No such file or directory; nothing was written" in capsys.readouterr().err


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """The message has the accepted forms."""
    for argv, said in {
        ("convert", "table.json", "--to=ranktable-9"): "ranktable-1.0",
        ("convert", "table.json", TO, "--wait=nan"): "'nan': accepted: a number of seconds, such as 60; 0 does not",
    }.items():
        with pytest.raises(SystemExit) as caught:
            hosts_command.main([*argv])
        assert caught.value.code == 2
        assert said in capsys.readouterr().err
    for argv, said in {
        ("ranktable-1.0", "--wait=5"): "--wait is for the rank table of --table",
        ("convert", "table.json"): "--to is missing",
    }.items():
        assert hosts_command.main([*argv]) == 2
        assert said in capsys.readouterr().err
