"""What a PyTorchTrial calls: wrap its objects, step its optimizers, ask for its values, its rank and its place."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from slurm_plugin.errors import MissingError, UsageError
from slurm_plugin.experiment.runner import data, torch_rank
from slurm_plugin.experiment.runner.distributed import DistributedContext
from slurm_plugin.experiment.runner.interface import FunctionReducer, LRScheduler, Wrapped
from slurm_plugin.experiment.runner.session import Session, TrialContext


class Parallel(DistributedDataParallel):
    """DDP with the attributes of the model. Without gradients it runs the model alone: ranks may differ in batches."""

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the model."""
        return super().forward(*inputs, **kwargs) if torch.is_grad_enabled() else self.module(*inputs, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)


class Experimental:
    """`context.experimental`."""

    def __init__(self, context: "PyTorchTrialContext") -> None:
        self._context = context
        self.checks_data = True
        self.moves_batches = True

    def use_amp(self) -> None:
        """Run the models wrapped from now on in PyTorch's automatic mixed precision, and scale the losses."""
        self._context.wrap_scaler(torch.amp.GradScaler("cuda", enabled=torch.cuda.is_available()))
        self._context.auto_amp = True

    def disable_dataset_reproducibility_checks(self) -> None:
        """Take the data loaders as they are: the Trial divides, repeats and continues the data itself."""
        self.checks_data = False

    def disable_auto_to_device(self) -> None:
        """Leave the batches where the data loader makes them."""
        self.moves_batches = False


