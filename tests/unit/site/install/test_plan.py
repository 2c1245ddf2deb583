"""Plans are complete and reversible, and Slurm never names a hook that is not there."""

from dataclasses import replace

from slurm_plugin.site.doctor.site_names import Unknown
from slurm_plugin.site.files import Entry
from slurm_plugin.site.install.plan import install, rollback, uninstall
from slurm_plugin.slurm.releases import RELEASES
from tests.unit.site.install.states import (
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
    state,
)

OWN = "ClusterName=a\nProlog=/own/prolog\nJobSubmitPlugins=lua\n"


def test_the_first_time() -> None:
    """Directories, code and hooks come first, then the spool directory and job_submit.lua; slurm.conf is last."""
    before = state()
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
    """A second plan is empty."""
    for before in (state(), state(OWN, {LUA: SITES_LUA})):
        plan = install(after(before, install(before, rendered())), rendered())
        assert (plan.changes, plan.notices) == ((), ())


def test_what_is_not_as_it_should_be() -> None:
    """A wrong owner, mode or text is corrected, and the previous version keeps the wrong file."""
    before = state()
    whole = after(before, install(before, rendered()))
    path = f"{ROOT}/hooks/prolog"
    for wrong in (file("#!/bin/sh\n# 1\n", 0o777), Entry(b"#!/bin/sh\n# 1\n", 0o755, 1000, 0), file("mine", 0o755)):
        broken = after(whole, install(whole, rendered()))
        broken = state(entries={**broken.entries, path: wrong}, spool_owner=SLURM)
        plan = install(broken, rendered())
        assert after(broken, plan).entries[path] == whole.entries[path]
        assert after(broken, plan).entries[f"{ROOT}.previous/hooks/prolog"] == wrong


def test_what_is_to_be_restarted() -> None:
    """Only 22.05, or an unknown release, needs a restart for a new EpilogSlurmctld; a changed one needs none."""
    for text, release, restart in [
        ("a=1\n", 0, True),
        ("a=1\n", 1, False),
        ("a=1\n", None, True),
        ("EpilogSlurmctld=/own\n", 0, False),
    ]:
        plan = install(state(text, release=None if release is None else RELEASES[release]), rendered())
        assert any("systemctl restart slurmctld" in line for line in plan.notices) is restart, text
        assert plan.notices[-1] == "run: scontrol reconfigure", text
        assert plan.notices[0].startswith(f"copy {ROOT} to every node and controller before slurm.conf names it"), text


def test_where_slurm_conf_is_to_be() -> None:
    """slurm.conf goes to all machines, or to the controllers only if slurmctld serves it."""
    plan = install(state(), rendered())
    assert f"copy {CONF} to every machine, as it must be the same on all" in plan.notices
    plan = install(state("SlurmctldParameters=enable_configless\n", controllers=("c1", "c2")), rendered())
    assert (
        "slurmctld serves slurm.conf (enable_configless): it is changed on the controllers (c1, c2) only"
        in plan.notices
    )


def test_on_a_node() -> None:
    """Only the site directory with its chains changes."""
    plan = install(state(OWN, {LUA: SITES_LUA}, controller=False), rendered())
    assert all(path == ROOT or path.startswith(f"{ROOT}/") for path in paths(plan.changes))
    assert f"{ROOT}/chain/prolog" in paths(plan.changes)
    assert len(plan.notices) == 1


def test_a_sites_own() -> None:
    """The site's prolog is chained, and its script is moved aside with its owner before ours replaces it."""
    before = state(OWN, {LUA: SITES_LUA})
    plan = install(before, rendered())
    made = after(before, plan).entries
    assert b"/own/prolog" in (made[f"{ROOT}/chain/prolog"].content or b"")
    assert made[OWN_LUA] == SITES_LUA
    assert OWN_LUA.encode() in (made[LUA].content or b"")
    assert paths(plan.changes).index(OWN_LUA) < paths(plan.changes).index(LUA)


def test_a_script_that_calls_ours_already() -> None:
    """A script of the site that calls ours stays."""
    calls = file("function slurm_job_submit(job) pcall(grant, job) return 0 end\n")
    assert LUA not in paths(install(state(OWN, {LUA: calls}), rendered()).changes)


def test_two_scripts_of_the_sites() -> None:
    """Two scripts of the site are left to the admin."""
    plan = install(state(OWN, {LUA: SITES_LUA, OWN_LUA: SITES_LUA}), rendered())
    assert plan.by_hand == (f"{OWN_LUA} exists, and {LUA} is not ours: keep one of them, as job_submit.lua",)


