"""Judging slurmctld's settings, on captured output of `scontrol show config` of three releases."""

from pathlib import Path

import pytest

from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.doctor import judge, measure
from slurm_plugin.site.doctor.judge import Finding
from slurm_plugin.site.files import fragment
from slurm_plugin.site.slurmconf import fragment_lines
from slurm_plugin.slurm.parse import settings

CAPTURED = {
    path.stem.removeprefix("show-config-"): path
    for path in (Path(__file__).parents[3] / "captured").glob("show-config-*.txt")
}
ROOT = "/etc/slurm/slurm_plugin"
LINES = fragment_lines(fragment(SiteConfig(), ROOT))
HOOK = f"{ROOT}/hooks/prolog"


@pytest.fixture(params=CAPTURED)
def config(request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of one release, set up as docs/how-to/install.md says."""
    return settings(CAPTURED[request.param].read_text(encoding="utf-8"))


def judged(config: dict[str, str]) -> dict[str, Finding]:
    """Return the findings about our lines that are not ok."""
    found = [judge.setting(config, name, wanted) for name, wanted in LINES.items()]
    return {finding.name: finding for finding in found if finding.verdict != "ok"}


def test_releases() -> None:
    """Output of all three releases was captured."""
    assert set(CAPTURED) == {"22.05", "24.11", "26.05"}


def test_all_fine(config: dict[str, str]) -> None:
    """An installed site has no wrong finding, whether Slurm writes `Prolog` or `Prolog[0]`."""
    assert judged(config) == {}
    assert judge.version(config).verdict == "ok"
    assert measure.boot(config) is not None


def test_each_line_that_is_missing_is_named_with_the_line_to_add(config: dict[str, str]) -> None:
    """A missing line is one finding, with the line for slurm.conf."""
    for name in LINES:
        without = {key: value for key, value in config.items() if key.partition("[")[0] != name}
        (found,) = judged(without).values()
        assert (found.name, found.verdict, found.remedy) == (name, "wrong", f"slurm.conf: {name}={LINES[name]}"), name


def test_values_are_joined() -> None:
    """The proposed line keeps the site's words."""
    cases = [
        ("PrologFlags", "X11,Contain", "X11,Contain,Alloc,DeferBatch"),
        ("PrologFlags", "Alloc", "Alloc,DeferBatch"),
        ("SchedulerParameters", "bf_interval=1", "bf_interval=1,nohold_on_prolog_fail"),
        ("JobSubmitPlugins", "throttle", "throttle,lua"),
        ("HealthCheckInterval", "60", "300"),
    ]
    for name, has, remedy in cases:
        found = judge.setting({name: has}, name, LINES[name])
        assert (found.verdict, found.remedy) == ("wrong", f"slurm.conf: {name}={remedy}"), name


def test_values_in_other_words() -> None:
    """Slurm takes any case, and a plugin's name with its kind."""
    cases = [
        ("PrologFlags", "alloc,deferbatch,x11"),
        ("JobSubmitPlugins", "job_submit/lua"),
        ("JobSubmitPlugins", "throttle,lua"),
    ]
    for name, has in cases:
        assert judge.setting({name: has}, name, LINES[name]).verdict == "ok", name


def test_a_program_of_the_sites_own() -> None:
    """A program of the site is ok if it runs our hook."""
    for leads, verdict in [(True, "ok"), (False, "wrong"), (None, "cannot tell")]:
        config = {"Prolog": "/etc/slurm/prolog.d/*"}
        assert judge.setting(config, "Prolog", HOOK, leads=leads).verdict == verdict, leads


def test_one_of_several_programs() -> None:
    """From 24.05 on Slurm runs several prologs."""
    assert judge.setting({"Prolog[0]": "/site", "Prolog[1]": HOOK}, "Prolog", HOOK).verdict == "ok"


def test_version() -> None:
    """22.05 and later are ok; an unreadable version cannot be judged."""
    for text, verdict in [
        ("22.05.8", "ok"),
        ("25.11.0-0rc1", "ok"),
        ("21.08.8-2", "wrong"),
        ("22.04.1", "wrong"),
        ("", "cannot tell"),
    ]:
        assert judge.version({"SLURM_VERSION": text}).verdict == verdict, text


def test_epilog_slurmctld_that_may_wait_for_a_restart() -> None:
    """If slurm.conf is newer than slurmctld's start, 22.05 may show a line that it never runs."""
    cases = [
        ("22.05.8", 100, 100, "ok"),
        ("22.05.8", 99, 100, "ok"),
        ("22.05.8", 101, 100, "cannot tell"),
        ("", 101, 100, "cannot tell"),
        ("22.05.8", None, 100, "cannot tell"),
        ("22.05.8", 99, None, "cannot tell"),
        ("24.11.5", 101, 100, "ok"),
        ("26.05.5", None, 100, "ok"),
    ]
    for version, conf_time, boot, verdict in cases:
        set_ = Finding("EpilogSlurmctld", "ok", "")
        found = judge.activated(set_, {"SLURM_VERSION": version}, conf_time=conf_time, boot=boot)
        assert found.verdict == verdict, version
        assert (verdict, conf_time) != ("cannot tell", 101) or "systemctl restart slurmctld" in found.remedy, version


def test_message_timeout() -> None:
    """A prolog whose checks use up their deadline must end within it; the line to add has the deadline."""
    for has, deadline_s, verdict in [
        ("10 sec", 10.0, "ok"),
        ("30 sec", 10.0, "ok"),
        ("10 sec", 10.5, "wrong"),
        ("", 10.0, "cannot tell"),
    ]:
        found = judge.message_timeout({"MessageTimeout": has}, deadline_s)
        assert found.verdict == verdict, has
        assert found.remedy == ("slurm.conf: MessageTimeout=11" if verdict == "wrong" else ""), has


def test_slurmd_timeout() -> None:
    """SlurmdTimeout must be longer than the ranks on an isolated node can run."""
    cases = [
        ("300 sec", 60.0, "ok", ""),
        ("88 sec", 60.0, "ok", ""),
        ("87 sec", 60.0, "wrong", "slurm.conf: SlurmdTimeout=88"),
        ("300 sec", 600.0, "wrong", "slurm.conf: SlurmdTimeout=628"),
        ("0 sec", 60.0, "cannot tell", "slurm.conf: SlurmdTimeout=300"),
        ("0 sec", 600.0, "cannot tell", "slurm.conf: SlurmdTimeout=628"),
        ("", 60.0, "cannot tell", ""),
    ]
    for has, node_timeout_s, verdict, remedy in cases:
        found = judge.slurmd_timeout({"SlurmdTimeout": has}, node_timeout_s)
        assert (found.verdict, found.remedy) == (verdict, remedy), has


def test_slurmd_timeout_of_each_release(config: dict[str, str]) -> None:
    """The form of the setting is read on all releases; the captured sandboxes have a short timeout."""
    assert judge.slurmd_timeout(config, 12.0).message == (
        "is 10 sec, shorter than recovery.node_timeout and 28 s: a job may run elsewhere while a node that is cut off "
        "still writes for it"
    )


def test_epilog_slurmctld_that_is_not_set_stays_wrong() -> None:
    """A missing EpilogSlurmctld stays wrong."""
    wrong = Finding("EpilogSlurmctld", "wrong", "is not set", "slurm.conf: ...")
    assert judge.activated(wrong, {}, conf_time=None, boot=None) == wrong


def test_slurmctld() -> None:
    """Without an answer, the remedy is a command."""
    assert judge.slurmctld(up=True).verdict == "ok"
    assert judge.slurmctld(up=False).remedy


def test_back_end() -> None:
    """The finding names the back end, or why it is not the requested one, with two remedies."""
    assert judge.backend("pyslurm 25.11.2", ()) == Finding("back end", "ok", "pyslurm 25.11.2")
    found = judge.backend("Slurm's commands", ["pyslurm cannot be imported (no module)"])
    assert (found.verdict, found.message) == ("wrong", "pyslurm cannot be imported (no module)")
    assert "SLURM_PLUGIN_BACKEND=cli" in found.remedy
