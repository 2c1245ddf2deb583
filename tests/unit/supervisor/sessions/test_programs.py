"""How Jupyter and TensorBoard are started."""

import json

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.supervisor.sessions import server

FOLDER = "/run/slurm_plugin/jobs/17.0.0/user"


def test_jupyter() -> None:
    """Its token and its socket are in a file, not in its words. Its kernels listen on sockets, too."""
    made = server.program_for("jupyter", FOLDER, "/work", (), "secret")
    assert made.words[3:] == ("jupyter-lab jupyter-notebook jupyter-server", f"--config={FOLDER}/jupyter_config.json")
    assert "secret" not in repr((made.words, made.variables))
    settings = json.loads(made.files["jupyter_config.json"])
    assert settings["ServerApp"]["sock"] == f"{FOLDER}/jupyter.sock"
    assert settings["ServerApp"]["root_dir"] == "/work"
    assert settings["IdentityProvider"] == {"token": "secret"}
    assert settings["KernelManager"] == {"transport": "ipc"}
    assert made.variables == {"JUPYTER_RUNTIME_DIR": f"{FOLDER}/j"}
    assert made.address == "/?token=secret"


@pytest.mark.parametrize(
    ("shows", "logdir", "links"),
    [
        (("=/runs",), "/runs", {}),
        (("=runs",), "/work/runs", {}),
        (("=a=b",), "/work/a=b", {}),
        (("a=/x", "b=y"), f"{FOLDER}/logs", {"a": "/x", "b": "/work/y"}),
    ],
)
def test_tensorboard(shows: tuple[str, ...], logdir: str, links: dict[str, str]) -> None:
    """It shows one directory, or a link to each of several."""
    made = server.program_for("tensorboard", FOLDER, "/work", shows, "unused")
    socket = f"--host=unix://{FOLDER}/tensorboard.sock"
    assert made.words[4:] == (socket, "--port=0", "--load_fast=false", f"--logdir={logdir}")
    assert (made.links, made.files, made.address) == (links, {}, "/")


def test_a_path_that_is_too_long() -> None:
    """The kernel allows a socket's path 107 bytes; the longest are those of Jupyter's kernels."""
    assert server.program_for("jupyter", "/" * 55, "/", (), "")
    with pytest.raises(UsageError, match="found 108 characters; a UNIX socket has at most 107"):
        server.program_for("jupyter", "/" * 56, "/", (), "")
