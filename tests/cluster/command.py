"""The command line of `slurm-plugin sandbox`."""

import sys

COMMAND = (sys.executable, "-m", "slurm_plugin", "sandbox", "--dir")
