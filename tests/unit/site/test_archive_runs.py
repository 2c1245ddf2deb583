"""Programs that run from the zip of a deployed site."""

import json
import os
import subprocess
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from slurm_plugin.node import hook
from slurm_plugin.records import site_settings
from slurm_plugin.site import archive, compile_archive
from slurm_plugin.site.compilation import site_file
from slurm_plugin.site.configuration import Prechecks, SiteConfig
from slurm_plugin.site.files import render_site
from slurm_plugin.slurm import process
from tests.waiting import HANG_S

SYSTEM = "/usr/bin/python3"
NOT_OF_A_PROLOG = {"runpy", "pkgutil", "importlib.util", "re", "json", "contextlib", "socket", "enum", "functools"}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Deploy a site directory with passing checks and a failing one."""
    config = SiteConfig(run_directory=str(tmp_path / "run"), slurm_bin=str(tmp_path), prechecks=Prechecks())
    render_site(config, tmp_path / "site", root=str(tmp_path / "site"))
    return tmp_path / "site"


def start(site: Path, hook: str = "prolog") -> str:
    """Return the program of a guard, without its end."""
    (line,) = [line for line in (site / "hooks" / hook).read_text().splitlines() if " -I -S -c " in line]
    code, _, end = line.partition("-c '")[2].rpartition("; ")
    assert end == f"os._exit(main())' hook {hook} </dev/null"
    return code


def ran(site: Path, code: str) -> str:
    """Return what this code prints with the modules of a site."""
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "0", "SLURM_JOB_GID": "0", "SLURMD_NODENAME": "localhost"}
    job |= {"SLURM_JOB_COMMENT": "[sp1;retries=1]", "SLURM_JOB_NODELIST": "localhost,n[1-2]"}
    argv = [SYSTEM, "-I", "-S", "-c", f"{start(site)}; {code}"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, env=job, cwd="/")
    return done.stdout


def test_a_prolog_imports_little(site: Path) -> None:
    """A prolog imports no runpy, json or re, and few modules in all."""
    code = 'sys.argv[1:] = ["hook", "prolog"]; main(); print(*sys.modules)'
    (site / "compiled.json").write_text(passing(site))
    loaded = set(ran(site, code).split())
    assert "slurm_plugin.node.prolog" in loaded
    assert not loaded & NOT_OF_A_PROLOG
    assert len(loaded) <= 110


def passing(site: Path) -> str:
    """Return settings with thresholds that this machine meets."""
    settings = json.loads((site / "compiled.json").read_text())
    settings["prechecks"]["deadline_s"] = HANG_S
    settings["prechecks"]["disk-size"] |= {"root": 1, "shm": 1, "cache": None}
    return json.dumps(settings)


def test_it_may_be_replaced_while_it_runs(site: Path) -> None:
    """Later imports come from the replaced file, also in the child of a check."""
    fresh = site / "fresh"
    fresh.write_bytes(b"PK\5\6" + bytes(18))  # an empty zip
    code = f"""
