"""The source of each line of a script: the template, the key and its place, the site's policy."""

from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.spec import load_all
from slurm_plugin.submit import render, submission
from slurm_plugin.submit.policy_verdict import Verdict
from slurm_plugin.submit.render import Line, explained, key_places
from slurm_plugin.templates import templates_directory

PRESETS = {"short": {"time": "5m", "env": {"C": "c", "A": "c"}}}
SPEC = b"""name: a
extends: short
mode: pytorch
nodes: 2
command: python x.py
env: {A: "1", B: "q
  r"}
retries: 2
grace: 1m
launch: task
any_of:
- {nodes: 3}
- {partition: b, env: {B: x}}
"""


def test_where_a_key_stands() -> None:
    """The job's own place first, an alternative's before the rest; then the preset."""
    cases = [
        (0, ("name",), "job.yaml:1"),
        (0, ("nodes",), "job.yaml:12"),
        (1, ("nodes",), "job.yaml:4"),
        (1, ("partition",), "job.yaml:13"),
        (0, ("partition",), "default"),
        (0, ("time",), "preset short"),
        (0, ("env", "A"), "job.yaml:6"),
        (0, ("env", "C"), "preset short"),
        (1, ("env", "B"), "job.yaml:13"),
        (0, ("accelerators", "gpu"), "default"),
    ]
    for number, key, where in cases:
        assert key_places(SPEC, "job.yaml", PRESETS, number)(key) == where, number


def test_every_line_of_a_script() -> None:
    """The text is the script's. Each directive and variable has its key, each line its template."""
    spec, _ = load_all(SPEC, "job.yaml", presets=PRESETS)
    site = render.Site("/home/ada", "/bin/slurm-plugin")
    lines = render.lines(spec, site, "job.yaml")
    assert "\n".join(line.text for line in lines) + "\n" == render.script(spec, site, "job.yaml")
    keys = {line.text: line.key for line in lines}
    assert keys["#SBATCH --nodes=3"] == ("nodes",)
    assert keys["#SBATCH --signal=B:USR1@60"] == ("grace",)
    assert keys["export B='q r'"] == ("env", "B")
    assert keys["set -euo pipefail"] == ()
    assert keys["#SBATCH --open-mode=append"] == ("open_mode",)
    assert all(line.key for line in lines if line.text.startswith("#SBATCH") and "open-mode" not in line.text)
    assert {Path(line.template.rpartition(":")[0]).name for line in lines} == {"base.sh.j2"}


def test_columns_and_policy() -> None:
    """Our templates by name, a site's by path. Below the script are slurmctld's changes."""
    lines = [Line("#SBATCH --nodes=3", "/ours/job/base.sh.j2:3", ("nodes",)), Line("x", "/etc/site.j2:10", ())]
    changes, because = (("account", "proj"), ("time", 90)), {"account": "defaults", "time": "rule r"}
    verdict = Verdict(("rule r: too long",), changes, because=because)
    assert list(explained(lines, lambda _: "job.yaml:4", "/ours", verdict)) == [
        "job/base.sh.j2:3  nodes job.yaml:4  #SBATCH --nodes=3",
        "/etc/site.j2:10                     x",
        "the site's policy sets account to proj (defaults)",
        "the site's policy sets time to 01:30:00 (rule r)",
        "the site's policy refuses it: rule r: too long",
    ]


def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For the requested alternative, with the site's presets and policy."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(submission.os, "geteuid", lambda: 20001)
    presets = "presets: {short: {time: 5m, env: {C: c}}}"
    (tmp_path / "site.yaml").write_text(f"command: /none\n{presets}\npolicy: {{defaults: {{account: proj}}}}\n")
    (tmp_path / "job.yaml").write_bytes(SPEC)
    assert main(["render", "--explain", "--alternative", "2", "--config", "site.yaml", "job.yaml"]) == 0
    out = capsys.readouterr().out
    assert "  partition job.yaml:13  #SBATCH --partition=b\n" in " ".join(out.split(" "))
    assert out.endswith("the site's policy sets account to proj (defaults)\n")
    assert str(templates_directory()) not in out
