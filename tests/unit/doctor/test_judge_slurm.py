"""slurmctld's settings, judged on what `scontrol show config` of three releases really says."""

from pathlib import Path

import pytest

from slurm_plugin.doctor import judge_slurm, measure
from slurm_plugin.doctor.finding import Finding
from slurm_plugin.siteconfig import SiteConfig
from slurm_plugin.slurm.records import settings

CAPTURED = {
    path.stem.removeprefix("show-config-"): path
    for path in (Path(__file__).parents[2] / "captured").glob("show-config-*.txt")
}
ROOT = "/etc/slurm/slurm_plugin"
LINES = measure.lines(SiteConfig(), ROOT)
HOOK = f"{ROOT}/hooks/prolog"


@pytest.fixture(params=CAPTURED)
def config(request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of one release, set up as docs/install.md says."""
    return settings(CAPTURED[request.param].read_text(encoding="utf-8"))


def judged(config: dict[str, str]) -> dict[str, Finding]:
    """What is said about each line of our fragment that is not fine."""
    found = [judge_slurm.setting(config, name, wanted) for name, wanted in LINES.items()]
    return {finding.name: finding for finding in found if finding.verdict != "ok"}


def test_releases() -> None:
    """The three that matter are here."""
    assert set(CAPTURED) == {"22.05", "24.11", "26.05"}


def test_all_fine(config: dict[str, str]) -> None:
    """A site that was set up by the page has nothing wrong, whether Slurm writes `Prolog` or `Prolog[0]`."""
    assert judged(config) == {}
    assert judge_slurm.version(config).verdict == "ok"
    assert measure.boot(config) is not None


@pytest.mark.parametrize("name", LINES)
def test_each_line_that_is_missing_is_named_with_the_line_to_add(config: dict[str, str], name: str) -> None:
    """Exactly that one, and slurm.conf's line for it."""
    without = {key: value for key, value in config.items() if key.partition("[")[0] != name}
    (found,) = judged(without).values()
    assert (found.name, found.verdict, found.remedy) == (name, "wrong", f"slurm.conf: {name}={LINES[name]}")


@pytest.mark.parametrize(
    ("name", "has", "remedy"),
    [
        ("PrologFlags", "X11,Contain", "X11,Contain,Alloc,DeferBatch"),
        ("PrologFlags", "Alloc", "Alloc,DeferBatch"),
        ("SchedulerParameters", "bf_interval=1", "bf_interval=1,nohold_on_prolog_fail"),
        ("JobSubmitPlugins", "throttle", "throttle,lua"),
        ("HealthCheckInterval", "60", "300"),
    ],
)
def test_values_are_joined(name: str, has: str, remedy: str) -> None:
    """What the site has set already stays in the line that is proposed."""
    found = judge_slurm.setting({name: has}, name, LINES[name])
    assert (found.verdict, found.remedy) == ("wrong", f"slurm.conf: {name}={remedy}")


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("PrologFlags", "alloc,deferbatch,x11"),
        ("JobSubmitPlugins", "job_submit/lua"),
        ("JobSubmitPlugins", "throttle,lua"),
    ],
)
def test_values_in_other_words(name: str, has: str) -> None:
    """Slurm takes any case, and a plugin's name with its kind."""
    assert judge_slurm.setting({name: has}, name, LINES[name]).verdict == "ok"


@pytest.mark.parametrize(("leads", "verdict"), [(True, "ok"), (False, "wrong"), (None, "cannot tell")])
def test_a_program_of_the_sites_own(leads: bool | None, verdict: str) -> None:
    """It is fine where it leads to ours."""
    config = {"Prolog": "/etc/slurm/prolog.d/*"}
    assert judge_slurm.setting(config, "Prolog", HOOK, leads=leads).verdict == verdict


def test_one_of_several_programs() -> None:
    """From 24.05 on Slurm runs several prologs."""
    assert judge_slurm.setting({"Prolog[0]": "/site", "Prolog[1]": HOOK}, "Prolog", HOOK).verdict == "ok"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("22.05.8", "ok"), ("25.11.0-0rc1", "ok"), ("21.08.8-2", "wrong"), ("22.04.1", "wrong"), ("", "cannot tell")],
)
def test_version(text: str, verdict: str) -> None:
    """22.05 and later; what cannot be read is not judged."""
    assert judge_slurm.version({"SLURM_VERSION": text}).verdict == verdict


