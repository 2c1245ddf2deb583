"""The edits of slurm.conf, and what is left to the admin."""

from collections.abc import Mapping
from typing import Any

from slurm_plugin.site import slurmconf
from slurm_plugin.site.files import Entry
from slurm_plugin.site.install.lines import Lines, lines, without_ours
from slurm_plugin.slurm.releases import RELEASES
from tests.unit.site.install.states import LUA, ROOT, SITES_LUA, state

FRAGMENT = {
    "PrologFlags": "Alloc,DeferBatch",
    "Prolog": f"{ROOT}/hooks/prolog",
    "EpilogSlurmctld": f"{ROOT}/hooks/epilog_slurmctld",
    "HealthCheckProgram": f"{ROOT}/hooks/periodic",
    "HealthCheckInterval": "300",
    "JobSubmitPlugins": "lua",
}
BY_HAND = "".join(f"{name}={given}\n" for name, given in FRAGMENT.items())


def made(text: str, entries: Mapping[str, Entry] | None = None, **fields: Any) -> Lines:
    """Edit a slurm.conf."""
    return lines(state(text, entries, **fields), FRAGMENT)


def block(found: Lines) -> dict[str, str]:
    """The lines of our block."""
    inside = found.text.split(f"{slurmconf.BEGIN}\n")[1].split(slurmconf.END)[0]
    return dict(line.split("=", 1) for line in inside.splitlines())


def test_a_site_without_any() -> None:
    """Our block is added, and nothing else changes."""
    found = made("ClusterName=a\n")
    assert found.text == f"ClusterName=a\n{slurmconf.BEGIN}\n{BY_HAND}{slurmconf.END}\n"
    assert (found.by_hand, found.chained, found.epilog_slurmctld_is_new) == ((), {}, True)


def test_a_second_time() -> None:
    """A second edit changes nothing, and EpilogSlurmctld is no longer new."""
    for text in ("ClusterName=a\n", "Prolog=/own\nPrologFlags=X11\nJobSubmitPlugins=all_partitions\n"):
        first = made(text)
        second = made(first.text)
        assert (second.text, second.chained) == (first.text, first.chained)
        assert not second.epilog_slurmctld_is_new


def test_lists_are_joined() -> None:
    """The site's words come first; a line that has all words stays as it is, in any case."""
    found = made("PrologFlags=Contain,alloc\nJobSubmitPlugins=job_submit/lua\n", {LUA: SITES_LUA})
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
    """A program that is a link to our hook, or names it, is not chained."""
    found = made("Prolog=/own/prolog.d/*\n", leading=frozenset({"Prolog"}))
    assert "Prolog" not in block(found)
    assert found.text.startswith("Prolog=/own/prolog.d/*\n")
    assert found.chained == {}


def test_lines_that_were_written_by_hand() -> None:
    """If an admin has written all lines by hand, they stay; if only some, our block replaces them."""
    assert made(BY_HAND).text == BY_HAND
    partly = BY_HAND.replace("DeferBatch", "X11")
    assert made(partly).text == (
        "#slurm_plugin# PrologFlags=Alloc,X11\nHealthCheckInterval=300\n"
        f"{slurmconf.BEGIN}\n"
        + BY_HAND.replace("HealthCheckInterval=300\n", "").replace("DeferBatch", "X11,DeferBatch")
        + f"{slurmconf.END}\n"
    )
    assert without_ours(state(BY_HAND)).text == "PrologFlags=Alloc,DeferBatch\nHealthCheckInterval=300\n"


def test_lua_stays_where_the_site_needs_it() -> None:
    """The Lua plugin is removed only if the site has no script of its own: slurmctld would not start without one."""
    text = "JobSubmitPlugins=all_partitions,lua\n"
    assert without_ours(state(text)).text == "JobSubmitPlugins=all_partitions\n"
    assert without_ours(state(text, {LUA: SITES_LUA})).text == text


def test_taken_back() -> None:
    """The whole edit is undone."""
    for text in ["ClusterName=a\n", "Prolog=/own\nHealthCheckInterval=60\nPrologFlags=X11\n"]:
        assert without_ours(state(made(text).text)).text == text, text


def test_ambiguous_lines() -> None:
    """Ambiguous lines are left to the admin, and the text does not change."""
    cases = [
        ("Prolog=/a Epilog=/b\n", "line 1: Prolog has a line with others"),
        ("a=1\nPrologFlags+=X11\n", "line 2: PrologFlags has a line with others, or an operator"),
        ("Prolog=prolog.sh\n", "Prolog=prolog.sh: an absolute path, or a pattern,"),
        ('HealthCheckProgram="/a b"\n', "HealthCheckProgram=/a b: an absolute path of letters"),
        ("HealthCheckProgram=/a*\n", "HealthCheckProgram=/a*: an absolute path of letters"),
        ("Prolog=/a\nProlog=/b\n", "2 lines Prolog, of which Slurm takes the last"),
        (f"{slurmconf.BEGIN}\n", "take out what is left of the block"),
    ]
    for text, says in cases:
        found = made(text)
        assert found.text == text, text
        assert any(says in line for line in found.by_hand), found.by_hand


