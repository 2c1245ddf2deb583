"""What people see of a search that ran on a real Slurm: its values, curves, logs, failures and its page."""

import json
from pathlib import Path

import pytest
import yaml

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import workdir
from tests.waiting import until

pytestmark = pytest.mark.cluster

# Each trial reports three validations in its file; the third one fails after the first.
PROGRAM = """for step in 1 2 3; do
  echo "step $step"
  loss=$SLURM_PLUGIN_TRIAL.$((9 - step))
  echo '{"step": '$step', "metrics": {"loss": '$loss', "accuracy": 0.5}}' >> "$SLURM_PLUGIN_METRICS"
  if [ "$SLURM_PLUGIN_TRIAL" = 3 ]; then
    echo "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    exit 1
  fi
done
"""
SEARCH = {
    "algorithm": "random",
    "metric": {"name": "loss"},
    "space": {"lr": {"type": "log", "minval": -4, "maxval": -1}, "layers": {"type": "categorical", "vals": [1, 2]}},
    "trials": 4,
    "concurrent": 2,
}


@pytest.mark.full  # 28 s
def test_a_search_is_seen(cluster: Sandbox) -> None:
    """Each command shows what the trials did. A failed trial is the third of four, and its cause is named."""
    home = workdir(cluster, "seen")
    (home / "run.sh").write_text(PROGRAM)
    spec = {"name": "seen", "mode": "single", "command": "sh run.sh {lr}", "search": SEARCH}
    (home / "seen.yaml").write_text(yaml.safe_dump(spec))

    def call(*words: str, check: bool = True) -> str:
        inside = ["sh", "-c", 'cd "$HOME/seen" && exec slurm-plugin experiment "$@"', "sh", *words]
        return cluster.run(inside, check=check).stdout

    call("submit", "seen.yaml")
    until(lambda: json.loads(call("status", "seen", "--json"))["state"] == "finished", lambda: call("status", "seen"))

    form = json.loads(call("status", "seen", "--json"))
    assert (form["counts"]["completed"], form["counts"]["failed"], form["left"]) == (3, 1, 0)
    assert (form["best"]["trial"], form["best"]["value"], form["best"]["length"]) == (1, 1.6, 3)
    trials = json.loads(call("trials", "seen", "--sort=value", "--json"))["trials"]
    assert [each["value"] for each in trials] == [1.6, 2.6, 3.8, 4.6]
    assert [each["state"] for each in trials] == ["completed", "completed", "failed", "completed"]
    assert all(1e-4 <= each["values"]["lr"] <= 0.1 and each["duration_s"] > 0 and each["why"] for each in trials[2:3])

    (best,) = json.loads(call("best", "seen", "--n=1", "--json"))["best"]
    assert best["command"] == f"sh run.sh {json.dumps(best['values']['lr'])}"
    assert Path(best["log"]).name == "log"
    rows = call("metrics", "seen", "2", "--name=loss", "--csv").splitlines()
    assert [row.split(",")[:4] for row in rows[1:]] == [
        ["validation", "loss", str(step), f"2.{9 - step}"] for step in (1, 2, 3)
    ]
    assert "step 3" in call("logs", "seen", "2", "--no-system").splitlines()
    assert call("export", "seen").count("\n") == 5

    call("report", "seen")
    page = (home / "seen" / "report.html").read_text()
    assert '<a href="trials/0003/log">' in page
    assert "gpu_oom" in page