def test_an_upgrade_keeps_the_version_before() -> None:
    """An upgrade keeps the site's files in the directory, and removes an unused chain."""
    own = {f"{ROOT}/DISABLED": file(""), f"{ROOT}/templates": Entry(None, 0o755), f"{ROOT}/notes": file("x")}
    before = state(OWN, {LUA: SITES_LUA, **own})
    first = after(before, install(before, rendered(1)))
    dropped = {**first.entries, CONF: file("ClusterName=a\n")}
    first = state(entries=dropped)
    second = after(first, install(first, rendered(2)))
    assert second.deployed == rendered(2)
    assert second.of(f"{ROOT}.previous") == first.deployed
    assert own.items() <= second.entries.items()


def test_an_upgrade_that_was_cut_off() -> None:
    """After an interruption at any change, the next run finishes; a partial version never becomes the previous one."""
    before = state()
    first = after(before, install(before, rendered(1)))
    plan = install(first, rendered(2))
    for number in range(len(plan.changes) + 1):
        half = after(first, plan, upto=number)
        whole = after(half, install(half, rendered(2)))
        assert whole.entries == after(first, plan).entries
        assert whole.of(f"{ROOT}.previous") == rendered(1)


def test_back_and_forth() -> None:
    """A rollback restores the previous version with its job_submit.lua; a second one, the newer version."""
    before = state(OWN, {LUA: SITES_LUA})
    assert rollback(before).by_hand == (f"{ROOT}.previous holds no version: there is none to go back to",)
    first = after(before, install(before, rendered(1)))
    second = after(first, install(first, rendered(2)))
    third = after(second, rollback(second))
    assert third.deployed == first.deployed
    assert third.entries[LUA] == first.entries[LUA]
    assert after(third, rollback(third)).deployed == second.deployed


def test_taken_back() -> None:
    """References go first, the files when they are unused; then only the copy of slurm.conf is left."""
    for text in ["ClusterName=a\n", OWN]:
        before = state(text, {LUA: SITES_LUA} if text == OWN else {})
        installed = after(before, install(before, rendered()))
        lines = uninstall(installed)
        assert not any(path.startswith(ROOT) for path in paths(lines.changes)), text
        waiting = after(installed, lines)
        busy = uninstall(state(entries=waiting.entries, in_use="not ended yet: job 7 of slurm_plugin"))
        assert busy.changes == (), text
        assert busy.notices == (
            f"{ROOT} stays: not ended yet: job 7 of slurm_plugin; run it again when that is over",
        ), text
        gone = dict(after(waiting, uninstall(waiting)).entries)
        assert gone.pop(f"{CONF}.before-slurm_plugin"), text
        assert gone == before.entries, text


def test_what_is_not_ours_stays() -> None:
    """Templates of the site and a spool with entries stay."""
    own = {f"{ROOT}/templates": Entry(None, 0o755), f"{ROOT}/templates/a": file("x")}
    spool = {SPOOL: Entry(None, 0o700, *SLURM), f"{SPOOL}/7.0.json": file("{}"), f"{SPOOL}/lock": file("")}
    before = state(entries={**own, **spool})
    installed = after(before, install(before, rendered()))
    waiting = after(installed, uninstall(installed))
    plan = uninstall(waiting)
    left = after(waiting, plan).entries
    assert {**own, **spool}.items() <= left.items()
    assert ROOT in left
    assert f"{ROOT}/templates is yours, and stays" in plan.notices


def test_names_that_slurm_does_not_have() -> None:
    """An unknown partition in the site file stops an installation; an unknown node is only reported."""
    wrong, gone = Unknown("a names b: Slurm has no such partition"), Unknown("c names n9: no such node", harmless=True)
    plan = install(state(unknown=(wrong, gone)), rendered())
    assert plan.by_hand == ("the site file: a names b: Slurm has no such partition",)
    assert plan.notices[0] == "correct the site file: c names n9: no such node"
    notices = install(state(without_files="n[1-2]"), rendered()).notices
    assert notices[0].startswith("gres.conf names no files of the GPUs of n[1-2]: ")
    before = after(state(), install(state(), rendered(1)))
    second = after(before, install(before, rendered(2)))
    assert rollback(replace(second, unknown=(wrong,))).by_hand == ()
