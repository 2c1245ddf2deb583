""".ci/contained leaves nothing behind if the script that it runs is terminated or killed."""

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from slurm_plugin.sandbox import network
from tests.cluster.command import COMMAND
from tests.waiting import until

pytestmark = pytest.mark.cluster

CONTAINED = Path(__file__).parents[2] / ".ci/contained"
# A run makes a process in a new session, a mount and a sandbox, and reports its progress.
SCRIPT = f"""#!/bin/bash
set -euo pipefail
. {CONTAINED}
echo "$SLURM_PLUGIN_RUN"
echo run >&2
setsid sleep 1000 &
echo process >&2
mkdir "$TMPDIR/mounted" && mount -t tmpfs tmpfs "$TMPDIR/mounted"
echo mount >&2
"$@" "$TMPDIR/box" up --nodes 2 &
until ip link | grep -q "{{link}}"; do sleep 0.2; done
echo link >&2
wait $!
echo sandbox >&2
wait
"""
MOMENTS = ("run", "process", "mount", "link", "sandbox")


def processes(run: str) -> list[int]:
    """Return the processes with the run's directory in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"SLURM_PLUGIN_RUN={run}\0".encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def started(tmp_path: Path, moment: str) -> tuple["subprocess.Popen[str]", str]:
    """Start the script, and wait until it has made everything. Return the process and the run's directory."""
    script, said = tmp_path / "script", tmp_path / "said"
    # The link's name depends on the sandbox's directory, which bash knows first.
    link = '$(printf "%s" "$TMPDIR/box" | sha256sum | cut -c1-10)'
    script.write_text(SCRIPT.replace("{link}", f"sp{link}"))
    environ = {name: value for name, value in os.environ.items() if name not in {"SLURM_PLUGIN_RUN", "TMPDIR"}}
    with said.open("w") as errors:
        process = subprocess.Popen(
            ["bash", script, *COMMAND], stdout=subprocess.PIPE, stderr=errors, text=True, env=environ
        )
    assert process.stdout
    run = process.stdout.readline().strip()
    until(lambda: moment in said.read_text().split(), said.read_text)
    return process, run


@pytest.mark.full  # 22 s
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_is_left(tmp_path: Path, moment: str, number: int) -> None:
    """No process, mount or link is left. SIGTERM removes the directory; after SIGKILL the next run removes it."""
    process, run = started(tmp_path, moment)
    with process:
        process.send_signal(number)
        assert process.wait() == (143 if number == signal.SIGTERM else -signal.SIGKILL)
    gone: list[Callable[[], bool]] = [
        lambda: not processes(run),
        lambda: not Path("/sys/class/net", network.host_link(Path(run, "box"))).exists(),
    ]
    for each in gone:
        until(each)
    assert run not in Path("/proc/self/mountinfo").read_text()
    if number == signal.SIGKILL:
        assert Path(run).exists()
        again, other = started(tmp_path, "run")
        again.terminate()
        assert (again.wait(), Path(other).exists()) == (143, False)
    assert not Path(run).exists()
