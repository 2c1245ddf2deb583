"""Which lines of slurm.conf give way, what ours say then, and where the admin is asked."""

from collections.abc import Collection, Mapping

import pytest

from slurm_plugin.install import slurmconf
from slurm_plugin.install.lines import Lines, lines, taken_back

ROOT = "/etc/slurm/slurm_plugin"
FRAGMENT = {
    "PrologFlags": "Alloc,DeferBatch",
    "Prolog": f"{ROOT}/hooks/prolog",
    "EpilogSlurmctld": f"{ROOT}/hooks/epilog_slurmctld",
    "HealthCheckProgram": f"{ROOT}/hooks/periodic",
    "HealthCheckInterval": "300",
    "JobSubmitPlugins": "lua",
}
BY_HAND = "".join(f"{name}={given}\n" for name, given in FRAGMENT.items())


def made(
    text: str,
    *,
    leading: Collection[str] = (),
    lua_is_ours: bool = True,
    repeat: bool = False,
    included: Mapping[str, str | None] | None = None,
) -> Lines:
    """What is made of a slurm.conf."""
    return lines(text, FRAGMENT, ROOT, leading=leading, lua_is_ours=lua_is_ours, repeat=repeat, included=included or {})


def block(found: Lines) -> dict[str, str]:
    """The lines of our block."""
    inside = found.text.split(f"{slurmconf.BEGIN}\n")[1].split(slurmconf.END)[0]
    return dict(line.split("=", 1) for line in inside.splitlines())


def test_a_site_without_any() -> None:
    """All of our lines, and nothing else changes."""
    found = made("ClusterName=a\n")
    assert found.text == f"ClusterName=a\n{slurmconf.BEGIN}\n{BY_HAND}{slurmconf.END}\n"
    assert (found.by_hand, found.chained, found.epilog_slurmctld_is_new) == ((), {}, True)


def test_a_second_time() -> None:
    """Nothing changes, and EpilogSlurmctld is not new any more."""
    for text in ("ClusterName=a\n", "Prolog=/own\nPrologFlags=X11\nJobSubmitPlugins=all_partitions\n"):
        first = made(text)
        second = made(first.text)
        assert (second.text, second.chained) == (first.text, first.chained)
        assert not second.epilog_slurmctld_is_new


def test_lists_are_joined() -> None:
    """What the site has comes first; a line that holds all of it stays as it is, in any case of letters."""
    found = made("PrologFlags=Contain,alloc\nJobSubmitPlugins=job_submit/lua\n", lua_is_ours=False)
    assert block(found)["PrologFlags"] == "Contain,alloc,DeferBatch"
    assert "JobSubmitPlugins" not in block(found)
    assert "#slurm_plugin# PrologFlags=Contain,alloc\nJobSubmitPlugins=job_submit/lua\n" in found.text


def test_hooks_are_chained() -> None:
    """The site's program is kept for the chain; its line becomes a comment."""
    found = made("EpilogSlurmctld=/own/epilog\n")
    assert found.chained == {"EpilogSlurmctld": ("/own/epilog",)}
    assert block(found)["EpilogSlurmctld"] == f"{ROOT}/chain/epilog_slurmctld"
    assert found.text.startswith("#slurm_plugin# EpilogSlurmctld=/own/epilog\n")
    assert not found.epilog_slurmctld_is_new


def test_a_hook_that_runs_ours_already() -> None:
    """A link in its directory is ours, or its text names ours: it is not run twice."""
    found = made("Prolog=/own/prolog.d/*\n", leading=["Prolog"])
    assert "Prolog" not in block(found)
    assert found.text.startswith("Prolog=/own/prolog.d/*\n")
    assert found.chained == {}


def test_lines_that_were_written_by_hand() -> None:
    """All of them, as docs/install.md once said: they stay. Some of them: they become ours."""
    assert made(BY_HAND).text == BY_HAND
    partly = BY_HAND.replace("DeferBatch", "X11")
    assert made(partly).text == (
        "#slurm_plugin# PrologFlags=Alloc,X11\nHealthCheckInterval=300\n"
        f"{slurmconf.BEGIN}\n"
        + BY_HAND.replace("HealthCheckInterval=300\n", "").replace("DeferBatch", "X11,DeferBatch")
        + f"{slurmconf.END}\n"
    )
    assert taken_back(BY_HAND, ROOT, lua_is_ours=True).text == "PrologFlags=Alloc,DeferBatch\nHealthCheckInterval=300\n"


def test_lua_stays_where_the_site_needs_it() -> None:
    """Without a job_submit.lua slurmctld does not start: the plug-in goes with ours, and not with the site's."""
    text = "JobSubmitPlugins=all_partitions,lua\n"
    assert taken_back(text, ROOT, lua_is_ours=True).text == "JobSubmitPlugins=all_partitions\n"
    assert taken_back(text, ROOT, lua_is_ours=False).text == text


@pytest.mark.parametrize("text", ["ClusterName=a\n", "Prolog=/own\nHealthCheckInterval=60\nPrologFlags=X11\n"])
def test_taken_back(text: str) -> None:
    """Whole."""
    assert taken_back(made(text).text, ROOT, lua_is_ours=True).text == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Prolog=/a Epilog=/b\n", "line 1: Prolog has a line with others"),
        ("a=1\nPrologFlags+=X11\n", "line 2: PrologFlags has a line with others, or an operator"),
        ("Prolog=prolog.sh\n", "Prolog=prolog.sh: an absolute path, or a pattern,"),
        ('HealthCheckProgram="/a b"\n', "HealthCheckProgram=/a b: an absolute path of letters"),
        ("HealthCheckProgram=/a*\n", "HealthCheckProgram=/a*: an absolute path of letters"),
        ("Prolog=/a\nProlog=/b\n", "2 lines Prolog, of which Slurm takes the last"),
        (f"{slurmconf.BEGIN}\n", "take out what is left of the block"),
    ],
)
def test_what_nobody_can_tell(text: str, says: str) -> None:
    """The admin is asked, and the text stays as it is."""
    found = made(text)
    assert found.text == text
    assert any(says in line for line in found.by_hand), found.by_hand


def test_several_prologs() -> None:
    """From 24.05 on: all are chained, in their order."""
    found = made("Prolog=/a\nProlog=/b/*\n", repeat=True)
    assert found.chained == {"Prolog": ("/a", "/b/*")}
    assert found.text.startswith("#slurm_plugin# Prolog=/a\n#slurm_plugin# Prolog=/b/*\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [("Prolog=/a\n", "sets Prolog: move that line"), ("include x\n", "includes others"), (None, "cannot be read")],
)
def test_files_that_are_included(text: str | None, says: str) -> None:
    """What matters in one is the admin's to move; another one is none of our business."""
    assert says in made("a=1\n", included={"more.conf": text}).by_hand[0]
    assert made("a=1\n", included={"more.conf": "NodeName=n1\n"}).by_hand == ()


def test_what_a_health_check_of_the_sites_must_know() -> None:
    """It is run as often as ours then."""
    found = made("HealthCheckProgram=/own\nHealthCheckInterval=60\n")
    assert found.notices == (
        "your HealthCheckProgram runs by HealthCheckInterval=300 then, not 60; to keep it, set periodic.interval in the"
        " site file",
    )
    assert made("HealthCheckInterval=60\n").notices == ()


def test_configless() -> None:
    """slurmctld serves slurm.conf."""
    assert made("SlurmctldParameters=Enable_Configless,x\n").configless
    assert not made("SlurmctldParameters=x\n").configless
