"""Run a TFKerasTrial as the ranks of mode `tensorflow` do, with the TensorFlow that .ci/consumers fetched."""

import json
import os
import socket
import subprocess
from collections.abc import Sequence
from typing import Any

from tests.fetched import Consumers
from tests.unit.experiment.running import DEADLINE_S, ROOT, TRIALS, Run

RUNNER = ("-m", "slurm_plugin.experiment.runner")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "OMP_NUM_THREADS": "1"}


class KerasRun(Run):
    """An experiment's directory with one TFKerasTrial."""

    consumers: Consumers

    def ranks(
        self, entrypoint: str, ranks: int = 1, program: Sequence[str] = RUNNER, **environ: str
    ) -> "list[subprocess.Popen[str]]":
        """Start the ranks of the Trial, on ports that are free now."""
        workers = [f"127.0.0.1:{port}" for port in _ports(ranks)]
        cluster = {"worker": workers}
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "PYTHON", "TF_"))}
        path = os.pathsep.join((str(ROOT), str(TRIALS)))
        return [
            subprocess.Popen(
                [str(self.consumers.tensorflow_python), *program, entrypoint],
                cwd=self.directory, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env={
                    **clean, **QUIET, **self.environ, "PYTHONPATH": path, "SLURM_PROCID": str(rank),
                    "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}}),
                    **environ,
                },
            )
            for rank in range(ranks)
        ]  # fmt: skip

    def run(self, entrypoint: str, ranks: int = 1, *, code: int = 0, **environ: str) -> str:
        """Run the Trial to its end. Every rank has this exit code. Return the output."""
        output, codes = finished(self.ranks(f"fitted:{entrypoint}", ranks, **environ))
        assert codes == [code] * ranks, output
        return output


def finished(processes: "list[subprocess.Popen[str]]") -> tuple[str, list[int]]:
    """Wait for the end of the ranks. Return their output and their exit codes."""
    try:
        output = "".join(each.communicate(timeout=DEADLINE_S)[0] for each in processes)
    finally:
        for each in processes:
            each.kill()
    return output, [each.returncode for each in processes]


def _ports(count: int) -> list[Any]:
    made = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [each.getsockname()[1] for each in made]
    for each in made:
        each.close()
    return found