from prechecks.child import Child
os.rename({str(fresh)!r}, {str(site / site_settings.ARCHIVE)!r})
child = Child(lambda say: __import__("prechecks.measure.growth", fromlist=["x"]).__name__.encode())
while child.read(): pass
from slurm_plugin.node import hook
from slurm_plugin.records import site_settings
from slurm_plugin.supervisor import supervise
from slurm_plugin.slurm import pyslurm_process
from slurm_plugin.slurm import process
import subprocess
words = [{SYSTEM!r}, "-I", *process.standalone_words(pyslurm_process)]
said = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True)
print(child.output.decode(), site_settings.plugin_command(), said.stdout[8:], said.stderr)
"""
    said = ran(site, f"exec({code!r})")
    assert said.startswith(f"prechecks.measure.growth ['{site}/bin/slurm-plugin'] ")
    assert "pyslurm" in said
    assert said.endswith(" b''\n")


def test_each_way_to_import(site: Path) -> None:
    """The index finds the code. Without one, of another Python or of another zip, zipimport does. Both know sources."""
    code = (
        "import linecache; from slurm_plugin.node import hook; "
        "print(type(hook.__loader__).__name__, hook.__file__.removeprefix(hook.__loader__.archive), "
        "linecache.getline('x', 1, vars(hook)))"
    )
    zip_file = site / site_settings.ARCHIVE
    whole = zip_file.read_bytes()
    first = Path(hook.__file__).read_text().splitlines()[0]
    at = compile_archive.INDEX_PLACE
    other = whole[:at] + b"\0" + whole[at + 1 :]  # the magic number
    sources = archive.build(["no"])
    again = BytesIO()  # its index is that of `whole`
    with zipfile.ZipFile(zip_file) as old, zipfile.ZipFile(again, "w") as new:
        for entry in old.infolist():
            new.writestr(entry, old.read(entry) + b"\n" * (entry.filename == "hostfiles/__init__.py"))
    for importer, suffix, data in (
        ("ArchiveImporter", "c", whole),
        ("zipimporter", "c", other),
        ("zipimporter", "", sources),
        ("zipimporter", "c", again.getvalue()),
    ):
        zip_file.write_bytes(data)
        assert ran(site, code).splitlines()[0] == f"{importer} /slurm_plugin/node/hook.py{suffix} {first}"


def test_modules_that_stand_alone(site: Path, tmp_path: Path) -> None:
    """Another interpreter runs a module of the zip, without the current directory."""
    code = (
        "from prechecks.fabric import program; from slurm_plugin.slurm import process; "
        "print(*process.standalone_words(program, "
    )
    words = ran(site, f'{code}"{site / site_settings.ARCHIVE}"), sep="\\n")').splitlines()
    (tmp_path / "select.py").write_text("raise SystemExit(9)\n")
    argv = [SYSTEM, *words, "nonce", "3", "n1,n2"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path, env=os.environ)
    assert done.stdout.startswith("slurm_plugin-fabric nonce ")
    assert process.standalone_words(archive) == [archive.__file__]


def prolog(site: Path, first: str) -> list[str]:
    """Run a prolog after a line of Python; return its log and exit code."""
    logs = "from slurm_plugin.records import syslog; syslog.syslog = lambda *said: print(said[-1])"
    code = 'sys.argv[1:] = ["hook", "prolog"]; code = main(); print(code)'
    return ran(site, f"import slurm_plugin.records.site_settings; {first}; {logs}; {code}").splitlines()


def test_a_site_file_where_users_may_write(tmp_path: Path, site: Path) -> None:
    """A prolog does not open a site file that users may write: it could be a pipe."""
    path = tmp_path / "site.yaml"
    path.write_text("a: 1")
    settings = json.loads(passing(site)) | {"site_file": site_file(path)._asdict()}
    (site / "compiled.json").write_text(json.dumps(settings))
    path.unlink()
    os.mkfifo(path)
    said = prolog(site, "pass")
    assert said[-1] == "0"
    assert not any("site install" in line for line in said)
    assert (
        prolog(site, f"slurm_plugin.records.site_settings.LOCAL = {str(tmp_path)!r}")[-1] == "0"
    )  # nor is a pipe waited for


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
    """A prolog logs one line if the site file on its node has changed, and goes on."""
    path = tmp_path / "site.yaml"
    if compiled_from is not None:
        path.write_text(compiled_from)
    settings = json.loads(passing(site)) | {"site_file": site_file(path)._asdict()}
    (site / "compiled.json").write_text(json.dumps(settings))
    if now is not None:
        path.write_text(now)
    else:
        path.unlink(missing_ok=True)
    said = prolog(site, f"slurm_plugin.records.site_settings.LOCAL = {str(tmp_path)!r}")
    line = f"{path} was changed since it was deployed; run: slurm-plugin site install --apply"
    assert [found for found in said if "site install" in found] == [line] * lines
    assert said[-1] == "0"
    assert any(found.startswith("[slurm_plugin] localhost disk-size root: ok") for found in said)
