"""Reading a cache that is in memory, in random order, by one process: against a bare LMDB loop, and against the dataset's own files.

Two figures: records a second of `CachedDataset.raw` over those of a loop around ``lmdb.Transaction.get`` on the same file, both in memory
of their own; and what `CachedDataset` over ``source`` adds to a sample of the user's own code.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
from torchvision.datasets import ImageFolder

from benchmarks.harness.bar import Bar, at_least, at_most
from benchmarks.harness.page import rows
from benchmarks.harness.pictures import pictures
from benchmarks.harness.record import WORK, Record
from pipefix.caches.convert import convert, recipe_of
from pipefix.caches.dataset import CachedDataset

TITLE = "Reading caches"
ISSUE = "3, bar 2"
MINUTES = 4
QUICK = {"pictures": 96, "rounds": 2}
KEY = struct.Struct(">Q").pack


def made(pictures: Path, store: str) -> Path:
    folder = WORK / f"read-{store}"
    shutil.rmtree(folder, ignore_errors=True)
    convert(ImageFolder(pictures), recipe_of("lmdb", store), folder, target="bench")
    return folder


def rates(cache: Path, rounds: int) -> dict[str, float]:
    """Both loops over all records, each in memory of its own, in turns, each round in an order of its own."""
    cached = CachedDataset(cache)
    environments = [
        lmdb.open(str(cache / part.data(number, "lmdb")), subdir=False, readonly=True, lock=False)
        for number, part in enumerate(cached.manifest.parts)
    ]
    each = cached.manifest.part_samples
    gets = [environment.begin().get for environment in environments]
    raw = cached.raw

    def bare(order: list[int]) -> None:
        for index in order:
            gets[index // each](KEY(index))

    def ours(order: list[int]) -> None:
        for index in order:
            raw(index)

    return turns({"bare": bare, "ours": ours}, len(cached), rounds, "bare", "ours")


def turns(loops: dict[str, Callable[[list[int]], None]], count: int, rounds: int, first: str, second: str) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(rounds + 2):
        order = random.Random(number).sample(range(count), count)
        for name in (first, second) if number % 2 else (second, first):
            begun = time.perf_counter()
            loops[name](order)
            if number > 1:
                times[name].append((time.perf_counter() - begun) / count * 1e6)
    ratios = [one / other for one, other in zip(times[first], times[second], strict=True)]
    return {
        "ratio": statistics.median(ratios),
        "bare_us": statistics.median(times[first]),
        "ours_us": statistics.median(times[second]),
    }


def added(pictures: Path, cache: Path, rounds: int) -> dict[str, float]:
    """The user's code reads its file and looks at it; no decoding, which would hide the difference in noise."""
    plain = ImageFolder(pictures, loader=read)
    over = CachedDataset(cache, dataset=ImageFolder(pictures, loader=read))

    def own(order: list[int]) -> None:
        for index in order:
            plain[index]

    def ours(order: list[int]) -> None:
        for index in order:
            over[index]

    # Once the seams are in, they are in the way of the bare dataset too: bare rounds come first, and after a pause of the seams.
    from pipefix.caches import replay

    def bare(order: list[int]) -> None:
        replay.stop()
        own(order)

    found = {"own": [], "ours": []}  # type: dict[str, list[float]]
    for number in range(rounds + 1):
        order = random.Random(number).sample(range(len(plain)), len(plain))
        replay.stop()
        begun = time.perf_counter()
        own(order)
        middle = time.perf_counter()
        over[order[0]]
        begun_ours = time.perf_counter()
        ours(order)
        ended = time.perf_counter()
        if number:
            found["own"].append((middle - begun) / len(order) * 1e6)
            found["ours"].append((ended - begun_ours) / len(order) * 1e6)
    differences = [ours_us - own_us for ours_us, own_us in zip(found["ours"], found["own"], strict=True)]
    return {
        "added_us": statistics.median(differences), "own_us": statistics.median(found["own"]), "ours_us": statistics.median(found["ours"]),
        "misses": over.misses,
    }  # fmt: skip


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pictures", type=int, default=1200)
    parser.add_argument("--rounds", type=int, default=21)


def measure(options: argparse.Namespace, record: Record) -> None:
    originals = pictures(options.pictures)
    figures: dict[str, Any] = {}
    for store in ("source", "resized"):
        cache = made(originals, store)
        figures[f"lmdb {store}"] = rates(cache, options.rounds)
    figures["source, added to a sample"] = added(originals, WORK / "read-source", options.rounds)
    record.body["figures"] = figures


def bars(body: dict[str, Any]) -> list[Bar]:
    return [
        at_least(f"{name}: of a bare loop's rate", told["ratio"], 0.9)
        if "ratio" in told
        else at_most(f"{name}, µs", told["added_us"], 15.0, "{:.1f}")
        for name, told in body["figures"].items()
    ]


def table(body: dict[str, Any]) -> str:
    cells = []
    for name, told in body["figures"].items():
        said = (
            f"{told['ratio']:.2f} of the bare loop ({told['ours_us']:.2f} and {told['bare_us']:.2f} µs a record)"
            if "ratio" in told
            else f"{told['added_us']:+.1f} µs a sample ({told['own_us']:.0f} without, {told['ours_us']:.0f} with the cache)"
        )
        cells.append([name, said])
    return rows(["what", "figure"], cells)
