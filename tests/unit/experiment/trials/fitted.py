"""TFKerasTrials of a linear model: one for each kind of data, and those that end in another way."""

import os
import signal
from pathlib import Path
from typing import Any

import determined
import numpy as np
import tensorflow as tf
from determined.keras import InputData, TFKerasTrial, TFKerasTrialContext
from determined.keras import callbacks as determined_callbacks

random = np.random.RandomState(0)
X = random.randn(72, 4)  # 4 batches of 16, and a rest
Y = (X @ [[1.0], [2.0], [-1.0], [0.5]] + 0.01 * random.randn(72, 1)).astype("float32")


class Records(tf.keras.callbacks.Callback):
    """Writes down the epochs, and kills its rank after a number of batches."""

    batches = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.write(f"begin {epoch}")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.write(f"end {epoch} {' '.join(sorted(logs))}")

    def write(self, line: str) -> None:
        if os.environ["SLURM_PROCID"] == "0":
            with Path("epochs").open("a") as file:
                print(line, file=file)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches += 1
        if str(self.batches) == os.environ.get("DIE_AT"):
            os.kill(os.getpid(), signal.SIGKILL)


class Arrays(TFKerasTrial):
    """NumPy arrays, and the weights of the records."""

    def __init__(self, context: TFKerasTrialContext) -> None:
        self.context = context
        context.configure_fit(shuffle=context.get_hparams().get("shuffle", True), workers=3)
        context.configure_fit(use_multiprocessing=True)

    def build_model(self) -> Any:
        norm = [tf.keras.layers.BatchNormalization()] * self.context.get_hparams().get("norm", 0)
        return self.compiled(tf.keras.Sequential([tf.keras.layers.Input((4,)), *norm, tf.keras.layers.Dense(1)]))

    def compiled(self, model: Any) -> Any:
        model = self.context.wrap_model(model)
        optimizer = self.context.wrap_optimizer(tf.keras.optimizers.Adam(self.context.get_hparam("lr")))
        model.compile(optimizer=optimizer, loss="mse", metrics=["mae"])
        return model

    def keras_callbacks(self) -> list[Any]:
        return [Records(), determined_callbacks.ReduceLROnPlateau("val_mae", factor=0.5, patience=1, min_delta=1.0)]

    def build_training_data_loader(self) -> InputData:
        return X, Y, np.linspace(0.5, 1.5, len(X))

    def build_validation_data_loader(self) -> InputData:
        return X[:50], Y[:50]


class Rows(tf.keras.utils.Sequence):  # type: ignore[misc]
    def __init__(self, batch: int, rows: int) -> None:
        self.batch, self.rows = batch, rows

    def __len__(self) -> int:
        return (self.rows + self.batch - 1) // self.batch

    def __getitem__(self, index: int) -> Any:
        part = slice(index * self.batch, min((index + 1) * self.batch, self.rows))
        return {"row": X[part]}, Y[part]


class Sequences(Arrays):
    """Keras Sequences, and a model with a named input and an optimizer of before Keras 2.11."""

    def build_model(self) -> Any:
        row = tf.keras.Input((4,), name="row")
        model = self.context.wrap_model(tf.keras.Model(row, tf.keras.layers.Dense(1)(row)))
        made = tf.keras.optimizers.legacy.RMSprop(0.01, decay=1e-3)
        model.compile(optimizer=self.context.wrap_optimizer(made), loss="mse", metrics=["mae"])
        return model

    def build_training_data_loader(self) -> InputData:
        return Rows(self.context.get_per_slot_batch_size(), 64)

    def build_validation_data_loader(self) -> InputData:
        return Rows(self.context.get_per_slot_batch_size(), 72)


class Pipelines(Arrays):
    """A tf.data.Dataset, whose length is unknown, and a class derived from Model."""

    def build_model(self) -> Any:
        class Own(tf.keras.Model):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.dense = tf.keras.layers.Dense(1)

            def call(self, rows: Any) -> Any:
                return self.dense(rows)

        return self.compiled(Own())

    def build_training_data_loader(self) -> InputData:
        signature = (tf.TensorSpec((4,), tf.float64), tf.TensorSpec((1,), tf.float32))
        rows = tf.data.Dataset.from_generator(lambda: zip(X[:64], Y[:64], strict=True), output_signature=signature)
        return self.context.wrap_dataset(rows).batch(self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self) -> InputData:
        rows = self.context.wrap_dataset(tf.data.Dataset.from_tensor_slices((X[:49], Y[:49])))
        return rows.batch(self.context.get_per_slot_batch_size())


class Patient(Arrays):
    """Ends when Keras' own callback says so."""

    def keras_callbacks(self) -> list[Any]:
        return [tf.keras.callbacks.EarlyStopping("val_mae", min_delta=1e6, patience=2)]


class Refuses(Arrays):
    def build_model(self) -> Any:
        raise determined.InvalidHP("lr too large")


class Doubts(Arrays):
    """One rank refuses its values, in the middle of the training."""

    def keras_callbacks(self) -> list[Any]:
        rank = self.context.distributed.get_rank()

        class Refuse(tf.keras.callbacks.Callback):
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                if rank == 1 and batch == 2:
                    raise determined.InvalidHP("lr too large")

        return [Refuse()]


class Unwrapped(Arrays):
    def build_training_data_loader(self) -> InputData:
        return tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
