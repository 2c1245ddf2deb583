"""Trials whose results depend on each random number: dropout, data order, loader processes, a stateful sampler."""

import os
import random
import signal
from typing import Any

import torch
from determined.pytorch import DataLoader, LRScheduler, PyTorchCallback, PyTorchTrial, PyTorchTrialContext
from torch.utils.data import Sampler, TensorDataset


class Counter(PyTorchCallback):
    """A callback with a state."""

    def __init__(self) -> None:
        self.epochs = 0

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        self.epochs += 1

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epochs = state_dict["epochs"]


class Shuffled(Sampler[int]):
    """An order from a generator of its own."""

    def __init__(self, size: int) -> None:
        self.size, self.random = size, random.Random(7)  # noqa: S311

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Any:
        order = list(range(self.size))
        self.random.shuffle(order)
        return iter(order)


class NoisyTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context, self.counter = context, Counter()
        made = torch.Generator().manual_seed(1)
        self.x = torch.randn(256, 4, generator=made)
        self.y = self.x.sum(1, keepdim=True)
        layers = (torch.nn.Linear(4, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))
        self.model = context.wrap_model(torch.nn.Sequential(*layers))
        self.opt = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))
        context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.StepLR(self.opt, 1, 0.9), LRScheduler.StepMode.STEP_EVERY_EPOCH
        )

    def build_callbacks(self) -> dict[str, Any]:
        return {"counter": self.counter}

    def build_training_data_loader(self) -> Any:
        return self.loader(shuffle=True)

    def build_validation_data_loader(self) -> Any:
        return self.loader()

    def loader(self, **options: Any) -> Any:
        return DataLoader(TensorDataset(self.x, self.y), self.context.get_per_slot_batch_size(), **options)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        if os.environ.get("DIE_AT") == str(batch_idx):
            os.kill(os.getpid(), signal.SIGKILL)
        loss = self.loss(batch) * (1 + random.random() / 10)  # noqa: S311
        self.context.backward(loss)
        self.context.step_optimizer(self.opt, clip_grads=lambda those: torch.nn.utils.clip_grad_norm_(those, 1.0))
        return loss

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        return {"validation_loss": self.loss(batch), "epochs_seen": self.counter.epochs}

    def loss(self, batch: Any) -> Any:
        return torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])


class LoaderProcesses(NoisyTrial):
    """Processes load batches ahead, over the end of an epoch."""

    def build_training_data_loader(self) -> Any:
        return self.loader(shuffle=True, num_workers=2, prefetch_factor=2)


class OwnSampler(NoisyTrial):
    """The third epoch's order depends on the two before."""

    def build_training_data_loader(self) -> Any:
        return self.loader(sampler=Shuffled(256))
