"""Root directories for `sandbox up --root`: which mirror, which directory, and when one is whole; no tool runs here."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm_plugin.cli import main
from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError
from slurm_plugin.sandbox import aptsources, roots, rootsteps
from slurm_plugin.sandbox.aptsources import Source
from slurm_plugin.sandbox.roots import Built, Wanted

DEB822 = """\
# Debian's own
Types: deb deb-src
# URIs: http://commented.example/debian
URIs: http://first.example/debian
  http://second.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEY865UxYJKwYBBAHaRw8BAQdAd7Z0srwuhlB6JKFkcf4HU4SSS
 -----END PGP PUBLIC KEY BLOCK-----

types: deb
uris: http://security.example/debian-security
suites: bookworm-security

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm

Types: deb-src
URIs: http://source.example/debian
Suites: bookworm
"""
ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb-src http://source.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/a.gpg] http://options.example/debian bookworm main contrib # why
deb\thttp://tabs.example/debian\tbookworm-updates\tmain
deb
"""


def apt(where: Path, **files: str) -> Path:
    """A directory as /etc/apt is; `_` in a name stands for a dot."""
    (where / "sources.list.d").mkdir()
    for name, text in files.items():
        folder = where if name == "sources_list" else where / "sources.list.d"
        (folder / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return where


def release(where: Path, text: str = 'ID=debian\nVERSION_CODENAME="bookworm"\n') -> Path:
    """An os-release file."""
    path = where / "os-release"
    path.write_text(text, encoding="utf-8")
    return path


def test_deb822() -> None:
    """Paragraphs of fields in any case, with comments and continued lines; only packages, only what is switched on."""
    assert list(aptsources.parse_deb822(DEB822)) == [
        Source("http://first.example/debian", ("bookworm", "bookworm-updates")),
        Source("http://second.example/debian", ("bookworm", "bookworm-updates")),
        Source("http://security.example/debian-security", ("bookworm-security",)),
    ]


def test_one_line_format() -> None:
    """Options in brackets, comments and tabs."""
    assert list(aptsources.parse_list(ONE_LINE)) == [
        Source("http://options.example/debian", ("bookworm",)),
        Source("http://tabs.example/debian", ("bookworm-updates",)),
    ]


def test_the_mirror_is_that_of_this_machines_own_release(tmp_path: Path) -> None:
    """Not that of another vendor's packages, nor of security updates alone."""
    other = "Types: deb\nURIs: https://vendor.example/apt\nSuites: stable\n"
    where = apt(tmp_path, a_sources=other, b_sources=DEB822, sources_list=ONE_LINE)
    assert aptsources.mirror(where, release(tmp_path)) == "http://first.example/debian"


def test_the_older_files_count_where_there_are_no_newer(tmp_path: Path) -> None:
    """sources.list, and `.list` files beside it; what only apt can fetch is passed over."""
    where = apt(tmp_path, sources_list="deb cdrom:[Debian]/ bookworm main\n", a_list=ONE_LINE)
    assert aptsources.mirror(where, release(tmp_path)) == "http://options.example/debian"


def test_no_mirror(tmp_path: Path) -> None:
    """An option says it where apt's configuration does not."""
    with pytest.raises(MissingError, match=r"no mirror of bookworm\n.*--mirror URL"):
        aptsources.mirror(tmp_path / "none", release(tmp_path))
    with pytest.raises(MissingError, match="no mirror of a Debian release"):
        aptsources.mirror(apt(tmp_path, a_list="deb http://a.example/ ./\n"), tmp_path / "none")


@pytest.mark.parametrize("text", ["relative", "/", "/var/tmp/a b", "/var/tmp/a:b", "/var/tmp/a,b"])
def test_paths_that_a_sandbox_cannot_be_built_on_are_refused(text: str) -> None:
    """`up --root` gives the path to overlay, whose options end at commas and colons."""
    with pytest.raises(UsageError, match="cannot hold a root directory"):
        roots.check_directory(Path(text))


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
    """The mark is there from the beginning and has its words at the end; links are removed, not followed."""
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
    """The same suite: exit 0, by anybody. Another suite: wrong usage."""
    (tmp_path / roots.MARK).write_text("forky 26.05.5\n", encoding="utf-8")
    assert main(["sandbox", "root", "forky", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"already built: forky with Slurm 26.05.5 in {tmp_path}\n"
    assert main(["sandbox", "root", "trixie", str(tmp_path)]) == 2
    assert "holds forky, not trixie" in capsys.readouterr().err


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the packages that have it, and exit code 3; nothing is made before that."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["sandbox", "root", "forky", str(tmp_path / "new")]) == 3
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    message = r"debootstrap, unshare, setpriv\n  run: apt-get install debootstrap util-linux"
    with pytest.raises(MissingError, match=message):
        roots.require()
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a traceback: here a parent that is a file."""
    monkeypatch.setattr(roots, "require", lambda: None)
    (tmp_path / "file").touch()
    with pytest.raises(SlurmPluginError, match="again"):
        roots.make(Wanted("forky", tmp_path / "file/root"), "http://mirror.example/debian", print)


def test_one_build_at_a_time(tmp_path: Path) -> None:
    """The log is the lock, readable by its owner alone, and empty at the start of each build."""
    directory = tmp_path / "root"
    roots.log_path(directory).write_text("of the build before\n", encoding="utf-8")
    with roots.locked_log(directory):
        assert roots.log_path(directory).stat().st_size == 0
        assert roots.log_path(directory).stat().st_mode & 0o777 == 0o600
        with pytest.raises(SlurmPluginError, match="another command builds"), roots.locked_log(directory):
            pass


@dataclass
class FakeApt:
    """What apt-get is asked for in a root, and the beginning of the command that fails."""

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
    """In place, those alone; before apt changes anything the mark says which, and at the end that they are there."""
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
    """Also by one that asks for nothing, or for another package: what apt left is brought to its end first."""
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
    """The mark is that of before: the next command does not ask for it."""
    apt_get.failing = "--simulate"
    with pytest.raises(SlurmPluginError, match="exit 100"):
        roots.make(Wanted("trixie", apt_get.directory, ("c3",)), None, print)
    assert not roots.make(Wanted("trixie", apt_get.directory, ("a1",)), None, print)


@pytest.mark.parametrize("name", ["a", "", "-y", "+a", "A1", "gcc-", "a b", "a/b", "a=1", "a*", "a\n", "ä1", "a_b"])
def test_names_that_are_no_packages_are_refused(tmp_path: Path, name: str) -> None:
    """Options, versions, releases and patterns of apt are no names; nor is what apt would remove."""
    assert main(["sandbox", "root", "forky", str(tmp_path / "new"), f"--package={name}"]) == 2
    assert list(tmp_path.iterdir()) == []


def test_names_of_packages_are_accepted() -> None:
    """By Debian's rule."""
    roots.check_packages(("g++", "libstdc++6", "0ad", "python3-torch", "libc6.1"))


def test_headers_that_claim_another_release() -> None:
    """One number is changed; a header without it is refused."""
    text = '#define SLURM_VERSION_STRING "26.05.5"\n#define SLURM_VERSION_NUMBER 0x1a0505\n'
    changed = '#define SLURM_VERSION_STRING "26.05.5"\n#define SLURM_VERSION_NUMBER 0x190b00\n'
    assert rootsteps.as_release(text, "0x190b00") == changed
    with pytest.raises(SlurmPluginError, match="SLURM_VERSION_NUMBER"):
        rootsteps.as_release("", "0x190b00")
