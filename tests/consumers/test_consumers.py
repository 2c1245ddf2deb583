"""slurm_plugin's files, parsed by the code of the programs that read them. Run by .ci/consumers."""

import ast
import collections
import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hostfiles import FORMATS, Allocation, from_lists, tensorflow
from slurm_plugin.cli.nodeside import hosts as hosts_command
from tests.fetched import Consumers

ALLOCATIONS = {
    "one": from_lists("n1", slots=4, tasks_per_node="4"),
    "four": from_lists("n[08-11]", slots=8, tasks_per_node="8(x4)"),
    "heterogeneous": from_lists("b2,a[1-2]-ib0.x_y", slots=(4, 4, 2), tasks_per_node="4(x2),2"),
    "cpu-only": from_lists("n[1-4]"),
}
READ_TF_CONFIG = """
import json, os, sys
from tensorflow.python.distribute import multi_worker_util
from tensorflow.python.distribute.cluster_resolver.tfconfig_cluster_resolver import TFConfigClusterResolver
for line in sys.stdin:
    os.environ["TF_CONFIG"] = line
    found = TFConfigClusterResolver()
    spec, kind, index = found.cluster_spec(), found.task_type, found.task_id
    chief = multi_worker_util.is_chief(spec, kind, index)  # validates the cluster, the type and the index too
    print("READ " + json.dumps([spec.as_dict(), kind, index, chief, spec.task_address(kind, index)]))
"""


@pytest.fixture(params=ALLOCATIONS)
def allocation(request: pytest.FixtureRequest) -> Allocation:
    """Each kind of allocation."""
    return ALLOCATIONS[request.param]


def slots(allocation: Allocation) -> dict[str, int]:
    """What a consumer should have read, in order."""
    return {host.name: host.slots for host in allocation.hosts}


def hostfile(form: str, allocation: Allocation, directory: Path) -> Path:
    """A file as `slurm-plugin hosts --output` writes it."""
    path = directory / "hostfile"
    counts = ",".join(str(host.slots) for host in allocation.hosts)
    assert hosts_command.main([form, f"--nodelist={allocation.nodelist}", f"--slots={counts}", f"--output={path}"]) == 0
    assert path.read_text() == FORMATS[form](allocation, 61000, None)
    return path


@pytest.fixture(scope="session")
def horovod(consumers: Consumers) -> ModuleType:
    """Horovod's parser, a module that loads alone."""
    path = consumers.horovod / "horovod/runner/common/util/hosts.py"
    spec = importlib.util.spec_from_file_location("horovod_hosts", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def test_horovod(horovod: ModuleType, allocation: Allocation, tmp_path: Path) -> None:
    """It finds every host with its slots, and gives ranks to them in our order."""
    text = horovod.parse_host_files(str(hostfile("horovod", allocation, tmp_path)))
    names, found = horovod.parse_hosts_and_slots(text)
    assert (tuple(names), found) == (allocation.names, slots(allocation))
    ranks = horovod.get_host_assignments(horovod.parse_hosts(text), sum(host.slots for host in allocation.hosts))
    assert [rank.hostname for rank in ranks] == [host.name for host in allocation.hosts for _ in range(host.slots)]


def fetch_hostfile(source: Path) -> Mapping[str, Any]:
    """DeepSpeed's own functions out of launcher/runner.py, whose imports at the top need torch and all of DeepSpeed."""
    path = source / "deepspeed/launcher/runner.py"
    wanted = ("fetch_hostfile", "_parse_hostfile")
    body = [
        node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef) and node.name in wanted
    ]
    assert sorted(node.name for node in body) == sorted(wanted)
    scope = {"os": os, "re": re, "collections": collections, "logger": logging.getLogger("deepspeed")}
    exec(compile(ast.Module(body, []), str(path), "exec"), scope)  # noqa: S102 - the consumer's code, from its package
    return scope


def test_deepspeed(consumers: Consumers, allocation: Allocation, tmp_path: Path) -> None:
    """It finds every host with its slots, in our order, which is that of its ranks."""
    read = fetch_hostfile(consumers.deepspeed)["fetch_hostfile"]
    assert list(read(str(hostfile("deepspeed", allocation, tmp_path))).items()) == list(slots(allocation).items())


def test_tensorflow(consumers: Consumers) -> None:
    """TFConfigClusterResolver finds every member at its address, by TensorFlow's own rules, and one chief."""
    cases = [
        (allocation, {"ps": ps, "chief": chief, "evaluator": evaluator})
        for allocation in ALLOCATIONS.values()
        for ps in (0, 1)
        for chief in (False, True)
        for evaluator in (False, True)
    ]
    wanted = [
        tensorflow.config(allocation, 61000, task, **options)  # type: ignore[arg-type]
        for allocation, options in cases
        for task in range(allocation.tasks)
    ]
    done = subprocess.run(
        [str(consumers.tensorflow_python), "-c", READ_TF_CONFIG],
        check=False,
        input="".join(json.dumps(config) + "\n" for config in wanted),
        capture_output=True, text=True, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line.removeprefix("READ ")) for line in done.stdout.splitlines() if line.startswith("READ ")]
    assert len(found) == len(wanted)
    for (cluster, kind, index, chief, address), config in zip(found, wanted, strict=True):
        ours: Any = config
        assert (cluster, {"type": kind, "index": index}) == (ours["cluster"], ours["task"])
        assert address == ours["cluster"][kind][index]
        assert chief == (kind in ("chief", "evaluator") or ("chief" not in cluster and (kind, index) == ("worker", 0)))
