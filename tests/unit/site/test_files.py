"""The rendered site directory: its files, their modes, and paths without quotes."""

import json
import os
import stat
import subprocess
from pathlib import Path
from zlib import crc32

import pytest

from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.site.compilation import compile_site, site_file
from slurm_plugin.site.configuration import Prechecks, SiteConfig, load
from slurm_plugin.site.files import render_site
from tests.refusals import refusal_of
from tests.unit.site.sitefiles import NEED_QUOTING

FILES = {
    "bin/slurm-plugin": 0o755,
    "compiled.json": 0o644,
    "hooks/epilog": 0o755,
    "hooks/epilog_slurmctld": 0o755,
    "hooks/periodic": 0o755,
    "hooks/prolog": 0o755,
    "hooks/task_prolog": 0o755,
    "job_submit.lua": 0o644,
    "signatures.json": 0o644,
    "slurm.conf.fragment": 0o644,
    "slurm_plugin.pyz": 0o644,
}


def modes(directory: Path) -> dict[str, int]:
    """Return the mode of every path in a directory, itself as `.`."""
    paths = (directory, *directory.rglob("*"))
    return {str(path.relative_to(directory)): stat.S_IMODE(path.stat().st_mode) for path in paths}


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_files_and_modes(tmp_path: Path, umask: int) -> None:
    """All users may read and run the files and only root may write, whatever the umask."""
    old = os.umask(umask)
    try:
        render_site(SiteConfig(), tmp_path / "site")
    finally:
        os.umask(old)
    assert modes(tmp_path / "site") == {**FILES, ".": 0o755, "bin": 0o755, "hooks": 0o755}


def test_compiled_file(tmp_path: Path) -> None:
    """compiled.json holds the compiled settings."""
    config = SiteConfig(max_retries=4)
    render_site(config, tmp_path)
    found = json.loads((tmp_path / "compiled.json").read_text())
    assert found == json.loads(json.dumps(compile_site(config)))
    assert found["site_file"] is None


def test_the_site_file_is_known(tmp_path: Path) -> None:
    """compiled.json names its site file and the checksum."""
    path = tmp_path / "site.yaml"
    path.write_text("max_retries: 4\n")
    render_site(load(path), tmp_path / "site", site_file=site_file(path))
    found = json.loads((tmp_path / "site/compiled.json").read_text())["site_file"]
    assert found == {"path": str(path), "crc32": crc32(b"max_retries: 4\n")}
    assert site_file(tmp_path / "none").crc32 is None


def test_slurm_conf(tmp_path: Path) -> None:
    """The lines for slurm.conf name the hooks at their final place, not where they were rendered."""
    render_site(SiteConfig(), tmp_path, root="/opt/sp")
    lines = (tmp_path / "slurm.conf.fragment").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "PrologFlags=Alloc,DeferBatch",
        "Prolog=/opt/sp/hooks/prolog",
        "Epilog=/opt/sp/hooks/epilog",
        "TaskProlog=/opt/sp/hooks/task_prolog",
        "EpilogSlurmctld=/opt/sp/hooks/epilog_slurmctld",
        "HealthCheckProgram=/opt/sp/hooks/periodic",
        "HealthCheckInterval=300",
        "HealthCheckNodeState=ANY,CYCLE",
        "JobSubmitPlugins=lua",
        "SchedulerParameters=nohold_on_prolog_fail",
    ]
    assert str(tmp_path).encode() not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_hooks_are_shell(tmp_path: Path) -> None:
    """Every rendered hook is a script that sh can read to its end."""
    for mandatory in [(), ("dns",)]:
        render_site(SiteConfig(prechecks=Prechecks(mandatory=mandatory)), tmp_path)
        hooks = sorted((tmp_path / "hooks").iterdir())
        assert len(hooks) == 5
        for hook in hooks:
            checked = subprocess.run(["/bin/sh", "-n", hook], capture_output=True, check=False)
            assert (checked.returncode, checked.stderr) == (0, b""), hook


