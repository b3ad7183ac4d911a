"""Plant ratios of supply to demand, and hold the certificate's stall against the truth.

The truth is what the same loader and the same sleeping step do in a plain loop, run before and after, once what was made in advance
is used up; what was planted is told beside it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from benchmarks.harness.bar import Bar, at_most
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from pipefix.report.tune_report import Certificate
from tests.tuning.paced import Paced, as_list

TITLE = "The certificate's stall"
ISSUE = "6, bar 3"
MINUTES = 25
QUICK = {"count": 2, "seconds": 0.5}
STEP_S = 0.02
BATCH = 4


def ratios(count: int) -> Iterator[float]:
    """Supply over demand, from a quarter to three times, spread evenly in logarithms and out of order."""
    for number in range(count):
        place = (number * 0.618034) % 1.0
        yield round(0.25 * 12**place, 3)


def planted_stall(ratio: float) -> float:
    return max(0.0, 1 - ratio)


def loader_of(ratio: float, workers: int) -> DataLoader[Any]:
    return DataLoader(Paced(workers * STEP_S / BATCH / ratio), batch_size=BATCH, num_workers=workers, collate_fn=as_list)


LONGEST_DRAIN = 600
"""Batches that a plain loop takes at most before what was made in advance is believed to be gone."""


def drained(ratio: float, workers: int) -> int:
    """Batches after which a plain loop has used up what was made in advance, where less is made than it takes."""
    ahead = 2 * workers
    return 4 * workers + (min(LONGEST_DRAIN, round(ahead / (1 - ratio))) if ratio < 1 else 0) // workers * workers


def plain_stall(ratio: float, workers: int, seconds: float) -> float:
    """Share of a plain loop's time that it waits for batches; what was made before it began, and what lasts of it, is left out."""
    waited = stepped = 0.0
    loader = loader_of(ratio, workers)
    iterator = iter(loader)
    until = time.perf_counter() + 60
    settled = drained(ratio, workers)
    for number in range(10**9):
        asked_s = time.perf_counter()
        next(iterator)
        got = time.perf_counter()
        time.sleep(STEP_S)
        done = time.perf_counter()
        if number == settled:
            until = done + seconds
        if number > settled:
            waited, stepped = waited + got - asked_s, stepped + done - got
            if done > until and (number - settled) % workers == 0:
                break
    del iterator
    return waited / (waited + stepped)


def certified(ratio: float, workers: int, budget: float) -> Certificate:
    """What `pipefix.tune` says of the settings as they are."""
    import pipefix

    return pipefix.tune(loader_of(ratio, workers), step_ms=1e3 * STEP_S, trials=1, budget=budget).certificate


def case(ratio: float, workers: int, seconds: float) -> dict[str, Any]:
    before = plain_stall(ratio, workers, seconds)
    told = certified(ratio, workers, budget=8 * seconds)
    after = plain_stall(ratio, workers, seconds)
    truth = statistics.fmean((before, after))
    return {
        "ratio": ratio, "workers": workers, "planted": planted_stall(ratio), "truth": truth, "apart": abs(before - after),
        "told": told.stall.value, "low": told.stall.low, "high": told.stall.high, "error": told.stall.value - truth, "fed": told.fed,
    }  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=50, help="ratios (default 50)")
    parser.add_argument("--seconds", type=float, default=1.5, help="of a plain loop (default 1.5)")


def measure(options: argparse.Namespace, record: Record) -> bool:
    done: list[dict[str, Any]] = record.body.setdefault("cases", [])
    for number, ratio in enumerate(ratios(options.count)):
        if number < len(done):
            continue
        if record.over():
            return False
        done.append(case(ratio, 1 + number % 3, options.seconds))
        record.save()
        print(done[-1], flush=True)
    return True


def bars(body: dict[str, Any]) -> list[Bar]:
    errors = [abs(one["error"]) for one in body["cases"]]
    return [
        at_most(
            f"the certificate's stall from the truth, worst of {len(errors)} ratios of supply to demand",
            max(errors),
            0.01,
            "{:.2%}",
        )
    ]


def table(body: dict[str, Any]) -> str:
    errors = [abs(one["error"]) for one in body["cases"]]
    noisy = sum(one["apart"] > 0.01 for one in body["cases"])
    cells = [
        [
            f"{one['ratio']:.2f}", one["workers"], f"{one['planted']:.1%}", f"{one['truth']:.1%}",
            f"{one['told']:.1%} ({one['low']:.1%} to {one['high']:.1%})", f"{100 * one['error']:+.2f}",
        ]
        for one in body["cases"]
    ]  # fmt: skip
    return f"""
Samples that take a planted time to make, a consumer that sleeps {1e3 * STEP_S:g} ms a batch. The truth: the share of the time that a plain
loop over the same loader waits, before and after, once what was made in advance is used up. The median error is
{100 * statistics.median(errors):.2f} points; in {noisy} cases the two plain loops themselves lay more than a point apart.

{rows(["supply to demand", "workers", "planted", "truth", "certificate", "points apart"], cells)}"""
