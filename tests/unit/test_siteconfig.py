"""The site file: defaults, units, and words for what is wrong in it."""

import json
from pathlib import Path
from typing import Any

import pytest

from prechecks.gpu_xid import WHAT_TO_DO
from slurm_plugin import siteconfig
from slurm_plugin.errors import UsageError
from slurm_plugin.siteconfig import SiteConfig, compiled, load, seconds, size_bytes, space

GB = 1024**3


def site(tmp_path: Path, text: str) -> SiteConfig:
    """A site file with this text, loaded."""
    path = tmp_path / "site.yaml"
    path.write_text(text)
    return load(path)


def as_json(config: SiteConfig) -> Any:
    """The compiled settings as a reader of the file gets them."""
    return json.loads(json.dumps(compiled(config)))


def test_defaults_compiled() -> None:
    """An empty site file is complete: this is what hooks then read."""
    assert as_json(SiteConfig()) == {
        "v": 1,
        "site_file": None,
        "infiniband_partitions": [],
        "max_retries": 128,
        "max_hold_s": 14400,
        "drain_cap": 0.1,
        "dry_run": False,
        "notify": "",
        "metrics_directory": "",
        "periodic": {"failures": 3, "passes": 3},
        "recovery": {"queue_timeout_s": 1800, "nice": 1000, "node_timeout_s": 60.0},
        "clean": ["/dev/shm"],
        "sbatch": {},
        "command": "/etc/slurm/slurm_plugin/bin/slurm-plugin",
        "slurm_bin": "/usr/bin",
        "run_directory": "/run/slurm_plugin",
        "spool_directory": "/var/spool/slurm_plugin",
        "prechecks": {
            "deadline_s": 10.0,
            "mandatory": [],
            "state": "/run/slurm_plugin/state",
            "disk-size": {"root": 32 * GB, "shm": GB, "cache": 32 * GB, "paths": []},
            "ulimit": {
                "max_locked_memory_kb": 16000,
                "open_files": 1000000,
                "stack_size_kb": 8000,
                "max_user_processes": 1000000,
            },
            "gpu-check": {"device": "/dev/nvidia%d", "count": None, "tool": "/usr/bin/nvidia-smi", "nvml": True},
            "gpu-ecc": {"volatile": 0, "aggregate": None},
            "gpu-remap": {},
            "gpu-nvlink": {"links": None, "errors": None},
            "gpu-processes": {"accept": ["nvidia-cuda-mps-server"], "shared": False},
            "gpu-xid": {"fail": list(WHAT_TO_DO)},
            "npu-check": {"count": None, "tool": "/usr/local/bin/npu-smi", "healthy": ["OK", "Warning"]},
            "mlu-check": {"count": None, "tool": "/usr/bin/cnmon", "errors": None},
            "amd-check": {"count": None, "tool": "/opt/rocm/bin/amd-smi", "errors": 0},
            "dns": {"hosts_files": ["/etc/volcano/*.host"], "names": [], "share_above": 16, "asked_by": 4},
            "infiniband": {
                "ports": None,
                "link_layer": None,
                "count": None,
                "rate": None,
                "window": 3600.0,
                "symbol_error": None,
                "link_error_recovery": None,
                "link_downed": None,
                "port_rcv_errors": None,
                "port_rcv_remote_physical_errors": None,
                "local_link_integrity_errors": None,
                "excessive_buffer_overrun_errors": None,
                "port_xmit_discards": None,
                "local_ack_timeout_err": None,
                "packet_seq_err": None,
                "out_of_sequence": None,
            },
            "nic": {
                "interfaces": [],
                "speed": None,
                "mtu": None,
                "least_mtu": None,
                "window": 3600.0,
                "errors": None,
                "dropped": None,
                "link_losses": None,
            },
            "inodes": {"root": 0.01, "shm": 0.01, "cache": 0.01, "paths": 0.01},
            "mounts": {"paths": [], "read_only": [], "local": True},
            "memory": {
                "total": None,
                "available": None,
                "uncorrectable": 0,
                "correctable": None,
                "slurm": True,
                "slurm_conf": None,
            },
            "clock": {"error": None, "offset": None, "chronyc": "/usr/bin/chronyc", "ntpq": "/usr/bin/ntpq"},
            "processes": {
                "zombies": None,
                "stuck": None,
                "leftovers": False,
                "users_from": 1000,
                "accept": [],
            },
            "services": {"pid_files": [], "units": []},
            "ports": {"listening": []},
            "command": {"run": [], "timeout": 5.0},
        },
    }


