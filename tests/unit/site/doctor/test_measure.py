"""Measurements of files, links, times and answers."""

import os
import sys
from pathlib import Path

import pytest

from slurm_plugin.records.site_settings import ARCHIVE
from slurm_plugin.site import archive, compilation
from slurm_plugin.site.compilation import site_file
from slurm_plugin.site.configuration import SiteConfig, load
from slurm_plugin.site.doctor import examine, measure
from slurm_plugin.site.files import render_site, rendered
from tests.fakes import FakeSlurm


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A site directory as it is deployed."""
    render_site(SiteConfig(), tmp_path / "site", root=str(tmp_path / "site"))
    return tmp_path / "site"


def different(root: Path) -> dict[str, tuple[str, ...]]:
    """Return the differences without owners, as these tests need not run as root."""
    found = measure.differences(root, rendered(SiteConfig(), str(root)))
    return {name: getattr(found, name) for name in ("missing", "changed", "closed") if getattr(found, name)}


def test_nothing_differs(root: Path) -> None:
    """The kill switch is no difference, and neither is code compiled by another build of Python."""
    (root / "DISABLED").touch()
    (root / ARCHIVE).write_bytes(archive.build(["/bin/false"]))
    assert different(root) == {}


def test_another_source_is_a_difference(root: Path) -> None:
    """A changed byte of a module is a difference, and so is a file that is no zip."""
    data = (root / ARCHIVE).read_bytes()
    (root / ARCHIVE).write_bytes(data.replace(b'VERSION = "sp1"', b'VERSION = "sp2"'))
    assert different(root) == {"changed": (ARCHIVE,)}
    (root / ARCHIVE).write_bytes(b"x")
    assert different(root) == {"changed": (ARCHIVE,)}


def test_site_file_that_was_changed(tmp_path: Path) -> None:
    """compiled.json names its site file; without that file on this machine, its checksum is not compared."""
    path, root = tmp_path / "site.yaml", str(tmp_path / "site")
    path.write_text("max_retries: 4\n")
    render_site(load(path), tmp_path / "site", root=root, site_file=site_file(path))

    def changed(here: Path | None) -> tuple[str, ...]:
        wanted = rendered(SiteConfig(max_retries=4), root, compilation.source(root, here))
        return measure.differences(tmp_path / "site", wanted).changed

    assert changed(path) == changed(None) == ()
    (tmp_path / "copy.yaml").write_text("max_retries: 4\n")
    assert changed(tmp_path / "copy.yaml") == ()
    path.write_text("max_retries: 4 # the same\n")
    assert changed(path) == ("compiled.json",)
    assert changed(None) == ()
    assert compilation.source(str(tmp_path / "none"), path) is None


def test_differences_are_named(root: Path) -> None:
    """A changed file, a missing file and a hook that is not executable are differences."""
    (root / "hooks/prolog").write_text("#!/bin/sh\n")
    (root / ARCHIVE).unlink()
    (root / "hooks/epilog").chmod(0o644)
    assert different(root) == {
        "missing": (ARCHIVE,),
        "changed": ("hooks/prolog",),
        "closed": ("hooks/epilog",),
    }


def test_files_that_others_may_change(root: Path) -> None:
    """Writable by group or others, in a directory or a file."""
    wanted = rendered(SiteConfig(), str(root))
    (root / "hooks").chmod(0o775)
    (root / "compiled.json").chmod(0o646)
    assert {"hooks", "compiled.json"} <= set(measure.differences(root, wanted).exposed)


def test_no_directory_at_all(tmp_path: Path) -> None:
    """Everything is missing, the directory included."""
    assert "." in different(tmp_path / "none")["missing"]


def test_programs_that_lead_to_ours(tmp_path: Path) -> None:
    """A link to our hook, or a script that names it, leads to it; a missing program gives None."""
    ours, folder = tmp_path / "hooks/prolog", tmp_path / "prolog.d"
    ours.parent.mkdir()
    ours.touch()
    folder.mkdir()
    assert measure.leads([f"{folder}/*"], str(ours)) is None
    (folder / "10-site").write_text("#!/bin/sh\n")
    assert measure.leads([f"{folder}/*"], str(ours)) is False
    (folder / "20-ours").symlink_to(ours)
    assert measure.leads([f"{folder}/*"], str(ours)) is True
    (tmp_path / "script").write_text(f"#!/bin/sh\nexec {ours}\n")
    assert measure.leads([str(tmp_path / "script")], str(ours)) is True
    assert measure.leads([], str(ours)) is None


def test_controllers() -> None:
    """Any that slurm.conf names, with or without a domain."""
    for host, answer in [("ctl", True), ("ctl.example.org", True), ("backup", True), ("n1", False), ("ct", False)]:
        assert measure.is_controller(["ctl(10.0.0.1)", "backup.example.org"], host) is answer, host


def test_times(tmp_path: Path) -> None:
    """The start of slurmctld is parsed; without it the result is None."""
    (tmp_path / "a").touch()
    os.utime(tmp_path / "a", (5, 5.9))
    assert measure.changed_at(str(tmp_path / "a")) == 5
    assert measure.changed_at(str(tmp_path / "b")) is None
    earlier, later = ({"BOOT_TIME": f"2026-11-20T23:55:{second}"} for second in ("40", "41"))
    assert (measure.boot(later) or 0) - (measure.boot(earlier) or 0) == 1
    assert measure.boot({}) is None


def test_interpreter(tmp_path: Path) -> None:
    """The system's Python reports its version; another program gives an error text."""
    found = measure.interpreter("/usr/bin/python3")
    assert isinstance(found, tuple)
    assert found >= (3, 11)
    for path, words in [(str(tmp_path / "none"), "is not there"), ("/bin/false", "does not run")]:
        why = measure.interpreter(path)
        assert isinstance(why, str)
        assert words in why
    assert measure.has_psutil(sys.executable)  # of this environment
    assert not measure.has_psutil("/bin/false")
    assert not measure.has_psutil(str(tmp_path / "none"))


