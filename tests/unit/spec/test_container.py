"""`container:` of a spec: the choice of the runtime, and values that are refused before anything runs."""

import json
from typing import Any

from slurm_plugin.errors import UsageError
from slurm_plugin.spec import Spec, load
from tests.refusals import refusal_of


def spec(container: Any, runtime: str = "", **fields: Any) -> Spec:
    """Return a spec with a container, on a site with this runtime."""
    whole = {"name": "a", "mode": "pytorch", "nodes": 2, "command": "python t.py", "container": container, **fields}
    return load(json.dumps(whole).encode(), "job.yaml", runtime=runtime)


def refused(container: Any, runtime: str = "", **fields: Any) -> str:
    """Return the message about such a spec."""
    return refusal_of(UsageError, spec, container, runtime, **fields)


def test_all_of_it() -> None:
    """As the launch gets it. The accelerators decide whether GPUs are passed through."""
    said = {"image": "t.sif", "mounts": "/data:/d:ro,/scratch", "workdir": "/w", "writable": "yes", "home": "no"}
    found = spec(said, accelerators={"gpu": 2}, env={"A": "1"}).contained
    assert found is not None
    assert (found.image, found.runtime, found.workdir) == ("t.sif", "apptainer", "/w")
    assert (found.mounts, found.writable, found.home) == (("/data:/d:ro", "/scratch"), True, False)
    assert (found.gpu, found.env) == ("nv", ("A",))


def test_whose_it_is() -> None:
    """The spec's runtime, else that of the image's form, else the site's."""
    cases = [
        ({"image": "t.sif"}, "pyxis", "apptainer"),
        ({"image": "x#t"}, "apptainer", "pyxis"),
        ({"image": "python:3.12"}, "pyxis", "pyxis"),
        ({"image": "/sandbox"}, "apptainer", "apptainer"),
        ({"image": "/sandbox", "runtime": "apptainer"}, "pyxis", "apptainer"),
    ]
    for container, site, runtime in cases:
        found = spec(container, site).contained
        assert found is not None, container
        assert found.runtime == runtime, container


def test_what_is_refused() -> None:
    """With the place, what was found and what to do."""
    cases = [
        (
            {"image": "python:3.12"},
            {},
            "container.runtime: missing, as 'python:3.12' fits both runtimes, and the site file names none",
        ),
        (
            {"image": "x#t", "runtime": "apptainer"},
            {},
            "container.runtime: found apptainer, and the image 'x#t', which",
        ),
        ({"image": "t.sif", "runtime": "podman"}, {}, "container.runtime: found 'podman'; accepted: apptainer, pyxis"),
        ({"image": "-t.sif"}, {}, "container.image: found '-t.sif'; accepted: an image: a path, or a name"),
        ({"image": "t.sif", "mounts": ["/a", "b"]}, {}, "container.mounts.1: found 'b'; accepted: SRC, SRC:DST or SRC"),
        ({"image": "x#t", "mounts": ["/a,b"]}, {}, "container.mounts.0: found '/a,b'; accepted: SRC, SRC:DST or SRC"),
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
            "container: found it in mode script on several nodes, where the script",
        ),
    ]
    for container, fields, words in cases:
        assert words in refused(container, **fields), container


def test_a_null_takes_a_presets_container_away() -> None:
    """As with any key."""
    data = json.dumps({"name": "a", "mode": "single", "command": "x", "extends": "p", "container": None}).encode()
    presets = {"p": {"container": {"image": "t.sif"}}}
    assert load(data, "job.yaml", presets=presets).contained is None


def test_a_path_that_only_a_shell_would_complete_is_refused() -> None:
    """The job would fail after its wait in the queue. A name may have a `$`, such as enroot's `$oauthtoken`."""
    for key, value in {
        "image": "~/t.sif", "mounts": "/scratch/$USER:/data", "workdir": "/home/${USER}",
    }.items():  # fmt: skip
        text = refused({"image": "t.sif", key: value})
        assert f"container.{key}: found {value!r}, and nothing expands `$` or `~` in it; accepted: the whole" in text
    assert "container.image: found" in refused({"image": "$HOME/t.sif"})
    assert spec({"image": "docker://$oauthtoken@nvcr.io#nvidia/pytorch:24.01-py3", "mounts": "/a$:/b"}).contained
