"""Mirrors slurm_plugin/cli/policy.py, and `submit` of a job that the policy refuses."""

import json
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.specs import CONFIG
from slurm_plugin.spec import submit_config
from slurm_plugin.submit import submission
from slurm_plugin.submit.wrapper import plugin_command
from tests.fake_slurm import FakeSlurm

SITE = """command: /nonexistent/slurm-plugin
policy:
  defaults: {time: 90m}
  rules:
    - {name: small, when: {partition: [debug]}, limit: {nodes: 2, retries: 1}}
"""
SPEC = "name: a\nmode: openmpi\nnodes: 3\nretries: 3\ncommand: ./a.out\n"
REFUSAL = "slurm_plugin: rule small (partition debug): nodes: found 3; accepted: up to 2"


@pytest.fixture
def job_file(home: Path) -> Path:
    """Write a spec, and a site file with a policy."""
    (home / "site.yaml").write_text(SITE)
    path = home / "job.yaml"
    path.write_text(SPEC)
    return path


def test_refused(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, and the message that sbatch would show."""
    assert main(["policy", "test", "--user", "ada", "--default-partition", "debug", str(job_file)]) == 1
    shown = f"refused\n  time_limit: not given -> 01:30:00 (defaults)\n  {REFUSAL}\n"
    assert capsys.readouterr() == (shown, "")


def test_accepted_with_changes(
    job_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 0, and the changes of the job, with its grant."""
    monkeypatch.setenv("SBATCH_PARTITION", "debug")
    job_file.write_text(SPEC.replace("nodes: 3", "nodes: 2"))
    assert main(["policy", "test", "--user", "ada", str(job_file)]) == 0
    grant = 'sp1:{"granted":1}'
    changes = ("time_limit: not given -> 01:30:00 (defaults)", f"admin_comment: not given -> {grant} (rule small)")
    shown = "\n  ".join(("accepted", *changes)) + "\n"
    assert capsys.readouterr() == (shown, "")
    assert main(["policy", "test", "--user", "ada", "--json", str(job_file)]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "verdict": "accepted",
        "user": "ada",
        "changes": [
            {"field": "time_limit", "from": None, "to": "90", "because": "defaults"},
            {"field": "admin_comment", "from": None, "to": grant, "because": "rule small"},
        ],
        "messages": [],
        "log": [],
    }


def test_a_batch_script(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its #SBATCH and #PLUGIN lines count as with `slurm-plugin sbatch`. Without #PLUGIN lines it gets no grant."""
    script = job_file.with_name("job.sh")
    script.write_text("#!/bin/sh\n#SBATCH -p debug --nodes=3\n#PLUGIN retries=2\n#SBATCH -t 5\nsrun x\n#SBATCH -N1\n")
    assert main(["policy", "test", "--user", "ada", str(script)]) == 1
    grant = "admin_comment: not given -> " + 'sp1:{"granted":1} (rule small)'
    assert capsys.readouterr() == (f"refused\n  {REFUSAL}\n", "")
    script.write_text(script.read_text().replace("--nodes=3", "--nodes=2"))
    assert main(["policy", "test", "--user", "ada", str(script)]) == 0
    assert capsys.readouterr() == (f"accepted\n  {grant}\n", "")
    script.write_text(script.read_text().replace("#PLUGIN retries=2\n", "").replace(" --nodes=2", ""))
    assert main(["policy", "test", "--user", "ada", str(script)]) == 0
    assert capsys.readouterr() == ("accepted\n  max_nodes: not given -> 2 (rule small)\n", "")


def test_a_script_with_a_mistake(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The messages are those of `slurm-plugin sbatch`, also for a script that sbatch itself refuses."""
    script = job_file.with_name("job.sh")
    script.write_text("#!/bin/sh\n#PLUGIN retris=2\n")
    assert main(["policy", "test", str(script)]) == 2
    assert "line 2: retris: unknown key" in capsys.readouterr().err
    script.write_bytes(b"#!/bin/sh\r\ntrue\r\n")
    assert main(["policy", "test", str(script)]) == 2
    assert "DOS line ends" in capsys.readouterr().err


def test_a_spec_that_is_a_batch_script(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its keys count."""
    job_file.write_text(f"#!/opt/slurm-plugin run\n#SBATCH --partition=debug\n{SPEC}")
    assert main(["policy", "test", "--user", "ada", "--default-partition", "debug", str(job_file)]) == 1
    assert REFUSAL in capsys.readouterr().out


def test_what_it_was_not_told(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Hints name the unchecked rules: those for the default partition, and all for root."""
    assert main(["policy", "test", "--user", "root", str(job_file)]) == 0
    hints = capsys.readouterr().err
    assert "--default-partition" in hints
    assert "--user" in hints


def test_another_file(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any job_submit.lua of a site can be tested. An error in it is a failure."""
    own = job_file.with_name("own.lua")
    own.write_text("function slurm_job_submit(job) slurm.log_user('no %s here', job.name) return slurm.ERROR end")
    assert main(["policy", "test", "--user", "ada", "--lua", str(own), str(job_file)]) == 1
    assert capsys.readouterr().out == "refused\n  no a here\n"
    own.write_text("function slurm_job_submit() return slurm.gone.too end")
    assert main(["policy", "test", "--lua", str(own), str(job_file)]) == 1
    assert "attempt to index field 'gone'" in capsys.readouterr().err


def test_submit_says_it_first(
    job_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same message, before Slurm is queried. No rule applies to root."""
    monkeypatch.setenv("SBATCH_PARTITION", "debug")
    monkeypatch.setattr(submission.os, "geteuid", lambda: 12345)
    assert main(["submit", "--dry-run", str(job_file)]) == 1
    lead = "slurm-plugin: nothing was submitted: the site's policy refuses this job"
    assert capsys.readouterr() == ("", f"{lead}\n  {REFUSAL}\n")
    monkeypatch.setattr(submission.os, "geteuid", lambda: 0)
    assert main(["submit", "--dry-run", str(job_file)]) == 0


def test_without_an_installation(
    job_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where no admin has installed slurm_plugin, nothing is granted; the rules of a site file do not apply yet."""
    monkeypatch.delenv(CONFIG, raising=False)
    monkeypatch.setattr(submit_config, "DEFAULT_PATH", tmp_path / "none.yaml")
    plain = FakeSlurm()
    plain.settings = {"Prolog": "(null)"}
    monkeypatch.setattr("slurm_plugin.cli.policy.connect", lambda **_: plain)
    assert main(["policy", "test", "--user", "ada", str(job_file)]) == 0
    assert (
        capsys.readouterr().out
        == f"accepted\n  {plugin_command.NOT_INSTALLED}: no rule applies, and no restart is granted\n"
    )
    assert main(["policy", "test", "--json", "--user", "ada", str(job_file)]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] == []
    monkeypatch.setattr(submit_config, "DEFAULT_PATH", job_file.with_name("site.yaml"))
    assert main(["policy", "test", "--user", "ada", str(job_file)]) == 0
    assert capsys.readouterr().err.startswith(f"{plugin_command.NOT_INSTALLED}: these rules do not apply yet\n")
