"""Plans: whole, in an order that never leaves Slurm without a hook that it was told to run, and taken back whole."""

import pytest

from slurm_plugin.install.plan import install, rollback, uninstall
from slurm_plugin.install.standing import Entry
from slurm_plugin.slurm.releases import RELEASES
from tests.unit.install.standings import (
    CONF,
    LUA,
    OWN_LUA,
    ROOT,
    SITES_LUA,
    SLURM,
    SPOOL,
    after,
    file,
    paths,
    rendered,
    standing,
)

OWN = "ClusterName=a\nProlog=/own/prolog\nJobSubmitPlugins=lua\n"


def test_the_first_time() -> None:
    """Directories, code, hooks; then the spool directory and job_submit.lua; slurm.conf, with a copy, at the end."""
    before = standing()
    plan = install(before, rendered())
    assert paths(plan.changes) == [
        ROOT,
        f"{ROOT}/hooks",
        f"{ROOT}/slurm_plugin.pyz",
        f"{ROOT}/compiled.json",
        f"{ROOT}/hooks/prolog",
        f"{ROOT}/job_submit.lua",
        f"{ROOT}/slurm.conf.fragment",
        SPOOL,
        LUA,
        f"{CONF}.before-slurm_plugin",
        CONF,
    ]
    made = after(before, plan).entries
    assert made[SPOOL] == Entry(None, 0o700, *SLURM)
    assert made[LUA] == rendered()["job_submit.lua"]
    assert made[f"{CONF}.before-slurm_plugin"] == before.entries[CONF]
    assert plan.by_hand == ()


def test_a_second_time() -> None:
    """Nothing is left to do, or to say."""
    for before in (standing(), standing(OWN, {LUA: SITES_LUA})):
        plan = install(after(before, install(before, rendered())), rendered())
        assert (plan.changes, plan.notices) == ((), ())


def test_what_is_not_as_it_should_be() -> None:
    """An owner, a mode, a text: that path, and the version before is kept as it was."""
    before = standing()
    whole = after(before, install(before, rendered()))
    path = f"{ROOT}/hooks/prolog"
    for wrong in (file("#!/bin/sh\n# 1\n", 0o777), Entry(b"#!/bin/sh\n# 1\n", 0o755, 1000, 0), file("mine", 0o755)):
        broken = after(whole, install(whole, rendered()))
        broken = standing(entries={**broken.entries, path: wrong}, spool_owner=SLURM)
        plan = install(broken, rendered())
        assert after(broken, plan).entries[path] == whole.entries[path]
        assert after(broken, plan).entries[f"{ROOT}.previous/hooks/prolog"] == wrong


@pytest.mark.parametrize(
    ("text", "release", "restart"),
    [("a=1\n", 0, True), ("a=1\n", 1, False), ("a=1\n", None, True), ("EpilogSlurmctld=/own\n", 0, False)],
)
def test_what_is_to_be_restarted(text: str, release: int | None, *, restart: bool) -> None:
    """22.05, and who knows what, runs no EpilogSlurmctld that is new before; a changed one is taken on."""
    plan = install(standing(text, release=None if release is None else RELEASES[release]), rendered())
    assert any("systemctl restart slurmctld" in line for line in plan.notices) is restart
    assert plan.notices[-1] == "run: scontrol reconfigure"
    assert plan.notices[0].startswith(f"copy {ROOT} to every node and controller before slurm.conf names it")


def test_where_slurm_conf_is_to_be() -> None:
    """On all machines; where slurmctld serves it on the controllers."""
    plan = install(standing(), rendered())
    assert f"copy {CONF} to every machine, as it must be the same on all" in plan.notices
    plan = install(standing("SlurmctldParameters=enable_configless\n", controllers=("c1", "c2")), rendered())
    assert (
        "slurmctld serves slurm.conf (enable_configless): it is changed on the controllers (c1, c2) only"
        in plan.notices
    )


def test_on_a_node() -> None:
    """The site directory with its chains, and nothing else."""
    plan = install(standing(OWN, {LUA: SITES_LUA}, controller=False), rendered())
    assert all(path == ROOT or path.startswith(f"{ROOT}/") for path in paths(plan.changes))
    assert f"{ROOT}/chain/prolog" in paths(plan.changes)
    assert len(plan.notices) == 1


