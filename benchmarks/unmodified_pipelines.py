"""Twelve pipelines as people write them, for the bench of loaders: each a dataset, batch size and collate function."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset, get_worker_info
from torchvision import transforms as v1


def _jpegs(count: int, width: int, height: int) -> list[bytes]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        rough = cv2.resize(rng.integers(0, 255, (height // 8, width // 8, 3), dtype=np.uint8), (width, height))
        noisy = np.clip(rough + rng.normal(0, 12, rough.shape), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(noisy).save(file, "JPEG", quality=91)
        found.append(file.getvalue())
    return found


class Made(Dataset[Any]):
    """``length`` samples, made by a function of the index."""

    def __init__(self, length: int, make: Callable[[int], Any]) -> None:
        self.length, self.make = length, make

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class Stream(IterableDataset[Any]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, self.length, step):
            yield torch.full((3, 64, 64), float(index)), index


class Pictures(Dataset[Any]):
    def __init__(self, length: int, files: list[bytes], *, with_cv2: bool) -> None:
        self.length, self.files, self.with_cv2 = length, files, with_cv2
        self.transform = v1.Compose([v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(), v1.ToTensor()])

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        data = self.files[index % len(self.files)]
        if not self.with_cv2:
            return self.transform(Image.open(io.BytesIO(data)).convert("RGB")), index
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        return torch.from_numpy(cv2.resize(pixels, (224, 224))).permute(2, 0, 1).float() / 255, index


def _many(index: int) -> dict[str, torch.Tensor]:
    return {f"field{number}": torch.full((8,), index + number) for number in range(40)}


def _words(index: int) -> list[int]:
    return [(index * 31 + place) % 30_000 for place in range(20 + index % 100)]


def padded(samples: list[list[int]]) -> torch.Tensor:
    longest = max(map(len, samples))
    return torch.tensor([[*sample, *[0] * (longest - len(sample))] for sample in samples])


def _python(index: int) -> torch.Tensor:
    total = 0
    for number in range(6000):
        total += number * index % 7
    return torch.tensor([float(total)])


def _asleep(index: int) -> torch.Tensor:
    time.sleep(0.002)
    return torch.full((3, 64, 64), float(index))


def pipelines() -> dict[str, tuple[Any, dict[str, Any]]]:
    """By name: the dataset, and the loader's arguments."""
    files = _jpegs(24, 480, 400)
    rows = torch.rand(20_000, 24)
    tensor = torch.rand(3, 224, 224)
    huge = torch.rand(3, 1024, 1024)
    return {
        "PIL": (Pictures(160, files, with_cv2=False), {"batch_size": 16, "shuffle": True}),
        "cv2": (Pictures(256, files, with_cv2=True), {"batch_size": 16, "shuffle": True}),
        "tensors": (Made(1200, lambda index: (tensor + index, index)), {"batch_size": 32}),
        "tiny samples": (Made(12_000, lambda index: torch.tensor([float(index)])), {"batch_size": 64, "shuffle": True}),
        "huge samples": (Made(60, lambda _: huge + 1), {"batch_size": 4}),
        "many small tensors": (Made(640, _many), {"batch_size": 16}),
        "iterable": (Stream(4000), {"batch_size": 32}),
        "tabular": (TensorDataset(rows, rows[:, 0]), {"batch_size": 256, "shuffle": True}),
        "text": (Made(6000, _words), {"batch_size": 32, "collate_fn": padded}),
        "sleepy I/O": (Made(240, _asleep), {"batch_size": 16}),
        "python-heavy": (Made(900, _python), {"batch_size": 16}),
        "no-op": (Made(20_000, lambda _: 0), {"batch_size": 64}),
    }
