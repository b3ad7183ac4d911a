"""Throughput over the ideal where 1 % of samples take 100 times as long: 8 workers, in order."""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.harness.bar import Bar, at_most
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from benchmarks.harness.turns import in_turns
from pipefix.loader.fast_loader import FastLoader

TITLE = "One sample in a hundred is a hundred times slower"
ISSUE = "4, bar 5"
MINUTES = 2
QUICK = {"rounds": 1, "samples": 1600}


class Uneven(Dataset[float]):
    """Every hundredth sample, at an uneven place, takes a hundred times as long. A sample is the seconds that it took."""

    def __init__(self, count: int, quick: float) -> None:
        self.count, self.quick = count, quick
        chosen = torch.Generator().manual_seed(1)
        self.slow = set(torch.randperm(count, generator=chosen)[: count // 100].tolist())

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> float:
        begun = time.perf_counter()
        time.sleep(self.quick * (100 if index in self.slow else 1))
        return time.perf_counter() - begun

    def seconds(self) -> float:
        return self.quick * (self.count - len(self.slow) + 100 * len(self.slow))


def epochs(rounds: int, samples: int) -> dict[str, Any]:
    dataset = Uneven(samples, 0.001)
    ideal = dataset.seconds() / 8
    options: dict[str, Any] = {"batch_size": 32, "num_workers": 8}
    arms: dict[str, Any] = {
        "DataLoader": DataLoader(dataset, **options),
        "FastLoader": FastLoader(dataset, **options),
        "FastLoader, rng='sample'": FastLoader(dataset, rng="sample", **options),
    }
    worked: dict[str, list[float]] = {kind: [] for kind in arms}

    def run(kind: str) -> float:
        begun = time.perf_counter()
        spent = sum(float(batch.sum()) for batch in arms[kind])
        taken = time.perf_counter() - begun
        worked[kind].append(taken / (spent / 8))
        return taken

    figures = in_turns({kind: lambda kind=kind: run(kind) for kind in arms}, rounds, before=gc.collect)
    return {
        "ideal_s": ideal,
        "over_ideal": {kind: statistics.median(times) / ideal for kind, times in figures.items()},
        "over_work": {kind: statistics.median(ratios[1:]) for kind, ratios in worked.items()},
    }


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=25_600)


def measure(options: argparse.Namespace, record: Record) -> None:
    record.body["cells"] = epochs(options.rounds, options.samples)


def bars(body: dict[str, Any]) -> list[Bar]:
    return [
        at_most("1 % of samples 100 times slower, in order: time over the ideal", body["cells"]["over_ideal"]["FastLoader"], 1.15)
    ]


def table(body: dict[str, Any]) -> str:
    cell = body["cells"]
    cells = [[kind, f"{over:.2f}", f"{cell['over_work'][kind]:.2f}"] for kind, over in cell["over_ideal"].items()]
    return f"""
8 workers, in order. Time of an epoch, with the workers' start, over the ideal ({cell["ideal_s"]:.2f} s), and over what samples really took,
shared by all workers (a sleep is longer than it was asked to be).

{rows(["loader", "over the ideal", "over what samples took"], cells)}"""
