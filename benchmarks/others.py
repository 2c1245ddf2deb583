"""Install the packages that the benchmarks compare with, in virtual environments.

pip installs them once, into a cache outside the checkout: SLURM_PLUGIN_CACHE, else /var/cache/slurm_plugin.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path


def interpreter(*requirements: str) -> Path:
    """Return the interpreter of a virtual environment with these packages, each given as `NAME==VERSION`.

    It has the Python version of this process. An incomplete installation is repeated. Raises OSError if the cache
    cannot be written, subprocess.CalledProcessError if a package cannot be installed.
    """
    cache = Path(os.environ.get("SLURM_PLUGIN_CACHE", "/var/cache/slurm_plugin"), "benchmarks")
    version = "{}.{}".format(*sys.version_info)
    directory = cache / "-".join([*requirements, f"py{version}"])
    python = directory / "bin/python"
    cache.mkdir(parents=True, exist_ok=True)
    with Path(f"{directory}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "complete").exists():
            print(f"installing {' '.join(requirements)} into {directory}", file=sys.stderr)
            shutil.rmtree(directory, ignore_errors=True)
            venv.create(directory, with_pip=True)
            install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
            subprocess.run(install, check=True)
            (directory / "complete").touch()
    return python
