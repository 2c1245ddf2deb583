"""`slurm-plugin hosts convert`: a rank table in, another out, or one clear line and nothing."""

from pathlib import Path

import pytest

from slurm_plugin.job import hosts

GOLDEN = Path(__file__).parents[2] / "golden/ranktable"
TO = "--to=ranktable-1.0"


@pytest.mark.parametrize("name", ["card", "node", "nodes"])
def test_template_2(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """It becomes a table of 1.0 that is read as one and stays as it is."""
    assert hosts.main(["convert", str(GOLDEN / f"2-{name}.json"), TO]) == 0
    first = capsys.readouterr()
    assert '"version": "1.0"' in first.out
    assert first.err == ""


def test_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Into a file, as a whole; converted again it is the same, byte for byte."""
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert hosts.main(["convert", str(GOLDEN / "2-nodes.json"), TO, f"--output={first}"]) == 0
    assert hosts.main(["convert", str(first), TO, f"--output={second}"]) == 0
    assert first.read_bytes() == second.read_bytes() != b""
    assert capsys.readouterr() == ("", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.json", "second.json"]


def test_unequal_servers(capsys: pytest.CaptureFixture[str]) -> None:
    """Refused, unless they are wanted."""
    argv = ["convert", str(GOLDEN / "2-uneven.json"), TO]
    assert hosts.main(argv) == 2
    assert capsys.readouterr().out == ""
    assert hosts.main([*argv, "--uneven"]) == 0


BAD = {
    "not there": (None, "there is no such file"),
    "never complete": ('{"status": "initializing"}', "initializing"),
    "cut off": ('{"status": "completed", "group_count": "1"', "seen last"),
    "super pods": ((GOLDEN / "1.2-nodes.json").read_text(), "use it as it is"),
}


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_what_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str) -> None:
    """One line with the file's name or the table's fault, exit 2, and no output."""
    file, out = tmp_path / "table.json", tmp_path / "out.json"
    if text is not None:
        file.write_text(text)
    assert hosts.main(["convert", str(file), TO, f"--output={out}"]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.count("\n") == 1
    assert said in found.err
    assert not out.exists()


def test_output_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named, and nothing is left."""
    out = tmp_path / "gone" / "out.json"
    assert hosts.main(["convert", str(GOLDEN / "2-card.json"), TO, f"--output={out}"]) == 2
    assert f"{out}: No such file or directory; nothing was written" in capsys.readouterr().err


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """What is accepted is said."""
    with pytest.raises(SystemExit) as caught:
        hosts.main(["convert", "table.json", "--to=ranktable-9"])
    assert caught.value.code == 2
    assert "ranktable-1.0" in capsys.readouterr().err
