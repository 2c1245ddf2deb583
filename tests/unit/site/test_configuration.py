"""The site file: its path, its units, and the errors in it."""

import json
import re
from pathlib import Path

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.site import compilation, configuration
from slurm_plugin.site.configuration import SiteConfig, load, seconds, size_bytes, space
from slurm_plugin.spec import submit_config
from tests.refusals import refusal_of
from tests.unit.site.sitefiles import GB, NEED_QUOTING, site


def test_refused(tmp_path: Path) -> None:
    """The error names the file, the line, the place in it, what is accepted, and the next command."""
    cases = [
        ("max_retires: 3", "max_retires: unknown key; accepted: policy, presets, command, "),
        ("sbatch: {retires: 1}", "sbatch.retires: unknown key; accepted: mode, retries, "),
        ("sbatch: {grace: soon}", "sbatch.grace: found 'soon'; accepted: 90s, 30m"),
        ("periodic: {interval: 0.5s}", "periodic.interval: found '0.5s'; accepted: a time from 1s to 65535s"),
        ("periodic: {interval: 1093m}", "periodic.interval: found '1093m'; accepted: a time from 1s to 65535s"),
        ("periodic: {passes: 0}", "periodic.passes: found '0'; accepted: a whole number from 1"),
        ("recovery: {queue_timeout: soon}", "recovery.queue_timeout: found 'soon'; accepted: 0 or never for no end; "),
        ("recovery: {queue_timeout: 12d}", "recovery.queue_timeout: found '12d'; accepted: 0 or never for no end; up"),
        ("recovery: {nice: -5}", "recovery.nice: found '-5'; accepted: a whole number from 0"),
        ("logs: {keep: soon}", "logs.keep: found 'soon'; accepted: 90s, 30m"),
        ("stage_in: {keep: 30m}", "stage_in.keep: found '30m'; accepted: 1h or more, as 90s, 30m, 4h, 2d"),
        ("drain_cap: 10", "drain_cap: found '10'; accepted: a number from 0 to 1"),
        ("container: {runtime: podman}", "container.runtime: found 'podman'; accepted: apptainer, pyxis"),
        ("max_retries: 129", "max_retries: found '129'; accepted: a whole number from 0 to 128"),
        ("max_hold: 4", "max_hold: found '4'; accepted: a time such as 30m, 4h or 2d; 0: none"),
        ("max_hold: 0h", "max_hold: found '0h'; accepted: a time such as 30m, 4h or 2d; 0: none"),
        ("max_retries: -1", "max_retries: found '-1'; accepted: a whole number from 0 to 128"),
        ("infiniband_partitions: ib", "infiniband_partitions: found 'ib'; accepted: "),
        ("prechecks: {disk_size: {root: 1GB}}", "prechecks.disk_size: unknown key; accepted: "),
        ("prechecks: {ulimit: {open_files: many}}", "prechecks.ulimit.open_files: found 'many'; accepted: a whole"),
        ("prechecks: {disk-size: {shm: 1 gigabyte}}", "prechecks.disk-size.shm: found '1 gigabyte'; accepted: a size"),
        (
            "prechecks: {disk-size: {paths: [/b 1GB, /a]}}",
            "prechecks.disk-size.paths: found '/a'; accepted: a path and",
        ),
        (
            "prechecks: {ports: {listening: [22, ssh]}}",
            "prechecks.ports.listening: found 'ssh'; accepted: a number from",
        ),
        ("prechecks: {ports: {listening: [65536]}}", "prechecks.ports.listening: found '65536'; accepted: a number"),
        (
            "prechecks: {deadline: 61s}",
            "prechecks.deadline: found '61s'; accepted: a time from 1s to 60s, below MessageTimeout of slurm.conf",
        ),
        ("prechecks: {deadline: 0.5s}", "prechecks.deadline: found '0.5s'; accepted: a time from 1s to 60s, below"),
        ("prechecks: {deadline: 10}", "prechecks.deadline: found '10'; accepted: a time such as 10s or 2m"),
        ("prechecks: {deadline: 10h}", "prechecks.deadline: found '10h'; accepted: a time such as 10s or 2m"),
        ("prechecks: {gpu-check: {device: /dev/x}}", "prechecks.gpu-check.device: found '/dev/x'; accepted: a path"),
        ("prechecks: {mandatory: [disk-size shm]}", "prechecks.mandatory: found 'disk-size shm'; accepted: dns, "),
        (
            "prechecks: {dns: off}",
            "prechecks.dns: found 'off'; accepted: no, or {SETTING: VALUE} with hosts_files, names, ",
        ),
        (
            "prechecks: {mandatory: [dns], dns: no}",
            "prechecks.mandatory: found 'dns', which is switched off; accepted:",
        ),
        ("prechecks: {gpu-check: {except_nodes: 'n[1'}}", "prechecks.gpu-check.except_nodes: found node list 'n[1'"),
        ("run_directory: /a b", "run_directory: found '/a b'; accepted: an absolute path of letters, digits"),
    ]
    for text, words in cases:
        caught = refusal_of(UsageError, site, tmp_path, f"# a comment\n{text}\n")
        first, second, last = caught.splitlines()
        assert first == f"{tmp_path}/site.yaml: 1 problem, nothing was done", text
        assert second.startswith(f"  line 2: {words}"), text
        assert last == "  correct the file, then run: slurm-plugin site install", text


