"""Images of 28 x 28 with a bright square in one of ten places, in place of MNIST."""

from typing import Any

import torch
from torch.utils.data import TensorDataset


def download_dataset(download_directory: str, data_config: dict[str, Any]) -> str:
    assert data_config["url"].startswith("https://")
    return download_directory


def get_dataset(data_dir: str, train: bool) -> TensorDataset:
    generator = torch.Generator().manual_seed(1 if train else 2)
    labels = torch.randint(10, (512 if train else 128,), generator=generator)
    images = 0.1 * torch.randn(len(labels), 1, 28, 28, generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):
        row, column = 14 * (label // 5), 5 * (label % 5)
        image[0, row : row + 5, column : column + 5] += 1
    return TensorDataset(images, labels)
