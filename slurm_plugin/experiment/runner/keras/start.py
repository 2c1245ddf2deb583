"""Runs a TFKerasTrial on this rank: its place in TF_CONFIG, the version of Keras, the distribution strategy.

TensorFlow 2.16 and later has Keras 3, whose `fit` does not run under MultiWorkerMirroredStrategy. The package tf_keras
is Keras 2 for these versions. It is used where it is installed, unless TF_USE_LEGACY_KERAS says otherwise.
"""

import base64
import contextlib
import importlib
import importlib.metadata
import importlib.util
import itertools
import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple

from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError
from slurm_plugin.experiment import trial
from slurm_plugin.experiment.runner.distributed import DistributedContext
from slurm_plugin.experiment.runner.settings import InvalidHP, Settings

CONFIG: Final = "TF_CONFIG"
LEGACY: Final = "TF_USE_LEGACY_KERAS"
ROLES: Final = ("chief", "worker")  # in the order of their ranks
LOOP: Final = "slurm_plugin.experiment.runner.keras.loop"  # it imports TensorFlow, as do the modules that it imports
YES: Final = ("1", "true", "True")
LEAVE_S: Final = 10.0  # ranks that end together wait for each other; one that fails alone waits so long
INSTALL: Final = "pip install 'slurm_plugin[tensorflow]'"


class Ranks(NamedTuple):
    """The processes of a trial, and the replicas of the model on their devices."""

    strategy: Any  # tf.distribute.Strategy
    distributed: DistributedContext
    replicas: int  # of all processes: the slots

    @property
    def here(self) -> int:
        """Return the number of replicas of this process."""
        return self.replicas // self.distributed.size


def place(environ: Mapping[str, str]) -> dict[str, int]:
    """Return this process' place among the workers of TF_CONFIG. Raise UsageError for a cluster of another kind."""
    try:
        config = json.loads(environ.get(CONFIG) or "{}")
        cluster, task = dict(config.get("cluster") or {}), config.get("task") or {}
        members = [(role, index, str(each)) for role in ROLES for index, each in enumerate(cluster.get(role) or ())]
        here = (task.get("type", "worker"), int(task.get("index", 0)))
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{CONFIG}: {error}\n  mode tensorflow sets it for each task") from error
    if other := sorted(set(cluster) - set(ROLES)):
        raise UsageError(
            f"{CONFIG}: found tasks of type {', '.join(other)}, accepted are {' and '.join(ROLES)}\n"
            "  remove `ps` and `evaluator` from the job's `tensorflow`"
        )
    members = members or [("worker", 0, "")]
    found = [index for index, (role, number, _) in enumerate(members) if (role, number) == here]
    if not found:
        raise UsageError(f"{CONFIG}: task {here[0]} {here[1]} is not in the cluster")
    hosts = [address.rpartition(":")[0] for *_, address in members]
    rank, nodes = found[0], list(dict.fromkeys(hosts))
    return {
        "rank": rank,
        "size": len(members),
        "local_rank": hosts[:rank].count(hosts[rank]),
        "local_size": hosts.count(hosts[rank]),
        "cross_rank": nodes.index(hosts[rank]),
        "cross_size": len(nodes),
    }


def prepare(environ: MutableMapping[str, str] = os.environ) -> Ranks:
    """Load TensorFlow and start the strategy, which TensorFlow demands before the Trial's module is imported."""
    choose_keras(environ)
    here: Any = place(environ)
    import tensorflow as tf  # noqa: PLC0415 - an optional extra

    devices = tf.config.list_physical_devices("GPU")
    if here["local_size"] > 1 and len(devices) > 1:  # one process a device
        devices = devices[here["local_rank"] % len(devices) :][:1]
        tf.config.set_visible_devices(devices, "GPU")
    for device in devices:
        tf.config.experimental.set_memory_growth(device, True)  # noqa: FBT003 - TensorFlow's signature
    if here["size"] > 1:
        if (version := str(getattr(tf.keras, "__version__", "2"))) >= "3":
            raise MissingError(
                f"several ranks: found Keras {version}, whose `fit` does not run under MultiWorkerMirroredStrategy\n"
                f"  {INSTALL}, and leave {LEGACY} unset"
            )
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        allgather, leave = exchange(here["rank"], here["size"])
        distributed = DistributedContext(**here, allgather=allgather, close=leave)
    else:
        strategy = tf.distribute.MirroredStrategy() if len(devices) > 1 else tf.distribute.get_strategy()
        distributed = DistributedContext(**here)
    return Ranks(strategy, distributed, strategy.num_replicas_in_sync)


