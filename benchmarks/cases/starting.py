"""How soon the first batch comes: 8 workers and a dataset of 1.2 million paths, by start method."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from typing import Any

from torch.utils.data import DataLoader, Dataset

from benchmarks.harness.bar import Bar, at_least, at_most
from benchmarks.harness.page import rows
from benchmarks.harness.record import ROOT, Record
from pipefix.loader.fast_loader import FastLoader

TITLE = "The first batch of eight workers"
ISSUE = "4, bar 4"
MINUTES = 6
QUICK = {"rounds": 1, "methods": ["fork"]}
KINDS: tuple[Any, ...] = (DataLoader, FastLoader)


class Paths(Dataset[Any]):
    """What datasets hold: a path and a label each."""

    def __init__(self, count: int) -> None:
        self.paths = [f"/data/imagenet/train/n{number % 1000:08d}/n{number % 1000:08d}_{number}.JPEG" for number in range(count)]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> int:
        return len(self.paths[index])


FIRST = """
import sys, time, json, warnings
warnings.simplefilter("ignore")
import torch
from torch.utils.data import DataLoader
from pipefix.loader.fast_loader import FastLoader
from benchmarks.cases import starting
if __name__ == "__main__":
    kind, method = sys.argv[1:]
    dataset = starting.Paths(1_200_000)
    taken = []
    for epoch in range(2):
        begun = time.perf_counter()
        iterator = iter({"DataLoader": DataLoader, "FastLoader": FastLoader}[kind](
            dataset, batch_size=64, num_workers=8, multiprocessing_context=method))
        next(iterator)
        taken.append(time.perf_counter() - begun)
        del iterator
    print(json.dumps(taken))
"""


def first_batches(rounds: int, methods: list[str]) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for method in methods:
        for _ in range(rounds):
            for kind in KINDS:
                # Given in the command, so that nothing is left behind when it is killed; what workers need is in this module.
                order = [sys.executable, "-c", FIRST, kind.__name__, method]
                done = subprocess.run(order, capture_output=True, text=True, check=True, cwd=ROOT)
                first, second = json.loads(done.stdout.splitlines()[-1])
                cell = cells.setdefault(method, {}).setdefault(kind.__name__, {"first": [], "second": []})
                cell["first"].append(first)
                cell["second"].append(second)
    return {
        method: {kind: {which: statistics.median(times) for which, times in both.items()} for kind, both in kinds.items()}
        for method, kinds in cells.items()
    }


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--methods", nargs="*", default=["fork", "forkserver", "spawn"], help="start methods (default all three)")


def measure(options: argparse.Namespace, record: Record) -> None:
    record.body["cells"] = first_batches(options.rounds, options.methods)


def bars(body: dict[str, Any]) -> list[Bar]:
    found = [at_most("seconds to the first batch of 8 workers under fork", body["cells"]["fork"]["FastLoader"]["first"], 0.6)]
    for method in ("forkserver", "spawn"):
        if method in body["cells"]:
            cell = body["cells"][method]
            ratio = cell["DataLoader"]["first"] / cell["FastLoader"]["first"]
            found.append(at_least(f"first batch under {method}, times as soon as DataLoader", ratio, 10.0, "{:.1f}x"))
    return found


def table(body: dict[str, Any]) -> str:
    cells = []
    for method, cell in body["cells"].items():
        for which in ("first", "second"):
            theirs, ours = cell["DataLoader"][which], cell["FastLoader"][which]
            cells.append([f"{method}, {which}", f"{theirs:.2f}", f"{ours:.2f}", f"{theirs / ours:.1f}"])
    return f"""
Seconds to the first batch, 8 workers, a dataset of 1.2 million paths; a process's first loader and its second.

{rows(["start method", "DataLoader", "FastLoader", "ratio"], cells)}"""
