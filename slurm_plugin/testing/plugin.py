"""The pytest plug-in: the fixture `slurm_sandbox`, its marker and its settings.

pytest loads this file wherever slurm_plugin is installed. It imports the sandbox only when a test needs one.
"""

import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

if TYPE_CHECKING:
    from slurm_plugin.sandbox import Sandbox
    from slurm_plugin.sandbox.pool import Pool

NAME: Final = "slurm_sandbox"
MARKER: Final = (
    f"{NAME}(nodes=4, gpus=4, release='', accounting=False, hooks=False, faults={{}}): run this test with a real Slurm;"
    " faults: node -> fault, such as {'n2': 'gpu-missing'}"
)
ARGUMENTS: Final = ("nodes", "gpus", "release", "accounting", "hooks")  # of the marker, and settings
# Name -> type, default, help.
SETTINGS: Final[Mapping[str, tuple[Any, Any, str]]] = {
    "nodes": ("string", "4", "number of nodes"),
    "gpus": ("string", "4", "number of fake GPUs of each node"),
    "release": ("string", "", "Slurm release, such as 26.05, or a root directory; default: this machine's Slurm"),
    "accounting": ("bool", False, "also run slurmdbd and MariaDB"),
    "hooks": ("bool", False, "install slurm_plugin's hooks"),
    "scope": ("string", "module", "how long a sandbox lasts: module or session"),
    "binds": ("linelist", [], "more directories that the machines see, one a line: SRC[:DST][:rw]"),
    "roots": ("string", "/var/cache/slurm_plugin/roots", "directory of the roots that `sandbox root` has built"),
}
POOL: Final = pytest.StashKey["Pool"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings, and an option for tests that do not know the fixture."""
    for name, (kind, default, about) in SETTINGS.items():
        parser.addini(f"{NAME}_{name}", f"{NAME}: {about}", type=kind, default=default)
    parser.getgroup(NAME).addoption(
        "--slurm-sandbox",
        action="store_true",
        dest=NAME,
        help="use one sandbox from the collection to the end, and treat every test as marked slurm_sandbox",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", MARKER)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """With --slurm-sandbox start the sandbox: modules of tests may call sinfo when they are imported."""
    if not isinstance(collector, pytest.Session) or not collector.config.getoption(NAME):
        return
    from slurm_plugin.errors import SlurmPluginError  # noqa: PLC0415

    config: Any = collector.config  # pytest has no public name for the factory before the first test
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    try:
        pool = config.stash[POOL] = _pool(config, config._tmp_path_factory)
        config.add_cleanup(pool.close)
        box = pool.ready(**_settings(config))
    except SlurmPluginError as error:
        raise pytest.UsageError(str(error)) from error
    _use(box, patch)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a test with the marker its sandbox before all other fixtures."""
    names = getattr(item, "fixturenames", None)
    if names is None or NAME in names:
        return
    if item.config.getoption(NAME) or item.get_closest_marker(NAME):
        names.insert(0, NAME)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Add Slurm's view of jobs and nodes to the report of a failed test."""
    report = yield
    box = getattr(item, "funcargs", {}).get(NAME)
    if box is not None and report.failed:
        from slurm_plugin.sandbox.pool import slurms_view  # noqa: PLC0415 - not for tests of others

        report.sections.append(("Slurm", slurms_view(box)))
    return report


def options(item: pytest.Item) -> dict[str, Any]:
    """Return what a test needs, as the marker's arguments: the settings, then the markers, the closest last."""
    found = _settings(item.config) | {"faults": {}}
    for marker in reversed(list(item.iter_markers(NAME))):
        unknown = set(marker.kwargs) - set(found)
        if marker.args or unknown:
            what = ", ".join(map(repr, (*marker.args, *sorted(unknown))))
            raise pytest.UsageError(f"{item.nodeid}: marker {NAME} has {what}\n  accepted: {MARKER}")
        found |= marker.kwargs
    return found


def _settings(config: pytest.Config) -> dict[str, Any]:
    found = {name: config.getini(f"{NAME}_{name}") for name in ARGUMENTS}
    for name in ("nodes", "gpus"):
        if not found[name].isdecimal():
            raise pytest.UsageError(f"{NAME}_{name} is {found[name]!r}, not a number")
        found[name] = int(found[name])
    return found


def _pool(config: pytest.Config, factory: pytest.TempPathFactory) -> "Pool":
    """Return a pool of sandboxes whose machines see the project, its Python and tmp_path. Start none."""
    from slurm_plugin.sandbox.pool import Pool, visible  # noqa: PLC0415

    own = (config.rootpath, config.invocation_params.dir, factory.getbasetemp())
    binds = visible(own, Path(sys.prefix), config.getini(f"{NAME}_binds"))
    return Pool(Path(config.getini(f"{NAME}_roots")), binds)


def _use(box: "Sandbox", patch: pytest.MonkeyPatch) -> None:
    for name, value in box.environment().items():
        patch.setenv(name, value)


def _scope(fixture_name: str, config: pytest.Config) -> Any:  # noqa: ARG001 - pytest's keyword
    return config.getini(f"{NAME}_scope")


@pytest.fixture(scope=_scope)
def _slurm_sandboxes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Pool]":
    """Yield the sandboxes of a module or a session."""
    if POOL in request.config.stash:
        yield request.config.stash[POOL]
        return
    with closing(_pool(request.config, tmp_path_factory)) as pool:
        yield pool


@pytest.fixture
def slurm_sandbox(request: pytest.FixtureRequest, _slurm_sandboxes: "Pool") -> "Iterator[Sandbox]":
    """Yield a real Slurm without jobs, with every node idle. This machine's sbatch and other commands use it."""
    from slurm_plugin.errors import SlurmPluginError  # noqa: PLC0415

    wanted = options(cast("pytest.Item", request.node))
    faults = wanted.pop("faults")
    try:
        box = _slurm_sandboxes.ready(**wanted)
        for node, fault in faults.items():
            box.break_node(node, fault)
    except SlurmPluginError as error:
        pytest.fail(str(error), pytrace=False)
    with pytest.MonkeyPatch.context() as patch:
        _use(box, patch)
        yield box
