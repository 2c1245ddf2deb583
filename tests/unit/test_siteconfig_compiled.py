"""The site file compiled to what hooks read: its defaults, and every key."""

import json
from pathlib import Path
from typing import Any

from prechecks.gpu_xid import WHAT_TO_DO
from slurm_plugin.siteconfig import SiteConfig, compiled
from tests.unit.test_siteconfig import site

GB = 1024**3


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
        "check_partitions": [],
        "max_hold_s": 14400,
        "hold_rules": [],
        "drain_cap": 0.1,
        "dry_run": False,
        "notify": "",
        "metrics_directory": "",
        "periodic": {"failures": 3, "passes": 3},
        "recovery": {"queue_timeout_s": 1800, "nice": 1000, "node_timeout_s": 60.0},
        "stage_in": {"directory": "", "keep_s": 604800},
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
        policy: {checks: [gpu], rules: [{name: short, when: {partition: [gpu]}, limit: {hold: 10m}}]}
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
        stage_in: {directory: /local, keep: 2d}
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
        "check_partitions": ["gpu"],
        "max_hold_s": 1800,
        "hold_rules": [{"name": "short", "when": {"partition": ["gpu"]}, "hold_s": 600}],
        "drain_cap": 0.5,
        "dry_run": True,
        "notify": "/etc/slurm/notify",
        "metrics_directory": "/var/lib/metrics",
        "periodic": {"failures": 1, "passes": 10},
        "recovery": {"queue_timeout_s": 0, "nice": 0, "node_timeout_s": 20.0},
        "stage_in": {"directory": "/local", "keep_s": 172800},
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
