"""The ImageNet training list on the CPU: as people write it, as `pipefix swap` makes it, and as NVIDIA publishes it for DALI.

The arms take turns, block by block, and only ratios within a round are told: stock is a DataLoader of two workers with torchvision's
transforms on pictures of PIL; kornia (the module on the CPU), dali and lent (batches valid until the next, without a copy) are this library's; published is the graph of DALI's ResNet-50 example (file reader,
random crop at decode, resize, crop-mirror-normalize) with as many threads.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nvidia.dali import fn, pipeline_def, types
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

from benchmarks.harness.bar import Bar, at_least
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from benchmarks.harness.turns import in_turns, ratios
from pipefix.augment.split import split
from pipefix.augment.swap import Swap, dali_loader
from pipefix.augment.transforms import find

TITLE = "The ImageNet training list on the CPU"
ISSUE = "5, bar 4"
MINUTES = 4
QUICK = {"pictures": 64, "rounds": 1, "seconds": 0.5}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LIST = transforms.Compose(
    [
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
)
BATCH, WORKERS = 32, 2
WANTED = {"lent over published": 1.0, "dali over published": 1.0, "dali over stock": 1.4}


def draw_pictures(folder: Path, count: int) -> None:
    """Photographs of ImageNet's usual size and weight (500 x 375, about 110 kB)."""
    rng = np.random.default_rng(0)
    for number in range(count):
        height, width = ((375, 500), (500, 375), (333, 500), (500, 400))[number % 4]
        coarse = rng.integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8)
        image = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
        fine = rng.normal(0, 14, (height, width, 1)).astype(np.int16)
        place = folder / f"class{number % 4}"
        place.mkdir(exist_ok=True)
        Image.fromarray(np.clip(image + fine, 0, 255).astype(np.uint8)).save(place / f"{number}.jpg", quality=90)


def stock(folder: Path) -> Iterator[int]:
    loader = DataLoader(
        ImageFolder(folder, LIST), BATCH, shuffle=True, num_workers=WORKERS, drop_last=True, persistent_workers=True
    )
    while True:
        for images, _ in loader:
            yield len(images)


def kornia(folder: Path) -> Iterator[int]:
    data = ImageFolder(folder, LIST)
    swap = Swap(split(data.transform), find(data))
    loader = DataLoader(swap.dataset(data), BATCH, shuffle=True, num_workers=WORKERS, drop_last=True, persistent_workers=True)
    augment = swap.module()
    while True:
        for batch, calls in loader:
            images, _ = augment(batch, calls)
            assert images.dtype == torch.float32
            yield len(images)


def lent(folder: Path) -> Iterator[int]:
    return ours(folder, lend=True)


def ours(folder: Path, *, lend: bool = False) -> Iterator[int]:
    samples = ImageFolder(folder).samples
    loader = dali_loader(
        [path for path, _ in samples], LIST, labels=[label for _, label in samples], batch_size=BATCH, shuffle=True,
        drop_last=True, threads=WORKERS, lend=lend,
    )  # fmt: skip
    while True:
        for images, _ in loader:
            yield len(images)


@pipeline_def(batch_size=BATCH, num_threads=WORKERS, device_id=None)
def graph(folder: str) -> Any:
    """As in DALI's docs/examples/use_cases/pytorch/resnet50/main.py, with dali_cpu."""
    encoded, labels = fn.readers.file(file_root=folder, random_shuffle=True, pad_last_batch=True, name="Reader")
    images = fn.decoders.image_random_crop(
        encoded, device="cpu", output_type=types.RGB, random_aspect_ratio=[3 / 4, 4 / 3], random_area=[0.08, 1.0], num_attempts=100
    )
    images = fn.resize(images, device="cpu", resize_x=224, resize_y=224, interp_type=types.INTERP_TRIANGULAR)
    images = fn.crop_mirror_normalize(
        images, dtype=types.FLOAT, output_layout="CHW", crop=(224, 224), mean=[255 * one for one in MEAN],
        std=[255 * one for one in STD], mirror=fn.random.coin_flip(probability=0.5),
    )  # fmt: skip
    return images, labels


def published(folder: Path) -> Iterator[int]:
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    # One iterator for all epochs: each new one on the same pipeline would let it work one more batch ahead while others run.
    epochs = DALIGenericIterator([graph(folder=str(folder))], ["data", "label"], reader_name="Reader", auto_reset=True)
    while True:
        for found in epochs:
            yield len(found[0]["data"])


ARMS = {"stock": stock, "kornia": kornia, "dali": ours, "lent": lent, "published": published}


class Arm:
    """An arm in a process of its own: what one leaves behind in the allocator is not another's gain or loss."""

    def __init__(self, name: str, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        # Not a daemon: the loaders have worker processes of their own.
        self.process = context.Process(target=serve, args=(name, folder, theirs))
        self.process.start()

    def block(self, seconds: float) -> float:
        self.pipe.send(seconds)
        return float(self.pipe.recv())

    def close(self) -> None:
        self.pipe.send(0)
        self.process.join()


def serve(name: str, folder: Path, pipe: Any) -> None:
    batches = ARMS[name](folder)
    while seconds := pipe.recv():
        pipe.send(block(batches, seconds))
    batches.close()  # type: ignore[attr-defined]
    os._exit(0)


def block(batches: Iterator[int], seconds: float) -> float:
    """Samples a second. What the arm did ahead of time while others ran is used up first."""
    for _ in range(2 * WORKERS + 4):
        next(batches)
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        count += next(batches)
    return count / (time.perf_counter() - begun)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pictures", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0, help="a block")


def measure(options: argparse.Namespace, record: Record) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        draw_pictures(folder, options.pictures)
        running = {name: Arm(name, folder) for name in ARMS}

        def tell(turn: int, name: str, rate: float) -> None:
            print(f"{turn} {name:10s} {rate:7.1f} samples/s", file=sys.stderr)

        blocks = {name: lambda arm=arm: arm.block(options.seconds) for name, arm in running.items()}
        # Rotating: no arm follows the same one each time. The first round warms up.
        rates = in_turns(blocks, options.rounds, order="rotating", after=tell)
        for arm in running.values():
            arm.close()
    record.body |= {"rates": rates, "ratios": {bar: ratios(rates, *bar.split(" over ")) for bar in WANTED}}


def bars(body: dict[str, Any]) -> list[Bar]:
    return [
        at_least(f"{bar}, samples/s", statistics.median(body["ratios"][bar]), least, "{:.2f}x") for bar, least in WANTED.items()
    ]


def table(body: dict[str, Any]) -> str:
    cells = [
        [name, f"{statistics.median(each):.1f}", f"{min(each):.1f} to {max(each):.1f}"] for name, each in body["rates"].items()
    ]
    spread = [
        f"- {bar}: {statistics.median(each):.2f}x ({min(each):.2f} to {max(each):.2f})" for bar, each in body["ratios"].items()
    ]
    return f"""
RandomResizedCrop(224), flip, to tensor, normalise; JPEGs of some 110 kB from the page cache; batches of {BATCH}; {WORKERS} workers or
threads. Arms took turns, block by block.

{rows(["arm", "samples/s (median)", "range"], cells)}

{chr(10).join(spread)}"""
