"""The site directory: complete, readable by those who run it, replaced as a whole, and nothing in it needs quoting."""

import json
import os
import stat
import subprocess
from pathlib import Path
from zlib import crc32

import pytest

from slurm_plugin.errors import MissingError, UsageError
from slurm_plugin.site import render_site, trusted_interpreter
from slurm_plugin.siteconfig import Prechecks, SiteConfig, compiled, load, site_file

FILES = {
    "bin/slurm-plugin": 0o755,
    "compiled.json": 0o644,
    "hooks/epilog": 0o755,
    "hooks/epilog_slurmctld": 0o755,
    "hooks/periodic": 0o755,
    "hooks/prolog": 0o755,
    "hooks/task_prolog": 0o755,
    "job_submit.lua": 0o644,
    "slurm.conf.fragment": 0o644,
    "slurm_plugin.pyz": 0o644,
}


def modes(directory: Path) -> dict[str, int]:
    """Every path in a directory, itself as `.`, with its mode."""
    paths = (directory, *directory.rglob("*"))
    return {str(path.relative_to(directory)): stat.S_IMODE(path.stat().st_mode) for path in paths}


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_files_and_modes(tmp_path: Path, umask: int) -> None:
    """Whatever the umask: SlurmUser and users may read and run it all, and only root may write."""
    old = os.umask(umask)
    try:
        render_site(SiteConfig(), tmp_path / "site")
    finally:
        os.umask(old)
    assert modes(tmp_path / "site") == {**FILES, ".": 0o755, "bin": 0o755, "hooks": 0o755}


def test_compiled_file(tmp_path: Path) -> None:
    """What hooks read is the site file compiled."""
    config = SiteConfig(max_retries=4)
    render_site(config, tmp_path)
    found = json.loads((tmp_path / "compiled.json").read_text())
    assert found == json.loads(json.dumps(compiled(config)))
    assert found["site_file"] is None


def test_the_site_file_is_known(tmp_path: Path) -> None:
    """What hooks read says which file it was made of, and what tells that from another one."""
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


@pytest.mark.parametrize("hook", ["prolog", "epilog", "epilog_slurmctld", "periodic", "task_prolog"])
@pytest.mark.parametrize("mandatory", [(), ("dns",)])
def test_hooks_are_shell(tmp_path: Path, hook: str, mandatory: tuple[str, ...]) -> None:
    """Every rendered hook is a script that sh can read to its end."""
    render_site(SiteConfig(prechecks=Prechecks(mandatory=mandatory)), tmp_path)
    checked = subprocess.run(["/bin/sh", "-n", tmp_path / "hooks" / hook], capture_output=True, timeout=60, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")


def test_again(tmp_path: Path) -> None:
    """A second rendering brings everything up to date and leaves nothing of the old one, or of one cut off."""
    render_site(SiteConfig(), tmp_path)
    before = modes(tmp_path)
    for name in ("lib/slurm_plugin", "lib.new/half", "lib.old"):  # where versions before had the code
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "hooks" / "prolog.new").write_text("half")
    (tmp_path / "DISABLED").write_text("")
    render_site(SiteConfig(max_retries=4), tmp_path)
    assert modes(tmp_path) == {**before, "DISABLED": 0o644}
    assert json.loads((tmp_path / "compiled.json").read_text())["max_retries"] == 4


def test_deployed_command(tmp_path: Path) -> None:
    """What batch scripts call works from the deployed copy, in an empty environment and directory."""
    render_site(SiteConfig(), tmp_path / "site", root=str(tmp_path / "site"))
    argv = [tmp_path / "site/bin/slurm-plugin", "hosts", "openmpi", "--nodelist=n[1-2]", "--slots=4"]
    result = subprocess.run(argv, capture_output=True, env={}, cwd="/", timeout=30, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"n1 slots=4\nn2 slots=4\n", b"")


@pytest.mark.parametrize("name", ["python", "run_directory", "spool_directory", "slurm_bin"])
@pytest.mark.parametrize("path", ["relative", "/a b", "/a;b", "/$(x)", "/a'b", "/a\nb", "/é", ""])
def test_path_that_needs_quoting(tmp_path: Path, name: str, path: str) -> None:
    """A path that a shell could read as something else is refused before anything is written."""
    with pytest.raises(UsageError, match=f"{name}: .*\n  an absolute path of letters, digits"):
        render_site(SiteConfig(**{name: path}), tmp_path / "site")  # type: ignore[arg-type]
    assert not (tmp_path / "site").exists()


def test_root_that_needs_quoting(tmp_path: Path) -> None:
    """The same for the place where it will stand."""
    with pytest.raises(UsageError, match="root: '/a b'"):
        render_site(SiteConfig(), tmp_path / "site", root="/a b")


def fake(path: Path, mode: int = 0o755) -> Path:
    """Something that could be an interpreter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_trusted(tmp_path: Path) -> None:
    """Root's own file in root's own directories is trusted; /tmp's sticky bit keeps others from replacing it."""
    trusted_interpreter(fake(tmp_path / "python"))
    trusted_interpreter(Path("/usr/bin/python3"))


def test_missing_interpreter(tmp_path: Path) -> None:
    """The error says which setting names it."""
    with pytest.raises(MissingError, match=r"/none is not there \(No such file or directory\)\n  set `python:`"):
        trusted_interpreter(tmp_path / "none")


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_writable_interpreter(tmp_path: Path, mode: int) -> None:
    """A file that others may write is refused."""
    with pytest.raises(UsageError, match=f"{tmp_path}/python can be written by others than root"):
        trusted_interpreter(fake(tmp_path / "python", mode))


def test_writable_directory(tmp_path: Path) -> None:
    """So is one that others may replace, whichever directory above lets them."""
    python = fake(tmp_path / "open" / "closed" / "python")
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UsageError, match=f"{tmp_path}/open can be written"):
        trusted_interpreter(python)


def test_someone_elses(tmp_path: Path) -> None:
    """So is a user's own."""
    os.chown(fake(tmp_path / "python"), 20001, 20001)
    with pytest.raises(UsageError, match="/python can be written"):
        trusted_interpreter(tmp_path / "python")


def test_link_into_an_open_directory(tmp_path: Path) -> None:
    """A link of root's counts as what it leads to."""
    target = fake(tmp_path / "open" / "python")
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "python").symlink_to(target)
    with pytest.raises(UsageError, match=f"{tmp_path}/open can be written"):
        trusted_interpreter(tmp_path / "python")
