"""The zip that hooks run from: any interpreter takes what it can use of it, and what runs outlives its replacement."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib import metadata
from io import BytesIO
from pathlib import Path

import pytest

from slurm_plugin import archive, compiled, standalone
from slurm_plugin.site import render_site
from slurm_plugin.siteconfig import Prechecks, SiteConfig, site_file

SYSTEM = "/usr/bin/python3"
NOT_OF_A_PROLOG = {"runpy", "pkgutil", "importlib.util", "re", "json", "contextlib", "socket", "enum", "functools"}


def files(data: bytes) -> dict[str, bytes]:
    """What a zip holds."""
    with zipfile.ZipFile(BytesIO(data)) as opened:
        assert opened.testzip() is None
        assert {entry.compress_type for entry in opened.infolist()} == {zipfile.ZIP_STORED}
        return {name: opened.read(name) for name in opened.namelist()}


def zipped(path: Path, content: Mapping[str, bytes]) -> Path:
    """The same the other way."""
    with zipfile.ZipFile(path, "w") as opened:
        for name, data in content.items():
            opened.writestr(name, data)
    return path


def python(path: Path, code: str, *, interpreter: str = SYSTEM) -> str:
    """What `code` prints where a zip is the only place of ours."""
    code = f"import sys; sys.path.insert(0, {str(path)!r}); {code}"
    argv = [interpreter, "-I", "-S", "-c", code]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, timeout=30, env={}, cwd="/").stdout


@pytest.fixture(scope="module")
def whole() -> bytes:
    """The file for the system's own interpreter."""
    return archive.build([SYSTEM])


def test_each_source_has_its_code(whole: bytes) -> None:
    """By their names in order, so that a second rendering has the same bytes."""
    found = files(whole)
    sources = [name for name in found if name.endswith(".py")]
    assert [f"{name}c" for name in sources] == [name for name in found if name.endswith(".pyc")]
    assert list(found) == sorted(found)
    assert {"__main__.py", "prechecks/runner.py", "hostfiles/__init__.py", "slurm_plugin/hooks/prolog.py"} <= {*sources}
    archive._compiled.cache_clear()
    assert archive.build([SYSTEM]) == whole
    assert archive.build(["chroot", "/", SYSTEM]) == whole  # as for a sandbox with a root directory of its own


@pytest.mark.parametrize("interpreter", [["/bin/false"], ["/nonexistent"], ["/bin/echo"], ["/bin/echo", "[1]"]])
def test_without_an_interpreter_sources_are_all(whole: bytes, interpreter: list[str]) -> None:
    """It still runs everywhere."""
    found = files(archive.build(interpreter))
    assert found == {name: data for name, data in files(whole).items() if name.endswith(".py")}


def test_compiled_code_is_what_runs(tmp_path: Path, whole: bytes) -> None:
    """The .pyc is taken as it is, and nothing is written beside the zip."""
    found = files(whole)
    path = zipped(tmp_path / "a.zip", {**found, "slurm_plugin/token.py": b"raise RuntimeError\n"})
    assert python(path, "from slurm_plugin import token; print(token.VERSION)") == "sp1\n"
    assert [*tmp_path.iterdir()] == [path]


