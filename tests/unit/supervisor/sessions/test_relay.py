"""The relay between a socket of the login node and one of a worker."""

import asyncio
import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from slurm_plugin.supervisor.sessions import relay
from slurm_plugin.supervisor.sessions.relay import Relay, RelayError
from tests.waiting import until

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def carried(tmp_path: Path, serve: Serve, use: Callable[[Path], Awaitable[None]]) -> None:
    """Start a program on a socket, and a relay through two pipes. `use` gets the socket of the login node."""
    program = await asyncio.start_unix_server(serve, tmp_path / "program")
    ends = [os.pipe(), os.pipe()]
    login = Relay(*await relay._streams(os.fdopen(ends[0][0], "rb"), os.fdopen(ends[1][1], "wb")))
    reader, writer = await relay._streams(os.fdopen(ends[1][0], "rb"), os.fdopen(ends[0][1], "wb"))
    worker = Relay(reader, writer, lambda: asyncio.open_unix_connection(tmp_path / "program"))
    running = [asyncio.create_task(each.run()) for each in (login, worker)]
    server = await asyncio.start_unix_server(login.accept, tmp_path / "login")
    await use(tmp_path / "login")
    while login._connections or worker._connections:
        await asyncio.sleep(0.01)
    server.close()
    program.close()
    for task in running:
        task.cancel()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back what comes, and close."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def sent_and_got(path: Path, data: bytes) -> bytes:
    """Send data, close this side, and return the answer."""
    reader, writer = await asyncio.open_unix_connection(path)

    async def send() -> None:
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    got, _ = await asyncio.gather(reader.read(), send())
    writer.close()
    return got


def test_many_connections(tmp_path: Path) -> None:
    """All bytes arrive, in both directions, also those beyond the window, over connections side by side."""

    async def use(path: Path) -> None:
        blocks = [os.urandom(3 * relay.WINDOW + number) for number in range(8)] + [b"", b"x"]
        found = await asyncio.gather(*(sent_and_got(path, each) for each in blocks))
        assert [hashlib.sha256(each).digest() for each in found] == [hashlib.sha256(each).digest() for each in blocks]

    asyncio.run(carried(tmp_path, echo, use))


def test_a_reader_that_waits_blocks_no_other(tmp_path: Path) -> None:
    """A connection that nobody reads holds at most a window. The program may speak first."""

    async def speaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * (8 * relay.WINDOW))
        writer.write_eof()
        await reader.read()
        writer.close()

    async def use(path: Path) -> None:
        slow, closes = await asyncio.open_unix_connection(path, limit=1)
        await slow.read(1)
        assert len(await sent_and_got(path, b"")) == 8 * relay.WINDOW
        assert len(await slow.read()) == 8 * relay.WINDOW - 1
        closes.close()

    asyncio.run(carried(tmp_path, speaks, use))


def test_a_program_that_has_gone(tmp_path: Path) -> None:
    """The connection ends, and later ones work."""

    async def use(path: Path) -> None:
        (path.parent / "program").rename(path.parent / "away")
        assert await sent_and_got(path, b"x") == b""
        (path.parent / "away").rename(path.parent / "program")
        assert await sent_and_got(path, b"x") == b"x"

    asyncio.run(carried(tmp_path, echo, use))


def test_whose_directory(tmp_path: Path) -> None:
    """The socket is only made in a directory that the user alone can enter."""
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to("open")
    for name in ("open", "link"):
        with pytest.raises(RelayError, match="not a directory that only you can enter"):
            relay.serve(tmp_path / name / "x.sock", [sys.executable])


WORKER = """
import asyncio
from slurm_plugin.supervisor.sessions import relay
asyncio.run(relay._answer({path!r}))
"""


SERVE = (
    "import sys; from pathlib import Path; from slurm_plugin.supervisor.sessions import relay; "
    "sys.exit(relay.serve(Path(sys.argv[1]), sys.argv[2:]))"
)
ENVIRON = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}


def test_a_second_ssh(tmp_path: Path) -> None:
    """After a lost network the user connects again. The first ssh ends later, and leaves the socket of the second."""
    place, words = tmp_path / "own/x.sock", [sys.executable, "-c", SERVE, tmp_path / "own/x.sock", "cat"]
    numbers, sshs = [0], []

    def number() -> int:
        with suppress(FileNotFoundError):
            return place.stat().st_ino
        return 0

    with ExitStack() as stack:
        for _ in range(2):
            ssh = stack.enter_context(subprocess.Popen(words, stdin=subprocess.PIPE, env=ENVIRON))
            sshs.append(ssh)
            until(lambda: number() not in numbers, "the socket")
            numbers.append(number())
        for ssh in sshs:
            assert number() == numbers[-1]
            assert ssh.stdin
            ssh.stdin.close()
            ssh.wait()
    assert not place.exists()


def test_it_serves_until_ssh_has_gone(tmp_path: Path) -> None:
    """The socket has mode 0600. At the end of stdin the step ends, and the socket is removed."""
    place = tmp_path / "own/x.sock"
    step = [sys.executable, "-c", WORKER.format(path=str(tmp_path / "program"))]
    with subprocess.Popen([sys.executable, "-c", SERVE, place, *step], stdin=subprocess.PIPE, env=ENVIRON) as process:

        async def use() -> None:
            program = await asyncio.start_unix_server(echo, tmp_path / "program")
            while not place.exists():
                await asyncio.sleep(0.01)
            assert stat.S_IMODE(place.stat().st_mode) == 0o600
            assert await sent_and_got(place, b"x" * 1_000_000) == b"x" * 1_000_000
            program.close()

        asyncio.run(use())
        assert process.stdin
        process.stdin.close()
        process.wait()
    assert not place.exists()
