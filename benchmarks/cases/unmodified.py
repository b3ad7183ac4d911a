"""FastLoader against DataLoader on twelve unmodified pipelines, 0 to 4 workers, in turns: time of an epoch."""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader

from benchmarks.harness.bar import Bar, at_least
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from benchmarks.harness.turns import in_turns, ratios
from benchmarks.unmodified_pipelines import pipelines
from pipefix.loader.fast_loader import FastLoader

TITLE = "FastLoader on unmodified pipelines"
ISSUE = "4, bar 1"
MINUTES = 25
QUICK = {"rounds": 1, "workers": [0, 1]}
KINDS: tuple[Any, ...] = (DataLoader, FastLoader)
SHORT_S, MOST = 6.0, 40
"""Arms that are over soon have as many rounds as fit in so long, up to so many."""


def several(arms: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Rounds in turns; arms that are over soon have as many as fit into `SHORT_S`, up to `MOST`. The first time is not counted."""
    begun = time.perf_counter()
    for run in arms.values():
        run()
    fit = int(SHORT_S / (time.perf_counter() - begun))
    return in_turns(arms, max(rounds, min(MOST, fit)), warm=0, before=gc.collect)


def epoch(loader: Any) -> float:
    torch.manual_seed(0)
    begun = time.perf_counter()
    for batch in loader:
        del batch
    return time.perf_counter() - begun


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="at least so many (default 3)")
    parser.add_argument("--only", action="append", default=[], help="this pipeline; the rest is left for later; may be repeated")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 1, 2, 3, 4], help="counts of workers (default 0 to 4)")


def measure(options: argparse.Namespace, record: Record) -> bool:
    torch.set_num_threads(1)
    cells = record.body.setdefault("cells", {})
    every = pipelines()
    for name, (dataset, settings) in list(every.items())[: 1 if options.quick else None]:
        for workers in options.workers:
            if f"{name}, {workers}" in cells or (options.only and name not in options.only):
                continue
            if record.over():
                return False
            arms = {kind.__name__: kind(dataset, num_workers=workers, **settings) for kind in KINDS}
            figures = several({kind: lambda own=own: epoch(own) for kind, own in arms.items()}, options.rounds)
            pairs = ratios(figures, "DataLoader", "FastLoader")
            cells[f"{name}, {workers}"] = {
                "ratio": statistics.median(pairs), "rounds": len(pairs), "lowest": min(pairs), "highest": max(pairs),
                "seconds": {kind: statistics.median(times) for kind, times in figures.items()},
                "explain": arms["FastLoader"].explain(),
            }  # fmt: skip
            record.save()
            print(f"{name}, {workers} workers: {statistics.median(pairs):.2f}", file=sys.stderr)
    return options.quick or len(cells) == len(every) * len(options.workers)


def bars(body: dict[str, Any]) -> list[Bar]:
    found = [cell["ratio"] for cell in body["cells"].values()]
    mean = math.exp(statistics.fmean(map(math.log, found)))
    return [
        at_least("FastLoader's throughput over DataLoader's, slowest case", min(found), 0.97),
        at_least("FastLoader's throughput over DataLoader's, geometric mean", mean, 1.3),
    ]


def table(body: dict[str, Any]) -> str:
    below = sum(cell["ratio"] < 0.97 for cell in body["cells"].values())
    cells = [
        [
            name, cell["rounds"], f"{cell['ratio']:.2f}", f"{cell['lowest']:.2f}-{cell['highest']:.2f}",
            f"{cell['seconds']['DataLoader']:.3f}", f"{cell['seconds']['FastLoader']:.3f}",
        ]
        for name, cell in body["cells"].items()
    ]  # fmt: skip
    return f"""
Throughput of FastLoader over DataLoader's on twelve unmodified pipelines, an epoch each with the start of its workers; {below} of
{len(cells)} cases below 0.97. Arms in turns; medians.

{rows(["pipeline, workers", "rounds", "ratio", "lowest-highest pair", "DataLoader s", "FastLoader s"], cells)}"""
