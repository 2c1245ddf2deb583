"""The program of each rank of a fabric check, one rank per host: `python3 program.py NONCE SECONDS HOST,HOST...`

The job's own interpreter, which has mpi4py, runs this program, so it imports no other file of this package. A peer may
be stopped or cut off at any time, so all operations are non-blocking and polled until their share of SECONDS has
passed. A forked guard watches the calls that block (MPI_Init, MPI_Finalize). A rank writes each result immediately,
because the program may never end. Lines are `slurm_plugin-fabric NONCE HOST EVENT key=value...`:

  hello    the rank runs; rank= from the launcher's variables
  ready    MPI_Init has returned; rank= size=
  barrier, allreduce     us=, or stuck=1; allreduce also wrong=ELEMENTS
  link     peer=RANK, and latency_us= mbs= (1e6 bytes/s, both ways at the same time), or stuck=STAGE, or corrupt=BYTES
  stopped  from the guard: the rank's process is stopped (SIGSTOP, a debugger); phase=
  late     from the guard: the rank has not ended after SECONDS; phase= state=
  error    the rank cannot measure; what= (the rest of the line)
  done     this rank has written all its results
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from array import array
from collections.abc import Mapping, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Never

LINE = "slurm_plugin-fabric"
LONGEST = 600  # bytes; srun and mpirun do not split such a line
# The share of SECONDS after which a phase ends. The ring's rounds share the rest.
INIT_BARRIER, INIT_ALLREDUCE = 0.5, 0.6
ELEMENTS = 8192  # of eight bytes, in the all-reduce
PINGS = 20
# Small sizes first, so that a slow link has results, too. Three times, so that a short pause of a host has no effect.
SIZES = (*[1 << 16] * 3, 1 << 20, *[1 << 22] * 12)
LEAST = 4  # least number of exchanges, unless one would take too long
LONGEST_TRANSFER_S = 1.0
ENOUGH_S = 0.5  # time for transfers; the best one counts, because other processes may use the cores at times
SPIN_S, NAP_S = 0.02, 0.0005  # poll without naps for SPIN_S only: other processes may need the cores
LOOK_EVERY_S = 0.25
LINGER_S = 1.0  # pause before a failing exit, after which the launcher ends all ranks


class Rank:
    """A rank: its name, its output and its deadline."""

    def __init__(self, nonce: str, seconds: float, hosts: Sequence[str]) -> None:
        self.end = time.monotonic() + seconds
        self.seconds = seconds
        self.hosts = hosts
        self.rank = _rank_of_launcher(os.environ)
        self.name = host_name(os.uname().nodename, self.rank, hosts)
        self.head = f"{LINE} {nonce} {self.name}"
        self.phases = -1  # the pipe on which the guard reads this rank's phase

    def say(self, event: str, **fields: object) -> None:
        """Write one line to stdout, by one write."""
        words = [f"{name}={value}" for name, value in fields.items()]
        os.write(1, " ".join([self.head, event, *words]).encode("ascii", "replace")[: LONGEST - 1] + b"\n")

    def enter(self, phase: str) -> None:
        """Send the phase to the guard."""
        os.write(self.phases, phase.encode() + b"\n")

    def until(self, share: float) -> float:
        """Return the monotonic time at which `share` of SECONDS has passed."""
        return self.end - self.seconds * (1 - share)


def _rank_of_launcher(environ: Mapping[str, str]) -> int:
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"):
        if environ.get(name, "").isdigit():
            return int(environ[name])
    return -1


def host_name(nodename: str, rank: int, hosts: Sequence[str]) -> str:
    """Return Slurm's name of this host: `nodename` or its short form if it is in `hosts`, else `hosts[rank]`.

    SLURMD_NODENAME is not used: it may be that of the first node, because Hydra passes on the launcher's environment.
    """
    for name in (nodename, nodename.partition(".")[0]):
        if name in hosts:
            return name
    return hosts[rank] if 0 <= rank < len(hosts) else nodename


def start_guard(me: Rank) -> None:
    """Fork the guard. A thread could not run while MPI_Init blocks, because MPI_Init holds the interpreter lock."""
    read, me.phases = os.pipe()
    rank = os.getpid()
    if os.fork():
        os.close(read)
        return
    try:
        os.close(me.phases)
        watch(me, read, rank)
    finally:
        os._exit(0)


def watch(me: Rank, read: int, rank: int) -> None:
    """Report a stopped rank and a late rank; kill a late rank. End when the rank's end of the pipe closes."""
    phase, stopped, late = "start", 0, False
    while True:
        if select.select([read], [], [], LOOK_EVERY_S)[0]:
            text = os.read(read, 4096)
            if not text:
                return
            phase = text.split()[-1].decode()
        state = state_of(rank)
        stopped = stopped + 1 if state in "Tt" else 0
        if stopped == 2:
            me.say("stopped", phase=phase)
        if time.monotonic() > me.end and not late:
            late = True
            me.say("late", phase=phase, state=state)
        if time.monotonic() > me.end + 2 * LINGER_S:
            os.kill(rank, signal.SIGKILL)
            return


