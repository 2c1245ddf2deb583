"""deb and rpm on a real Slurm: nothing is enabled by an installation, and no job is disturbed by an upgrade."""

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from slurm_plugin.sandbox import Sandbox
from tests.cluster.conftest import new_directory
from tests.cluster.etc import Etc
from tests.cluster.jobs import Job, reasons, workdir
from tests.packages.roots import Deb, Rpm, copy_of, run
from tests.waiting import until

pytestmark = pytest.mark.cluster

BOTH = ("slurm-plugin", "slurm-plugin-node")
COMMAND = "/usr/bin/slurm-plugin"  # not the sandbox's own, which is first on the PATH
SITE = "/etc/slurm/slurm_plugin"
WAITS = "sh -c 'echo runs; while [ ! -e go ]; do sleep 0.1; done'"


OTHER = Path(os.environ.get("SLURM_PLUGIN_TEST_ROOT", "/"))  # another release of Debian, of Python, and of Slurm
HERE = Path("/")


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Yield a writable copy of a root directory, by default of this machine's."""
    with copy_of(getattr(request, "param", HERE), tmp_path / "copy") as root:
        yield root


@pytest.fixture
def box(root: Path) -> Iterator[Sandbox]:
    """Yield a plain Slurm whose machines have the programs of the root, and whose /etc/slurm is also the root's."""
    box = Sandbox(new_directory())
    box.up(2, 0, root, hooks=False)
    (root / "etc/slurm").mkdir(exist_ok=True)
    run("mount", "--bind", box.directory / "etc/slurm", root / "etc/slurm")
    try:
        yield box
    finally:
        run("umount", root / "etc/slurm")
        box.down()


def submit(box: Sandbox, name: str) -> Job:
    """Submit alice's job of two nodes, which ends when there is a file `go`."""
    directory = workdir(box, name)
    spec = {"name": name, "mode": "pytorch", "nodes": 2, "output": "job.out", "command": WAITS, "retries": 1}
    (directory / "job.yaml").write_text(yaml.safe_dump(spec))
    said = box.run(["sh", "-c", f"cd {name} && exec {COMMAND} submit --json job.yaml"])
    job = Job(box, json.loads(said.stdout)["job"], directory)
    job.until(lambda: job.log.count("runs\n") == 2, "the program on both nodes")
    return job


def end(job: Job) -> None:
    """Let a job end."""
    (job.directory / "go").touch()
    assert job.end() == "COMPLETED", job.log
    assert ": ok on n[1-2]\n" in job.log, job.log


def version_of(archive: Path) -> bytes:
    """Return the line with the version in a site's code. It is compiled, too."""
    with zipfile.ZipFile(archive) as found:
        assert "slurm_plugin/__init__.pyc" in found.namelist()
        return found.read("slurm_plugin/__init__.py")


@pytest.mark.parametrize(("manager", "root"), [(Deb, OTHER), (Rpm, HERE)], indirect=["root"])
def test_installed_used_upgraded_and_removed(
    manager: Callable[[Path], Deb | Rpm], packages: Path, root: Path, box: Sandbox, tmp_path: Path
) -> None:
    """An upgrade keeps the configuration and the running job. A removal waits until Slurm needs the hooks no more."""
    tool, at, etc = manager(root), box.directory / "etc/slurm", Etc(box, tmp_path / "etc")
    before = {path: path.read_bytes() for path in at.iterdir() if path.is_file()}
    tool.install(packages / "first")
    assert {path: path.read_bytes() for path in at.iterdir() if path in before} == before
    assert "slurm_plugin" not in box.run(["scontrol", "show", "config"]).stdout
    assert f"{SITE}/hooks/prolog" in tool.files("slurm-plugin-node")
    assert {"licences.txt", "sbom.cdx.json"} <= {path.name for path in (root / "usr/share/doc/slurm-plugin").iterdir()}
    assert (root / "usr/share/man/man1/slurm-plugin-submit.1.gz").exists()
    assert (root / "usr/share/bash-completion/completions/slurm-plugin").exists()

    box.run([COMMAND, "site", "install", "--apply"], user="root")
    etc.restart()
    etc.reconfigure()
    settings = (at / "slurm_plugin/compiled.json").read_bytes()
    first = version_of(at / "slurm_plugin/slurm_plugin.pyz")
    job = submit(box, "upgraded")
    tool.install(packages / "second")
    assert b"9.9.9" in version_of(at / "slurm_plugin/slurm_plugin.pyz")
    assert b"9.9.9" not in first
    assert (at / "slurm_plugin/compiled.json").read_bytes() == settings
    assert (at / "slurm_plugin.yaml").read_bytes() == before[at / "slurm_plugin.yaml"]
    assert "9.9.9" in box.run([COMMAND, "--version"]).stdout
    end(job)
    end(submit(box, "new"))
    assert reasons(box) == {}

    refused = tool.remove(["slurm-plugin-node"])
    assert refused.returncode != 0
    assert "slurm-plugin site uninstall --apply" in refused.stderr
    assert (at / "slurm_plugin/hooks/prolog").exists()
    box.run([COMMAND, "site", "uninstall", "--apply"], user="root")
    etc.reconfigure()
    removed = tool.remove(BOTH)
    assert removed.returncode == 0, removed.stderr
    assert not (at / "slurm_plugin/hooks/prolog").exists()
    assert not (root / "usr/bin/slurm-plugin").is_symlink()
    for name in BOTH:
        assert not (root / "usr/lib" / name).exists()
    assert box.run(["srun", "-N2", "true"]).returncode == 0
    until(lambda: set(box.states().values()) == {"idle"})


def test_a_job_on_the_node_prevents_the_removal(packages: Path, root: Path) -> None:
    """While a job's directory exists, the node's package stays."""
    tool = Deb(root)
    tool.install(packages / "first", "slurm-plugin-node_*")
    run_directory = root / "run/slurm_plugin/jobs/7.0.0"
    run_directory.mkdir(parents=True)
    refused = tool.remove(["slurm-plugin-node"])
    assert refused.returncode != 0
    assert "/run/slurm_plugin/jobs/7.0.0" in refused.stderr
    run_directory.rmdir()
    assert tool.remove(["slurm-plugin-node"]).returncode == 0
    assert not (root / "etc/slurm/slurm_plugin").exists()


def test_the_documents_name_each_package(packages: Path, tmp_path: Path) -> None:
    """The SBOM and the list of licences have slurm_plugin and every package of the requirements, and no other."""
    (deb,) = (packages / "first").glob("slurm-plugin_*.deb")
    run("dpkg-deb", "--extract", deb, tmp_path)
    documents = tmp_path / "usr/share/doc/slurm-plugin"
    lines = (Path(__file__).parents[2] / "packaging/requirements.txt").read_text().splitlines()
    wanted = sorted([*(line.partition("==")[0] for line in lines if "==" in line), "slurm-plugin"])
    bill = json.loads((documents / "sbom.cdx.json").read_text())
    assert sorted(plain(each["name"]) for each in bill["components"]) == wanted
    rows = (documents / "licences.txt").read_text().partition("\n\n====")[0].splitlines()
    assert sorted(plain(row.split()[0]) for row in rows) == wanted
    assert all(row.partition(": ")[2] for row in rows)


def plain(name: str) -> str:
    """Return the name of a Python package in its normal form."""
    return name.lower().replace("_", "-")
