"""The data of a TFKerasTrial as one tf.data.Dataset for each rank, whose elements are batches of one slot.

Arrays and Sequences are read by the number of the step: every rank finds its batches of any step without reading those
before it, so that a restart goes on with the same batches, also when shuffled. Step s of an epoch takes the records
s*G to (s+1)*G of the epoch's order, and slot r of n the r-th part of them: the same records for any number of slots.
What is left over for a batch of all slots is dropped. A validation drops nothing.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import tensorflow as tf

from slurm_plugin.errors import UsageError

ENDLESS: Final = 2**62
ACCEPTED: Final = "accepted are (x, y) or (x, y, sample_weights) of NumPy arrays, a tf.data.Dataset, a keras Sequence"


class Slots(NamedTuple):
    """Which slots of the trial this process feeds."""

    first: int = 0
    here: int = 1
    all: int = 1


class Fit(NamedTuple):
    """What the Trial set with `configure_fit`, in Keras' words."""

    class_weight: Mapping[int, float] | None = None
    workers: int = 1
    max_queue_size: int = 10
    shuffle: bool = True
    validation_steps: int | None = None


class _Source:
    """Records, or whole batches, by their index."""

    def __init__(self, found: Any, batch: int) -> None:
        if _is_sequence(found):
            self.length, self.cut, self._found = len(found), 1, found
            self._arrays = None
        else:
            self._arrays = _arrays(found)
            lengths = {len(each) for each in tf.nest.flatten(self._arrays)}
            if len(lengths) != 1:
                raise UsageError(f"training or validation data: found arrays of {sorted(lengths)} records")
            self.length, self.cut, self._found = lengths.pop(), batch, None
        if not self.length:
            raise UsageError("training or validation data: found no records")

    def read(self, indices: Any) -> Any:
        """Return the records with these indices, or the batch with this index."""
        if self._arrays is None:
            return _arrays(self._found[int(indices[0])])
        return tf.nest.map_structure(lambda array: array[indices], self._arrays)

    def end_epoch(self) -> None:
        """Tell a Sequence that an epoch is over."""
        if self._found is not None and hasattr(self._found, "on_epoch_end"):
            self._found.on_epoch_end()