def test_compiled_code_of_another_interpreter(tmp_path: Path, whole: bytes) -> None:
    """Its magic number is another one: the source is taken."""
    found = {name: b"\0\0\r\n" + data[4:] if name.endswith(".pyc") else data for name, data in files(whole).items()}
    assert found["prechecks/runner.pyc"] != files(whole)["prechecks/runner.pyc"]
    path = zipped(tmp_path / "a.zip", found)
    assert python(path, "from slurm_plugin.hooks import prolog; print(prolog.__loader__.archive)") == f"{path}\n"


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_other_versions(tmp_path: Path, whole: bytes, version: str) -> None:
    """Those of them that are here run the system interpreter's zip, and one of their own."""
    places = [*Path("/usr/bin").glob(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")]
    if not places:
        pytest.skip(f"no Python {version} here")
    code = "from slurm_plugin.hooks import prolog; from slurm_plugin.job import supervise; print(prolog.main.__name__)"
    for number, data in enumerate((whole, archive.build([str(places[0])]))):
        path = tmp_path / f"{number}.zip"
        path.write_bytes(data)
        assert python(path, code, interpreter=str(places[0])) == "main\n"


def test_nvidias_binding(whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is beside our code where it is installed, and nothing that two machines must have alike."""
    assert metadata.version("nvidia-ml-py") == archive.binding()
    assert b"nvmlDeviceGetRemappedRows" in files(whole)["pynvml.py"]
    monkeypatch.setattr(archive, "BINDING_OF", "no-such-package")
    assert archive.binding() == ""
    without = archive.build(["/bin/false"])
    assert "pynvml.py" not in files(without)
    assert archive.code(without) == archive.code(whole)


def test_compared_by_its_code(whole: bytes, tmp_path: Path) -> None:
    """The same sources are the same, whoever compiled them; a source that something else was compiled for is not."""
    found = files(whole)
    assert archive.code(whole) == archive.code(archive.build(["/bin/false"]))
    assert archive.code(whole) == archive.code(archive.build([sys.executable]))
    swapped = {**found, "slurm_plugin/token.pyc": found["slurm_plugin/grant.pyc"]}
    assert archive.code(zipped(tmp_path / "a", swapped).read_bytes()) != archive.code(whole)
    assert archive.code(b"") is None
    assert archive.code(whole[:-30]) is None


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A deployed site directory, with checks that pass here and one that fails."""
    config = SiteConfig(run_directory=str(tmp_path / "run"), slurm_bin=str(tmp_path), prechecks=Prechecks())
    render_site(config, tmp_path / "site", root=str(tmp_path / "site"))
    return tmp_path / "site"


def start(site: Path, hook: str = "prolog") -> str:
    """The program that a guard gives to its interpreter, without its end."""
    (line,) = [line for line in (site / "hooks" / hook).read_text().splitlines() if " -I -S -c " in line]
    code, _, end = line.partition("-c '")[2].rpartition("; ")
    assert end == f"os._exit(main())' hook {hook} </dev/null"
    return code


def ran(site: Path, code: str) -> str:
    """What this prints with the modules of a site."""
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "0", "SLURM_JOB_GID": "0", "SLURMD_NODENAME": "localhost"}
    job |= {"SLURM_JOB_COMMENT": "[sp1;retries=1]", "SLURM_JOB_NODELIST": "localhost,n[1-2]"}
    argv = [SYSTEM, "-I", "-S", "-c", f"{start(site)}; {code}"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=60, check=True, env=job, cwd="/")
    return done.stdout


def test_a_prolog_imports_little(site: Path) -> None:
    """In isolated mode, from the zip alone: no runpy, no json, no re, and not many modules in all."""
    code = 'sys.argv[1:] = ["hook", "prolog"]; main(); print(*sys.modules)'
    (site / "compiled.json").write_text(passing(site))
    loaded = set(ran(site, code).split())
    assert "slurm_plugin.hooks.prolog" in loaded
    assert not loaded & NOT_OF_A_PROLOG
    assert len(loaded) <= 110


def passing(site: Path) -> str:
    """The settings with thresholds that this machine meets."""
    settings = json.loads((site / "compiled.json").read_text())
    settings["prechecks"]["disk-size"] |= {"root": 1, "shm": 1, "cache": None}
    return json.dumps(settings)


def test_it_may_be_replaced_while_it_runs(site: Path) -> None:
    """What is imported later comes from the file it began with, in itself and in a check's child."""
    fresh = site / "fresh"
    fresh.write_bytes(b"PK\5\6" + bytes(18))  # an empty zip
    code = f"""
from prechecks.child import Child
os.rename({str(fresh)!r}, {str(site / compiled.ARCHIVE)!r})
child = Child(lambda say: __import__("prechecks.growth", fromlist=["x"]).__name__.encode())
while child.read(): pass
from slurm_plugin.job import itself, supervise
from slurm_plugin.slurm import pyslurm_process
from slurm_plugin import standalone
import subprocess
words = [{SYSTEM!r}, "-I", *standalone.words(pyslurm_process)]
said = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True)
print(child.output.decode(), itself.command(), said.stdout[8:], said.stderr)
"""
    said = ran(site, f"exec({code!r})")
    assert said.startswith(f"prechecks.growth ['{site}/bin/slurm-plugin'] ")
    assert "pyslurm" in said
    assert said.endswith(" b''\n")


def test_modules_that_stand_alone(site: Path, tmp_path: Path) -> None:
    """Another interpreter runs one out of the zip, with its own arguments, and nothing of the current directory."""
    code = (
        "from prechecks.fabric import program; from slurm_plugin import standalone; print(*standalone.words(program, "
    )
    words = ran(site, f'{code}"{site / compiled.ARCHIVE}"), sep="\\n")').splitlines()
    (tmp_path / "select.py").write_text("raise SystemExit(9)\n")
    argv = [SYSTEM, *words, "nonce", "3", "n1,n2"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path, env=os.environ)
    assert done.stdout.startswith("slurm_plugin-fabric nonce ")
    assert standalone.words(archive) == [archive.__file__]


def prolog(site: Path, first: str) -> list[str]:
    """What a prolog logs, and its exit code, after a line of Python."""
    code = (
        'import syslog; syslog.syslog = lambda *said: print(said[-1]); sys.argv[1:] = ["hook", "prolog"]; code = main()'
    )
    return ran(site, f"import slurm_plugin.compiled; {first}; {code}; print(code)").splitlines()


def test_a_site_file_where_users_may_write(tmp_path: Path, site: Path) -> None:
    """Is not opened by root's prolog: a pipe in its place would hold it up for ever."""
    path = tmp_path / "site.yaml"
    path.write_text("a: 1")
    settings = json.loads(passing(site)) | {"site_file": site_file(path)._asdict()}
    (site / "compiled.json").write_text(json.dumps(settings))
    path.unlink()
    os.mkfifo(path)
    said = prolog(site, "pass")
    assert said[-1] == "0"
    assert not any("site install" in line for line in said)
    assert prolog(site, f"slurm_plugin.compiled.LOCAL = {str(tmp_path)!r}")[-1] == "0"  # nor is a pipe waited for


@pytest.mark.parametrize(
    ("compiled_from", "now", "lines"),
    [
        ("a: 1", "a: 1", 0),
        ("a: 1", "a: 2", 1),
        ("a: 1", "a: 10", 1),
        ("a: 1", None, 0),
        (None, None, 0),
        (None, "a: 1", 1),
    ],
)
def test_a_stale_compile_is_said(
    tmp_path: Path, site: Path, compiled_from: str | None, now: str | None, lines: int
) -> None:
    """A prolog logs one line where the site file on its node is another one; it goes on all the same."""
    path = tmp_path / "site.yaml"
    if compiled_from is not None:
        path.write_text(compiled_from)
    settings = json.loads(passing(site)) | {"site_file": site_file(path)._asdict()}
    (site / "compiled.json").write_text(json.dumps(settings))
    if now is not None:
        path.write_text(now)
    else:
        path.unlink(missing_ok=True)
    said = prolog(site, f"slurm_plugin.compiled.LOCAL = {str(tmp_path)!r}")
    line = f"{path} was changed since it was deployed; run: slurm-plugin site install --apply"
    assert [found for found in said if "site install" in found] == [line] * lines
    assert said[-1] == "0"
    assert any(found.startswith("[slurm_plugin] localhost disk-size root: ok") for found in said)
