"""`container:` of a spec: which runtime it is, and what is refused before anything runs."""

import json
from typing import Any

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.spec import Spec, load


def spec(container: Any, runtime: str = "", **fields: Any) -> Spec:
    """A spec with a container, on a site with this runtime."""
    whole = {"name": "a", "mode": "pytorch", "nodes": 2, "command": "python t.py", "container": container, **fields}
    return load(json.dumps(whole).encode(), "job.yaml", runtime=runtime)


def refused(container: Any, runtime: str = "", **fields: Any) -> str:
    """What is said of such a spec."""
    with pytest.raises(UsageError) as error:
        spec(container, runtime, **fields)
    return str(error.value)


def test_all_of_it() -> None:
    """As the launch is told of it; the accelerators say whether GPUs are looked for."""
    said = {"image": "t.sif", "mounts": "/data:/d:ro,/scratch", "workdir": "/w", "writable": "yes", "home": "no"}
    found = spec(said, accelerators={"gpu": 2}, env={"A": "1"}).contained
    assert found is not None
    assert (found.image, found.runtime, found.workdir) == ("t.sif", "apptainer", "/w")
    assert (found.mounts, found.writable, found.home) == (("/data:/d:ro", "/scratch"), True, False)
    assert (found.gpu, found.env) == ("nv", ("A",))


@pytest.mark.parametrize(
    ("container", "site", "runtime"),
    [
        ({"image": "t.sif"}, "pyxis", "apptainer"),
        ({"image": "x#t"}, "apptainer", "pyxis"),
        ({"image": "python:3.12"}, "pyxis", "pyxis"),
        ({"image": "/sandbox"}, "apptainer", "apptainer"),
        ({"image": "/sandbox", "runtime": "apptainer"}, "pyxis", "apptainer"),
    ],
)
def test_whose_it_is(container: dict[str, str], site: str, runtime: str) -> None:
    """What the spec says, else what the image's form says, else the site."""
    found = spec(container, site).contained
    assert found is not None
    assert found.runtime == runtime


@pytest.mark.parametrize(
    ("container", "fields", "words"),
    [
        (
            {"image": "python:3.12"},
            {},
            "container.runtime: missing, as 'python:3.12' fits both and the site names none",
        ),
        (
            {"image": "x#t", "runtime": "apptainer"},
            {},
            "container.runtime: found apptainer, and the image 'x#t', which",
        ),
        ({"image": "t.sif", "runtime": "podman"}, {}, "container.runtime: found 'podman'; accepted: apptainer, pyxis"),
        ({"image": "-t.sif"}, {}, "container.image: found '-t.sif'; accepted: an image: a path, or a name"),
        ({"image": "t.sif", "mounts": ["/a", "b"]}, {}, "container.mounts.1: found 'b'; accepted: SRC, SRC:DST or SRC"),
        ({"image": "t.sif", "workdir": "w"}, {}, "container.workdir: found 'w'; accepted: an absolute path"),
        ({"runtime": "pyxis"}, {}, "container.image: missing; accepted: an image"),
        ({"image": "t.sif"}, {"command": "srun ./a"}, "container: the command starts its processes itself, and in a"),
        (
            {"image": "t.sif"},
            {"mode": "openmpi", "command": "mpirun ./a"},
            "container: the command starts its processes",
        ),
        (
            {"image": "t.sif"},
            {"mode": "deepspeed", "command": "deepspeed --launcher pdsh t.py"},
            "container: the command starts its processes itself",
        ),
        (
            {"image": "x#t"},
            {"mode": "openmpi", "command": "./a"},
            "container.runtime: found runtime pyxis, which needs srun, and mode openmpi starts with mpirun; write",
        ),
        ({"image": "x#t"}, {"mode": "horovod"}, "mode horovod starts with mpirun; give it an image of apptainer's"),
        (
            {"image": "t.sif"},
            {"mode": "script"},
            "container: found it in mode script on several nodes, whose steps are",
        ),
    ],
)
def test_what_is_refused(container: Any, fields: dict[str, Any], words: str) -> None:
    """With the place, what was found and what to do."""
    assert words in refused(container, **fields)


def test_a_null_takes_a_presets_container_away() -> None:
    """As of any key."""
    data = json.dumps({"name": "a", "mode": "single", "command": "x", "extends": "p", "container": None}).encode()
    presets = {"p": {"container": {"image": "t.sif"}}}
    assert load(data, "job.yaml", presets=presets).contained is None
