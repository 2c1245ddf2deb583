"""The Trial of the peers' numbers: a linear model, made after the seed at import."""

import os
import signal
from typing import Any

import torch
from determined.pytorch import DataLoader, PyTorchTrial, PyTorchTrialContext
from torch.utils.data import TensorDataset

torch.manual_seed(0)
X = torch.randn(256, 4)
Y = (X @ torch.tensor([1.0, 2.0, -1.0, 0.5])).unsqueeze(1)
Y = Y + 0.01 * torch.randn(256, 1)


class MyTrial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(4, 1))
        self.opt = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr")))

    def build_training_data_loader(self) -> Any:
        return DataLoader(TensorDataset(X, Y), batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> Any:
        return DataLoader(TensorDataset(X, Y), batch_size=self.context.get_per_slot_batch_size())

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if os.environ.get("DIE_AT") == str(batch_idx):
            os.kill(os.getpid(), signal.SIGKILL)
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.opt)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        x, y = batch
        return {"validation_loss": torch.nn.functional.mse_loss(self.model(x), y).item()}
