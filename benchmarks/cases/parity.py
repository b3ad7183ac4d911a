"""Every list over a thousand seeds: recorded it does and draws the same, and how far its batches lie from it, in 1/255."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch
from torchvision.transforms.v2 import functional as tv

from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from pipefix.augment import parity
from pipefix.augment.module import run
from pipefix.augment.record import RecordedImage, replayed
from pipefix.augment.split import split
from pipefix.vocabulary.random_state import RandomState, seeded
from tests.augment.lists import ALL, EXACT, pictures
from tests.augment.test_dali import LISTS

TITLE = "Parity of the swap with torchvision"
ISSUE = "5, bar 2"
MINUTES = 8
QUICK = {"count": 3}
BATCH = 64
SIZES = ((64, 80), (97, 61), (128, 224))
"""Even, odd, and one side of training."""


def module_rows(count: int) -> list[dict[str, Any]]:
    """Every list with so many seeds: recorded, it gives what the list gives, and leaves the generators where the list leaves them."""
    rows = []
    for name, transform in ALL.items():
        sizes = [size for size in SIZES if not name.startswith("RandomCrop padded") or min(size) >= 60]
        errors = []
        for number, (height, width) in enumerate(sizes):
            images = pictures(count // len(sizes) + 1, height, width, seed=number)
            expected, programs = [], []
            for seed, image in enumerate(images):
                with seeded(seed):
                    expected.append(torch.as_tensor(transform(image)).as_subclass(torch.Tensor))
                    drawn = RandomState()
                with seeded(seed):
                    recorded = RecordedImage.of(tuple(image.shape), image.dtype, from_pil=False)
                    transform(recorded)
                    if drawn.changed() or not torch.equal(replayed(recorded.calls, image), expected[-1]):
                        raise AssertionError(f"{name}, seed {seed}: recorded, the list does something else")
                programs.append(recorded.calls)
            made = [
                image
                for start in range(0, len(images), BATCH)
                for image in run(images[start : start + BATCH], programs[start : start + BATCH])
            ]
            errors.append(parity.measured(name, expected, made, 255.0 if expected[0].is_floating_point() else 1.0))
        rows.append(told(name, max(errors, key=lambda error: error.mean), count))
        print(f"{name:28s} mean {rows[-1]['mean']:.4f} p99 {rows[-1]['p99']:.2f} worst {rows[-1]['worst']:.1f}", file=sys.stderr)
    return rows


def dali_rows(count: int) -> list[dict[str, Any]]:
    rows = []
    images = [tv.to_pil_image(pictures(1, 60 + place % 97, 64 + place % 61, seed=place)[0]) for place in range(count)]
    for name, (transforms, _) in LISTS.items():
        error = parity.check(split(transforms, "dali"), images, seed=3, progress=lambda *_: None).whole
        assert error is not None
        rows.append(told(f"{name}: {', '.join(type(each).__name__ for each in transforms)}", error, count))
        print(f"{name:28s} mean {error.mean:.4f} p99 {error.p99:.2f} worst {error.worst:.1f}", file=sys.stderr)
    return rows


def told(name: str, error: parity.PixelError, count: int) -> dict[str, Any]:
    exact = name in EXACT
    held = error.within and (error.worst == 0 or not exact)
    return {
        "name": name, "pictures": count, "mean": error.mean, "p99": error.p99, "worst": error.worst,
        "wanted": "exact" if exact else "mean 1, p99 4", "held": held,
    }  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=1002, help="seeds and pictures for each list")


def measure(options: argparse.Namespace, record: Record) -> None:
    torch.manual_seed(0)
    record.body["tables"] = {
        "kornia": module_rows(options.count),
        "dali": [] if options.quick else dali_rows(min(options.count, 201)),
    }


def bars(body: dict[str, Any]) -> list[Bar]:
    every = [row for part in body["tables"].values() for row in part]
    return [
        at_least("pictures and parameters for each operation", min(row["pictures"] for row in every), 200, "{:.0f}"),
        none_of(
            f"operations further from torchvision than 1/255 in the mean, 4/255 at 99 %, of {len(every)}",
            sum(not row["held"] for row in every),
        ),
    ]


def table(body: dict[str, Any]) -> str:
    parts = []
    for target, found in body["tables"].items():
        cells = [
            [
                row["name"], f"{row['mean']:.4f}", f"{row['p99']:.2f}", f"{row['worst']:.1f}", row["wanted"],
                "held" if row["held"] else "missed",
            ]
            for row in found
        ]  # fmt: skip
        parts.append(f"## {target}\n\n{rows(['operation', 'mean', '99 %', 'worst', 'wanted', ''], cells)}\n")
    return f"""
Pictures of bytes for each operation, each with its own drawn parameters, of {len(SIZES)} sizes (the worst is told; DALI's rows are lists, on
pictures of as many sizes). Errors are in 1/255: for Kornia against the list itself on the same tensors with the same seed (whose
recorded calls, one sample at a time, gave the same to the bit and left the generators alike), for DALI against the list on pictures
of PIL.

{chr(10).join(parts)}"""
