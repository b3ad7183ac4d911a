"""Five small pipelines that are really run with every number of workers: decoding, waiting, computing, large batches, text."""

from __future__ import annotations

import functools
import io
import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from pipefix import FastLoader
from pipefix.loader.planning.as_planned import with_settings
from pipefix.tuning.space import Settings

COUNTS = (0, 1, 2, 3, 4, 6, 8, 12, 16)


class Made(Dataset[Any]):
    """Samples by a function of their index."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __len__(self) -> int:
        return 200_000

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def _picture() -> bytes:
    pixels = np.random.default_rng(0).integers(0, 255, (24, 32, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize((320, 240), Image.Resampling.BILINEAR).save(file, "JPEG", quality=90)
    return file.getvalue()


PICTURE = _picture()
WORDS = ("the quick brown fox jumps over the lazy dog " * 60).split()


def decode(_: int) -> torch.Tensor:
    with Image.open(io.BytesIO(PICTURE)) as image:
        return torch.from_numpy(np.asarray(image.convert("RGB").resize((112, 112))).copy())


def wait(_: int) -> torch.Tensor:
    time.sleep(0.003)
    return torch.zeros(64)


def compute(index: int) -> torch.Tensor:
    generator = np.random.default_rng(index)
    values = generator.standard_normal(12_000)
    return torch.from_numpy(np.sort(values)[:256].astype(np.float32))


def large(index: int) -> torch.Tensor:
    return torch.full((3, 160, 160), float(index % 7))


def text(index: int) -> torch.Tensor:
    counts: dict[str, int] = {}
    for place, word in enumerate(WORDS):
        key = word[::-1] if (place + index) % 3 else word.upper()
        counts[key] = counts.get(key, 0) + 1
    return torch.tensor(sorted(counts.values())[:8])


PIPELINES: dict[str, tuple[Callable[[int], Any], int]] = {
    "decode": (decode, 16),
    "wait": (wait, 8),
    "compute": (compute, 16),
    "large": (large, 16),
    "text": (text, 16),
}
"""By name: what makes a sample, and samples a batch."""


def loader(name: str, settings: Settings | None = None) -> DataLoader[Any]:
    make, batch = PIPELINES[name]
    settings = settings or Settings(0)
    kind = DataLoader if settings.engine is None else functools.partial(FastLoader, engine=settings.engine)
    return with_settings(kind(Made(make), batch_size=batch, num_workers=settings.workers, shuffle=True), **settings.arguments())


def rate(name: str, settings: Settings, seconds: float) -> float:
    """Samples a second of a plain loop in its steady state, in a process of its own: what earlier runs made of a process's memory
    decides whether large batches are written into pages that were used before."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=lambda: theirs.send(_rate(name, settings, seconds)))
    process.start()
    theirs.close()
    try:
        return float(ours.recv())
    finally:
        process.join()


def _rate(name: str, settings: Settings, seconds: float) -> float:
    workers = settings.workers
    iterator = iter(loader(name, settings))
    for _ in range(1 + settings.in_flight + workers):
        next(iterator)
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds or count % max(1, workers):
        next(iterator)
        count += 1
    spent = time.perf_counter() - begun
    del iterator
    return count * PIPELINES[name][1] / spent
