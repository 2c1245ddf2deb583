"""A program that continues after a restart, for `resume.yaml`. With PyTorch: resume_torch.py."""

import json
import os
import signal
import time
from pathlib import Path

STEPS, STEP_S, EVERY = int(os.environ.get("STEPS", "600")), float(os.environ.get("STEP_S", "1")), 10
file = Path(os.environ.get("SLURM_PLUGIN_CHECKPOINT") or "checkpoints") / "state.json"
asked = []


def save(state: dict[str, int]) -> None:
    """Write a new file, then rename it: whenever the node dies, there is a complete checkpoint."""
    fresh = file.with_suffix(".new")
    with fresh.open("w") as out:
        json.dump(state, out)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)
    print(f"saved step {state['step']}", flush=True)


file.parent.mkdir(parents=True, exist_ok=True)
signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))  # save soon: the program may be ended soon
state = json.loads(file.read_text()) if file.exists() else {"step": 0, "sum": 0}
if os.environ.get("SLURM_PLUGIN_RESTART") == "1":
    print(f"restarted: {os.environ['SLURM_PLUGIN_REASON']}; on from step {state['step']}", flush=True)
while state["step"] < STEPS:
    time.sleep(STEP_S)
    state = {"step": state["step"] + 1, "sum": state["sum"] + state["step"]}
    if asked or state["step"] % EVERY == 0 or state["step"] == STEPS:
        asked.clear()
        save(state)
print(f"done: {state['sum']}", flush=True)
