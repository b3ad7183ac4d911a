"""Fused loaders on the recipes that people train with, against the stock DataLoader, in turns: samples a second, and equal samples."""

from __future__ import annotations

import argparse
import gc
import importlib.util
import statistics
import sys
import time
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from benchmarks.harness.bar import Bar, at_least
from benchmarks.harness.page import rows
from benchmarks.harness.pictures import pictures
from benchmarks.harness.record import Record
from benchmarks.harness.turns import in_turns, median_ratio, ratios
from benchmarks.recipes import DATASETS, Lists, read
from pipefix.loader.fast_loader import FastLoader

TITLE = "Recipes that people train with"
ISSUE = "19, bar 1"
MINUTES = 45
QUICK = {"rounds": 1, "count": 96}
BATCH, COMPARED = 64, 32
PEER = "torchvision v2 on tensors"


RECIPE = "recipe: "


def pipelines(folder: Any) -> dict[str, Any]:
    """Datasets by name; None where a library is missing."""
    found = {RECIPE + name: ImageFolder(str(folder), transform) for name, transform in Lists().every().items()}
    for name, (module, make) in DATASETS.items():
        found[f"dataset: {name}"] = make(folder) if importlib.util.find_spec(module) else None
    return found


def on_tensors(folder: Any) -> dict[str, Any]:
    """The same recipes by torchvision's v2 on tensors, which can do all of them: the peer that asks for no other format."""
    return {
        RECIPE + name: ImageFolder(str(folder), transform, loader=read)
        for name, transform in Lists(v2, tensors=True).every().items()
    }


def equal(dataset: Any, fused: Any) -> bool | None:
    """Whether the first batches are those of the dataset's own code under the same random numbers; None: nothing is fused."""
    if fused.explain().startswith("Not fused"):
        return None
    own = FastLoader(dataset, COMPARED, rng="sample") if "by fused calls" in fused.explain() else DataLoader(dataset, COMPARED)
    batches = []
    for loader in (own, FastLoader(dataset, COMPARED, fuse="exact")):
        torch.manual_seed(5)
        batches.append(next(iter(loader)))
    return _equal(*batches)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def epoch(loader: Any) -> float:
    begun = time.perf_counter()
    for batch in loader:
        del batch
    return time.perf_counter() - begun


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=768, help="pictures (default 768)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", action="append", default=[], help="this pipeline; the rest is left for later; may be repeated")


def measure(options: argparse.Namespace, record: Record) -> bool:
    torch.set_num_threads(1)
    cells = record.body.setdefault("cells", {})
    folder = pictures(options.count)
    every, peers = pipelines(folder), on_tensors(folder)
    record.body["missing"] = [name for name, dataset in every.items() if dataset is None]
    left = False
    for name, dataset in list(every.items())[: 1 if options.quick else None]:
        if name in cells or dataset is None:
            continue
        if record.over() or (options.only and name not in options.only):
            left = True
            continue
        settings = {"batch_size": BATCH, "shuffle": True, "num_workers": options.workers, "persistent_workers": options.workers > 0}
        stock, fast = DataLoader(dataset, **settings), FastLoader(dataset, fuse="exact", **settings)
        same = equal(dataset, fast)
        arms = {"DataLoader": lambda stock=stock: epoch(stock), "FastLoader": lambda fast=fast: epoch(fast)}
        if name in peers:
            peer = DataLoader(peers[name], **settings)
            arms[PEER] = lambda peer=peer: epoch(peer)
        figures = in_turns(arms, options.rounds, before=gc.collect)
        pairs = ratios(figures, "DataLoader", "FastLoader")
        cells[name] = {
            "ratio": statistics.median(pairs), "lowest": min(pairs), "highest": max(pairs), "equal": same, "count": options.count,
            "peer": median_ratio(figures, PEER, "FastLoader") if PEER in figures else None,
            "seconds": {kind: statistics.median(times) for kind, times in figures.items()}, "explain": fast.explain(),
        }  # fmt: skip
        record.save()
        print(f"{name}: {statistics.median(pairs):.2f} {'equal' if same else 'not equal'}", file=sys.stderr)
        arms.clear()
        stock = fast = peer = None  # and their workers with them
    return not left


def bars(body: dict[str, Any]) -> list[Bar]:
    found = [cell["ratio"] for cell in body["cells"].values()]
    peers = [cell["peer"] for cell in body["cells"].values() if cell["peer"]]
    fused = sum(not cell["explain"].startswith("Not fused") for cell in body["cells"].values())
    return [
        at_least("pipelines that are fused as a whole or in part, of 19", fused, 19),
        at_least("of them with equal samples", sum(bool(cell["equal"]) for cell in body["cells"].values()), 19),
        at_least("throughput over DataLoader's, median", statistics.median(found), 2.0),
        at_least("throughput over DataLoader's, slowest", min(found), 1.3),
        at_least("throughput over torchvision's v2 on tensors, slowest recipe", min(peers) if peers else None, 1.3),
    ]


def table(body: dict[str, Any]) -> str:
    cells = [
        [
            name, f"{cell['ratio']:.2f}", f"{cell['lowest']:.2f}-{cell['highest']:.2f}",
            f"{cell['count'] / cell['seconds']['DataLoader']:.0f}", f"{cell['count'] / cell['seconds']['FastLoader']:.0f}",
            f"{cell['peer']:.2f}" if cell["peer"] else "", {True: "yes", False: "no", None: ""}[cell["equal"]], _how(cell["explain"]),
        ]
        for name, cell in body["cells"].items()
    ]  # fmt: skip
    missing = f"\nNot installed where this ran: {', '.join(body['missing'])}.\n" if body["missing"] else ""
    heads = [
        "pipeline",
        "ratio",
        "lowest-highest pair",
        "DataLoader samples/s",
        "FastLoader samples/s",
        "over v2 on tensors",
        "equal",
        "fused",
    ]
    return f"""
Throughput of `FastLoader(..., fuse="exact")` over the stock `DataLoader`'s, and over that of a `DataLoader` whose list is torchvision's v2 on
tensors of `decode_image`; workers kept up, arms in turns; medians. Pictures of 480 x 400.
{missing}
{rows(heads, cells)}"""


def _how(explained: str) -> str:
    if explained.startswith("Not fused"):
        return "no"
    return "in part" if "n part, as" in explained else "whole"
