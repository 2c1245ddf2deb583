"""A real node_exporter and Prometheus read the metrics, and promtool tests the alert rules. Run by .ci/consumers."""

import json
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import prechecks
from slurm_plugin.node import hook
from slurm_plugin.records import metrics
from tests.fetched import Consumers
from tests.waiting import HANG_S, until

MONITORING = Path(__file__).parents[2] / "monitoring"


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def fetched(port: int, path: str) -> str:
    """Return a page of a server on this machine."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=HANG_S) as answer:
        return str(answer.read().decode())


@contextmanager
def serving(argv: Sequence[str | Path], port: int, ready: str, log: Path) -> Iterator[None]:
    """Run a server until the block ends. Wait until it answers."""

    def answers() -> bool:
        assert server.poll() is None, log.read_text()
        try:
            return bool(fetched(port, ready))
        except OSError:
            return False

    with log.open("w") as out, subprocess.Popen(argv, stdout=out, stderr=out, cwd=log.parent) as server:
        try:
            until(answers, f"{argv[0]} to answer")
            yield
        finally:
            server.kill()


def counted(site: Mapping[str, Any]) -> None:
    """Write all files of a machine that is a node and the controller."""
    verdicts = (prechecks.Verdict("gpu-check", "failed", "node_problem", "3 of 4 GPUs"),)
    for each in ("prolog", "periodic"):
        hook.write_metrics(site, prechecks.Report("n1", None, each, 1e9, verdicts))
        metrics.hook_ran(site, each, metrics.BAD_NODE, 0.25)
    metrics.add(site, metrics.NODE, metrics.drained("prolog", ["gpu-check"]), {metrics.OUT: 1})
    metrics.add(site, metrics.CONTROLLER, metrics.observed(metrics.RECOVERY, 7.0))
    metrics.add(site, metrics.CONTROLLER, {metrics.sample(metrics.RESTARTS, kind="requeue", cause="node_check"): 1})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Return the settings of a site with metrics."""
    monkeypatch.setattr(metrics, "WRITE_S", HANG_S)
    for name in ("textfile", "spool"):
        (tmp_path / name).mkdir()
    return {
        "metrics_directory": str(tmp_path / "textfile"),
        "spool_directory": str(tmp_path / "spool"),
        "prechecks": {"state": str(tmp_path / "run/state")},
        "drain_cap": 0.1,
    }


def test_scraped(consumers: Consumers, site: Mapping[str, Any], tmp_path: Path) -> None:
    """node_exporter accepts every file without an error, and Prometheus has every family, and the sample that changed.

    Every expression of the dashboard and of the rules is one that this Prometheus can evaluate.
    """
    counted(site)
    exporter, server = free_port(), free_port()
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        "scrape_configs:\n"
        f"  - {{job_name: node, static_configs: [{{targets: ['127.0.0.1:{exporter}']}}]}}\n"
        f"rule_files: [{MONITORING}/alerts.yml]\n"
    )
    node_exporter = [
        consumers.prometheus / "prometheus-node-exporter",
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={site['metrics_directory']}",
        f"--web.listen-address=127.0.0.1:{exporter}",
    ]
    prometheus = [
        consumers.prometheus / "prometheus",
        f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{server}",
    ]

    def asked(expression: str) -> list[Any]:
        expression = expression.replace("$__range_s", "3600").replace("$__range", "1h")
        answer = json.loads(fetched(server, f"/api/v1/query?query={quote(expression)}"))
        assert answer["status"] == "success", expression
        return list(answer["data"]["result"])

    with serving(node_exporter, exporter, "/metrics", tmp_path / "exporter.log"):
        text = fetched(exporter, "/metrics")
        assert "node_textfile_scrape_error 0\n" in text
        assert "level=error" not in (tmp_path / "exporter.log").read_text()
        with serving(prometheus, server, "/-/ready", tmp_path / "prometheus.log"):
            drained = 'slurm_plugin_drains_total{hook="prolog"}'
            until(lambda: [each["value"][1] for each in asked(drained)] == ["1"], "the first scrape")
            names = [f"{name}_count" if name == metrics.RECOVERY else name for name in metrics.FAMILIES]
            assert [name for name in names if not asked(name)] == []
            assert asked("slurm_plugin_check_failed")
            counted(site)
            until(lambda: [each["value"][1] for each in asked(drained)] == ["2"], "the next scrape")
            for panel in json.loads((MONITORING / "dashboard.json").read_text())["panels"]:
                for target in panel["targets"]:
                    asked(target["expr"])
            rules = json.loads(fetched(server, "/api/v1/rules"))["data"]["groups"][0]["rules"]
            assert [rule["lastError"] for rule in rules if rule.get("lastError")] == []


def test_files_as_promtool_reads_them(consumers: Consumers, site: Mapping[str, Any]) -> None:
    """Its linter has no remark: names, units and HELP texts follow Prometheus' practice."""
    counted(site)
    for path in sorted(Path(site["metrics_directory"]).iterdir()):
        with path.open() as text:
            argv = [consumers.prometheus / "promtool", "check", "metrics"]
            done = subprocess.run(argv, stdin=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), path.name


@pytest.mark.parametrize("verb", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")])
def test_the_alert_rules(consumers: Consumers, verb: tuple[str, ...]) -> None:
    """They are valid, and each fires when its test says so, and not before."""
    done = subprocess.run(
        [consumers.prometheus / "promtool", *verb], cwd=MONITORING, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
