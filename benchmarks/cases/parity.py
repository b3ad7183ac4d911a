"""Every operation over hundreds of pictures and parameters: how far each target lies from torchvision on tensors, in 1/255."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch

from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from pipefix.augment import hold, kornia, parity
from pipefix.augment.translate import translate
from tests.augment.lists import ALL, EXACT, pictures
from tests.augment.test_dali import LISTS

TITLE = "Parity of the swap with torchvision"
ISSUE = "5, bar 2"
MINUTES = 8
QUICK = {"count": 3}
SIZES = ((64, 80), (97, 61), (128, 224))
"""Even, odd, and one side of training."""


def module_rows(target: Any, count: int) -> list[dict[str, Any]]:
    rows = []
    for name, transform in ALL.items():
        (*_, op) = translate(transform).ops
        worst = None
        for number, (height, width) in enumerate(SIZES):
            if (name.startswith("RandomCrop padded") and min(height, width) < 60) or height < 40:
                continue
            images = pictures(count // len(SIZES) + 1, height, width, seed=number)
            error, _, _ = parity.compare(op, images, 1.0, target.augmentation, epoch=number)
            if error is not None and (worst is None or error.mean > worst.mean):
                worst = error
        if worst is not None:
            rows.append(told(name, worst, count))
            print(f"{name:28s} mean {worst.mean:.4f} p99 {worst.p99:.2f} worst {worst.worst:.1f}", file=sys.stderr)
    return rows


def dali_rows(count: int) -> list[dict[str, Any]]:
    rows = []
    images = [pictures(1, 60 + place % 97, 64 + place % 61, seed=place)[0] for place in range(count)]
    encoded = [hold._png(one) for one in images]
    for name, transforms in LISTS.items():
        found = hold.through(translate(transforms).ops, images, encoded, seed=3)
        if found is not None:
            rows.append(told(f"{name}: {', '.join(type(one).__name__ for one in transforms)}", found[0], count))
            print(f"{name:28s} mean {found[0].mean:.4f} p99 {found[0].p99:.2f} worst {found[0].worst:.1f}", file=sys.stderr)
    return rows


def told(name: str, error: parity.PixelError, count: int) -> dict[str, Any]:
    exact = name in EXACT
    held = error.within and (error.exact or not exact)
    return {
        "name": name, "pictures": count, "mean": error.mean, "p99": error.p99, "worst": error.worst,
        "wanted": "exact" if exact else "mean 1, p99 4", "held": held,
    }  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=201, help="pictures for each operation")


def measure(options: argparse.Namespace, record: Record) -> None:
    torch.manual_seed(0)
    record.body["tables"] = {
        "kornia": module_rows(kornia, options.count),
        "dali": [] if options.quick else dali_rows(options.count),
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
pictures of as many sizes). Errors are in 1/255, against `torchvision.transforms.v2.functional` on tensors. The target `tensor` calls
those very functions, so it has no rows.

{chr(10).join(parts)}"""
