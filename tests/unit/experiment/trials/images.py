"""Image classifiers, written as the examples of Trial classes for Keras are: arrays, and an augmented pipeline."""

from collections.abc import Iterator
from typing import Any

import determined as det
import numpy as np
import tensorflow as tf
from determined import keras
from determined.keras import InputData, TFKerasTrial, TFKerasTrialContext
from keras.layers import Dense  # Keras 2 here, as `tf.keras`
from tensorflow.keras.metrics import categorical_accuracy
from tensorflow.keras.optimizers.legacy import RMSprop


def images(count: int, seed: int) -> tuple[Any, Any]:
    """Return images whose bright row is the label."""
    random = np.random.RandomState(seed)
    labels = random.randint(0, 10, count)
    found = random.randint(0, 80, (count, 12, 12, 1))
    found[np.arange(count), labels, :] += 150
    return found.astype("uint8"), labels.astype("uint8")


class Clothes(TFKerasTrial):
    def __init__(self, context: TFKerasTrialContext) -> None:
        self.context = context

    def build_model(self) -> Any:
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Flatten(input_shape=(12, 12, 1)),
                tf.keras.layers.Dense(self.context.get_hparam("dense1"), activation="relu"),
                Dense(10),
            ]
        )
        model = self.context.wrap_model(model)
        optimizer = self.context.wrap_optimizer(tf.keras.optimizers.legacy.Adam())
        model.compile(
            optimizer=optimizer,
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        )
        return model

    def build_training_data_loader(self) -> InputData:
        x, y = images(640, 1)
        return x / 255.0, y

    def build_validation_data_loader(self) -> InputData:
        x, y = images(100, 2)
        return x / 255.0, y


def load(context: det.core.Context) -> tuple[Any, Any]:
    """Return the images; the first rank of a node is the first to load them."""
    found = images(160, 1) if context.distributed.get_local_rank() == 0 else None
    context.distributed.allgather_local(None)
    x, y = found or images(160, 1)
    return x.astype("float32") / 255, tf.keras.utils.to_categorical(y, num_classes=10)


def categorical_error(y_true: Any, y_pred: Any) -> Any:
    return 1.0 - categorical_accuracy(y_true, y_pred)


class Pictures(keras.TFKerasTrial):
    def __init__(self, context: keras.TFKerasTrialContext) -> None:
        self.context = context
        self.data = load(self.context)

    def session_config(self) -> Any:
        return tf.compat.v1.ConfigProto()

    def build_model(self) -> Any:
        model = tf.keras.models.Sequential()
        model.add(tf.keras.Input(shape=(12, 12, 1), name="image"))
        model.add(tf.keras.layers.Conv2D(8, (3, 3), padding="same", activation="relu"))
        model.add(tf.keras.layers.Dropout(self.context.get_hparam("dropout")))
        model.add(tf.keras.layers.Flatten())
        model.add(tf.keras.layers.Dense(10, activation="softmax", name="label"))
        model = self.context.wrap_model(model)
        optimizer = self.context.wrap_optimizer(RMSprop(learning_rate=1e-3, decay=1e-6))
        model.compile(optimizer, "categorical_crossentropy", [categorical_accuracy, categorical_error])
        return model

    def keras_callbacks(self) -> list[Any]:
        return [keras.callbacks.TensorBoard(update_freq="batch", profile_batch=0, histogram_freq=1)]

    def build_training_data_loader(self) -> keras.InputData:
        augmented = tf.keras.Sequential([tf.keras.layers.RandomTranslation(height_factor=0.0, width_factor=0.1)])
        rows = self.rows().batch(self.context.get_per_slot_batch_size())
        return rows.map(lambda x, y: (augmented(x), y), num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)

    def build_validation_data_loader(self) -> keras.InputData:
        return self.rows().batch(self.context.get_per_slot_batch_size())

    def rows(self) -> Any:
        """Return a dataset whose length is unknown."""

        def generator() -> Iterator[Any]:
            yield from zip(*self.data, strict=True)

        signature = (tf.TensorSpec((12, 12, 1), tf.float32), tf.TensorSpec((10,), tf.float32))
        return self.context.wrap_dataset(tf.data.Dataset.from_generator(generator, output_signature=signature))
