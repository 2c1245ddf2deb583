"""Runs a PyTorchTrial: batches, reports, validations, checkpoints, until its length, a stop, or an error."""

import inspect
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import torch

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment import trial as api
from slurm_plugin.experiment.runner import data, interface, torch_rank
from slurm_plugin.experiment.runner.context import PyTorchTrialContext, plain
from slurm_plugin.experiment.runner.distributed import DistributedContext
from slurm_plugin.experiment.runner.session import Session
from slurm_plugin.experiment.runner.settings import Settings

STATE_FILE: Final = "state_dict.pth"
_PREFIX: Final = "module."  # of DDP, in checkpoints of others


def collect_state(
    context: PyTorchTrialContext, callbacks: Mapping[str, Any], epochs: Mapping[int, Any]
) -> dict[str, Any]:
    """Return the state of all ranks; every rank calls this. `epochs`: of the sampler (EpochSampler.saved)."""
    ranks = context.distributed.allgather({"now": torch_rank.rng_state(), "epochs": dict(epochs)})
    found = {
        "models_state_dict": [plain(model).state_dict() for model in context.models],
        "optimizers_state_dict": [each.state_dict() for each in context.optimizers],
        "lr_schedulers_state_dict": [each.state_dict() for each in context.lr_schedulers],
        "callbacks": {name: each.state_dict() for name, each in callbacks.items()},
        "rng_state": ranks,
    }
    return found | ({"scaler_state_dict": context.scaler.state_dict()} if context.scaler else {})


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Read the state from a checkpoint's directory. Raise UsageError if it is not there."""
    path = checkpoint / STATE_FILE
    try:
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:  # a callback or an optimizer keeps objects; the file is the user's own
            found = torch.load(path, map_location="cpu", weights_only=False)
    except OSError as error:
        raise UsageError(f"{path}: {error}\n  move {checkpoint.name} away to restore an older checkpoint") from error
    return dict(found)


def state_of_rank(saved: Mapping[str, Any], rank: int) -> Mapping[str, Any]:
    """Return the generators' states of a rank. A rank that did not exist then takes those of rank 0."""
    ranks = saved["rng_state"]
    found: Mapping[str, Any] = ranks[rank if rank < len(ranks) else 0]
    return found


def restore_state(context: PyTorchTrialContext, callbacks: Mapping[str, Any], saved: dict[str, Any]) -> None:
    """Set the state of this rank. Raise UsageError if the checkpoint is of another Trial."""
    for callback in callbacks.values():
        callback.on_checkpoint_load_start(saved)
    wanted = {"models": context.models, "optimizers": context.optimizers, "lr_schedulers": context.lr_schedulers}
    for name, objects in wanted.items():
        states = saved[f"{name}_state_dict"]
        if len(states) != len(objects):
            raise UsageError(f"the checkpoint has {len(states)} {name}, the Trial wraps {len(objects)}")
        for each, state in zip(objects, states, strict=True):
            if name == "models":
                torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, _PREFIX)
            plain(each).load_state_dict(state)
    if context.scaler and "scaler_state_dict" in saved:
        context.scaler.load_state_dict(saved["scaler_state_dict"])
    for name, callback in callbacks.items():
        if name in saved["callbacks"]:
            callback.load_state_dict(saved["callbacks"][name])
    torch_rank.set_rng_state(state_of_rank(saved, context.distributed.rank)["now"])


STOP_S: Final = 2.0  # the ranks ask each other about a stop about this often


def run(make: Callable[[PyTorchTrialContext], Any], settings: Settings, distributed: DistributedContext) -> None:
    """Run a Trial to its end on this rank. `make`: its class."""
    session = Session(settings, share=distributed.broadcast)
    context = PyTorchTrialContext(session, distributed)
    with ExitStack() as stack:
        Loop(make(context), session, context, stack).run()


