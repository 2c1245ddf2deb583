"""Programs that fail, what each does on four ranks of two nodes, and the diagnosis that their logs must get."""

from dataclasses import dataclass

from tests.failures.mounts import BROKEN, HUNG, LOST

# Each rank makes steps; `fault(rank)` is called before the third one.
PROGRAM = """\
import datetime, json, mmap, os, resource, signal, socket, sys, time
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

def fault(rank):
{fault}

@record
def main():
    rank = int(os.environ["RANK"])
{before}
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=float(os.environ["TIMEOUT"])))
    x = torch.ones(4)
    for step in range(4):
        print(f"step {{step}} loss {{1 / (step + 1):.4f}}", flush=True)
        if step == 2:
            fault(rank)
        dist.all_reduce(x)
    print("done", flush=True)

main()
"""
JOIN = 'open(os.environ["LITTLE_MEMORY"], "w").write("0"); '  # a control group with little memory
LONG_S, SHORT_S = 300.0, 6.0  # seconds until a collective gives up


@dataclass(frozen=True, slots=True)
class Case:
    """A program that fails on one rank, or before the ranks have joined."""

    name: str
    failure: str  # the class
    fault: str = ""  # on rank 2
    text: str = ""  # in the line of evidence
    whose: str = "user"
    ranks: tuple[int, ...] = (2,)
    nodes: tuple[str, ...] = ("node1",)
    verdict: str = "clear"
    before: str = ""  # on every rank, before they join
    everywhere: str = ""  # on every rank, in place of `fault`
    seconds: float = LONG_S

    @property
    def found(self) -> tuple[str, str, tuple[int, ...], tuple[str, ...], str]:
        """The class, whose it is, the ranks and nodes that began it, and the verdict on them."""
        if self.failure == "none":
            return "none", "unknown", (), (), "clear"
        return self.failure, self.whose, self.ranks, self.nodes, self.verdict

    @property
    def program(self) -> str:
        """The whole program."""
        fault = self.everywhere or f"if rank == 2:\n{indented(self.fault or 'pass')}"
        return PROGRAM.format(fault=indented(fault), before=indented(self.before or "pass"))


def indented(text: str) -> str:
    """The lines, four spaces to the right."""
    return "".join(f"    {line}\n" for line in text.splitlines())


PYTHON = (
    Case("key", "user_code", '{}["tokens"]', "KeyError: 'tokens'"),
    Case("index", "user_code", "[][3]", "IndexError: list index out of range"),
    Case("value", "user_code", 'int("x")', "ValueError: invalid literal"),
    Case("type", "user_code", "len(3)", "TypeError: object of type 'int'"),
    Case("attribute", "user_code", "None.shape", "AttributeError: 'NoneType'"),
    Case("assertion", "user_code", 'assert rank < 2, "no such shard"', "AssertionError: no such shard"),
    Case("division", "user_code", "1 / 0", "ZeroDivisionError"),
    Case("not-implemented", "user_code", "raise NotImplementedError", "NotImplementedError"),
    Case("recursion", "user_code", "fault(rank)", "RecursionError"),
    Case("unicode", "user_code", 'b"\\xff".decode()', "UnicodeDecodeError"),
    Case("shapes", "user_code", "torch.ones(2, 3) @ torch.ones(2, 3)", "mat1 and mat2 shapes"),
    Case("descriptor", "user_code", "os.read(999, 1)", "OSError: [Errno 9]"),
    Case("yaml", "user_code", 'import yaml; yaml.safe_load("a: b: c")', "ScannerError"),
    Case("exit-3", "unknown", "sys.exit(3)", "", "unknown"),
    Case("exit-at-once", "unknown", "os._exit(1)", "", "unknown"),
    Case("json", "data", 'json.loads("")', "JSONDecodeError"),
    Case("file", "missing_file", 'open("/data/nothere.bin")', "/data/nothere.bin"),
    Case("permission", "permission", 'open("/proc/sys/kernel/ostype", "w")', "PermissionError"),
    Case("import", "import_env", "import nothere_xyz", "No module named 'nothere_xyz'"),
    Case("import-name", "import_env", "from os import nothere_xyz", "cannot import name 'nothere_xyz'"),
    Case("memory", "host_oom", "bytearray(1 << 60)", "MemoryError"),
    Case(
        "address-space", "host_oom",
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); torch.ones(1 << 31)", "allocate memory",
    ),
    Case(
        "open-files", "limits",
        'resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); held = [open("/dev/null") for _ in range(64)]',
        "Too many open files",
    ),
    Case("nan", "numeric", 'raise FloatingPointError("Loss is nan at step 2")', "Loss is nan"),
    Case(
        "anomaly", "numeric",
        "torch.autograd.set_detect_anomaly(True)\n"
        "y = torch.tensor([-1.0], requires_grad=True)\ntorch.sqrt(y).sum().backward()", "returned nan values",
    ),
    Case(
        "arguments", "user_code", text="unrecognized arguments", ranks=(), nodes=(),
        before='import argparse; argparse.ArgumentParser("train.py").parse_args(["--lerning-rate", "3"])',
    ),
    Case(
        "import-on-one-node", "import_env", text="nothere_xyz", whose="node", ranks=(2, 3), verdict="exclude",
        before="if rank >= 2: import nothere_xyz",
    ),
)  # fmt: skip

