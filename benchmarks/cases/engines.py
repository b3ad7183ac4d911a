"""Epochs by worker processes, and by fewer of them whose threads read the samples, of workers that live on."""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

import torch
from torch.utils.data import ConcatDataset, DataLoader

from benchmarks.cases.unmodified import epoch, several
from benchmarks.harness.bar import Bar
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from benchmarks.unmodified_pipelines import pipelines
from pipefix.loader.fast_loader import FastLoader

TITLE = "Who makes the samples"
ISSUE = "4"
MINUTES = 5
QUICK = {"rounds": 1}
ENGINES = (("cv2", 2), ("tensors", 2), ("huge samples", 2), ("sleepy I/O", 8), ("python-heavy", 2))
"""Pipelines whose samples draw nothing, and workers."""
LONGER = 4
"""Epochs in one, so that what was made of it before it began is a small part."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="at least so many (default 3)")


def measure(options: argparse.Namespace, record: Record) -> None:
    torch.set_num_threads(1)
    every = pipelines()
    cells = record.body["cells"] = {}
    for name, workers in ENGINES[-1:] if options.quick else ENGINES:
        dataset, settings = ConcatDataset([every[name][0]] * LONGER), every[name][1]
        settings = {**settings, "num_workers": workers, "persistent_workers": True, "shuffle": False}
        arms: dict[str, Any] = {"DataLoader": DataLoader(dataset, **settings)}
        arms["processes"] = FastLoader(dataset, **settings)
        arms["threads"] = FastLoader(dataset, threads_per_worker=workers, **{**settings, "num_workers": 1})
        for loader in arms.values():
            for _ in loader:
                break
        figures = several({kind: lambda own=own: epoch(own) for kind, own in arms.items()}, options.rounds)
        cells[f"{name}, {workers}"] = {"seconds": {kind: statistics.median(times) for kind, times in figures.items()}}
        print(f"{name}, {workers}: {cells[f'{name}, {workers}']}", file=sys.stderr)


def bars(body: dict[str, Any]) -> list[Bar]:
    """None was set: it shows which engine suits which pipeline."""
    return []


def table(body: dict[str, Any]) -> str:
    cells = [[name, *(f"{seconds:.2f}" for seconds in cell["seconds"].values())] for name, cell in body["cells"].items()]
    return f"""
Seconds an epoch, of workers that live on: as `DataLoader` does it, `FastLoader` with as many workers, and with one worker of as many
threads (`threads_per_worker=`).

{rows(["pipeline, workers", "DataLoader", "processes", "threads"], cells)}"""