def test_directories(tmp_path: Path) -> None:
    """A directory's owner and mode; a file is no directory."""
    found = measure.owned(str(tmp_path))
    assert found is not None
    assert found.uid == os.getuid()  # type: ignore[union-attr]
    (tmp_path / "file").touch()
    assert measure.owned(str(tmp_path / "file")) is None
    assert measure.owned(str(tmp_path / "none")) is None
    assert measure.missing_commands(str(tmp_path)) == ("scontrol", "squeue", "scancel")
    assert (measure.there(str(tmp_path / "file")), measure.there(str(tmp_path / "none"))) == (True, False)


MUNGE = '#!/bin/sh\n[ "$*" = "--no-input --socket /run/x" ] && echo CREDENTIAL\n'
UNMUNGE = (
    '#!/bin/sh\nread given; [ "$given $*" = "CREDENTIAL --socket /run/x" ] || { echo "bad: $given" >&2; exit 9; }\n'
)


def test_munge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """munge and unmunge use Slurm's socket."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    for name, text in {"munge": MUNGE, "unmunge": UNMUNGE}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    config = {"AuthInfo": "ttl=60,socket=/run/x"}
    assert measure.munge(config) == ""
    (tmp_path / "unmunge").write_text("#!/bin/sh\necho 'unmunge: Error: no' >&2; exit 1\n")
    assert measure.munge(config) == "unmunge: Error: no"
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert measure.munge(config) is None


def test_without_an_answer(root: Path, tmp_path: Path) -> None:
    """Without slurmctld there is one finding about it, and the files are judged all the same."""
    (tmp_path / "site.yaml").write_text("")
    slurm = FakeSlurm()
    slurm.up, slurm.refusals = False, {("config", None): 1}
    found = {finding.name: finding.verdict for finding in examine(slurm, tmp_path / "site.yaml", str(root))}
    assert (found["slurmctld"], found["slurm.conf"]) == ("wrong", "cannot tell")
    assert (found["files"], found["kill switch"]) == ("ok", "ok")
    assert "Prolog" not in found


def test_pyxis_among_the_plug_ins(tmp_path: Path) -> None:
    """In plugstack.conf beside slurm.conf, or what that includes; a comment loads nothing."""
    config = {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    assert not measure.pyxis(config)
    stack = tmp_path / "plugstack.conf"
    stack.write_text("# required /usr/lib/spank_pyxis.so\ninclude plugstack.conf.d/*.conf\n")
    assert not measure.pyxis(config)
    (tmp_path / "plugstack.conf.d").mkdir()
    (tmp_path / "plugstack.conf.d/a.conf").write_text("required /usr/lib/spank_pyxis.so\n")
    assert measure.pyxis(config)
    assert not measure.pyxis({"PlugStackConfig": str(tmp_path / "none.conf")})


def test_what_enroot_mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text has all files; it is None without enroot."""
    monkeypatch.setattr(measure, "ENROOT_MOUNTS", str(tmp_path / "mounts.d"))
    assert measure.enroot_mounts() is None
    (tmp_path / "mounts.d").mkdir()
    (tmp_path / "mounts.d/20-a.fstab").write_text("a\n")
    (tmp_path / "mounts.d/30-b.fstab").write_text("b\n")
    (tmp_path / "mounts.d/c.sh").write_text("c\n")
    assert measure.enroot_mounts() == "a\nb\n"