def state_of(pid: int) -> str:
    """Return the process state letter of proc(5)."""
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
        return file.read().rpartition(b")")[2].split()[0].decode()


def rounds(size: int) -> list[list[tuple[int, int]]]:
    """Return the ring as rounds of pairs. A rank is at most once in a round, so that pairs do not disturb each other.

    The lower rank comes first. Two ranks have one link. If `size` is odd, the last pair has a separate round.
    """
    links = [(left, left + 1) for left in range(size - 1)]
    found = [links[0::2], links[1::2]]
    if size > 2:
        if size % 2:
            found.append([])
        found[-1].append((0, size - 1))
    return [pairs for pairs in found if pairs]


def wait(MPI: Any, requests: list[Any], until: float) -> bool:  # noqa: N803 - the module's own name
    """Poll until all requests are complete; return False if they are not complete at the time `until`."""
    started = time.monotonic()
    while not MPI.Request.Testall(requests):
        now = time.monotonic()
        if now > until:
            return False
        if now - started > SPIN_S:
            time.sleep(NAP_S)
        else:
            os.sched_yield()
    return True


def _us(started: float) -> int:
    return round((time.monotonic() - started) * 1e6)


def barrier(MPI: Any, me: Rank, comm: Any) -> bool:  # noqa: N803
    """Run and report a barrier. Return whether every rank reached it."""
    me.enter("barrier")
    started = time.monotonic()
    there = wait(MPI, [comm.Ibarrier()], me.until(INIT_BARRIER))
    if there:  # the first barrier includes the time for connections and slow starts: measure another
        started = time.monotonic()
        there = wait(MPI, [comm.Ibarrier()], me.until(INIT_BARRIER))
    me.say("barrier", **({"us": _us(started)} if there else {"stuck": 1}))
    return there


