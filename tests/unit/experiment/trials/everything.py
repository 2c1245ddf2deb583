"""Trials that call every function of the context, and write what they saw."""

import json
import os
from pathlib import Path
from typing import Any

import determined as det
import numpy as np
import torch
from determined import pytorch
from determined.pytorch import DataLoader, LRScheduler, MetricReducer, PyTorchCallback, PyTorchTrial, Reducer
from torch.utils.data import TensorDataset

X = torch.arange(40, dtype=torch.float32).unsqueeze(1) / 40


class Told(PyTorchCallback):
    """Keeps the names of what was called."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            self.called.append(name)
        return super().__getattribute__(name)

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.metrics = metrics

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
        self.average, self.batches = avg_metrics, len(batch_metrics)

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "more.txt").write_text("of the Trial")


class Spread(MetricReducer):
    """Maximum less minimum of all ranks, as a mapping."""

    def reset(self) -> None:
        self.seen: list[float] = []

    def update(self, values: Any) -> None:
        self.seen += values.flatten().tolist()

    def per_slot_reduce(self) -> Any:
        return min(self.seen), max(self.seen)

    def cross_slot_reduce(self, per_slot_metrics: Any) -> Any:
        low, high = zip(*per_slot_metrics, strict=True)
        return {"spread": max(high) - min(low), "ranks": len(per_slot_metrics)}


class TwoModels(PyTorchTrial):
    """Two models, two optimizers, two schedulers, clipped gradients, reducers, batches of dictionaries."""

    def __init__(self, context: Any) -> None:
        self.context, self.told = context, Told()
        self.model1, self.model2 = (context.wrap_model(torch.nn.Linear(1, 1)) for _ in range(2))
        self.opt1 = context.wrap_optimizer(torch.optim.Adam(self.model1.parameters(), lr=0.01))
        self.opt2 = context.wrap_optimizer(torch.optim.SGD(self.model2.parameters(), lr=0.1))
        mode = LRScheduler.StepMode
        self.lrs1, self.lrs2 = (
            context.wrap_lr_scheduler(torch.optim.lr_scheduler.ExponentialLR(each, 0.9), step_mode=step)
            for each, step in ((self.opt1, mode.MANUAL_STEP), (self.opt2, mode.STEP_EVERY_BATCH))
        )
        self.spread = context.wrap_reducer(Spread(), for_training=False)
        self.largest = context.wrap_reducer(max, name="largest", for_validation=False)
        self.norms: list[float] = []
        self.seen: dict[str, Any] = {
            "hparams": context.get_hparams(),
            "sizes": [context.get_global_batch_size(), context.get_per_slot_batch_size()],
            "ids": [context.get_trial_id(), context.get_initial_batch()],
            "seed": context.get_trial_seed(),
            "data": context.get_data_config(),
            "config": context.get_experiment_config()["searcher"],
            "device": str(context.device),
            "info": [det.get_cluster_info().trial.hparams, det.get_cluster_info().task_type],
            "epochs": [],
        }
        places = context.distributed
        self.seen["ranks"] = [
            places.get_rank(), places.get_size(), places.get_local_rank(), places.get_num_agents(),
            places.allgather(places.rank), places.gather(places.rank), places.broadcast(f"of {places.rank}"),
            places.allgather_local(places.rank), places.gather_local(places.rank), places.broadcast_local(places.rank),
        ]  # fmt: skip
        there = context.to_device({"a": [np.ones(2)], "b": (torch.ones(1), "text")})
        assert isinstance(there["a"][0], torch.Tensor)
        assert there["b"][1] == "text"

    def build_callbacks(self) -> dict[str, Any]:
        return {"told": self.told}

    def build_training_data_loader(self) -> Any:
        return self.loader()

    def build_validation_data_loader(self) -> Any:
        return self.loader()

    def loader(self) -> Any:
        def collate(rows: Any) -> Any:
            return {"x": torch.stack([row[0] for row in rows])}

        return DataLoader(TensorDataset(X), self.context.get_per_slot_batch_size(), collate_fn=collate)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        assert self.model1.training
        assert self.context.current_train_batch() == batch_idx
        assert self.context.current_train_epoch() == epoch_idx
        self.seen["epochs"].append([self.context.is_epoch_start(), self.context.is_epoch_end()])
        loss1, loss2 = (model(batch["x"]).square().mean() for model in (self.model1, self.model2))
        self.context.backward(loss1)
        self.context.backward(loss2)
        self.context.step_optimizer(self.opt1, clip_grads=lambda those: self.clipped(those, 0.0001))
        self.context.step_optimizer(self.opt2, auto_zero_grads=False)
        self.opt2.zero_grad()
        self.lrs1.step()
        self.largest.update(float(batch["x"].max()))
        return {"loss1": loss1, "loss2": loss2, "array": np.array([1.0, 3.0])}

    def clipped(self, those: Any, most: float) -> None:
        torch.nn.utils.clip_grad_norm_(those, most)
        self.norms.append(float(sum(each.grad.square().sum() for each in those) ** 0.5))

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        assert not self.model1.training
        assert not torch.is_grad_enabled()
        self.spread.update(batch["x"])
        return {"validation_loss": self.model1(batch["x"]).square().mean(), "records": self.get_batch_length(batch)}

    def evaluation_reducer(self) -> Any:
        return {"validation_loss": Reducer.AVG, "records": Reducer.SUM}

    def __del__(self) -> None:
        self.seen |= {"norms": self.norms, "called": self.told.called, "average": self.told.average}
        self.seen |= {"metrics": self.told.metrics, "rates": [self.lrs1.get_last_lr(), self.lrs2.get_last_lr()]}
        self.seen["batches"] = self.told.batches
        Path(f"seen{self.context.distributed.rank}.json").write_text(json.dumps(self.seen, default=float))


class Refuses(TwoModels):
    """Values that cannot work."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        raise det.InvalidHP("too small")

    def __del__(self) -> None:
        pass


