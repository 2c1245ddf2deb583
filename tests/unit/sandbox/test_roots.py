"""Root directories for `sandbox up --root`; no tool runs here."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError
from slurm_plugin.sandbox import roots, rootsteps
from slurm_plugin.sandbox.roots import Built, Wanted
from tests.refusals import refusal_of


def test_paths_that_a_sandbox_cannot_be_built_on_are_refused() -> None:
    """`up --root` gives the path to overlay, whose options end at commas and colons."""
    for text in ["relative", "/", "/var/tmp/a b", "/var/tmp/a:b", "/var/tmp/a,b"]:
        assert re.search("cannot hold a root directory", refusal_of(UsageError, roots.check_directory, Path(text))), (
            text
        )


def test_what_is_not_ours_is_refused(tmp_path: Path) -> None:
    """A file, and a directory with anything in it; a root made by hand too."""
    (tmp_path / "usr").mkdir()
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(UsageError):
            roots.check_directory(path)
        assert main(["sandbox", "root", "forky", str(path)]) == 2
    assert not roots.log_path(tmp_path).exists()
    roots.check_directory(tmp_path / "usr")
    roots.check_directory(tmp_path / "new")


def test_a_half_built_root_is_ours_and_built_anew(tmp_path: Path) -> None:
    """The mark is made first and filled last; links are removed, not followed."""
    directory, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    roots.start(directory)
    (directory / "usr/bin").mkdir(parents=True)
    (directory / "bin").symlink_to("usr/bin")
    (directory / "link").symlink_to(outside)
    (directory / f"{roots.MARK}.new").touch()
    roots.check_directory(directory)
    assert roots.read(directory) is None
    roots.start(directory)
    assert [path.name for path in directory.iterdir()] == [roots.MARK]
    assert (outside / "file").exists()
    roots.write(directory, Built("forky", "26.05.5"))
    assert roots.read(directory) == Built("forky", "26.05.5")


def test_a_finished_root_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A finished root of the same suite is accepted, another suite is a usage error."""
    (tmp_path / roots.MARK).write_text("forky 26.05.5\n", encoding="utf-8")
    assert main(["sandbox", "root", "forky", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"already built: forky with Slurm 26.05.5 in {tmp_path}\n"
    assert main(["sandbox", "root", "trixie", str(tmp_path)]) == 2
    assert "holds forky, not trixie" in capsys.readouterr().err


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing programs are named with their packages before anything is made."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["sandbox", "root", "forky", str(tmp_path / "new")]) == 3
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    message = r"debootstrap, unshare, setpriv\n  run: apt-get install debootstrap util-linux"
    with pytest.raises(MissingError, match=message):
        roots.require()
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An OSError becomes a SlurmPluginError."""
    monkeypatch.setattr(roots, "require", lambda: None)
    (tmp_path / "file").touch()
    with pytest.raises(SlurmPluginError, match="again"):
        roots.make(Wanted("forky", tmp_path / "file/root"), "http://mirror.example/debian", print)


def test_one_build_at_a_time(tmp_path: Path) -> None:
    """The log is locked, readable for its owner only, and empty at the start of a build."""
    directory = tmp_path / "root"
    roots.log_path(directory).write_text("of the build before\n", encoding="utf-8")
    with roots.locked_log(directory):
        assert roots.log_path(directory).stat().st_size == 0
        assert roots.log_path(directory).stat().st_mode & 0o777 == 0o600
        with pytest.raises(SlurmPluginError, match="another command builds"), roots.locked_log(directory):
            pass


@dataclass
class FakeApt:
    """The calls of apt-get in a root, and the prefix of the one that fails."""

    directory: Path
    failing: str = "none"
    calls: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)  # at each call

    def __call__(self, root: rootsteps.Root, *words: str) -> None:
        self.calls.append(" ".join(words))
        self.marks.append((root.directory / roots.MARK).read_text().strip())
        if self.calls[-1].startswith(self.failing):
            raise SlurmPluginError("apt-get: exit 100")

    def mend(self, root: rootsteps.Root) -> None:
        self(root, "mend")


@pytest.fixture
def apt_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeApt:
    """A finished root with two packages, `a1` and `b2`, in which nothing is really installed."""
    fake = FakeApt(tmp_path / "root")
    fake.directory.mkdir()
    roots.write(fake.directory, Built("trixie", "24.11.5", ("a1", "b2")))
    monkeypatch.setattr(rootsteps, "apt", fake)
    monkeypatch.setattr(rootsteps, "mend", fake.mend)
    monkeypatch.setattr(roots, "require", lambda: None)
    return fake


def test_a_finished_root_gets_the_packages_that_it_lacks(apt_get: FakeApt, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the missing packages are installed; the mark lists them before and after."""
    command = ["sandbox", "root", "trixie", str(apt_get.directory)]
    assert main([*command, "--package", "d4", "--package", "a1", "--package", "c3"]) == 0
    assert apt_get.calls == ["update", "--simulate install c3 d4", "install c3 d4", "clean"]
    assert apt_get.marks == ["trixie 24.11.5 a1 b2"] * 2 + ["trixie 24.11.5 a1 b2 +c3 +d4"] * 2
    assert (apt_get.directory / roots.MARK).read_text() == "trixie 24.11.5 a1 b2 c3 d4\n"
    capsys.readouterr()
    assert main([*command, "--package", "d4"]) == 0
    where = apt_get.directory
    assert capsys.readouterr().out == f"already built: trixie with Slurm 24.11.5, a1, b2, c3, d4 in {where}\n"
    assert len(apt_get.calls) == 4


def test_an_installation_that_was_interrupted_is_finished_by_the_next_command(apt_get: FakeApt) -> None:
    """The next command repairs an interrupted installation first, whatever it asks for."""
    apt_get.failing = "install c3"
    with pytest.raises(SlurmPluginError, match="exit 100"):
        roots.make(Wanted("trixie", apt_get.directory, ("c3",)), None, print)
    assert roots.read(apt_get.directory) == Built("trixie", "24.11.5", ("a1", "b2"), begun=("c3",))
    apt_get.failing = "none"
    apt_get.calls.clear()
    assert roots.make(Wanted("trixie", apt_get.directory), None, print)
    assert apt_get.calls == ["update", "mend", "--simulate install c3", "install c3", "clean"]
    assert roots.read(apt_get.directory) == Built("trixie", "24.11.5", ("a1", "b2", "c3"))


def test_a_package_that_apt_does_not_know_leaves_the_root_whole(apt_get: FakeApt) -> None:
    """An unknown package leaves the mark unchanged."""
    apt_get.failing = "--simulate"
    with pytest.raises(SlurmPluginError, match="exit 100"):
        roots.make(Wanted("trixie", apt_get.directory, ("c3",)), None, print)
    assert not roots.make(Wanted("trixie", apt_get.directory, ("a1",)), None, print)


def test_names_that_are_no_packages_are_refused(tmp_path: Path) -> None:
    """Options, versions, releases, patterns and removals of apt are no names."""
    for name in ["a", "", "-y", "+a", "A1", "gcc-", "a b", "a/b", "a=1", "a*", "a\n", "ä1", "a_b"]:
        assert main(["sandbox", "root", "forky", str(tmp_path / "new"), f"--package={name}"]) == 2, name
        assert list(tmp_path.iterdir()) == [], name


def test_names_of_packages_are_accepted() -> None:
    """Names follow Debian's rule."""
    roots.check_packages(("g++", "libstdc++6", "0ad", "python3-torch", "libc6.1"))


def test_headers_that_claim_another_release() -> None:
    """One number is changed; a header without it is refused."""
    text = '#define SLURM_VERSION_STRING "26.05.5"\n#define SLURM_VERSION_NUMBER 0x1a0505\n'
    changed = '#define SLURM_VERSION_STRING "26.05.5"\n#define SLURM_VERSION_NUMBER 0x190b00\n'
    assert rootsteps.as_release(text, "0x190b00") == changed
    with pytest.raises(SlurmPluginError, match="SLURM_VERSION_NUMBER"):
        rootsteps.as_release("", "0x190b00")


@pytest.mark.parametrize(
    ("codename", "listed", "mirror"),
    [
        (
            "bookworm",
            "'cdrom://Debian/dists/bookworm/InRelease' Debian_dists_bookworm_InRelease 0 \n"
            "'https://vendor.example/apt/dists/stable/InRelease' vendor.example_apt_dists_stable_InRelease 0 \n"
            "'http://first.example/debian/dists/bookworm-updates/InRelease' first.example_dists_InRelease 0 \n"
            "'http://first.example/debian/dists/bookworm/InRelease' first.example_debian_dists_InRelease 0 \n"
            "'http://first.example/debian/dists/bookworm/main/binary-all/Packages.xz' first.example_Packages 0 \n"
            "'http://second.example/debian/dists/bookworm/InRelease' second.example_debian_dists_InRelease 0 \n",
            "http://first.example/debian",
        ),
        (
            "trixie",
            "'file:/srv/debian/dists/trixie/InRelease' _srv_debian_InRelease 0 \n",
            "file:/srv/debian",
        ),
        ("trixie", "'http://a.example/./InRelease' a.example_._InRelease 0 \n", None),
        ("", "'http://a.example/dists/trixie/InRelease' a.example_dists_trixie_InRelease 0 \n", None),
    ],
)
def test_the_mirror_is_that_of_this_machines_own_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codename: str, listed: str, mirror: str | None
) -> None:
    """apt names it; other suites, and schemes that only apt knows, do not count. The error names the option."""
    (tmp_path / "apt-get").write_text(
        f"#!/bin/sh\n[ \"$*\" = 'update --print-uris' ] || exit 1\ncat {tmp_path}/listed\n"
    )
    (tmp_path / "apt-get").chmod(0o755)
    (tmp_path / "listed").write_text(listed)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"VERSION_CODENAME": codename})
    if mirror:
        assert rootsteps.host_mirror() == mirror
    else:
        with pytest.raises(MissingError, match=rf"no mirror of {codename or 'a Debian release'}\n.*--mirror URL"):
            rootsteps.host_mirror()


def test_a_machine_without_apt_has_no_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the same."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match=r"no mirror of .*\n.*--mirror URL"):
        rootsteps.host_mirror()
