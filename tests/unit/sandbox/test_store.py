"""The directory of a sandbox: its marker file and its lock."""

import re
import threading
from pathlib import Path
from unittest import mock

import pytest

from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.sandbox import store
from slurm_plugin.sandbox.store import Shape
from tests.refusals import refusal_of
from tests.waiting import HANG_S, until


def test_paths_that_slurm_or_a_socket_cannot_take_are_refused() -> None:
    """Blanks and commas break slurm.conf, colons overlay's options, and a socket's address holds 107 bytes."""
    for text in ["relative/path", "/var/tmp/" + "x" * 80, "/var/tmp/a b", "/var/tmp/a,b", "/var/a:b"]:
        assert re.search("cannot hold a sandbox", refusal_of(UsageError, store.check_directory, Path(text))), text


def test_a_directory_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    """A directory with other content is neither used nor emptied."""
    (tmp_path / "precious").touch()
    with pytest.raises(UsageError, match="holds no sandbox"):
        store.check_directory(tmp_path)
    with pytest.raises(SlurmPluginError, match="nothing of it is removed"):
        store.remove(tmp_path)
    assert (tmp_path / "precious").exists()


def test_remove_takes_all_and_follows_no_link(tmp_path: Path) -> None:
    """Targets of symbolic links stay."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    box = tmp_path / "box"
    with store.locked(box):
        pass
    (box / "home").mkdir()
    (box / "link").symlink_to(outside)
    store.remove(box)
    assert not box.exists()
    assert (outside / "file").exists()


def test_the_shape_says_that_up_came_to_its_end(tmp_path: Path) -> None:
    """Without a shape no sandbox is up."""
    shape = Shape(4, 2, "/", "10.77.0.0/24", hooks=True)
    assert store.read_shape(tmp_path) is None
    store.write_shape(tmp_path, shape)
    assert store.read_shape(tmp_path) == shape


def test_one_holder_at_a_time_even_when_the_directory_is_removed(tmp_path: Path) -> None:
    """A command that waited while another ran `down` locks the new directory, not the removed one."""
    box = tmp_path / "box"
    order = []

    def waiter() -> None:
        with store.locked(box):
            order.append("second")
            assert store.exists(box)

    thread = threading.Thread(target=waiter)
    with store.locked(box), mock.patch.object(store, "_try_lock", wraps=store._try_lock) as tried:
        thread.start()
        until(lambda: tried.call_count > 1, "a second try")
        order.append("first")
        store.remove(box)
    thread.join(HANG_S)
    assert order == ["first", "second"]
