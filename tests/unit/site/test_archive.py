"""The zip that hooks run from: every supported interpreter can use it, and it may be replaced while a hook runs."""

import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib import metadata
from io import BytesIO
from pathlib import Path

import pytest

from slurm_plugin.site import archive, compile_archive

SYSTEM = "/usr/bin/python3"


def files(data: bytes) -> dict[str, bytes]:
    """Return the files of a zip."""
    with zipfile.ZipFile(BytesIO(data)) as opened:
        assert opened.testzip() is None
        assert {entry.compress_type for entry in opened.infolist()} == {zipfile.ZIP_STORED}
        return {name: opened.read(name) for name in opened.namelist()}


def zipped(path: Path, content: Mapping[str, bytes]) -> Path:
    """Write a zip of these files."""
    with zipfile.ZipFile(path, "w") as opened:
        for name, data in content.items():
            opened.writestr(name, data)
    return path


def python(path: Path, code: str, *, interpreter: str = SYSTEM) -> str:
    """Return what `code` prints with the modules of a zip."""
    code = f"import sys; sys.path.insert(0, {str(path)!r}); {code}"
    argv = [interpreter, "-I", "-S", "-c", code]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, env={}, cwd="/").stdout


@pytest.fixture(scope="module")
def whole() -> bytes:
    """Build the zip for the system's interpreter."""
    return archive.build([SYSTEM])


def test_each_source_has_its_code(whole: bytes) -> None:
    """Each source has compiled code, and a second build has the same bytes."""
    found = files(whole)
    sources = [name for name in found if name.endswith(".py")]
    index, *others = found
    assert index == compile_archive.INDEX
    assert [f"{name}c" for name in sources] == [name for name in others if name.endswith(".pyc")]
    assert others == sorted(others)
    assert {"__main__.py", "prechecks/runner.py", "hostfiles/__init__.py", "slurm_plugin/node/prolog.py"} <= {*sources}
    archive._compiled.cache_clear()
    assert archive.build([SYSTEM]) == whole
    assert archive.build(["chroot", "/", SYSTEM]) == whole  # as for a sandbox with a root directory of its own


def test_without_an_interpreter_sources_are_all(whole: bytes) -> None:
    """Without an interpreter, the zip holds sources only."""
    for interpreter in [["/bin/false"], ["/nonexistent"], ["/bin/echo"], ["/bin/echo", "[1]"]]:
        found = files(archive.build(interpreter))
        assert found == {name: data for name, data in files(whole).items() if name.endswith(".py")}, interpreter


def test_compiled_code_is_what_runs(tmp_path: Path, whole: bytes) -> None:
    """The compiled code is used, and nothing is written beside the zip."""
    found = files(whole)
    path = zipped(tmp_path / "a.zip", {**found, "slurm_plugin/records/token.py": b"raise RuntimeError\n"})
    assert python(path, "from slurm_plugin.records import token; print(token.VERSION)") == "sp1\n"
    assert [*tmp_path.iterdir()] == [path]


def test_compiled_code_of_another_interpreter(tmp_path: Path, whole: bytes) -> None:
    """Compiled code with another magic number is ignored."""
    found = {name: b"\0\0\r\n" + data[4:] if name.endswith(".pyc") else data for name, data in files(whole).items()}
    assert found["prechecks/runner.pyc"] != files(whole)["prechecks/runner.pyc"]
    path = zipped(tmp_path / "a.zip", found)
    assert python(path, "from slurm_plugin.node import prolog; print(prolog.__loader__.archive)") == f"{path}\n"


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_other_versions(tmp_path: Path, whole: bytes, version: str) -> None:
    """Each installed version runs the zip of the system's interpreter, and one of its own."""
    places = [*Path("/usr/bin").glob(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")]
    if not places:
        pytest.skip(f"no Python {version} here")
    code = (
        "from slurm_plugin.node import prolog; from slurm_plugin.supervisor import supervise; "
        "print(prolog.main.__name__)"
    )
    for number, data in enumerate((whole, archive.build([str(places[0])]))):
        path = tmp_path / f"{number}.zip"
        path.write_bytes(data)
        assert python(path, code, interpreter=str(places[0])) == "main\n"


def test_nvidias_binding(whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed binding is in the zip, and is not compared."""
    assert metadata.version("nvidia-ml-py") == archive.binding()
    assert b"nvmlDeviceGetRemappedRows" in files(whole)["pynvml.py"]
    monkeypatch.setattr(archive, "BINDING_OF", "no-such-package")
    assert archive.binding() == ""
    without = archive.build(["/bin/false"])
    assert "pynvml.py" not in files(without)
    assert archive.same(without, whole)


def test_compared_by_its_code(whole: bytes, tmp_path: Path) -> None:
    """Zips with the same sources are equal, whatever compiled them, unless compiled code is of another source."""
    found = files(whole)
    assert archive.same(archive.build(["/bin/false"]), whole)
    assert archive.same(archive.build([sys.executable]), whole)
    swapped = {**found, "slurm_plugin/records/token.pyc": found["slurm_plugin/records/grant.pyc"]}
    assert not archive.same(zipped(tmp_path / "a", swapped).read_bytes(), whole)
    assert not any(archive.same(broken, whole) for broken in (None, b"", whole[:-30]))