@pytest.mark.parametrize(
    ("version", "conf_time", "boot", "verdict"),
    [
        ("22.05.8", 100, 100, "ok"),
        ("22.05.8", 99, 100, "ok"),
        ("22.05.8", 101, 100, "cannot tell"),
        ("", 101, 100, "cannot tell"),
        ("22.05.8", None, 100, "cannot tell"),
        ("22.05.8", 99, None, "cannot tell"),
        ("24.11.5", 101, 100, "ok"),
        ("26.05.5", None, 100, "ok"),
    ],
)
def test_epilog_slurmctld_that_may_wait_for_a_restart(
    version: str, conf_time: int | None, boot: int | None, verdict: str
) -> None:
    """A slurm.conf that is newer than slurmctld's start may hold a line that 22.05 shows and never runs."""
    set_ = Finding("EpilogSlurmctld", "ok", "")
    found = judge_slurm.activated(set_, {"SLURM_VERSION": version}, conf_time=conf_time, boot=boot)
    assert found.verdict == verdict
    assert (verdict, conf_time) != ("cannot tell", 101) or "systemctl restart slurmctld" in found.remedy


@pytest.mark.parametrize(
    ("has", "deadline_s", "verdict"),
    [("10 sec", 10.0, "ok"), ("30 sec", 10.0, "ok"), ("10 sec", 10.5, "wrong"), ("", 10.0, "cannot tell")],
)
def test_message_timeout(has: str, deadline_s: float, verdict: str) -> None:
    """A prolog whose checks use up their deadline must end within it; the line to add has the deadline."""
    found = judge_slurm.message_timeout({"MessageTimeout": has}, deadline_s)
    assert found.verdict == verdict
    assert found.remedy == ("slurm.conf: MessageTimeout=11" if verdict == "wrong" else "")


@pytest.mark.parametrize(
    ("has", "node_timeout_s", "verdict", "remedy"),
    [
        ("300 sec", 60.0, "ok", ""),
        ("88 sec", 60.0, "ok", ""),
        ("87 sec", 60.0, "wrong", "slurm.conf: SlurmdTimeout=88"),
        ("300 sec", 600.0, "wrong", "slurm.conf: SlurmdTimeout=628"),
        ("0 sec", 60.0, "cannot tell", "slurm.conf: SlurmdTimeout=300"),
        ("0 sec", 600.0, "cannot tell", "slurm.conf: SlurmdTimeout=628"),
        ("", 60.0, "cannot tell", ""),
    ],
)
def test_slurmd_timeout(has: str, node_timeout_s: float, verdict: str, remedy: str) -> None:
    """No job is started elsewhere before its ranks on a node that is cut off have been stopped there."""
    found = judge_slurm.slurmd_timeout({"SlurmdTimeout": has}, node_timeout_s)
    assert (found.verdict, found.remedy) == (verdict, remedy)


def test_slurmd_timeout_of_each_release(config: dict[str, str]) -> None:
    """They are a sandbox's settings, which is in a hurry; their form is read on all releases."""
    assert judge_slurm.slurmd_timeout(config, 12.0).message == (
        "is 10 sec, shorter than recovery.node_timeout and 28 s: a job may run elsewhere while a node that is cut off "
        "still writes for it"
    )


def test_epilog_slurmctld_that_is_not_set_stays_wrong() -> None:
    """No second finding hides the first."""
    wrong = Finding("EpilogSlurmctld", "wrong", "is not set", "slurm.conf: ...")
    assert judge_slurm.activated(wrong, {}, conf_time=None, boot=None) == wrong


def test_slurmctld() -> None:
    """It answers, or there is a command to look why not."""
    assert judge_slurm.slurmctld(up=True).verdict == "ok"
    assert judge_slurm.slurmctld(up=False).remedy


def test_back_end() -> None:
    """Its name where it is the one that was asked for; else why not, and two ways out."""
    assert judge_slurm.backend("pyslurm 25.11.2", ()) == Finding("back end", "ok", "pyslurm 25.11.2")
    found = judge_slurm.backend("Slurm's commands", ["pyslurm cannot be imported (no module)"])
    assert (found.verdict, found.message) == ("wrong", "pyslurm cannot be imported (no module)")
    assert "SLURM_PLUGIN_BACKEND=cli" in found.remedy
