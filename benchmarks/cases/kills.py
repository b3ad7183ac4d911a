"""Kills conversions at random moments, two hundred times a container, and compares every finished cache with one left alone."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import WORK, Record
from tests.caches import killing
from tests.caches.sources import draw

TITLE = "Kills of conversions"
ISSUE = "3, bar 4"
MINUTES = 20
QUICK = {"kills": 4, "pictures": 24}
CODE = ("caches",)
CONTAINERS = ("lmdb",)
STORES = ("source", "resized")
EACH = 8
EMPTY = {"kills": 0, "finished": 0, "unequal": 0, "opened": 0, "wrong": []}


def campaign(
    nursery: killing.Nursery, pictures: Path, to: str, store: str, options: argparse.Namespace, told: dict[str, Any], record: Record
) -> None:
    share = options.kills // len(STORES)
    if told["kills"] >= share or record.over():
        return
    job = {"pictures": pictures, "to": to, "store": store, "each": EACH}
    alone, out = WORK / "kill-alone", WORK / "kill-out"
    shutil.rmtree(alone, ignore_errors=True)
    seconds = killing.whole(nursery, alone, **job)
    expected = killing.contents(alone)
    while told["kills"] < share and not record.over():
        shutil.rmtree(out, ignore_errors=True)
        chance = random.Random(f"{options.seed} {to} {store} {told['finished']}")
        kills, wrong = killing.killed(nursery, out, seconds * 0.5, chance, **job)
        told["kills"] += kills
        told["finished"] += 1
        told["unequal"] += killing.contents(out) != expected
        told["opened"] += sum("half-built" in one for one in wrong)
        told["wrong"] += wrong
        record.save()
        print(f"{to} {store}: {told['kills']} kills, {told['finished']} finished, {told['unequal']} unequal", file=sys.stderr)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=200, help="a container (default 200)")
    parser.add_argument("--pictures", type=int, default=160)
    parser.add_argument("--seed", type=int, default=0)


def measure(options: argparse.Namespace, record: Record) -> bool:
    pictures = WORK / "kill-pictures"
    if not (pictures / f"{options.pictures - 1:03d}.jpg").exists():
        for index in range(options.pictures):
            draw(pictures / f"{index:03d}.jpg", index, size=(400, 300))
    figures = record.body.setdefault("figures", {})
    record.body["seed"] = options.seed
    with killing.Nursery() as nursery:
        for to in CONTAINERS:
            for store in STORES:
                told = figures.setdefault(f"{to} {store}", {**EMPTY, "wrong": []})
                campaign(nursery, pictures, to, store, options, told, record)
    return all(one["kills"] >= options.kills // len(STORES) for one in figures.values())


def bars(body: dict[str, Any]) -> list[Bar]:
    each = {to: sum(one["kills"] for name, one in body["figures"].items() if name.startswith(to)) for to in CONTAINERS}
    return [
        at_least("kills a container", min(each.values()), 200, "{:.0f}"),
        none_of("caches unequal to one left alone", sum(one["unequal"] for one in body["figures"].values())),
        none_of("opened half-built, or wrong otherwise", sum(len(one["wrong"]) for one in body["figures"].values())),
    ]


def table(body: dict[str, Any]) -> str:
    cells = [[*name.split(), one["kills"], one["finished"], one["unequal"], one["opened"]] for name, one in body["figures"].items()]
    return rows(["container", "store", "kills", "caches finished", "not equal", "opened half-built"], cells)
