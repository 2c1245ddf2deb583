"""Runs a TFKerasTrial: one `model.fit`, and a callback of ours that validates, saves, reports and ends.

Keras sees one endless epoch. The Trial's own callbacks get the real ones: their numbers go on after a restart.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import tensorflow as tf

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment import trial
from slurm_plugin.experiment.runner.keras import checkpoint, data
from slurm_plugin.experiment.runner.keras.interface import TFKerasTrialContext
from slurm_plugin.experiment.runner.keras.start import Ranks
from slurm_plugin.experiment.runner.session import Session
from slurm_plugin.experiment.runner.settings import Settings

STEPS: Final = 2**31 - 1  # of an epoch or a validation without an end of its own
LOOK_S: Final = 1.0  # between two looks at whether the trial shall stop
OUT_OF_DATA: Final = "Your input ran out of data"  # TensorFlow's warning: a validation of several ranks ends so
STOP, END = "stop", "end"


def seed(number: int) -> None:
    """Seed the generators of Python, NumPy and TensorFlow."""
    tf.keras.utils.set_random_seed(number)


def run(make: Callable[[TFKerasTrialContext], Any], settings: Settings, ranks: Ranks) -> None:
    """Run a Trial to its end on this rank, or until it is stopped and has saved. `make`: its class."""
    if settings.aggregation > 1:
        raise UsageError("optimizations.aggregation_frequency: a TFKerasTrial has 1; remove it, or use a larger batch")
    session = Session(settings, share=ranks.distributed.broadcast)
    context = TFKerasTrialContext(session, ranks)
    made = make(context)
    training_data, validation_data = made.build_training_data_loader(), made.build_validation_data_loader()
    with ranks.strategy.scope():
        model = _model(made.build_model(), context)
    distributed, batch = ranks.distributed, context.get_per_slot_batch_size()
    slots = data.Slots(distributed.rank * ranks.here, ranks.here, ranks.replicas)
    for found in (training_data, validation_data):
        if distributed.size > 1 and isinstance(found, tf.data.Dataset) and not context.dataset_initialized:
            raise UsageError("tf.data.Dataset: every rank would read all of it; call context.wrap_dataset(dataset)")
    dataset, steps = data.training(
        training_data, batch, slots, context.fit_arguments, seed=settings.seed, done=session.began
    )
    session.epoch = _epoch(settings, min(distributed.allgather(steps)))
    loop = _Loop(session, context, model, made.keras_callbacks())
    if session.restored:
        if not model.built:
            with ranks.strategy.scope():
                model(next(iter(dataset.take(1)))[0])
        checkpoint.load(session.restored, model, loop.optimizers)
        tf.random.set_seed(settings.seed + session.began)  # not the same random numbers again
    validation = data.validation(validation_data, batch, slots, context.fit_arguments)
    if ranks.replicas > 1:
        # Each rank has computed the metrics of all; their sum over the ranks, Keras' choice, would be n times as much.
        model.distribute_reduction_method = "first"
        distribute = ranks.strategy.distribute_datasets_from_function
        dataset, validation = (distribute(lambda _, found=each: found) for each in (dataset, validation))
    loop.validation = validation
    if not session.is_over():
        callbacks = tf.keras.callbacks.CallbackList([loop], model=model)
        callbacks._check_timing = False  # Keras would warn that validations take longer than batches
        model.fit(dataset, steps_per_epoch=STEPS, epochs=1, verbose=0, callbacks=callbacks)
    loop.finish()


def _model(found: Any, context: TFKerasTrialContext) -> Any:
    """Return the model. Raise UsageError unless it is wrapped and compiled."""
    model = found if isinstance(found, tf.keras.Model) else context.model
    if context.model is None:
        raise UsageError("build_model: call model = context.wrap_model(model) before model.compile(...)")
    if getattr(model, "optimizer", None) is None:
        raise UsageError("build_model: the model is not compiled; call model.compile(optimizer, loss, ...)")
    return model


def _epoch(settings: Settings, steps: int) -> int:
    """Return the batches in an epoch. `steps`: as the data have it; 0 if they do not say."""
    if steps or settings.records_per_epoch:
        return steps or max(settings.records_per_epoch // settings.global_batch_size, 1)
    lengths = (settings.max_length, settings.validation, settings.checkpoint)
    if any(each.unit == "epochs" and each.value for each in lengths):
        raise UsageError("training data: found no number of records; set records_per_epoch, or count in batches")
    return data.ENDLESS


class _Loop(tf.keras.callbacks.Callback):
    """What happens between the batches of `model.fit`."""

    _supports_tf_logs = True  # Keras' word: the metrics stay on the device until they are needed

    def __init__(self, session: Session, context: TFKerasTrialContext, model: Any, callbacks: Any) -> None:
        super().__init__()
        self.session, self.context, self.distributed = session, context, context.distributed
        self.validation: Any = None
        self.callbacks = list(callbacks or ())
        self.inner = tf.keras.callbacks.CallbackList(self.callbacks, add_history=True, model=model, verbose=0)
        wrapped = [each for each in context.optimizers if not isinstance(each, str)]
        found = (*wrapped, model.optimizer)
        self.optimizers = [each for at, each in enumerate(found) if not any(each is one for one in found[:at])]
        self.trained = False
        self.begins = True  # a part of the training: up to the next report
        self.ended = ""  # why `fit` shall end: STOP or END
        self.metrics: dict[str, Any] = {}  # the last ones, of training and validation
        self.looked, self.looks_at = (time.monotonic(), session.progress.batches), session.progress.batches + 1
        self.set_model(model)

    # Keras calls these.

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin, or go on."""
        self.trained = True
        self.inner.on_train_begin()
        if self.session.restored:
            checkpoint.load_callbacks(self.session.restored, self.callbacks)
        elif self.session.settings.initial_validation:
            self.validate()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin an epoch of the Trial's callbacks where one begins."""
        epoch, at = divmod(self.session.progress.batches, self.session.epoch)
        if at == 0:
            self.inner.on_epoch_begin(epoch)
        if self.begins:
            self._tell(
                "on_train_workload_begin", self.session.progress.batches, self.session.settings.scheduling_unit, {}
            )
            self.begins = False
        self.inner.on_train_batch_begin(at, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Do what is due after this batch."""
        session = self.session
        epoch, at = divmod(session.progress.batches, session.epoch)
        self.inner.on_train_batch_end(at, logs)
        session.trained()
        due, ends_epoch = session.due(), at + 1 == session.epoch
        if due & {"report", "validate", "end"} or ends_epoch:
            self.metrics |= _numbers(logs)
        if due & {"report", "validate", "end"}:
            session.report_training(_numbers(logs))
            self._tell("on_train_workload_end", session.progress.batches, _numbers(logs))
            self.model.reset_metrics()
            self.begins = True
        wanted = self.validate() if due & {"validate", "end"} else False
        if ends_epoch:
            self.inner.on_epoch_end(epoch, self.metrics)
        self.ended = END if "end" in due or session.is_over() else self._look(now=bool(due) or ends_epoch)
        if wanted or "checkpoint" in due:
            self.save()
        self.model.stop_training = bool(self.ended)

    def on_test_begin(self, logs: Any = None) -> None:
        """Pass it on."""
        self.inner.on_test_begin(logs)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Pass it on."""
        self.inner.on_test_batch_begin(batch, logs)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Pass it on."""
        self.inner.on_test_batch_end(batch, logs)

    # The runner calls these. So do all ranks together.

    def finish(self) -> None:
        """Validate and save at the end of the training; save alone if the trial was stopped."""
        if self.ended != STOP and not self.session.is_validated:
            self.validate()
        if not self.session.is_saved:
            self.save()
        if self.trained:
            self.inner.on_train_end()

    def validate(self) -> bool:
        """Validate and report it. Return whether the checkpoint policy asks for a checkpoint now."""
        self._agree()
        callbacks = tf.keras.callbacks.CallbackList([self], model=self.model)
        steps = STEPS if self.context.slots > 1 else None
        with _without(OUT_OF_DATA):
            found = self.model.evaluate(self.validation, steps=steps, verbose=0, callbacks=callbacks, return_dict=True)
        self.model.reset_metrics()
        metrics = {f"val_{name}": value for name, value in _numbers(found).items()}
        self.metrics |= metrics
        # Keras' callbacks know the plain names here, Determined's those with val_.
        self.inner.on_test_end({**found, **metrics})
        return bool(self.distributed.broadcast(self.session.report_validation(metrics)))

    def save(self) -> None:
        """Write and report a checkpoint."""
        self._agree()

        def write(path: Any) -> None:
            checkpoint.save(path, self.model, self.optimizers, self.callbacks, rank=self.distributed.rank)
            if not self.distributed.rank:
                self._tell("on_checkpoint_end", str(path))

        self.session.save(write, self.distributed.barrier)

    def _agree(self) -> None:
        """Give all replicas the same statistics, the mean of theirs: the model that is validated is the one saved."""
        for each in self.model.weights if self.context.slots > 1 and self.model.built else ():
            if getattr(each, "synchronization", None) == tf.VariableSynchronization.ON_READ:
                each.assign(each.read_value())

    def _tell(self, name: str, *args: Any) -> None:
        """Call a method of the callbacks that Keras does not know."""
        for each in self.callbacks:
            if hasattr(each, name):
                getattr(each, name)(*args)

    def _look(self, *, now: bool) -> str:
        """Return why the training ends here, on every rank the same: rank 0 looks, every LOOK_S seconds or `now`."""
        batches, (at, before) = self.session.progress.batches, self.looked
        early = self.model.stop_training or self.context.get_stop_requested()
        if not now and batches < self.looks_at and (self.distributed.size > 1 or not early):
            return ""
        seconds = max(time.monotonic() - at, 1e-6)
        wait = max(math.floor((batches - before) * LOOK_S / seconds), 1)
        word = STOP if trial.should_stop() else END if early else ""
        word, self.looks_at = self.distributed.broadcast((word, batches + wait))
        self.looked = time.monotonic(), batches
        return str(word)


def _numbers(logs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return metrics as NumPy's or Python's numbers."""
    return {name: value.numpy() if hasattr(value, "numpy") else value for name, value in (logs or {}).items()}


@contextmanager
def _without(words: str) -> Iterator[None]:
    """Drop TensorFlow's warnings with these words."""
    logger = logging.getLogger("tensorflow")

    def passes(message: logging.LogRecord) -> bool:
        return words not in message.getMessage()

    logger.addFilter(passes)
    try:
        yield
    finally:
        logger.removeFilter(passes)