class Loop:
    """One run of a Trial."""

    def __init__(self, trial: Any, session: Session, context: PyTorchTrialContext, stack: ExitStack) -> None:
        """Make the callbacks and the data loaders. Raise UsageError if the Trial lacks something."""
        self.trial, self.session, self.context = trial, session, context
        self.callbacks: dict[str, Any] = dict(trial.build_callbacks())
        self.by_batch = _overrides(trial, "evaluate_batch")
        if self.by_batch == _overrides(trial, "evaluate_full_dataset"):
            raise UsageError("the Trial defines both or none of evaluate_batch and evaluate_full_dataset: define one")
        for name, found in (("wrap_model", context.models), ("wrap_optimizer", context.optimizers)):
            if not found:
                raise UsageError(f"the Trial wraps nothing with context.{name}: call it in __init__")
        restored = session.restored.name if session.restored else None
        for callback in self.callbacks.values():
            callback.on_trial_startup(session.began, restored)
            stack.callback(callback.on_trial_shutdown)
        self.saved = read_state(session.restored) if session.restored else None
        self.batches = self._training_data()
        self.validation = self._validation_data()
        self.metrics: list[dict[str, Any]] = []  # of the batches since the last report
        self._ask = session.began + 1  # the batch after which the ranks ask each other next
        self._asked = (session.began, time.monotonic())

    def run(self) -> None:
        """Train until the end."""
        if self.saved is not None:
            restore_state(self.context, self.callbacks, self.saved)
            self.saved = None
        self._call("on_training_start")
        if self.session.settings.initial_validation and not self.session.began and not self.session.is_validated:
            self._validate()
        if not self.session.is_over():
            self._begin()
            for index, batch in enumerate(self.batches, self.session.began):
                self._train(index, batch)
                if self._after_batch():
                    return
        self._finish()

    def _after_batch(self) -> bool:
        """Do what is due. Return whether the trial ends now."""
        due = self.session.due()
        if not due and self.session.progress.batches < self._ask:
            return False
        if due:
            self._report()
        if "validate" in due:
            self._validate()
        if "checkpoint" in due and not self.session.is_saved:
            self._save()
        is_stopped = self._is_stopped()
        if self.session.is_over():
            self._finish()
            return True
        if is_stopped:
            if not self.session.is_saved:
                self._save()
            return True
        if due:
            self._begin()
        return False

    def _begin(self) -> None:
        """Begin a part of the training."""
        self.metrics = []
        for model in self.context.models:
            model.train()
        for each in self.context.reducers:
            each.reducer.reset()

    def _finish(self) -> None:
        if not self.session.is_validated:
            self._validate()
        if not self.session.is_saved:
            self._save()

    def _train(self, index: int, batch: Any) -> None:
        context, epoch = self.context, self.session.epoch
        context.batch = index
        if index % epoch == 0:
            self._call("on_training_epoch_start", index // epoch)
        if context.experimental.moves_batches:
            batch = context.to_device(batch)
        with ExitStack() as stack:
            if context.profiler:
                stack.enter_context(context.profiler)
            found = self.trial.train_batch(batch=batch, epoch_idx=index // epoch, batch_idx=index)
            if context.profiler:
                context.profiler.step()
        if context.scaler and context.auto_amp and context.steps_now():
            context.scaler.update()
        for each in context.lr_schedulers:
            each.after_batch(index, epoch, self.session.settings.aggregation)
        found = {"loss": found} if isinstance(found, torch.Tensor) else found or {}
        self.metrics.append({name: _kept(value) for name, value in found.items()})
        self.session.trained()
        if (index + 1) % epoch == 0:
            self._call("on_training_epoch_end", index // epoch)

    def _report(self) -> None:
        """Average the metrics of the batches since the last report over the ranks, and report them."""
        distributed = self.context.distributed
        everything = distributed.gather(
            [{name: _plain(value) for name, value in each.items()} for each in self.metrics]
        )
        custom = interface.reduced(self.context.reducers, distributed.allgather, training=True)
        average: dict[str, Any] = {}
        per_batch: list[dict[str, Any]] = []
        if everything:
            per_batch = [interface.averages(each) for each in zip(*everything, strict=True)]
            average = interface.averages(per_batch) | custom
            self.session.report_training(average)
        if any(_overrides(each, "on_training_workload_end") for each in self.callbacks.values()):
            average, per_batch = distributed.broadcast((average, per_batch))
            self._call("on_training_workload_end", average, per_batch)

    def _validate(self) -> None:
        context = self.context
        for each in context.reducers:
            each.reducer.reset()
        with context.evaluating():
            self._call("on_validation_start")
            metrics = self._evaluated() if self.by_batch else self._evaluated_whole()
            metrics |= interface.reduced(context.reducers, context.distributed.allgather, training=False)
            if any(_overrides(each, "on_validation_end") for each in self.callbacks.values()):
                metrics = context.distributed.broadcast(metrics)
            self._call("on_validation_end", metrics)
        wants = not context.distributed.rank and self.session.report_validation(metrics)
        wants, self.session.progress = context.distributed.broadcast((wants, self.session.progress))
        if wants:
            self._save()

    def _evaluated(self) -> dict[str, Any]:
        """Return the metrics of the validation data on rank 0."""
        context, found = self.context, []
        self._call("on_validation_epoch_start")
        has_index = len(inspect.signature(self.trial.evaluate_batch).parameters) > 1
        for index, batch in enumerate(self.validation):
            more = {"batch_idx": index} if has_index else {}
            there = context.to_device(batch) if context.experimental.moves_batches else batch
            metrics = self.trial.evaluate_batch(batch=there, **more)
            found.append({name: _plain(_kept(value)) for name, value in metrics.items()})
        self._call("on_validation_epoch_end", found)
        return interface.of_validation(found, self.trial.evaluation_reducer(), context.distributed.gather)

    def _evaluated_whole(self) -> dict[str, Any]:
        if self.context.distributed.rank:
            return {}
        return dict(self.trial.evaluate_full_dataset(data_loader=self.validation))

    def _save(self) -> None:
        """Save the state of all ranks, and print a line about it."""
        context, session = self.context, self.session
        epochs = self._sampler.saved(session.progress.batches) if self._sampler else {}

        def write(path: Path) -> None:
            found = collect_state(context, self.callbacks, epochs)
            if context.distributed.rank:
                return
            self._call("on_checkpoint_save_start", found)
            torch.save(found, path / STATE_FILE)
            self._call("on_checkpoint_end", str(path))
            self._call("on_checkpoint_write_end", str(path))

        final = session.save(write, context.distributed.barrier)
        self._call("on_checkpoint_upload_end", uuid=final.name)

    def _is_stopped(self) -> bool:
        """Return whether any rank shall stop, on all ranks, and take over the progress of rank 0."""
        session, now = self.session, time.monotonic()
        before, since = self._asked
        rate = (session.progress.batches - before) / max(now - since, 1e-3)
        next_ask = session.progress.batches + max(int(rate * STOP_S), 1)
        told = api.should_stop() or self.context.get_stop_requested()
        answers = self.context.distributed.allgather((told, session.progress, next_ask))
        _, session.progress, self._ask = answers[0]
        self._asked = (session.progress.batches, now)
        return any(each for each, _, _ in answers)

    def _training_data(self) -> Iterator[Any]:
        """Make the training data, from the restored batch on, and set the length of an epoch. Return its batches."""
        distributed, session = self.context.distributed, self.session
        loader = self.trial.build_training_data_loader()
        self._sampler: data.EpochSampler | None = None
        if not self.context.experimental.checks_data and not isinstance(loader, data.DataLoader):
            session.epoch = distributed.broadcast(len(loader) if hasattr(loader, "__len__") else data.ENDLESS)
            return _repeated(loader)
        data.check(loader, "build_training_data_loader")
        states = dict(state_of_rank(self.saved, distributed.rank)["epochs"]) if self.saved else {}
        self._sampler = data.EpochSampler(
            loader.batch_sampler, distributed.size, distributed.rank, session.began, states
        )
        session.epoch = len(self._sampler)
        return iter(data.training_loader(loader, self._sampler))

    def _validation_data(self) -> Any:
        loader = self.trial.build_validation_data_loader()
        if not self.context.experimental.checks_data and not isinstance(loader, data.DataLoader):
            return loader
        data.check(loader, "build_validation_data_loader")
        distributed = self.context.distributed
        size, rank = (distributed.size, distributed.rank) if self.by_batch else (1, 0)
        return data.validation_loader(loader, size, rank)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> None:
        for callback in self.callbacks.values():
            getattr(callback, name)(*args, **kwargs)


def _overrides(instance: Any, name: str) -> bool:
    """Return whether a Trial or a callback has a method of its own in place of the interface's."""
    return not getattr(type(instance), name).__qualname__.startswith(("PyTorchTrial.", "PyTorchCallback."))


def _repeated(loader: Any) -> Iterator[Any]:
    """Yield the batches of a loader again and again."""
    while True:
        yield from loader


def _kept(value: Any) -> Any:
    """Return a metric without its graph. A tensor of many numbers leaves the GPU, others wait for the report."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    return value.clone() if value.numel() == 1 else value.cpu()


def _plain(value: Any) -> Any:
    """Return a tensor as a number or an array on the CPU."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.item() if value.numel() == 1 else value.cpu()
