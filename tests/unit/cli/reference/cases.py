"""What each shell offers behind a command line: the same in all of them."""

import pytest

CASES = [
    ("slurm-plugin su", ["submit"]),
    ("slurm-plugin experiment st", ["status", "stop"]),
    ("slurm-plugin submit --dr", ["--dry-run"]),
    ("slurm-plugin logs 1", ["12", "17", "18", "19", "19_2"]),
    ("slurm-plugin shell ", ["12", "17", "18", "19", "19_2", "20"]),
    ("slurm-plugin why n", ["n1", "n2"]),
    ("slurm-plugin nodes n", ["n1", "n2"]),
    ("slurm-plugin jobs --all --state he", ["held"]),
    ("slurm-plugin check dns disk-size.s", ["disk-size.shm"]),
    ("slurm-plugin check fab", ["fabric"]),
    ("slurm-plugin experiment trials --state wa", ["waiting"]),
    ("slurm-plugin experiment trials --state=wa", ["waiting"]),
    ("slurm-plugin experiment trials --limit 3 --state wa", ["waiting"]),
    ("slurm-plugin sandbox --dir /tmp up --no-", ["--no-hooks"]),
    ("slurm-plugin completion z", ["zsh"]),
    ("slurm-plugin example pytorch-", ["pytorch-hello"]),
    ("slurm-plugin hosts conv", ["convert"]),
    ("slurm-plugin hosts tensor", ["tensorflow"]),
    ("slurm-plugin hosts convert --to rank", ["ranktable-1.0"]),
    ("slurm-plugin submit j", ["j b.yml", "job.yaml"]),
    ("slurm-plugin submit --config j", ["j b.yml", "job.txt", "job.yaml"]),
    ("slurm-plugin logs --directory my", ["my dir"]),
    ("slurm-plugin hook ", []),
]
each_case = pytest.mark.parametrize(("line", "offered"), CASES, ids=[line for line, _ in CASES])
