"""Ten thousand caches that something happened to: each opens right, or says that it is damaged and what to do.

Each is opened and read to its end in a child process that is watched for crashes, hangs and memory. A child takes many in turn.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import random
import resource
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.bar import Bar, at_least, at_most, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import WORK, Record
from pipefix.caches import survey
from pipefix.caches.convert import convert, recipe_of
from pipefix.caches.dataset import CachedDataset
from tests.caches import mutating
from tests.caches.sources import Files, Numbers, Texts, draw

TITLE = "Mutated caches"
ISSUE = "3, bar 5"
MINUTES = 20
QUICK = {"caches": 200}
CODE = ("caches",)
CASES = [
    ("source", "lmdb"),
    ("resized", "lmdb"),
    ("decoded", "lmdb"),
    ("sample", "lmdb"),
    ("rows", "parquet"),
]
EACH = 100
PATIENCE = 60.0


def portion(wholes: dict[str, tuple[Path, list[Any]]], numbers: range, seed: int, told: dict[str, Any]) -> None:
    """A child of its own takes these, all of one kind of cache."""
    name = list(wholes)[numbers.start // EACH % len(wholes)]
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=batch, args=(sending, wholes[name], numbers, seed))
    process.start()
    sending.close()
    try:
        said = receiving.recv() if receiving.poll(PATIENCE) else None
    except EOFError:
        said = None
    process.join(1.0)
    if said is None or process.exitcode != 0:
        process.kill()
        process.join()
        told["wrong"].append(f"{name}, {numbers.start} to {numbers.stop}: crashed or hung (exit code {process.exitcode})")
        return
    for outcome, count in said["outcomes"].items():
        told["outcomes"][outcome] = told["outcomes"].get(outcome, 0) + count
    told["wrong"] += said["wrong"]
    told["peak"], told["own"] = max(told["peak"], said["peak"]), max(told["own"], said["own"])


def make(store: str, to: str) -> tuple[Path, list[Any]]:
    folder = WORK / f"mutated-{store}-{to}"
    shutil.rmtree(folder, ignore_errors=True)
    pictures = [draw(WORK / "mutation-pictures" / f"{index:02d}.jpg", index) for index in range(12)]
    dataset = Texts(200) if store == "rows" else Numbers(40) if store == "sample" else Files(pictures)
    survey._part_samples = lambda samples, record_bytes: -(-len(dataset) // 3)  # type: ignore[assignment]
    convert(dataset, recipe_of(to, store), folder, workers=0)
    cached = CachedDataset(folder)
    return folder, [mutating.plain(cached[index]) for index in range(len(cached))]


def memory() -> int:
    """The most that this process ever held, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def reading_all(wholes: dict[str, tuple[Path, list[Any]]]) -> tuple[int, int]:
    """Peak memory of a child that reads every whole cache, and how much of that came while it did."""
    receiving, sending = multiprocessing.Pipe(duplex=False)

    def read() -> None:
        begun = memory()
        for folder, expected in wholes.values():
            assert mutating.outcome(folder, expected, False) == "right"
        sending.send((memory(), memory() - begun))

    process = multiprocessing.get_context("fork").Process(target=read)
    process.start()
    told: tuple[int, int] = receiving.recv()
    process.join()
    return told


def batch(sending: Any, whole: tuple[Path, list[Any]], numbers: range, seed: int) -> None:
    folder, expected = whole
    outcomes: collections.Counter[str] = collections.Counter()
    wrong = []
    begun_with = memory()
    for number in numbers:
        chance = random.Random(f"{seed} {number}")
        copied = mutating.copy(folder, WORK / "mutated")
        what = mutating.mutate(copied, chance)
        begun = time.perf_counter()
        try:
            found = mutating.outcome(copied, expected, "forge" in what)
        except Exception as error:  # noqa: BLE001 - what must not be: told with the mutation that led to it
            found = f"wrong: {type(error).__name__}: {error}"
        if found.startswith("wrong") or time.perf_counter() - begun > 5:
            wrong.append(f"{number}: {what}: {found}")
        outcomes[found.partition(":")[0]] += 1
    sending.send({"outcomes": outcomes, "wrong": wrong, "peak": memory(), "own": memory() - begun_with})


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--caches", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)


def measure(options: argparse.Namespace, record: Record) -> bool:
    told = record.body
    if not told:
        told |= {"done": 0, "outcomes": {}, "wrong": [], "peak": 0, "base": 0, "own": 0, "whole": 0, "seed": options.seed}
    if told["done"] < options.caches:
        wholes = {f"{store} in {to}": make(store, to) for store, to in CASES}
        told["base"], told["whole"] = reading_all(wholes)
        while told["done"] < options.caches and not record.over():
            stop = min(told["done"] + EACH, options.caches)
            portion(wholes, range(told["done"], stop), options.seed, told)
            told["done"] = stop
            record.save()
            print(f"{stop}: {told['outcomes']}, {len(told['wrong'])} wrong", file=sys.stderr)
    return bool(told["done"] >= options.caches)


def bars(body: dict[str, Any]) -> list[Bar]:
    return [
        at_least("caches that something happened to", body["done"], 10_000, "{:.0f}"),
        none_of("crashed, hung, or opened wrong", len(body["wrong"])),
        at_most("peak memory over that of a process that reads whole caches", body["peak"] / body["base"], 2.0),
    ]


def table(body: dict[str, Any]) -> str:
    return f"""
{rows(["outcome", "caches"], sorted(body["outcomes"].items()))}

Above what it began with, a process that read {EACH} mutated ones took at most {body["own"] / 1024:.1f} MiB; one that read all the whole
ones, {body["whole"] / 1024:.1f} MiB."""
