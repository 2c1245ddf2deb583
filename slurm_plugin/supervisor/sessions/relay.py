"""Carry the connections of a UNIX socket on the login node to one on a worker, through one step of srun.

For nodes without an ssh server. `slurm-plugin open --carry` listens on the login node, and ssh forwards a port of the
user's own machine to its socket. `job relay` on the worker connects to the program's socket. All connections share
stdin and stdout of the step, as frames. A frame is the connection's number and a count. Above 0: this many bytes of
data follow. 0: this side sends no more. Below 0: the other side may send this many more bytes. So no connection blocks
the others.
"""

import argparse
import asyncio
import os
import stat
import struct
import sys
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.records import launch_record, node_directory
from slurm_plugin.slurm import steps
from slurm_plugin.supervisor.sessions.server import socket_path

WINDOW: Final = 1 << 18  # bytes that one side of a connection sends before the other side has passed them on
CHUNK: Final = 1 << 14
_FRAME: Final = struct.Struct("!Ii")
Connect = Callable[[], Awaitable[tuple[StreamReader, StreamWriter]]]


class RelayError(SlurmPluginError):
    """The connection to the worker cannot be made, or has ended (exit 1)."""


class _Connection:
    """One side of a connection: what arrived for it, and how much it may send."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.arrived: asyncio.Queue[bytes] = asyncio.Queue()  # bounded by the window of the other side
        self.room, self.more = WINDOW, asyncio.Event()


class Relay:
    """One end of the step. `connect` makes the connection that a new number asks for; None: on the login node."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, connect: Connect | None = None) -> None:
        self._reader, self._writer, self._connect = reader, writer, connect
        self._connections: dict[int, _Connection] = {}
        self._last = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Carry a new connection, on the login node, to its end."""
        self._last += 1
        self._writer.write(_FRAME.pack(self._last, -1))  # opens it: a server may speak first
        await self._carry(self._last, _Connection(reader, writer))

    async def run(self) -> None:
        """Pass on what the other end sends, until it ends."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                number, count = _FRAME.unpack(await self._reader.readexactly(_FRAME.size))
                data = await self._reader.readexactly(count) if count > 0 else b""
                connection = self._connections.get(number) or await self._new(number)
                if connection is None:
                    continue
                if count < 0:
                    connection.room -= count
                    connection.more.set()
                else:
                    connection.arrived.put_nowait(data)
        for task in self._tasks:
            task.cancel()

    async def _new(self, number: int) -> _Connection | None:
        """Connect to the program on the worker. A connection that has ended here is ignored."""
        if self._connect is None or number <= self._last:
            return None
        self._last = number
        try:
            connection = _Connection(*await self._connect())
        except OSError:
            self._writer.write(_FRAME.pack(number, 0))
            return None
        self._connections[number] = connection
        task = asyncio.create_task(self._carry(number, connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return connection

    async def _carry(self, number: int, connection: _Connection) -> None:
        self._connections[number] = connection
        with suppress(ConnectionError):
            await asyncio.gather(self._send(number, connection), self._deliver(number, connection))
        del self._connections[number]
        connection.writer.close()

    async def _send(self, number: int, connection: _Connection) -> None:
        data = b"."
        while data:
            while connection.room <= 0:
                connection.more.clear()
                await connection.more.wait()
            try:
                data = await connection.reader.read(min(CHUNK, connection.room))
            except ConnectionError:
                data = b""
            connection.room -= len(data)
            self._writer.write(_FRAME.pack(number, len(data)) + data)
            await self._writer.drain()

    async def _deliver(self, number: int, connection: _Connection) -> None:
        """Write what arrived. If the program has closed its side, drop the rest."""
        while data := await connection.arrived.get():
            with suppress(ConnectionError):
                connection.writer.write(data)
                await connection.writer.drain()
            self._writer.write(_FRAME.pack(number, -len(data)))
        with suppress(OSError):
            connection.writer.write_eof()


def serve(path: Path, step: Sequence[str]) -> int:
    """Listen on a socket of the login node until ssh or the step ends. Raise RelayError, MissingError without srun."""
    folder = path.parent
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise RelayError(f"{folder}: it is not a directory that only you can enter\n  remove it, if it is yours")
    with suppress(FileNotFoundError):
        path.unlink()
    return asyncio.run(_listen(path, step))


async def _listen(path: Path, step: Sequence[str]) -> int:
    process = steps.piped(step)
    relay = Relay(*await _streams(process.stdout, process.stdin))
    before = os.umask(0o177)
    server = await asyncio.start_unix_server(relay.accept, path)
    os.umask(before)
    own = path.lstat()
    gone = asyncio.Event()
    threading.Thread(target=_until_ssh_has_gone, args=(asyncio.get_running_loop(), gone), daemon=True).start()
    ends = [asyncio.ensure_future(each) for each in (relay.run(), gone.wait())]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        with suppress(FileNotFoundError):
            if os.path.samestat(own, path.lstat()):  # else it is that of a later ssh: the user has connected again
                path.unlink()
    server.close()
    process.terminate()
    return await asyncio.to_thread(process.wait)


def _until_ssh_has_gone(loop: asyncio.AbstractEventLoop, gone: asyncio.Event) -> None:
    """Read stdin to its end. A thread: stdin may also be a file or a terminal."""
    with suppress(OSError):
        while os.read(0, CHUNK):
            pass
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(gone.set)


async def _streams(source: IO[Any] | None, target: IO[Any] | None) -> tuple[StreamReader, StreamWriter]:
    """Return a reader and a writer of two pipes."""
    loop, reader = asyncio.get_running_loop(), StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, target)
    return reader, StreamWriter(transport, protocol, None, loop)


def main(options: argparse.Namespace) -> int:
    """Connect to the program's socket on this worker for each connection of the login node."""
    launch = launch_record.read(Path(options.directory))
    folder = node_directory.user_folder(launch.run_directory, launch.node_directory, make=False)
    asyncio.run(_answer(socket_path(folder, options.what)))
    return 0


async def _answer(path: str) -> None:
    reader, writer = await _streams(sys.stdin, sys.stdout)
    await Relay(reader, writer, lambda: asyncio.open_unix_connection(path)).run()