def training(found: Any, batch: int, slots: Slots, fit: Fit, *, seed: int, done: int) -> tuple[Any, int]:
    """Return the endless dataset of this rank, from step `done` on, and the steps of an epoch; 0 if unknown.

    `batch`: records of a slot.
    """
    if isinstance(found, tf.data.Dataset):
        size = int(found.cardinality())
        behind = done * slots.here
        dataset = found.repeat().skip(behind % size if size > 0 else behind)
        return _weighted(dataset, fit), max(size, 0) // slots.here
    if hasattr(found, "max_queue_size"):  # a SequenceAdapter
        fit = fit._replace(workers=found.workers, max_queue_size=found.max_queue_size)
    source = _Source(_adapted(found), batch)
    steps = max(source.length // (source.cut * slots.all), 1)
    lock, orders = threading.Lock(), dict[int, Any]()

    def order(epoch: int) -> Any:
        with lock:
            if epoch not in orders:
                if orders and epoch > max(orders):
                    source.end_epoch()
                for old in sorted(orders)[:-1]:  # a loader's thread may still read the epoch before
                    del orders[old]
                shuffled = np.random.default_rng((seed, epoch)).permutation if fit.shuffle else np.arange
                orders[epoch] = shuffled(source.length)
            return orders[epoch]

    def fetch(number: int) -> Any:
        step, slot = number // slots.here, slots.first + number % slots.here
        epoch, at = divmod(step, steps)
        first = (at * slots.all + slot) * source.cut
        return source.read(order(epoch).take(range(first, first + source.cut), mode="wrap"))

    numbers = tf.data.Dataset.range(done * slots.here, ENDLESS)
    return _weighted(_loaded(numbers, fetch, source, fit), fit), steps


def validation(found: Any, batch: int, slots: Slots, fit: Fit) -> Any:
    """Return the dataset of this rank: it has an end."""
    if isinstance(found, tf.data.Dataset):
        if fit.validation_steps:
            return found.take(fit.validation_steps)
        if int(found.cardinality()) == tf.data.INFINITE_CARDINALITY:
            raise UsageError("validation data: found no end; call context.configure_fit(validation_steps=N)")
        return found
    source = _Source(_adapted(found), batch)

    def fetch(number: int) -> Any:
        return source.read(np.arange(number * source.cut, min((number + 1) * source.cut, source.length)))

    numbers = tf.data.Dataset.range(-(-source.length // source.cut))
    return _loaded(numbers.shard(slots.all // slots.here, slots.first // slots.here), fetch, source, fit)


def _adapted(found: Any) -> Any:
    """Return the Sequence of a SequenceAdapter, and anything else as it is. Raise UsageError for another type."""
    found = getattr(found, "sequence", found)
    if not (_is_sequence(found) or (isinstance(found, tuple) and len(found) in (2, 3))):
        raise UsageError(f"training or validation data: found {type(found).__name__}, {ACCEPTED}")
    return found


def _is_sequence(found: Any) -> bool:
    has_length = hasattr(found, "__getitem__") and hasattr(found, "__len__")
    return has_length and not isinstance(found, tuple | list | Mapping) and not hasattr(found, "shape")


def _arrays(found: Any) -> Any:
    """Return the arrays with Keras' float type, in tuples: tf.data makes one tensor of a list."""
    if isinstance(found, Mapping):
        return {name: _arrays(each) for name, each in found.items()}
    if isinstance(found, tuple) or (isinstance(found, list) and any(hasattr(each, "shape") for each in found)):
        return tuple(_arrays(each) for each in found)
    array = np.asarray(found)
    return array.astype(tf.keras.backend.floatx(), copy=False) if np.issubdtype(array.dtype, np.floating) else array


def _loaded(numbers: Any, fetch: Callable[[int], Any], source: _Source, fit: Fit) -> Any:
    """Return the dataset of the batches with these numbers. `workers` threads read them."""
    few = [tf.nest.flatten(source.read(np.array([index]))) for index in (0, source.length - 1)]
    whole = source.read(np.array([0]))
    # A dimension in which two batches differ is unknown to the model, as is the number of records.
    shapes = [
        [None, *(a if a == b else None for a, b in zip(one.shape[1:], two.shape[1:], strict=False))]
        for one, two in zip(*few, strict=True)
    ]

    def load(number: Any) -> Any:
        def read(number: Any) -> list[Any]:
            return list(tf.nest.flatten(fetch(int(number))))

        flat = tf.numpy_function(read, [number], [each.dtype for each in few[0]])
        return tf.nest.pack_sequence_as(whole, list(map(tf.ensure_shape, flat, shapes)))

    return numbers.map(load, num_parallel_calls=max(fit.workers, 1), deterministic=True).prefetch(
        max(fit.max_queue_size, 1)
    )


def _weighted(dataset: Any, fit: Fit) -> Any:
    """Return the dataset with the sample weights that follow from the weights of the classes."""
    if not fit.class_weight:
        return dataset
    weights = np.ones(max(fit.class_weight) + 1, tf.keras.backend.floatx())
    weights[list(fit.class_weight)] = list(fit.class_weight.values())
    table = tf.constant(weights)

    def add(x: Any, y: Any, *given: Any) -> Any:
        classes = tf.argmax(y, axis=-1) if y.shape.rank > 1 and y.shape[-1] != 1 else tf.cast(tf.squeeze(y), tf.int64)
        weight = tf.gather(table, tf.reshape(classes, [-1]))
        return x, y, weight * given[0] if given else weight

    return dataset.map(add)