def test_paths_that_need_quoting(tmp_path: Path) -> None:
    """A path that a shell could read as something else is refused."""
    for path in NEED_QUOTING:
        for name in ["python", "run_directory", "spool_directory", "slurm_bin"]:
            caught = refusal_of(UsageError, site, tmp_path, f"{name}: {json.dumps(path)}\n")
            assert (
                f"{name}: found {repr(path) if path else 'nothing'}; accepted: an absolute path of letters, digits"
                in caught
            ), (name, path)


def test_no_site_file(tmp_path: Path) -> None:
    """Other YAML than a mapping, and other text, is refused with the file's name."""
    for text in ["prechecks: [", "- 1", "a: 1\na: 2", "x: &a 1\ny: *a", "text", "\0"]:
        caught = refusal_of(UsageError, site, tmp_path, text)
        assert caught.startswith(f"{tmp_path}/site.yaml: "), text


def test_missing_file(tmp_path: Path) -> None:
    """A named file must exist."""
    with pytest.raises(UsageError, match="No such file"):
        load(tmp_path / "site.yaml")


def test_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a site file all defaults hold; an empty one means the same."""
    monkeypatch.setattr(submit_config, "DEFAULT_PATH", tmp_path / "slurm_plugin.yaml")
    assert load() == SiteConfig()
    (tmp_path / "slurm_plugin.yaml").write_text("# nothing\n")
    assert load() == SiteConfig()


def test_size() -> None:
    """Units are binary, as `df -h` counts."""
    for text, expected in [
        ("0B", 0),
        ("1KB", 1024),
        ("512MB", 512 * 1024**2),
        ("32 GB", 32 * GB),
        ("1.5TB", 1536 * GB),
    ]:
        assert size_bytes(text) == expected, text


def test_no_space() -> None:
    """Other texts than a path and a size are refused."""
    for text in ["", "/a", "1GB", "a 1GB", "/a 1GB\n", "/a\n1GB", "/a 1gb"]:
        assert re.search("is no path and size", refusal_of(ValueError, space, text)), text


def test_no_size() -> None:
    """Any other text is refused."""
    for text in ["", "32", "32gb", "GB", "-1GB", "1e3GB", "32GB\n", "٣GB", "1.GB"]:
        assert re.search("is no size", refusal_of(ValueError, size_bytes, text)), text


def test_seconds() -> None:
    """Seconds and minutes are accepted."""
    for text, expected in [("10s", 10.0), ("0.5s", 0.5), ("2m", 120.0)]:
        assert seconds(text) == expected, text


def test_no_time() -> None:
    """Any other text is refused."""
    for text in ["", "10", "10 s", "s", "1h", "-1s", "10s\n"]:
        assert re.search("is no time", refusal_of(ValueError, seconds, text)), text


def test_a_site_without_holds(tmp_path: Path) -> None:
    """A hold of 0 needs no unit."""
    (tmp_path / "site.yaml").write_text("max_hold: 0\n")
    assert compilation.compile_site(configuration.load(tmp_path / "site.yaml"))["max_hold_s"] == 0


def test_a_submission_reads_its_own_part(tmp_path: Path) -> None:
    """An error in the settings of nodes stops a deployment, but no submission; an error in the rules stops both."""
    path = tmp_path / "site.yaml"
    path.write_text("command: /opt/slurm-plugin\nprechecks: {deadline: soon}\nmax_retires: 3\n")
    assert submit_config.load(path) == submit_config.SubmitConfig(command="/opt/slurm-plugin")
    with pytest.raises(UsageError, match="2 problems, nothing was done"):
        load(path)
    path.write_text("presets: {small: {noodles: 1}}\npolicy: {defaults: {time: soon}}\n")
    with pytest.raises(UsageError, match=r"presets\.small\.noodles: unknown key"):
        submit_config.load(path)


def test_a_check_that_is_switched_off(tmp_path: Path) -> None:
    """A check set to `no` runs in no hook; its settings stay for items that use them."""
    checks = compilation.compile_site(site(tmp_path, "prechecks: {dns: no, gpu-check: no}"))["prechecks"]
    assert checks["dns"]["hooks"] == checks["gpu-check"]["hooks"] == []
    assert checks["gpu-check"]["tool"] == "/usr/bin/nvidia-smi"
    assert "hooks" not in checks["ulimit"]