SYSTEM = (
    Case("killed", "unknown", "os.kill(os.getpid(), signal.SIGKILL)", whose="unknown", verdict="check"),
    Case("segfault", "segfault", "os.kill(os.getpid(), signal.SIGSEGV)"),
    Case("abort", "segfault", "os.abort()"),
    Case(
        "bus", "shm", 'f = open(os.environ["SMALL"] + "/x", "w+"); f.truncate(1 << 20)\n'
        "m = mmap.mmap(f.fileno(), 1 << 20)\nfor at in range(0, 1 << 20, 4096): m[at] = 1",
        whose="node", verdict="check",
    ),
    Case("disk", "disk_full", 'open(os.environ["SMALL"] + "/y", "wb").write(b"x" * (1 << 20))', "Errno 28", "fs"),
    Case("disk-save", "disk_full", 'torch.save(torch.ones(1 << 18), os.environ["SMALL"] + "/m.pt")', "", "fs"),
    Case("io", "fs_error", 'open("/proc/self/mem", "rb").read(1)', "Errno 5", "fs", verdict="check"),
    Case("read-only", "fs_error", 'open(os.environ["READONLY"] + "/y", "w")', "Errno 30", "fs", verdict="check"),
    Case("broken-disk", "fs_error", f'open("{BROKEN}/disk", "rb").read(1)', "[Errno 5]", "fs", verdict="check"),
    Case("stale", "fs_error", f'open("{BROKEN}/stale", "rb").read(1)', "[Errno 116]", "fs", verdict="check"),
    Case("quota", "quota", f'open("{BROKEN}/full", "wb", 0).write(b"x")', "[Errno 122]"),
    Case("quota-save", "disk_full", f'torch.save(torch.ones(1 << 12), "{BROKEN}/full")', "unexpected pos", "fs"),
    Case("lost-mount", "fs_error", f'open("{LOST}/data")', "[Errno 107]", "fs", verdict="check"),
    Case(
        "hung-mount", "rank_hang", f'open("{BROKEN}/{HUNG}").read()', whose="unknown", verdict="check",
        seconds=SHORT_S,
    ),
    Case("oom-killed", "unknown", JOIN + "bytearray(1 << 30)", whose="unknown", verdict="check"),
    Case("name", "net_name", 'socket.gethostbyname("nothere.invalid")', "gaierror", "network", verdict="check"),
    Case("refused", "external_service", 'socket.create_connection(("127.0.0.1", 1))', "refused", "unknown"),
    Case("left", "early_exit", "os._exit(0)"),
    Case("hang", "rank_hang", "time.sleep(3000)", "", "unknown", verdict="check", seconds=SHORT_S),
    Case(
        "order", "collective_desync", "dist.broadcast(torch.ones(2), 0)", verdict="clear", seconds=SHORT_S,
    ),
    Case(
        "detail", "collective_desync", "dist.broadcast(torch.ones(2), 0)", "Detected mismatch",
        before="dist.set_debug_level(dist.DebugLevel.DETAIL)", seconds=SHORT_S,
    ),
    # The receiver says it. With a smaller tensor no rank does, and which of them time out is chance.
    Case("sizes", "collective_desync", "dist.all_reduce(torch.ones(64))", "32 vs 4", ranks=(1,), nodes=("node0",)),
    Case("extra", "collective_desync", "dist.all_reduce(torch.ones(4))", seconds=SHORT_S),
    Case("gather", "collective_desync", "dist.all_gather([torch.ones(4)] * 4, torch.ones(4))", seconds=SHORT_S),
    Case(
        "barrier", "rank_hang", text="monitoredBarrier", whose="unknown", verdict="check", seconds=SHORT_S,
        everywhere="if rank == 2: time.sleep(3000)\ndist.monitored_barrier(timeout=datetime.timedelta(seconds=3))",
    ),
    Case(
        "truncated", "checkpoint",
        'torch.save(torch.ones(1 << 12), "m.pt"); os.truncate("m.pt", 9000); torch.load("m.pt")', "PyTorchFileReader",
    ),
    Case(
        "other-model", "checkpoint", "torch.nn.Linear(3, 2).load_state_dict(torch.nn.Linear(4, 2).state_dict())",
        "state_dict for Linear",
    ),
    Case("data", "missing_file", 'torch.load("/data/train-00001.pt")', "/data/train-00001.pt"),
    Case(
        "loader", "host_oom",
        "class D(torch.utils.data.Dataset):\n"
        "    __len__ = lambda self: 4\n    def __getitem__(self, i): os.kill(os.getpid(), signal.SIGKILL)\n"
        "list(torch.utils.data.DataLoader(D(), num_workers=1))", "killed by signal",
    ),
    Case(
        "port", "rendezvous", text="EADDRINUSE", ranks=(0,), nodes=("node0",), verdict="check", seconds=SHORT_S,
        before='if rank == 0:\n    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"\n'
        '    held = socket.create_server(("", 0)); os.environ["MASTER_PORT"] = str(held.getsockname()[1])',
    ),
    Case(
        "late", "rendezvous", whose="unknown", verdict="check", before="if rank == 2: time.sleep(3000)",
        seconds=SHORT_S,
    ),
    Case(
        "stopped", "rank_hang", "os.kill(os.getpid(), signal.SIGSTOP)", whose="unknown", verdict="check",
        seconds=SHORT_S,
    ),
    Case("terminated", "unknown", "os.kill(os.getpid(), signal.SIGTERM)", "", "unknown", verdict="check"),
    Case("gpu-memory", "gpu_oom", 'raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")', "CUDA"),
    Case(
        "launcher-lost", "unknown", "os.kill(os.getppid(), signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)",
        whose="unknown", verdict="check", seconds=SHORT_S,
    ),
    Case(
        "store-name", "net_name", text="nothere.invalid", whose="network", ranks=(), nodes=(), verdict="check",
        before='os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"; os.environ["MASTER_ADDR"] = "nothere.invalid"',
        seconds=SHORT_S,
    ),
    Case(
        "model-differs", "collective_desync",
        everywhere="torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3 + (rank == 2), 2))",
        text="params", seconds=SHORT_S,
    ),
)  # fmt: skip
HEALTHY = (
    Case("h-words", "none", everywhere='print("error: 0, failed: 0, timeout 30 s, nan_count: 0, Killed: 0")'),
    Case(
        "h-caught", "none",
        everywhere='try: {}["tokens"]\nexcept KeyError: import traceback; traceback.print_exc(); '
        'print("skipping a bad sample", file=sys.stderr)',
    ),
    Case("h-warnings", "none", everywhere='import warnings; warnings.warn("ValueError: x is deprecated")'),
    Case(
        "h-logged", "none",
        everywhere='import logging; logging.exception("retry 1 of 3: could not read: Connection reset by peer")',
    ),
    Case(
        "h-retry", "none",
        everywhere="try: socket.create_connection(('127.0.0.1', 1))\n"
        "except OSError as error: print('attempt 1 failed:', error, 'retrying', file=sys.stderr)",
    ),
    Case(
        "h-nccl", "none",
        everywhere='print("n1:77:77 [0] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>\\n'
        'n1:77:77 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]", file=sys.stderr)',
    ),
    Case(
        "h-worker", "none",
        everywhere="import subprocess; done = subprocess.run(['sh', '-c', 'kill -9 $$'])\n"
        "print('helper ended with', done.returncode, 'and is started again', file=sys.stderr)",
    ),
    Case("h-scaler", "none", everywhere='print("Gradient overflow.  Skipping step, loss scaler 0 reducing")'),
    Case("h-names", "none", everywhere='print("test_nan_loss PASSED test_out_of_memory_error PASSED oom_retries=0")'),
    Case("h-plain", "none"),
)  # fmt: skip
