"""slurm.conf is parsed as in Slurm, and edits can be undone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.site import slurmconf
from slurm_plugin.site.slurmconf import DamagedError, settings, value, with_block, without


def found(text: str) -> list[tuple[str, str, bool]]:
    """Return name, value and `alone` of each setting."""
    return [(each.name, each.value, each.alone) for each in settings(text)]


def test_settings() -> None:
    """Comments, quotes, escapes, continued lines, several on a line: as src/common/parse_config.c has them."""
    cases = [
        ("Prolog=/a\n", [("prolog", "/a", True)]),
        ("  PROLOG = /a  # why\n", [("prolog", "/a", True)]),
        ("# Prolog=/a\n#Prolog=/b", []),
        ('Prolog="/a b"', [("prolog", "/a b", True)]),
        ("Prolog=/a\\#b", [("prolog", "/a#b", True)]),
        ("Prolog=/a Epilog=/b", [("prolog", "/a", False), ("epilog", "/b", False)]),
        ("SchedulerParameters+=x", [("schedulerparameters", "x", False)]),
        ("SchedulerParameters=a,\\\nb\n", [("schedulerparameters", "a,b", True)]),
        ("SchedulerParameters=a, \\ # more\nb\n", [("schedulerparameters", "a,", True)]),
        ("a=1\x0cProlog=/a\n", [("a", "1", False), ("prolog", "/a", False)]),
        ("include more.conf\nprolog=/a\n", [("prolog", "/a", True)]),
    ]
    for text, expected in cases:
        assert found(text) == expected, text


def test_a_value_counts_once() -> None:
    """The last, however it is written."""
    assert value(settings("SlurmUser=a\nslurmuser=b\n"), "SlurmUser") == "b"
    assert value(settings(""), "SlurmUser") == ""


def test_lines_that_give_way() -> None:
    """Replaced lines stay as comments, and our lines are one block."""
    text = "ClusterName=a\nSchedulerParameters=x,\\\n  y\nSlurmUser=slurm"
    (away,) = [each for each in settings(text) if each.name == "schedulerparameters"]
    made = with_block(text, {"SchedulerParameters": "x,y,z"}, [away])
    assert made == (
        "ClusterName=a\n#slurm_plugin# SchedulerParameters=x,\\\n#slurm_plugin#   y\nSlurmUser=slurm\n"
        f"{slurmconf.BEGIN}\nSchedulerParameters=x,y,z\n{slurmconf.END}\n"
    )
    assert found(made) == [
        ("clustername", "a", True),
        ("slurmuser", "slurm", True),
        ("schedulerparameters", "x,y,z", True),
    ]
    assert without(made) == text + "\n"


LINES = st.sampled_from(
    ["Prolog=/a", "Epilog=/b \\", "# Prolog=/c", "", "NodeName=n1 CPUs=4", 'X="a b"', "é=\x0c", "\\"]
)


@given(st.lists(LINES))
def test_every_edit_can_be_taken_back(lines: list[str]) -> None:
    """Every edit of any text can be undone."""
    text = "".join(f"{line}\n" for line in lines)
    assert without(with_block(text, {"Prolog": "/ours"}, settings(text))) == text


def test_what_was_edited_since_stays() -> None:
    """Lines that the site has added around our block stay."""
    made = with_block("a=1\n", {"Prolog": "/ours"}, settings("a=1\n")) + "b=2\n"
    assert without(made) == "a=1\nb=2\n"


def test_half_a_block() -> None:
    """A block without an end is refused."""
    with pytest.raises(DamagedError, match="have no '# END slurm_plugin'"):
        without(f"a=1\n{slurmconf.BEGIN}\nProlog=/ours\n")