def all_reduce(MPI: Any, me: Rank, comm: Any) -> bool:  # noqa: N803
    """Run and report an all-reduce. Return whether it ended. Element i of rank r is (r + 1) * (i + 1)."""
    me.enter("allreduce")
    rank, size = comm.Get_rank(), comm.Get_size()
    mine = array("q", ((rank + 1) * (i + 1) for i in range(ELEMENTS)))
    total = array("q", bytes(8 * ELEMENTS))
    started = time.monotonic()
    if not wait(MPI, [comm.Iallreduce(mine, total)], me.until(INIT_ALLREDUCE)):
        me.say("allreduce", stuck=1)
        return False
    took = _us(started)
    wrong = sum(found != size * (size + 1) // 2 * (i + 1) for i, found in enumerate(total))
    me.say("allreduce", us=took, **({"wrong": wrong} if wrong else {}))
    return True


def pattern(rank: int, size: int) -> bytes:
    """Return the bytes that `rank` sends."""
    return bytes((rank * 31 + i * 7) & 255 for i in range(256)) * (size // 256)


class Link:
    """One pair of ranks. Both ends measure the same exchanges; the lower rank decides how many there are."""

    def __init__(self, MPI: Any, me: Rank, comm: Any, peer: int, until: float) -> None:  # noqa: N803
        self.MPI, self.me, self.comm, self.peer, self.until = MPI, me, comm, peer, until
        self.leads = comm.Get_rank() < peer

    def measure(self) -> bool:
        """Measure and report the link. Return whether it works."""
        stage = self._stages()
        if stage:
            self.me.say("link", peer=self.peer, stuck=stage)
        return not stage

    def _stages(self) -> str:
        byte = bytearray(1)
        if not self._swap(b"x", byte):  # wait for the peer: its delay is not part of a measurement
            return "meet"
        latency = float("inf")
        for _ in range(PINGS):
            started = time.monotonic()
            steps = (self._send, self._receive) if self.leads else (self._receive, self._send)
            if not all(wait(self.MPI, [step(byte)], self.until) for step in steps):
                return "ping"
            latency = min(latency, (time.monotonic() - started) / 2)
        return self._transfers(round(latency * 1e6, 1), byte)

    def _transfers(self, latency_us: float, byte: bytearray) -> str:
        best, enough = 0.0, time.monotonic() + ENOUGH_S
        for number, size in enumerate(SIZES):
            if self.leads:
                expected = size / best / 1e6 if best else 0.0
                now = time.monotonic()
                fits = expected < min(LONGEST_TRANSFER_S, (self.until - now) / 2)
                byte[0] = fits and (now < enough or number < LEAST)
            if not wait(self.MPI, [self._send(byte) if self.leads else self._receive(byte)], self.until):
                return "transfer"
            if not byte[0]:
                break
            mine, theirs = pattern(self.comm.Get_rank(), size), bytearray(size)
            wanted = pattern(self.peer, size)
            # A send ends when its bytes are in some buffer: only the peer's answer shows that they arrived.
            if not self._swap(b"x", byte):
                return "transfer"
            started = time.monotonic()
            if not (self._swap(mine, theirs) and self._swap(b"x", byte)):
                return "transfer"
            took = time.monotonic() - started
            if theirs != wanted:
                self.me.say("link", peer=self.peer, corrupt=sum(map(int.__ne__, theirs, wanted)))
                return ""
            best = max(best, size / max(took, 1e-9) / 1e6)
            if not number:
                self.me.say("link", peer=self.peer, latency_us=latency_us, mbs=round(best, 3))
        self.me.say("link", peer=self.peer, latency_us=latency_us, mbs=round(best, 3))
        return ""

    def _send(self, buffer: bytes | bytearray) -> Any:
        return self.comm.Isend([buffer, self.MPI.BYTE], self.peer)

    def _receive(self, buffer: bytearray) -> Any:
        return self.comm.Irecv([buffer, self.MPI.BYTE], self.peer)

    def _swap(self, mine: bytes, theirs: bytearray) -> bool:
        return wait(self.MPI, [self._receive(theirs), self._send(mine)], self.until)


def ring(MPI: Any, me: Rank, comm: Any) -> bool:  # noqa: N803
    """Measure the links of this rank. Return whether they work."""
    fine, all_rounds = True, rounds(comm.Get_size())
    for number, pairs in enumerate(all_rounds, 1):
        until = me.until(INIT_ALLREDUCE + (1 - INIT_ALLREDUCE) * number / len(all_rounds))
        for pair in pairs:
            if comm.Get_rank() in pair:
                me.enter(f"ring-{number}")
                fine = Link(MPI, me, comm, sum(pair) - comm.Get_rank(), until).measure() and fine
    return fine


def measure(me: Rank) -> int:
    """Measure everything. Return the exit code."""
    me.enter("init")
    try:
        import mpi4py  # noqa: PLC0415 - only a rank has it

        mpi4py.rc.threads = False
        from mpi4py import MPI  # noqa: PLC0415 - calls MPI_Init
    except (ImportError, RuntimeError) as error:
        me.say("error", what=f"{sys.executable}: {' '.join(str(error).split())}")
        return 1
    comm = MPI.COMM_WORLD
    me.say("ready", rank=comm.Get_rank(), size=comm.Get_size())
    if comm.Get_size() != len(me.hosts):
        count = f"MPI has {comm.Get_size()} ranks, not {len(me.hosts)}"
        me.say("error", what=f"{count}: does the mpi4py of {sys.executable} belong to this launcher's MPI?")
        return 1
    # Every rank starts the same collectives in the same order. After a stuck collective it starts no other.
    fine = barrier(MPI, me, comm) and all_reduce(MPI, me, comm)
    fine = ring(MPI, me, comm) and fine
    me.say("done")
    me.enter("end")
    if fine and wait(MPI, [comm.Ibarrier()], me.end):
        MPI.Finalize()
        return 0
    while time.monotonic() < me.end + LINGER_S:  # other ranks may still need this rank for their messages
        comm.Iprobe()
        time.sleep(NAP_S)
    return 1


def main(argv: Sequence[str]) -> Never:
    """Run the program and end the process without MPI's exit handlers, which would wait for stuck ranks."""
    if sys.path[0] == os.path.dirname(os.path.abspath(argv[0])):  # noqa: PTH100, PTH120
        del sys.path[0]  # modules beside this file have common names
    me = Rank(argv[1], float(argv[2]), argv[3].split(","))
    me.say("hello", rank=me.rank)
    start_guard(me)
    code = 1
    try:
        code = measure(me)
    except Exception as error:  # noqa: BLE001 - whatever MPI raises is a finding, and the guard must not outlive it
        me.say("error", what=" ".join(str(error).split()))
    finally:
        if code:
            time.sleep(LINGER_S)
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv)
