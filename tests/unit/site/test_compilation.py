"""The compiled settings, with every key."""

from pathlib import Path

from tests.unit.site.sitefiles import GB, as_json, site


def test_all_keys(tmp_path: Path) -> None:
    """Every key of the site file reaches the compiled one under the name that the checks read."""
    config = site(
        tmp_path,
        """
        infiniband_partitions: [ib, ib2]
        max_retries: 5
        max_hold: 30m
        share: read-only
        drain_cap: 0.5
        dry_run: yes
        notify: /etc/slurm/notify
        metrics_directory: /var/lib/metrics
        gpu_job_map: [dcgm]
        periodic: {interval: 90s, failures: 1, passes: 10}
        recovery: {queue_timeout: never, nice: 0, node_timeout: 20s}
        policy: {checks: [gpu], rules: [{name: short, when: {partition: [gpu]}, limit: {hold: 10m}}]}
        equipment: {"n[1-4]": {gpus: 4, device: "/dev/gpu%d", interfaces: [eth0]}, m1: {gpus: 8}}
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
        logs: {keep: 10d, diagnosis: 0}
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
        "share": "read-only",
        "max_grace_s": 3600,
        "extend_time_s": 0,
        "priorities": {},
        "hold_rules": [{"name": "short", "when": {"partition": ["gpu"]}, "hold_s": 600}],
        "drain_cap": 0.5,
        "repeat_drains": 3,
        "dry_run": True,
        "notify": "/etc/slurm/notify",
        "metrics_directory": "/var/lib/metrics",
        "gpu_job_map": ["dcgm"],
        "periodic": {"failures": 1, "passes": 10},
        "burn_in": {"command": [], "deadline_s": 1800},
        "repair": {},
        "recovery": {"queue_timeout_s": 0, "nice": 0, "node_timeout_s": 20.0},
        "stage_in": {"directory": "/local", "keep_s": 172800},
        "logs": {"keep_s": 864000, "diagnosis_s": 0},
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
            "equipment": [
                {"nodes": "n[1-4]", "gpus": 4, "device": "/dev/gpu%d", "interfaces": ["eth0"]},
                {"nodes": "m1", "gpus": 8, "device": None, "interfaces": []},
            ],
            "disk-size": {
                "required": [],
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
