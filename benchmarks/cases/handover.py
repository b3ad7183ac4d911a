"""What a batch of 18 MiB from a worker costs the training process: wall, CPU and page faults."""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.harness.bar import Bar, at_least, at_most
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from benchmarks.harness.turns import ordered
from pipefix.loader.fast_loader import FastLoader

TITLE = "A batch of 18 MiB, taken over"
ISSUE = "4, bar 3"
MINUTES = 1
QUICK = {"rounds": 1}


class Large(Dataset[torch.Tensor]):
    """One sample is a batch of 18 MiB."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((24, 3, 256, 256), float(index))


def taken_over(rounds: int) -> dict[str, Any]:
    """Cost of a batch in the process that trains, which reads every page of it."""
    figures: dict[str, Any] = {}
    arms = {
        "DataLoader": lambda: DataLoader(Large(), batch_size=None, num_workers=1),
        "FastLoader": lambda: FastLoader(Large(), batch_size=None, num_workers=1, engine="processes"),
    }
    for turn in range(rounds):
        for name in ordered(list(arms), turn, "alternating"):
            wall, cpu, faults = [], [], []
            iterator = iter(arms[name]())
            for number in range(len(Large())):
                time.sleep(0.05)  # the batch has arrived: what is timed is taking it over
                before, spent, begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time(), time.perf_counter()
                batch = next(iterator)
                batch.view(-1)[::1024].sum()
                del batch
                if number >= 12:
                    wall.append(time.perf_counter() - begun)
                    cpu.append(time.process_time() - spent)
                    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
            for figure, values in (("wall_ms", wall), ("cpu_ms", cpu)):
                figures.setdefault(name, {}).setdefault(figure, []).append(statistics.median(values) * 1e3)
            figures[name].setdefault("faults", []).append(statistics.median(faults))
    return {name: {figure: statistics.median(values) for figure, values in parts.items()} for name, parts in figures.items()}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)


def measure(options: argparse.Namespace, record: Record) -> None:
    torch.set_num_threads(1)
    record.body["cells"] = taken_over(options.rounds)


def bars(body: dict[str, Any]) -> list[Bar]:
    theirs, ours = body["cells"]["DataLoader"], body["cells"]["FastLoader"]
    return [
        at_least("a batch of 18 MiB, wall time of DataLoader's", theirs["wall_ms"] / ours["wall_ms"], 5.0, "{:.1f}x"),
        at_least("a batch of 18 MiB, main-thread CPU of DataLoader's", theirs["cpu_ms"] / ours["cpu_ms"], 5.0, "{:.1f}x"),
        at_most("minor faults a batch", ours["faults"], 50, "{:.0f}"),
    ]


def table(body: dict[str, Any]) -> str:
    cells = [
        [kind, f"{cell['wall_ms']:.2f}", f"{cell['cpu_ms']:.2f}", f"{cell['faults']:.0f}"] for kind, cell in body["cells"].items()
    ]
    return rows(["loader", "wall ms", "CPU ms", "minor faults"], cells)