class PyTorchTrialContext(TrialContext):
    """The runner as a PyTorchTrial sees it."""

    def __init__(self, session: Session, distributed: DistributedContext) -> None:
        """Make the context of a trial on this rank."""
        super().__init__(session, distributed, slots=distributed.size)
        self.device = torch_rank.device()
        self.experimental = Experimental(self)
        self.models: list[Any] = []
        self.optimizers: list[Any] = []
        self.lr_schedulers: list[LRScheduler] = []
        self.reducers: list[Wrapped] = []
        self.scaler: Any = None
        self.auto_amp = False
        self.profiler: Any = None
        self.batch: int | None = None  # the index of the current one
        self._averages: dict[Any, bool] = {}  # optimizer -> whether it averages gradients of several batches
        self._writer: Any = None

    # What __init__ of a Trial wraps.

    def wrap_model(self, model: Any) -> Any:
        """Return the model on this rank's device, in DDP if there are several ranks."""
        model = model.to(self.device)
        if self.auto_amp:
            self._autocast(model)
        if self.distributed.size > 1 and any(each.requires_grad for each in model.parameters()):
            model = Parallel(model, device_ids=[self.device.index] if self.device.type == "cuda" else None)
        self.models.append(model)
        return model

    def wrap_optimizer(
        self,
        optimizer: Any,
        backward_passes_per_step: int = 1,
        fp16_compression: bool | None = None,
        average_aggregated_gradients: bool | None = None,
    ) -> Any:
        """Return the optimizer. `backward_passes_per_step` and `fp16_compression` are Horovod's: DDP needs neither."""
        given = average_aggregated_gradients
        self._averages[optimizer] = self._settings.average_gradients if given is None else given
        self.optimizers.append(optimizer)
        return optimizer

    def wrap_lr_scheduler(self, lr_scheduler: Any, step_mode: Any, frequency: int = 1) -> Any:
        """Return the scheduler, which the runner steps in this mode and saves."""
        wrapped = LRScheduler(lr_scheduler, step_mode, frequency)
        if isinstance(lr_scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau) and step_mode.name != "MANUAL_STEP":
            raise UsageError(
                "wrap_lr_scheduler: ReduceLROnPlateau needs a metric at each step; accepted is StepMode.MANUAL_STEP\n"
                "  step it in a PyTorchCallback's on_validation_end(metrics)"
            )
        optimizer = getattr(lr_scheduler, "optimizer", None)
        if optimizer is not None and optimizer not in self.optimizers:
            raise UsageError("wrap_lr_scheduler: its optimizer is not wrapped; give it what wrap_optimizer returned")
        self.lr_schedulers.append(wrapped)
        return lr_scheduler

    def wrap_scaler(self, scaler: Any) -> Any:
        """Return the GradScaler, which the runner saves. Call it once, before `wrap_model`."""
        if self.scaler is not None or self.models:
            raise UsageError("wrap_scaler: call it, or experimental.use_amp, once and before wrap_model")
        self.scaler = scaler
        return scaler

    def wrap_reducer(
        self,
        reducer: Any,
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> Any:
        """Return a MetricReducer whose metric is reported. A function becomes one with `update(value)`.

        `name`: of the metric; None: the reducer returns a mapping of metrics.
        """
        if any(each.reducer is reducer for each in self.reducers):
            raise UsageError(f"wrap_reducer: {type(reducer).__name__} is wrapped already; wrap each reducer once")
        if not hasattr(reducer, "per_slot_reduce"):
            if not callable(reducer):
                raise UsageError(f"wrap_reducer: found {type(reducer).__name__}, accepted: a MetricReducer, a function")
            reducer = FunctionReducer(reducer)
        self.reducers.append(Wrapped(reducer, name, for_training, for_validation))
        return reducer

    def configure_apex_amp(
        self,
        models: Any,
        optimizers: Any,
        enabled: bool = True,
        opt_level: str = "O1",
        **_: Any,
    ) -> tuple[Any, Any]:
        """Return the arguments; from now on with PyTorch's automatic mixed precision. `O0` changes nothing."""
        if enabled and opt_level != "O0":
            self.scaler, self.auto_amp = torch.amp.GradScaler("cuda", enabled=torch.cuda.is_available()), True
            for model in models if isinstance(models, list | tuple) else [models]:
                self._autocast(plain(model))
        return models, optimizers

    def set_profiler(self, *args: Any, **kwargs: Any) -> None:
        """Profile each batch with torch.profiler.profile and these arguments, for TensorBoard."""
        handler = torch.profiler.tensorboard_trace_handler(str(self.get_tensorboard_path()))
        self.profiler = torch.profiler.profile(*args, on_trace_ready=handler, **kwargs)

    # What train_batch calls.

    def backward(
        self,
        loss: Any,
        gradient: Any = None,
        retain_graph: bool = False,
        create_graph: bool = False,
    ) -> None:
        """Compute the gradients of a loss, as `loss.backward()` does."""
        loss = self.scaler.scale(loss) if self.scaler and self.auto_amp else loss
        with ExitStack() as stack:
            for model in self.models:
                if isinstance(model, Parallel) and not self.steps_now():
                    stack.enter_context(model.no_sync())
            loss.backward(gradient=gradient, retain_graph=retain_graph, create_graph=create_graph)

    def step_optimizer(
        self,
        optimizer: Any,
        clip_grads: Callable[[list[Any]], Any] | None = None,
        auto_zero_grads: bool = True,
        scaler: Any = None,
    ) -> None:
        """Step an optimizer, and set its gradients to zero. `clip_grads` gets the parameters before."""
        many = self._settings.aggregation
        if many > 1 and not auto_zero_grads:
            raise UsageError("step_optimizer: auto_zero_grads=False cannot be had with aggregation_frequency above 1")
        if not self.steps_now():
            return
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        if many > 1 and self._averages.get(optimizer, True):
            for each in parameters:
                if each.grad is not None:
                    each.grad.div_(many)
        scaler = scaler or (self.scaler if self.auto_amp else None)
        if clip_grads is not None:
            if self.scaler and self.auto_amp:
                self.scaler.unscale_(optimizer)
            clip_grads(parameters)
        if scaler:
            scaler.step(optimizer)
        else:
            optimizer.step()
        if auto_zero_grads:
            optimizer.zero_grad()

    def steps_now(self) -> bool:
        """Return whether the optimizers step after this batch: every `aggregation_frequency` batches."""
        return self.batch is None or (self.batch + 1) % self._settings.aggregation == 0

    def to_device(self, batch: Any) -> Any:
        """Return data on this rank's device."""
        return data.to_device(batch, self.device)

    def is_epoch_start(self) -> bool:
        """Return whether the current batch is the first of its epoch."""
        return self.current_train_batch() % self._session.epoch == 0

    def is_epoch_end(self) -> bool:
        """Return whether the current batch is the last of its epoch."""
        return (self.current_train_batch() + 1) % self._session.epoch == 0

    def current_train_epoch(self) -> int:
        """Return the index of the current epoch, from 0."""
        return self.current_train_batch() // self._session.epoch

    def current_train_batch(self) -> int:
        """Return the index of the current batch since the begin of the training, from 0."""
        if self.batch is None:
            raise RuntimeError("there is no current batch before the training")
        return self.batch

    def get_tensorboard_writer(self) -> Any:
        """Return a torch.utils.tensorboard.SummaryWriter. Raise MissingError if tensorboard is not installed."""
        if self._writer is None:
            try:
                from torch.utils import tensorboard  # noqa: PLC0415 - an optional package
            except ImportError as error:
                raise MissingError("get_tensorboard_writer: pip install tensorboard") from error
            self._writer = tensorboard.SummaryWriter(self.get_tensorboard_path())
        return self._writer

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Hold the models in evaluation mode, without gradients. All ranks begin with the buffers of rank 0."""
        for model in self.models:
            model.eval()
            for buffer in model.buffers() if isinstance(model, Parallel) else ():
                torch.distributed.broadcast(buffer, 0)
        with torch.no_grad():
            yield
        for model in self.models:
            model.train()

    def _autocast(self, model: Any) -> None:
        """Run a model's forward pass in mixed precision. Its results have full precision again."""
        forward = model.forward

        def mixed(*args: Any, **kwargs: Any) -> Any:
            with torch.autocast(self.device.type, enabled=self.device.type == "cuda"):
                return _full_precision(forward(*args, **kwargs))

        model.forward = mixed


def plain(model: Any) -> Any:
    """Return a model without DDP."""
    return model.module if isinstance(model, Parallel) else model


def _full_precision(value: Any) -> Any:
    if isinstance(value, Mapping):
        return type(value)({key: _full_precision(each) for key, each in value.items()})  # type: ignore[call-arg]
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_full_precision(each) for each in value)
    half = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if half else value