def test_a_sites_own() -> None:
    """Its prolog is chained, its script is moved aside with its owner, before ours is put in its place."""
    before = standing(OWN, {LUA: SITES_LUA})
    plan = install(before, rendered())
    made = after(before, plan).entries
    assert b"/own/prolog" in (made[f"{ROOT}/chain/prolog"].content or b"")
    assert made[OWN_LUA] == SITES_LUA
    assert OWN_LUA.encode() in (made[LUA].content or b"")
    assert paths(plan.changes).index(OWN_LUA) < paths(plan.changes).index(LUA)


def test_a_script_that_calls_ours_already() -> None:
    """Stays the site's."""
    calls = file("function slurm_job_submit(job) pcall(grant, job) return 0 end\n")
    assert LUA not in paths(install(standing(OWN, {LUA: calls}), rendered()).changes)


def test_two_scripts_of_the_sites() -> None:
    """Which of them counts is for the site to say."""
    plan = install(standing(OWN, {LUA: SITES_LUA, OWN_LUA: SITES_LUA}), rendered())
    assert plan.by_hand == (
        f"{OWN_LUA} stands there, and {LUA} is another than ours: leave one of them, as job_submit.lua",
    )


def test_an_upgrade_keeps_the_version_before() -> None:
    """And what is the site's in the directory; a chain that is not needed any more goes."""
    own = {f"{ROOT}/DISABLED": file(""), f"{ROOT}/templates": Entry(None, 0o755), f"{ROOT}/notes": file("x")}
    before = standing(OWN, {LUA: SITES_LUA, **own})
    first = after(before, install(before, rendered(1)))
    dropped = {**first.entries, CONF: file("ClusterName=a\n")}
    first = standing(entries=dropped)
    second = after(first, install(first, rendered(2)))
    assert second.deployed == rendered(2)
    assert second.of(f"{ROOT}.previous") == first.deployed
    assert own.items() <= second.entries.items()


def test_an_upgrade_that_was_cut_off() -> None:
    """Wherever: the next run does the rest, and half a version is never kept as the one before."""
    before = standing()
    first = after(before, install(before, rendered(1)))
    plan = install(first, rendered(2))
    for number in range(len(plan.changes) + 1):
        half = after(first, plan, upto=number)
        whole = after(half, install(half, rendered(2)))
        assert whole.entries == after(first, plan).entries
        assert whole.of(f"{ROOT}.previous") == rendered(1)


def test_back_and_forth() -> None:
    """The version before comes back with its job_submit.lua; then the newer one again."""
    before = standing(OWN, {LUA: SITES_LUA})
    assert rollback(before).by_hand == (f"{ROOT}.previous holds no version: there is none to go back to",)
    first = after(before, install(before, rendered(1)))
    second = after(first, install(first, rendered(2)))
    third = after(second, rollback(second))
    assert third.deployed == first.deployed
    assert third.entries[LUA] == first.entries[LUA]
    assert after(third, rollback(third)).deployed == second.deployed


@pytest.mark.parametrize("text", ["ClusterName=a\n", OWN])
def test_taken_back(text: str) -> None:
    """First what names our files; they go once nobody needs them; then all is as it was, but for the copy."""
    before = standing(text, {LUA: SITES_LUA} if text == OWN else {})
    installed = after(before, install(before, rendered()))
    lines = uninstall(installed)
    assert not any(path.startswith(ROOT) for path in paths(lines.changes))
    waiting = after(installed, lines)
    busy = uninstall(standing(entries=waiting.entries, in_use="job 7 of ours is not over"))
    assert busy.changes == ()
    assert busy.notices == (f"{ROOT} stays: job 7 of ours is not over; run it again when that is over",)
    gone = dict(after(waiting, uninstall(waiting)).entries)
    assert gone.pop(f"{CONF}.before-slurm_plugin")
    assert gone == before.entries


def test_what_is_not_ours_stays() -> None:
    """A template of the site's, a spool with entries."""
    own = {f"{ROOT}/templates": Entry(None, 0o755), f"{ROOT}/templates/a": file("x")}
    spool = {SPOOL: Entry(None, 0o700, *SLURM), f"{SPOOL}/7.0.json": file("{}"), f"{SPOOL}/lock": file("")}
    before = standing(entries={**own, **spool})
    installed = after(before, install(before, rendered()))
    waiting = after(installed, uninstall(installed))
    plan = uninstall(waiting)
    left = after(waiting, plan).entries
    assert {**own, **spool}.items() <= left.items()
    assert ROOT in left
    assert f"{ROOT}/templates is yours, and stays" in plan.notices
