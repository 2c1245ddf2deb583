"""The near end of pyslurm_process.py: started when it is needed, ended where it misses a deadline."""

import marshal
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any, Final

from slurm_plugin import standalone
from slurm_plugin.slurm import pyslurm_process
from slurm_plugin.slurm.process import reading_environment
from slurm_plugin.slurm.pyslurm_process import LENGTH_BYTES

END_S: Final = 1.0
READ_BYTES: Final = 1 << 20


class Bridge:
    """The child process: started on the first question, again after one that it did not answer in time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._said = os.memfd_create("pyslurm")  # a pipe that nobody reads would fill

    def __del__(self) -> None:
        """Leave no process behind, nor a descriptor."""
        self.stop()
        os.close(self._said)

    def last_line(self) -> str:
        """What libslurm wrote last."""
        text = os.pread(self._said, READ_BYTES, 0).decode(errors="replace").strip()
        return text.rpartition("\n")[2]

    def start(self, deadline_s: float) -> tuple[Any, ...] | None:
        """Its first words, whether pyslurm works; None where none came in time."""
        os.ftruncate(self._said, 0)
        os.lseek(self._said, 0, os.SEEK_SET)
        flags = ["-I"] if sys.flags.isolated else ["-P"]
        try:
            self._process = subprocess.Popen(
                [sys.executable, *flags, *standalone.words(pyslurm_process)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env=reading_environment(os.environ),
                start_new_session=True,
            )
        except OSError as error:  # no process left to start
            return ("ended", str(error))
        return self._answer(time.monotonic() + deadline_s)

    def ask(self, question: tuple[Any, ...], deadline_s: float) -> tuple[Any, ...] | None:
        """The answer to a question, ("ended", why) where the process ended over it; None where none came in time."""
        try:
            return self._asked(question, time.monotonic() + deadline_s)
        except BaseException:  # interrupted: its answer would be taken for that of the next question
            self.stop()
            raise

    def _asked(self, question: tuple[Any, ...], end: float) -> tuple[Any, ...] | None:
        if self._process is None or self._process.poll() is not None:
            first = self.start(end - time.monotonic())
            if first is None or first[0] != "ok":
                return first
        assert self._process is not None  # noqa: S101 - for the type checker
        assert self._process.stdin is not None  # noqa: S101
        text = marshal.dumps(question)
        try:
            self._process.stdin.write(len(text).to_bytes(LENGTH_BYTES, "big") + text)
            self._process.stdin.flush()
        except BrokenPipeError:
            return self._ended()
        return self._answer(end)

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                with suppress(BrokenPipeError):  # a question that was not read is still to be written
                    pipe.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:  # one that the kernel does not let end is left to it
            return

    def _ended(self) -> tuple[str, str]:
        """What a process said that ended by itself."""
        self.stop()
        return ("ended", self.last_line() or "it said nothing")

    def _answer(self, end: float) -> tuple[Any, ...] | None:
        """The next answer; None, and the process is ended, where it is late."""
        assert self._process is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        fd = self._process.stdout.fileno()
        wait, text = select.poll(), bytearray()
        wait.register(fd, select.POLLIN)
        while (left := end - time.monotonic()) > 0 and wait.poll(left * 1000):
            part = os.read(fd, READ_BYTES)
            text += part
            length = int.from_bytes(text[:LENGTH_BYTES], "big")
            if not part:
                return self._ended()
            if len(text) >= LENGTH_BYTES + length > LENGTH_BYTES:
                answer: tuple[Any, ...] = marshal.loads(text[LENGTH_BYTES:])  # noqa: S302 - our own child's
                return answer
        self.stop()
        return None