def choose_keras(environ: MutableMapping[str, str]) -> None:
    """Use tf_keras as `tf.keras` and as `keras` where it is installed and nothing else is said."""
    if not importlib.util.find_spec("tensorflow"):
        raise MissingError(f"a TFKerasTrial needs TensorFlow\n  {INSTALL}")
    if not importlib.util.find_spec("tf_keras") or importlib.metadata.version("keras") < "3":
        return  # TensorFlow's own Keras, of version 2 before TensorFlow 2.16
    if environ.setdefault(LEGACY, "1") in YES:
        import tf_keras  # noqa: PLC0415 - an optional extra

        sys.modules.setdefault("keras", tf_keras)  # `import keras` in the Trial's module


def exchange(rank: int, size: int) -> tuple[Callable[[Any], list[Any]], Callable[[], None]]:
    """Return a function that gives each rank the objects of all ranks, and one that waits for the end of the others.

    The ranks call the first equally often.
    """
    from tensorflow.python.eager import context  # noqa: PLC0415 - an optional extra

    store, counter = context.context(), itertools.count()

    def allgather(stuff: Any) -> list[Any]:
        call = next(counter)
        store.set_config_key_value(f"slurm_plugin/{call}/{rank}", base64.b85encode(pickle.dumps(stuff)).decode())
        found = [store.get_config_key_value(f"slurm_plugin/{call}/{each}") for each in range(size)]
        if call:  # every rank has read all of the call before: it has written its part of this one
            store.delete_config_key_value(f"slurm_plugin/{call - 1}/{rank}")
        return [pickle.loads(base64.b85decode(each)) for each in found]  # noqa: S301 - from the ranks of this job

    def leave() -> None:
        # TensorFlow ends a rank with an error if another one is gone before it.
        deadline = time.monotonic() + LEAVE_S
        with contextlib.suppress(Exception):
            store.set_config_key_value(f"slurm_plugin/end/{rank}", "1")
            for each in range(size):
                left = max(deadline - time.monotonic(), 0.001)
                store.get_config_key_value(f"slurm_plugin/end/{each}", timeout_in_ms=round(left * 1000))

    return allgather, leave


def main(settings: Settings, load_class: Callable[[str], Any]) -> int:
    """Run a TFKerasTrial on this rank and return the exit code. `load_class`: finds the class of an entrypoint."""
    ranks = prepare()
    loop = importlib.import_module(LOOP)
    trial.should_stop()  # from now on a signal to save does not end this rank
    with ranks.distributed:
        loop.seed(settings.seed)  # before the Trial's module: one that seeds by itself has its own way
        make = load_class(settings.entrypoint)
        try:
            loop.run(make, settings, ranks)
        except InvalidHP as error:
            trial.report_invalid(str(error))
            print(f"[slurm_plugin] invalid hyperparameters: {error}", flush=True)
        except SlurmPluginError:  # every rank finds it and ends with it
            ranks.distributed.close()
            raise
        except loop.tf.errors.OpError:  # what a rank gets from TensorFlow if another one has left
            if ranks.distributed.size == 1 or not trial.is_refused():
                raise
            print("[slurm_plugin] another rank has found invalid hyperparameters", flush=True)
    return 0
