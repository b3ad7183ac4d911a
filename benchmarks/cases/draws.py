"""10,000 draws of every random operation, torchvision's own and this library's: the same distributions?"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import torch

from benchmarks.harness.bar import Bar, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from pipefix.augment import kornia
from pipefix.augment.distribution import FALSE_ALARM
from pipefix.augment.translate import translate
from tests.augment import overheard
from tests.augment.test_draws import DRAWN

TITLE = "Draws of the swap beside torchvision's"
ISSUE = "5, bar 3"
MINUTES = 6
QUICK = {"count": 200}
SIZES = {"RandomCrop": (3, 30, 40), "RandomCrop padded": (3, 64, 70), "RandomCrop reflected": (3, 44, 52)}


def shared(name: str) -> int:
    """Samples of a batch of 256 that have all their numbers in common with another, beyond what few outcomes make likely."""
    augment = kornia.augmentation(translate(DRAWN[name]).ops)
    streams = augment.steps([SIZES.get(name, (3, 24, 32))] * 256, np.arange(256))
    rows: dict[int, list[str]] = {row: [] for row in range(256)}
    for step in streams:
        for position, row in enumerate(step.rows):
            rows[int(row)].append(f"{step.name}{step.scalars(position)}")
    told = [tuple(found) for found in rows.values()]
    return 256 - len(set(told))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=10_000, help="draws of each operation")


def measure(options: argparse.Namespace, record: Record) -> bool:
    torch.set_num_threads(1)
    done: list[dict[str, Any]] = record.body.setdefault("rows", [])
    record.body["count"] = options.count
    for name, transform in list(DRAWN.items())[: 2 if options.quick else None]:
        if name in [row["name"] for row in done]:
            continue
        if record.over():
            return False
        compared = overheard.compared(transform, translate(transform).ops, count=options.count, size=SIZES.get(name, (3, 24, 32)))
        least = min(compared, key=lambda one: one.p)
        done.append(
            {
                "name": name, "parameters": len(compared), "least_p": least.p, "of": least.parameter,
                "alike": all(one.alike(len(compared)) for one in compared), "shared": shared(name),
            }
        )  # fmt: skip
        record.save()
        print(f"{name:28s} {len(compared):3d} parameters, least p {least.p:.3g} ({least.parameter})", file=sys.stderr)
    return True


def bars(body: dict[str, Any]) -> list[Bar]:
    return [none_of(f"operations that draw differently, of {len(body['rows'])}", sum(not row["alike"] for row in body["rows"]))]


def table(body: dict[str, Any]) -> str:
    cells = [
        [row["name"], row["parameters"], f"{row['least_p']:.3g}", row["of"], "alike" if row["alike"] else "different"]
        for row in body["rows"]
    ]
    return f"""
{body["count"]} draws each. Two-sample Kolmogorov-Smirnov tests of every parameter; an operation counts as different where one of its tests
falls below {FALSE_ALARM:g}, shared out among its parameters.

{rows(["operation", "parameters", "least p", "of", ""], cells)}"""
