"""Memory of four workers that go through a list of 1.2 million paths, over that of one copy."""

from __future__ import annotations

import argparse
import gc
import statistics
from typing import Any

import psutil
from torch.utils.data import DataLoader

from benchmarks.cases.starting import Paths
from benchmarks.harness.bar import Bar, at_most
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from pipefix.loader.fast_loader import FastLoader

TITLE = "Memory of four workers over a long list"
ISSUE = "4, bar 6"
MINUTES = 3
QUICK = {"rounds": 1, "paths": 20_000}
KINDS: tuple[Any, ...] = (DataLoader, FastLoader)


def memory(rounds: int, paths: int) -> dict[str, Any]:
    """PSS of all processes over that of the parent before, at the end of an epoch."""
    found: dict[str, list[float]] = {}
    dataset = Paths(paths)
    for kind in KINDS * rounds:
        gc.collect()
        before = psutil.Process().memory_full_info().pss
        for number, batch in enumerate(kind(dataset, batch_size=1024, num_workers=4, shuffle=True)):
            del batch
            if number == len(dataset) // 1024 - 8:
                processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
                found.setdefault(kind.__name__, []).append(sum(process.memory_full_info().pss for process in processes) / before)
    return {kind: statistics.median(ratios) for kind, ratios in found.items()}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--paths", type=int, default=1_200_000)


def measure(options: argparse.Namespace, record: Record) -> None:
    record.body["cells"] = memory(options.rounds, options.paths)


def bars(body: dict[str, Any]) -> list[Bar]:
    return [at_most("PSS of all processes over one copy of the list, after an epoch", body["cells"]["FastLoader"], 1.15)]


def table(body: dict[str, Any]) -> str:
    return f"""
Four workers over a list of 1.2 million paths, shuffled: PSS of all processes near the end of an epoch over the parent's before.

{rows(["loader", "PSS"], [[kind, f"{ratio:.2f}"] for kind, ratio in body["cells"].items()])}"""
