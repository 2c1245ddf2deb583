"""A copy of a root directory, and how a package manager changes it."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import HANG_S


def run(*argv: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command of this machine."""
    words = list(map(str, argv))
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, check=False, cwd="/")
    assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done


@contextmanager
def copy_of(lower: Path, directory: Path) -> Iterator[Path]:
    """Yield a writable view of a root: an overlay, in a new tmpfs below `directory`.

    Machines of a sandbox run the checkout's packages with the root's Python. This machine's Python lacks packages.
    """
    root = directory / "root"
    directory.mkdir()
    run("mount", "-t", "tmpfs", "-o", "mode=755", "root", directory)
    try:
        for name in ("upper", "work", "root"):
            (directory / name).mkdir()
        options = f"lowerdir={lower},upperdir={directory}/upper,workdir={directory}/work"
        run("mount", "-t", "overlay", "-o", options, "root", root)
        if lower == Path("/"):
            for library in (root / "usr/local/lib").glob("python3.*/dist-packages"):
                (library / "sandbox.pth").write_text(f"/sandbox/venv/lib/{library.parent.name}/site-packages\n")
        yield root
    finally:
        run("umount", "--recursive", "--lazy", directory)


@dataclass(frozen=True, slots=True)
class Deb:
    """Debian's dpkg in the root. It keeps changed configuration files, as apt does under Ansible."""

    root: Path

    def install(self, directory: Path, pattern: str = "*") -> None:
        """Install or upgrade packages, both by default."""
        run("mount", "--bind", directory, self.root / "mnt")
        try:
            names = [f"/mnt/{path.name}" for path in directory.glob(f"{pattern}.deb")]
            run("chroot", self.root, "dpkg", "--force-confold", "--install", *names)
        finally:
            run("umount", self.root / "mnt")

    def remove(self, names: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Remove packages with their configuration."""
        return run("chroot", self.root, "dpkg", "--purge", *names, check=False)

    def files(self, name: str) -> set[str]:
        """Return the paths of a package."""
        return set(run("chroot", self.root, "dpkg", "--listfiles", name).stdout.split())


@dataclass(frozen=True, slots=True)
class Rpm:
    """This machine's rpm, with a database in the root. A root of Debian has no rpm that could meet a dependency."""

    root: Path

    def install(self, directory: Path, pattern: str = "*") -> None:
        """Install or upgrade packages, both by default."""
        run("rpm", "--root", self.root, "--upgrade", "--nodeps", *directory.glob(f"{pattern}.rpm"))

    def remove(self, names: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Remove packages."""
        return run("rpm", "--root", self.root, "--erase", *names, check=False)

    def files(self, name: str) -> set[str]:
        """Return the paths of a package."""
        return set(run("rpm", "--root", self.root, "--query", "--list", name).stdout.split())