class OneRefuses(TwoModels):
    """Only one rank finds out."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if self.context.distributed.rank == 1 and batch_idx == 3:
            raise det.InvalidHP("too small")
        return super().train_batch(batch, epoch_idx, batch_idx)

    def __del__(self) -> None:
        pass


class Whole(TwoModels):
    """Evaluates all data at once, and asks for its end."""

    evaluate_batch = PyTorchTrial.evaluate_batch

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        return {"validation_loss": 1.0, "batches_seen": len(list(data_loader))}

    def build_callbacks(self) -> dict[str, Any]:
        self.context.wrap_reducer.__self__.reducers.clear()
        return super().build_callbacks()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.context.set_stop_requested(batch_idx >= 2)
        assert self.context.get_stop_requested() == (batch_idx >= 2)
        loss = self.model1(batch["x"]).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.opt1)
        return loss

    def __del__(self) -> None:
        pass


class Mixed(TwoModels):
    """Automatic mixed precision, gradients of two batches, a loader of PyTorch."""

    def __init__(self, context: Any) -> None:
        self.context, self.told = context, Told()
        if os.environ.get("APEX"):
            model = context.wrap_model(torch.nn.Linear(1, 1))
            opt = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
            self.model1, self.opt1 = context.configure_apex_amp(model, opt)
        else:
            context.experimental.use_amp()
            self.model1 = context.wrap_model(torch.nn.Linear(1, 1))
            self.opt1 = context.wrap_optimizer(torch.optim.SGD(self.model1.parameters(), lr=0.1))
        self.steps: list[int] = []
        step = self.opt1.step
        self.opt1.step = lambda: (self.steps.append(context.current_train_batch()), step())[1]

    def loader(self) -> Any:
        return torch.utils.data.DataLoader(TensorDataset(X), self.context.get_per_slot_batch_size(), shuffle=True)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = self.model1(batch[0]).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.opt1, clip_grads=lambda those: torch.nn.utils.clip_grad_norm_(those, 1.0))
        return loss

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        return {"validation_loss": self.model1(batch[0]).square().mean()}

    def evaluation_reducer(self) -> Any:
        return pytorch.Reducer.MAX

    def __del__(self) -> None:
        Path("steps.json").write_text(json.dumps(self.steps))