def test_all_keys(tmp_path: Path) -> None:
    """Every key of the site file reaches the compiled one under the name that the checks read."""
    config = site(
        tmp_path,
        """
        infiniband_partitions: [ib, ib2]
        max_retries: 5
        max_hold: 30m
        drain_cap: 0.5
        dry_run: yes
        notify: /etc/slurm/notify
        metrics_directory: /var/lib/metrics
        periodic: {interval: 90s, failures: 1, passes: 10}
        recovery: {queue_timeout: never, nice: 0, node_timeout: 20s}
        prechecks:
          deadline: 1m
          mandatory: [dns]
          disk-size: {root: 1.5TB, shm: 512 MB, cache: null, paths: [/scratch 100GB, /a b 1 MB]}
          ulimit: {max_locked_memory_kb: 1, open_files: 2, stack_size_kb: 3, max_user_processes: 4}
          gpu-check: {device: "/dev/gpu%d", count: 8, tool: null, nvml: no}
          gpu-ecc: {volatile: null, aggregate: 10}
          gpu-nvlink: {links: 18, errors: 100}
          gpu-processes: {accept: [], shared: yes}
          gpu-xid: {fail: [79, 48]}
          npu-check: {count: 16, tool: /opt/npu-smi, healthy: [OK]}
          mlu-check: {count: 8, tool: /opt/cnmon, errors: 0}
          amd-check: {count: 4, tool: /opt/amd-smi, errors: null}
          dns: {hosts_files: [/a, /b], names: [login], share_above: 64, asked_by: 3}
          infiniband: {ports: [a/1], link_layer: Ethernet, count: 1, rate: 2, window: 30m, symbol_error: 3,
            link_error_recovery: 4, link_downed: 5, port_rcv_errors: 6, port_rcv_remote_physical_errors: 7,
            local_link_integrity_errors: 8, excessive_buffer_overrun_errors: 9, port_xmit_discards: 10,
            local_ack_timeout_err: 11, packet_seq_err: 12, out_of_sequence: 13}
          nic: {interfaces: [eth0], speed: 1, mtu: 2, least_mtu: 3, window: 30s, errors: 4, dropped: 5, link_losses: 6}
          inodes: {root: 0.5, shm: 0, cache: null, paths: 0.2}
          mounts: {paths: [/home, /opt], read_only: [/opt], local: no}
          memory: {total: 500GB, available: 1GB, uncorrectable: null, correctable: 1000, slurm: no,
            slurm_conf: /opt/slurm.conf}
          clock: {error: 0.5s, offset: 0.1s, chronyc: /opt/chronyc, ntpq: null}
          processes: {zombies: 100, stuck: 10, leftovers: yes, users_from: 500, accept: [podman]}
          services: {pid_files: [/run/a.pid], units: [munge, sssd.service]}
          ports: {listening: [22, 6818]}
          command: {run: [/etc/checks/scratch], timeout: 3s}
        sbatch: {retries: 1, grace: 2m}
        clean: [/dev/shm, /tmp]
        python: /opt/python
        slurm_bin: /opt/slurm/bin
        command: /opt/slurm-plugin
        run_directory: /run/sp
        spool_directory: /var/sp
        """,
    )
    assert (config.python, config.command) == ("/opt/python", "/opt/slurm-plugin")
    assert as_json(config) == {
        "v": 1,
        "site_file": None,
        "infiniband_partitions": ["ib", "ib2"],
        "max_retries": 5,
        "max_hold_s": 1800,
        "drain_cap": 0.5,
        "dry_run": True,
        "notify": "/etc/slurm/notify",
        "metrics_directory": "/var/lib/metrics",
        "periodic": {"failures": 1, "passes": 10},
        "recovery": {"queue_timeout_s": 0, "nice": 0, "node_timeout_s": 20.0},
        "clean": ["/dev/shm", "/tmp"],
        "sbatch": {"retries": "1", "grace": "2m"},
        "command": "/opt/slurm-plugin",
        "slurm_bin": "/opt/slurm/bin",
        "run_directory": "/run/sp",
        "spool_directory": "/var/sp",
        "prechecks": {
            "deadline_s": 60.0,
            "mandatory": ["dns"],
            "state": "/run/sp/state",
            "disk-size": {
                "root": 1536 * GB,
                "shm": 512 * 1024**2,
                "cache": None,
                "paths": [["/scratch", 100 * GB], ["/a b", 1024**2]],
            },
            "ulimit": {"max_locked_memory_kb": 1, "open_files": 2, "stack_size_kb": 3, "max_user_processes": 4},
            "gpu-check": {"device": "/dev/gpu%d", "count": 8, "tool": None, "nvml": False},
            "gpu-ecc": {"volatile": None, "aggregate": 10},
            "gpu-remap": {},
            "gpu-nvlink": {"links": 18, "errors": 100},
            "gpu-processes": {"accept": [], "shared": True},
            "gpu-xid": {"fail": ["79", "48"]},
            "npu-check": {"count": 16, "tool": "/opt/npu-smi", "healthy": ["OK"]},
            "mlu-check": {"count": 8, "tool": "/opt/cnmon", "errors": 0},
            "amd-check": {"count": 4, "tool": "/opt/amd-smi", "errors": None},
            "dns": {"hosts_files": ["/a", "/b"], "names": ["login"], "share_above": 64, "asked_by": 3},
            "infiniband": {
                "ports": ["a/1"],
                "link_layer": "Ethernet",
                "count": 1,
                "rate": 2,
                "window": 1800.0,
                "symbol_error": 3,
                "link_error_recovery": 4,
                "link_downed": 5,
                "port_rcv_errors": 6,
                "port_rcv_remote_physical_errors": 7,
                "local_link_integrity_errors": 8,
                "excessive_buffer_overrun_errors": 9,
                "port_xmit_discards": 10,
                "local_ack_timeout_err": 11,
                "packet_seq_err": 12,
                "out_of_sequence": 13,
            },
            "nic": {
                "interfaces": ["eth0"],
                "speed": 1,
                "mtu": 2,
                "least_mtu": 3,
                "window": 30.0,
                "errors": 4,
                "dropped": 5,
                "link_losses": 6,
            },
            "inodes": {"paths": 0.2, "root": 0.5, "shm": 0.0, "cache": None},
            "mounts": {"paths": ["/home", "/opt"], "read_only": ["/opt"], "local": False},
            "memory": {
                "total": 500 * GB,
                "available": GB,
                "uncorrectable": None,
                "correctable": 1000,
                "slurm": False,
                "slurm_conf": "/opt/slurm.conf",
            },
            "clock": {"error": 0.5, "offset": 0.1, "chronyc": "/opt/chronyc", "ntpq": None},
            "processes": {
                "zombies": 100,
                "stuck": 10,
                "leftovers": True,
                "users_from": 500,
                "accept": ["podman"],
            },
            "services": {"pid_files": ["/run/a.pid"], "units": ["munge", "sssd.service"]},
            "ports": {"listening": [22, 6818]},
            "command": {"run": ["/etc/checks/scratch"], "timeout": 3.0},
        },
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_retires: 3", "max_retires: unknown key; accepted: infiniband_partitions, max_retries, "),
        ("sbatch: {retires: 1}", "sbatch.retires: unknown key; accepted: mode, retries, "),
        ("sbatch: {grace: soon}", "sbatch.grace: found 'soon'; accepted: 90s, 30m"),
        ("periodic: {interval: 0.5s}", "periodic.interval: found '0.5s'; accepted: a time from 1s to 65535s"),
        ("periodic: {interval: 1093m}", "periodic.interval: found '1093m'; accepted: a time from 1s to 65535s"),
        ("periodic: {passes: 0}", "periodic.passes: found '0'; accepted: a whole number from 1"),
        ("recovery: {queue_timeout: soon}", "recovery.queue_timeout: found 'soon'; accepted: 0 or never for no end; "),
        ("recovery: {queue_timeout: 12d}", "recovery.queue_timeout: found '12d'; accepted: 0 or never for no end; up"),
        ("recovery: {nice: -5}", "recovery.nice: found '-5'; accepted: a whole number from 0"),
        ("drain_cap: 10", "drain_cap: found '10'; accepted: a number from 0 to 1"),
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
    assert last == "  correct the file, then run: slurm-plugin site render DIR"


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
    monkeypatch.setattr(siteconfig, "DEFAULT_PATH", tmp_path / "slurm_plugin.yaml")
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
