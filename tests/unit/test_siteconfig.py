"""The site file: which it is, units, and words for what is wrong in it."""

from pathlib import Path

import pytest

from slurm_plugin import siteconfig, sitefile
from slurm_plugin.errors import UsageError
from slurm_plugin.siteconfig import SiteConfig, load, seconds, size_bytes, space

GB = 1024**3


def site(tmp_path: Path, text: str) -> SiteConfig:
    """A site file with this text, loaded."""
    path = tmp_path / "site.yaml"
    path.write_text(text)
    return load(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_retires: 3", "max_retires: unknown key; accepted: policy, presets, command, "),
        ("sbatch: {retires: 1}", "sbatch.retires: unknown key; accepted: mode, retries, "),
        ("sbatch: {grace: soon}", "sbatch.grace: found 'soon'; accepted: 90s, 30m"),
        ("periodic: {interval: 0.5s}", "periodic.interval: found '0.5s'; accepted: a time from 1s to 65535s"),
        ("periodic: {interval: 1093m}", "periodic.interval: found '1093m'; accepted: a time from 1s to 65535s"),
        ("periodic: {passes: 0}", "periodic.passes: found '0'; accepted: a whole number from 1"),
        ("recovery: {queue_timeout: soon}", "recovery.queue_timeout: found 'soon'; accepted: 0 or never for no end; "),
        ("recovery: {queue_timeout: 12d}", "recovery.queue_timeout: found '12d'; accepted: 0 or never for no end; up"),
        ("recovery: {nice: -5}", "recovery.nice: found '-5'; accepted: a whole number from 0"),
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
        ("run_directory: /a b", "run_directory: found '/a b'; accepted: an absolute path of letters, digits"),
    ],
)
def test_refused(tmp_path: Path, text: str, words: str) -> None:
    """The error names the file, the line, the place in it, what is accepted, and the next command."""
    with pytest.raises(UsageError) as caught:
        site(tmp_path, f"# a comment\n{text}\n")
    first, second, last = str(caught.value).splitlines()
    assert first == f"{tmp_path}/site.yaml: 1 problem, nothing was done"
    assert second.startswith(f"  line 2: {words}")
    assert last == "  correct the file, then run: slurm-plugin site install"


@pytest.mark.parametrize("text", ["prechecks: [", "- 1", "a: 1\na: 2", "x: &a 1\ny: *a", "text", "\0"])
def test_no_site_file(tmp_path: Path, text: str) -> None:
    """What is no mapping, or no YAML at all, is refused with the file's name."""
    with pytest.raises(UsageError) as caught:
        site(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path}/site.yaml: ")


def test_unknown_mandatory_check(tmp_path: Path) -> None:
    """A misspelt check is found here: in a prolog it would be our own failure, and no job would be checked."""
    with pytest.raises(UsageError, match=r"disk-size\.shm, disk-size\.cache"):
        site(tmp_path, "prechecks: {mandatory: [disk-size shm]}")


def test_missing_file(tmp_path: Path) -> None:
    """A file that was named must be there."""
    with pytest.raises(UsageError, match="No such file"):
        load(tmp_path / "site.yaml")


def test_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a site file all defaults hold; an empty one means the same."""
    monkeypatch.setattr(sitefile, "DEFAULT_PATH", tmp_path / "slurm_plugin.yaml")
    assert load() == SiteConfig()
    (tmp_path / "slurm_plugin.yaml").write_text("# nothing\n")
    assert load() == SiteConfig()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0B", 0), ("1KB", 1024), ("512MB", 512 * 1024**2), ("32 GB", 32 * GB), ("1.5TB", 1536 * GB)],
)
def test_size(text: str, expected: int) -> None:
    """Units are binary, as `df -h` counts."""
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "/a", "1GB", "a 1GB", "/a 1GB\n", "/a\n1GB", "/a 1gb"])
def test_no_space(text: str) -> None:
    """A path and a size, or nothing."""
    with pytest.raises(ValueError, match="is no path and size"):
        space(text)


@pytest.mark.parametrize("text", ["", "32", "32gb", "GB", "-1GB", "1e3GB", "32GB\n", "٣GB", "1.GB"])
def test_no_size(text: str) -> None:
    """Anything else is refused, never guessed at."""
    with pytest.raises(ValueError, match="is no size"):
        size_bytes(text)


@pytest.mark.parametrize(("text", "expected"), [("10s", 10.0), ("0.5s", 0.5), ("2m", 120.0)])
def test_seconds(text: str, expected: float) -> None:
    """Seconds or minutes."""
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "10", "10 s", "s", "1h", "-1s", "10s\n"])
def test_no_time(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError, match="is no time"):
        seconds(text)


def test_a_site_without_holds(tmp_path: Path) -> None:
    """0 is a length of time here, the one without a unit."""
    (tmp_path / "site.yaml").write_text("max_hold: 0\n")
    assert siteconfig.compiled(siteconfig.load(tmp_path / "site.yaml"))["max_hold_s"] == 0


def test_a_submission_reads_its_own_part(tmp_path: Path) -> None:
    """A mistake in what is for nodes stops who deploys the file, not its users; one in the rules stops these, too."""
    path = tmp_path / "site.yaml"
    path.write_text("command: /opt/slurm-plugin\nprechecks: {deadline: soon}\nmax_retires: 3\n")
    assert sitefile.load(path) == sitefile.SubmitConfig(command="/opt/slurm-plugin")
    with pytest.raises(UsageError, match="2 problems, nothing was done"):
        load(path)
    path.write_text("presets: {small: {noodles: 1}}\npolicy: {defaults: {time: soon}}\n")
    with pytest.raises(UsageError, match=r"presets\.small\.noodles: unknown key"):
        sitefile.load(path)
