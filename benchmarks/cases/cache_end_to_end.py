"""The stock DataLoader with two workers: ImageFolder with PIL transforms over files, against torchvision v2 on tensors over caches.

Epochs of the three are run in turns, workers stay up, files are in memory; each figure is the median of ratios of neighbouring epochs.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from benchmarks.harness.bar import Bar, at_least
from benchmarks.harness.page import rows
from benchmarks.harness.pictures import pictures
from benchmarks.harness.record import WORK, Record
from benchmarks.harness.turns import in_turns, median_ratio
from pipefix.caches.convert import convert, recipe_of
from pipefix.caches.dataset import CachedDataset

TITLE = "Caches end to end"
ISSUE = "3, bar 3"
MINUTES = 5
QUICK = {"pictures": 96, "rounds": 1}
SPEEDUPS = {"resized": 1.6, "decoded": 2.3}
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def by_hand() -> Any:
    """As the ImageNet example has it."""
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
            transforms.Normalize(MEAN, DEVIATION),
        ]
    )  # fmt: skip


def on_tensors() -> Any:
    return v2.Compose(
        [
            v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, DEVIATION),
        ]
    )  # fmt: skip


def loader(dataset: Any) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=64, shuffle=True, num_workers=2, persistent_workers=True)


def epoch(loader: DataLoader[Any]) -> float:
    begun = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - begun


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pictures", type=int, default=1200)
    parser.add_argument("--rounds", type=int, default=7)


def measure(options: argparse.Namespace, record: Record) -> None:
    originals = pictures(options.pictures)
    loaders = {"files": loader(ImageFolder(originals, by_hand()))}
    for store in SPEEDUPS:
        folder = WORK / f"end-{store}"
        shutil.rmtree(folder, ignore_errors=True)
        convert(ImageFolder(originals), recipe_of("lmdb", store, 256), folder, target="bench")
        loaders[store] = loader(CachedDataset(folder, images="tensor", transform=on_tensors()))
    times = in_turns({name: lambda own=own: epoch(own) for name, own in loaders.items()}, options.rounds)
    record.body["images_per_second"] = {name: options.pictures / statistics.median(took) for name, took in times.items()}
    record.body["speedup"] = {store: median_ratio(times, "files", store) for store in SPEEDUPS}


def bars(body: dict[str, Any]) -> list[Bar]:
    return [
        at_least(f"images/s of {store} over ImageFolder with PIL", body["speedup"][store], least)
        for store, least in SPEEDUPS.items()
    ]


def table(body: dict[str, Any]) -> str:
    cells = [[name, f"{rate:.0f}", f"{body['speedup'].get(name, 1.0):.2f}"] for name, rate in body["images_per_second"].items()]
    return rows(["over", "images/s", "times ImageFolder"], cells)