def test_again(tmp_path: Path) -> None:
    """A second rendering updates everything."""
    render_site(SiteConfig(), tmp_path)
    before = modes(tmp_path)
    (tmp_path / "DISABLED").write_text("")
    render_site(SiteConfig(max_retries=4), tmp_path)
    assert modes(tmp_path) == {**before, "DISABLED": 0o644}
    assert json.loads((tmp_path / "compiled.json").read_text())["max_retries"] == 4


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    """An error message names a full or read-only disk. The next run replaces what was written."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/compiled.json").mkdir()
    with pytest.raises(SlurmPluginError, match=r"out/compiled.json cannot be written: .*\n  see: df "):
        render_site(SiteConfig(), tmp_path / "out")


def test_deployed_command(tmp_path: Path) -> None:
    """The deployed command works in an empty environment and directory."""
    render_site(SiteConfig(), tmp_path / "site", root=str(tmp_path / "site"))
    argv = [tmp_path / "site/bin/slurm-plugin", "hosts", "openmpi", "--nodelist=n[1-2]", "--slots=4"]
    result = subprocess.run(argv, capture_output=True, env={}, cwd="/", check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"n1 slots=4\nn2 slots=4\n", b"")


@pytest.mark.parametrize("libraries", [None, "", "/none:$HOME a"])
def test_the_deployed_sbatch_hands_on_the_environment_to_the_byte(tmp_path: Path, libraries: str | None) -> None:
    """The environment passes unchanged, also under another name and without stdin."""
    render_site(SiteConfig(slurm_bin=str(tmp_path / "real")), tmp_path / "site", root=str(tmp_path / "site"))
    (tmp_path / "real").mkdir()
    (tmp_path / "real/sbatch").symlink_to("/usr/bin/env")  # is given `-0`: prints its environment
    (tmp_path / "sbatch").symlink_to(tmp_path / "site/bin/slurm-plugin")
    environ = {"A": "x\ny", "BASH_FUNC_module%%": "() {  echo hi\n}", "a.b": "1"}
    environ |= {} if libraries is None else {"LD_LIBRARY_PATH": libraries}
    environ |= {"_": "z", "SHLVL": "7", "B": "'"}
    line = [tmp_path / "sbatch", "-0"]
    for stdin in ({"stdin": subprocess.DEVNULL}, {"preexec_fn": lambda: os.close(0)}):
        done = subprocess.run(line, capture_output=True, env=environ, cwd="/", check=False, **stdin)  # type: ignore[call-overload]
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout == b"".join(f"{name}={value}\0".encode() for name, value in environ.items())


@pytest.mark.parametrize("number", [3, 4, 9, 12])
def test_no_descriptor_of_the_callers_is_taken(tmp_path: Path, number: int) -> None:
    """File descriptors of the caller stay usable, whatever their number."""
    render_site(SiteConfig(slurm_bin=str(tmp_path / "real")), tmp_path / "site", root=str(tmp_path / "site"))
    (tmp_path / "real").mkdir()
    (tmp_path / "real/sbatch").symlink_to("/bin/cat")
    (tmp_path / "file").write_text("#!/bin/sh\nmine\n")
    line = f"exec {number}<{tmp_path}/file; exec {tmp_path}/site/bin/slurm-plugin sbatch /dev/fd/{number}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env={}, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "#!/bin/sh\nmine\n", "")


def test_in_a_directory_that_was_deleted(tmp_path: Path) -> None:
    """Only sbatch's own messages are printed."""
    render_site(SiteConfig(slurm_bin=str(tmp_path / "real")), tmp_path / "site", root=str(tmp_path / "site"))
    (tmp_path / "real").mkdir()
    (tmp_path / "real/sbatch").symlink_to("/bin/true")
    line = f"mkdir {tmp_path}/gone; cd {tmp_path}/gone; rmdir ../gone; exec {tmp_path}/site/bin/slurm-plugin sbatch x"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env={}, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_interpreter_whose_path_is_too_long(tmp_path: Path) -> None:
    """A path that is too long for the first line is refused."""
    python = tmp_path / ("x" * 200) / "python3"
    python.parent.mkdir()
    python.symlink_to("/usr/bin/python3")
    site = SiteConfig(python=str(python))
    assert "bytes too long for the first line" in refusal_of(UsageError, render_site, site, tmp_path / "site")


def test_root_that_needs_quoting(tmp_path: Path) -> None:
    """A root that a shell could read as something else is refused before anything is written."""
    for root in NEED_QUOTING:
        said = refusal_of(UsageError, render_site, SiteConfig(), tmp_path / "site", root=root)
        assert said.startswith(f"root: {root!r}\n  an absolute path of letters, digits"), root
        assert not (tmp_path / "site").exists(), root
