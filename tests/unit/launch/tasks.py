"""What TaskProlog would export in a task, said by a real sh."""

import subprocess


def exports(script: str | None, task: int, node: int, local: int, **environ: str) -> dict[str, str]:
    """The variables that a mode's lines print for one task, with builtins alone: there is no PATH."""
    slurm = {"SLURM_PROCID": str(task), "SLURM_NODEID": str(node), "SLURM_LOCALID": str(local)}
    slurm |= {"SLURM_PLUGIN_DIRECTORY": "/dev/null", "SLURM_PLUGIN_ATTEMPT": "0", "SLURMD_NODENAME": "n", **environ}
    said = subprocess.run(
        ["/bin/sh", "-euc", str(script)], env=slurm | {"PATH": "/nowhere"}, capture_output=True, text=True, check=True
    )
    assert said.stderr == ""
    return dict(line.removeprefix("export ").split("=", 1) for line in said.stdout.splitlines())