def test_several_prologs() -> None:
    """Since 24.05 all of them are chained, in order."""
    found = made("Prolog=/a\nProlog=/b/*\n", release=RELEASES[1])
    assert found.chained == {"Prolog": ("/a", "/b/*")}
    assert found.text.startswith("#slurm_plugin# Prolog=/a\n#slurm_plugin# Prolog=/b/*\n")


# As AWS ParallelCluster has it, with paths below /etc/slurm.
PCLUSTER = "ClusterName=A\nPrologFlags=X11\ninclude slurm_parallelcluster.conf\n"
INCLUDED = {
    "/etc/slurm/slurm_parallelcluster.conf": (
        "PrologFlags=Contain\nProlog=/opt/slurm/etc/scripts/prolog.d/*\nHealthCheckInterval=300\n"
        "include pcluster/%c_q1.conf\n"
    ),
    "/etc/slurm/pcluster/a_q1.conf": "NodeName=q1-st-c1-[1-2]\nEpilogSlurmctld=/own\n",
}


def test_files_that_are_included() -> None:
    """Our block says their parameters again. The lines of slurm.conf are replaced as without them."""
    found = made(PCLUSTER, included=INCLUDED)
    assert found.by_hand == ()
    assert found.chained == {"Prolog": ("/opt/slurm/etc/scripts/prolog.d/*",), "EpilogSlurmctld": ("/own",)}
    assert block(found) == {
        "PrologFlags": "Contain,Alloc,DeferBatch",
        "Prolog": f"{ROOT}/chain/prolog",
        "EpilogSlurmctld": f"{ROOT}/chain/epilog_slurmctld",
        "HealthCheckProgram": f"{ROOT}/hooks/periodic",
        "JobSubmitPlugins": "lua",
    }
    assert found.text.startswith("ClusterName=A\n#slurm_plugin# PrologFlags=X11\ninclude slurm_parallelcluster.conf\n")
    assert not found.epilog_slurmctld_is_new
    assert [each.partition(", too;")[0] for each in found.notices] == [
        "/etc/slurm/slurm_parallelcluster.conf sets PrologFlags, Prolog",
        "/etc/slurm/pcluster/a_q1.conf sets EpilogSlurmctld",
    ]
    assert made(found.text, included=INCLUDED).text == found.text
    assert without_ours(state(found.text, included=INCLUDED)).text == PCLUSTER


def test_a_hook_that_is_included_where_slurm_runs_several() -> None:
    """Ours is one more: a chain script would run the site's a second time. If slurmctld is away, a line warns."""
    for release, chained, hook in ((RELEASES[1], {}, "hooks"), (None, {"Prolog": ("/own",)}, "chain")):
        found = made("include more.conf\n", included={"/etc/slurm/more.conf": "Prolog=/own\n"}, release=release)
        assert (found.chained, block(found)["Prolog"]) == (chained, f"{ROOT}/{hook}/prolog")
        assert any("or your Prolog runs twice" in each for each in found.notices) is (release is None)


def test_where_an_include_of_an_included_file_is() -> None:
    """Beside that file, or, from 24.11 on, beside slurm.conf."""
    own = {"/etc/slurm/own/a.conf": "include b.conf\n", "/etc/slurm/own/b.conf": "Prolog=/x\n"}
    own["/etc/slurm/b.conf"] = "Prolog=/y\n"
    for release, program in ((None, "/x"), (RELEASES[0], "/x"), (RELEASES[1], "/y")):
        whole = state("include own/a.conf\n", included=own, release=release).whole("include own/a.conf\n")
        assert whole == f"Prolog={program}\n"


def test_our_lines_in_an_included_file() -> None:
    """An admin has written them there: slurm.conf stays as it is."""
    assert made("include more.conf\n", included={"/etc/slurm/more.conf": BY_HAND}).text == "include more.conf\n"


def test_included_files_that_are_left_to_the_admin() -> None:
    """One that cannot be read, a program that no chain can call, and files without end."""
    for included, says in [
        (None, "/etc/slurm/more.conf, which slurm.conf includes, cannot be read"),
        ('HealthCheckProgram="/a b"\n', "/etc/slurm/more.conf: HealthCheckProgram=/a b: an absolute path of letters"),
        ("include more.conf\n", "/etc/slurm/more.conf: too many files that include each other"),
    ]:
        found = made("include more.conf\n", included={"/etc/slurm/more.conf": included})
        assert found.text == "include more.conf\n"
        assert [each.startswith(says) for each in found.by_hand] == [True], found.by_hand


def test_what_a_health_check_of_the_sites_must_know() -> None:
    """A notice says that the site's health check runs at our interval."""
    found = made("HealthCheckProgram=/own\nHealthCheckInterval=60\n")
    assert found.notices == (
        "your HealthCheckProgram runs by HealthCheckInterval=300 then, not 60; to keep it, set periodic.interval in the"
        " site file",
    )
    assert made("HealthCheckInterval=60\n").notices == ()


def test_configless() -> None:
    """slurmctld serves slurm.conf to the nodes."""
    assert made("SlurmctldParameters=Enable_Configless,x\n").configless
    assert not made("SlurmctldParameters=x\n").configless
