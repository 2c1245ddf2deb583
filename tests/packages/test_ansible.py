"""The Ansible role on a sandbox, whose machines take ssh's place: installed, checked, changed, and rolled back."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.conftest import new_directory
from tests.waiting import HANG_S
from tests.wheels import CHECKOUT, run

pytestmark = pytest.mark.cluster

ROOT = "/etc/slurm/slurm_plugin"
NODES = ("n1", "n2")


@pytest.fixture
def box() -> Iterator[Sandbox]:
    """Yield a plain Slurm of two nodes, each with a site directory of its own, as on a real site."""
    box = Sandbox(new_directory())
    box.up(2, 0, hooks=False)
    try:
        (box.directory / "etc/slurm/slurm_plugin").mkdir()
        for node in NODES:
            box.run(["mount", "-t", "tmpfs", "-o", "mode=755", "site", ROOT], user="root", node=node)
        yield box
    finally:
        box.down()


def play(box: Sandbox, tmp_path: Path, **variables: str) -> dict[str, int]:
    """Run the playbook, and return the number of changed tasks on each machine."""
    values = {"slurm_plugin_archive": str(tmp_path / "site.tar"), **variables}
    argv = ["ansible-playbook", "-i", "ansible/sandbox.yml", "ansible/site.yml", "-e", json.dumps(values)]
    environ = {
        "SLURM_PLUGIN_SANDBOX": str(box.directory),
        "PATH": f"{CHECKOUT}/.venv/bin:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "ANSIBLE_LOCAL_TEMP": str(tmp_path / "ansible"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_SSH_PIPELINING": "1",
        "ANSIBLE_TIMEOUT": str(int(HANG_S)),
        "LC_ALL": "C.UTF-8",
    }
    said = run(argv, CHECKOUT, environ)
    rows = re.findall(r"^(\w+) +: ok=\d+ +changed=(\d+) ", said, re.MULTILINE)
    return {name: int(count) for name, count in rows}


def read(box: Sandbox, node: str, name: str) -> str:
    """Return a file of a machine's site directory."""
    return box.run(["cat", f"{ROOT}/{name}"], user="root", node=node).stdout


def test_the_role_installs_checks_and_rolls_back(box: Sandbox, tmp_path: Path) -> None:
    """Each machine gets the site directory, then only what has changed. A rollback reaches all machines."""
    changed = play(box, tmp_path)
    assert all(changed[name] for name in ("ctl", *NODES)), changed
    assert f"= {ROOT}/hooks/prolog\n" in box.run(["scontrol", "show", "config"], user="root").stdout
    assert box.run(["srun", "-N2", "--comment", "[sp1;retries=1]", "true"], timeout=HANG_S).returncode == 0
    first = read(box, "ctl", "compiled.json")
    assert [read(box, node, "compiled.json") for node in NODES] == [first, first]

    site_file = tmp_path / "slurm_plugin.yaml"
    site_file.write_text((box.directory / "etc/slurm/slurm_plugin.yaml").read_text() + "max_retries: 7\n")
    play(box, tmp_path, slurm_plugin_site_file=str(site_file))
    for node in NODES:
        assert json.loads(read(box, node, "compiled.json"))["max_retries"] == 7

    play(box, tmp_path, slurm_plugin_action="rollback")
    assert [read(box, name, "compiled.json") for name in ("ctl", *NODES)] == [first] * 3
