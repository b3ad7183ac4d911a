"""Runs five pipelines in every way, lets the tuner choose, and holds its choice against the best of all."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import torch

import pipefix
from benchmarks import pipelines_to_tune as pipelines
from benchmarks.harness.bar import Bar, at_least, at_most
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from pipefix.plan.planfile import LoaderChange
from pipefix.system.machine import look
from pipefix.tuning.space import FEW_PREFETCHED, Settings, said
from tests.tuning import grids

TITLE = "Tuning real pipelines"
ISSUE = "6, bar 1"
MINUTES = 15
QUICK = {"seconds": 0.1, "rounds": 1, "turns": 2, "budget": 8.0}
FINALISTS = 3
"""The best by the first look at all; what each truly delivers is settled beside the choice."""
EVERY = [Settings(count) for count in pipelines.COUNTS]
EVERY += [Settings(count, engine="processes") for count in pipelines.COUNTS if count]


def run(name: str, ways: list[Settings], seconds: float, rounds: int, budget: float, turns: int) -> dict[str, Any]:
    found: dict[Settings, list[float]] = {settings: [] for settings in ways}
    for turn in range(rounds):
        for settings in ways[:: 1 if turn % 2 == 0 else -1]:
            found[settings].append(pipelines.rate(name, settings, seconds))
    begun = time.perf_counter()
    tuned = pipefix.tune(pipelines.loader(name), budget=budget, max_workers=max(pipelines.COUNTS))
    spent = time.perf_counter() - begun
    chosen = as_chosen(tuned.settings)
    rates = {settings: statistics.median(values) for settings, values in found.items()}
    finalists = sorted(ways, key=lambda settings: -rates[settings])[:FINALISTS]
    # Single runs differ by a tenth and more. Every second turn says which is best, and the others by how much, or the luckiest would be
    # held against the choice.
    again: dict[Settings, list[float]] = {settings: [] for settings in (*finalists, chosen, Settings(0))}
    for turn in range(turns):
        for settings in list(again)[:: 1 if turn % 2 == 0 else -1]:
            again[settings].append(pipelines.rate(name, settings, 0.5))

    def over(other: Settings, first: int) -> float:
        return statistics.median(
            ours / theirs for ours, theirs in zip(again[chosen][first::2], again[other][first::2], strict=True)
        )

    best = min(again, key=lambda other: over(other, 0))
    return {
        "pipeline": name, "rates": {settings.workers: rate for settings, rate in rates.items() if settings.engine is None},
        "spread": statistics.median(max(v) / min(v) - 1 for v in found.values()), "best": said(best),
        "chosen": said(chosen), "said": tuned.report.sentence, "trials": sum(one.status == "run" for one in tuned.trials),
        "tune_s": spent, "share": min(1.0, over(best, 1)), "over_start": over(Settings(0), 1),
    }  # fmt: skip


def as_chosen(changes: LoaderChange) -> Settings:
    """What a plan's loader runs with, begun without workers."""
    return Settings(
        changes.num_workers or 0,
        prefetch=changes.prefetch_factor or FEW_PREFETCHED,
        in_order=changes.in_order is not False,
        worker_threads=changes.worker_threads,
        engine=changes.engine,
    ).normal()


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=0.6, help="of a plain loop (default 0.6)")
    parser.add_argument("--rounds", type=int, default=2, help="of all ways (default 2)")
    parser.add_argument("--turns", type=int, default=30, help="of the finalists, the choice and the start (default 30)")
    parser.add_argument("--budget", type=float, default=80.0, help="seconds a tuning may take (default 80)")


def measure(options: argparse.Namespace, record: Record) -> bool:
    torch.set_num_threads(1)  # a process that is forked after OpenMP made its threads hangs when it computes
    done: list[dict[str, Any]] = record.body.setdefault("cases", [])
    for name in list(pipelines.PIPELINES)[: 1 if options.quick else None]:
        if name in [one["pipeline"] for one in done]:
            continue
        if record.over():
            return False
        done.append(
            run(name, EVERY[:3] if options.quick else EVERY, options.seconds, options.rounds, options.budget, options.turns)
        )
        record.save()
        print(done[-1], flush=True)
    if not options.quick:
        keep_grids(done)
    return True


def keep_grids(cases: list[dict[str, Any]]) -> None:
    """What was measured, as grids that the case `tune` plays as well."""
    cores = look().effective_cores
    kept = [
        {
            "name": f"measured-{one['pipeline']}", "cores": cores, "rates": one["rates"], "noise": 0.04,
            "computing": 0.1 if one["pipeline"] == "wait" else 1.0,
        }
        for one in cases
    ]  # fmt: skip
    grids.MEASURED.parent.mkdir(parents=True, exist_ok=True)
    grids.MEASURED.write_text(json.dumps({"grids": kept}, indent=1) + "\n")


def bars(body: dict[str, Any]) -> list[Bar]:
    cases = body["cases"]
    return [
        at_least("real pipelines", len(cases), 5, "{:.0f}"),
        at_least("the choice's rate of the best way's, worst pipeline", min(one["share"] for one in cases), 0.95, "{:.1%}"),
        at_most("seconds of a tuning, longest", max(one["tune_s"] for one in cases), 90.0, "{:.0f}"),
        at_least("the choice over the start, worst pipeline", min(one["over_start"] for one in cases), 0.97, "{:.2f}x"),
    ]


def table(body: dict[str, Any]) -> str:
    cells = [
        [
            one["pipeline"], one["best"], one["chosen"], f"{one['share']:.1%}", f"{one['over_start']:.2f}x", one["trials"],
            f"{one['tune_s']:.0f} s",
        ]
        for one in body["cases"]
    ]  # fmt: skip
    return f"""
Five small pipelines without a consumer, run in a plain loop in {len(EVERY)} ways ({len(pipelines.COUNTS)} numbers of workers, handed over as torch
does and through FastLoader's slots), then tuned from none; the best {FINALISTS}, the choice and the start were then run in turns, half a
second each, every run in a process of its own. The best is what did best in every second turn; medians of the ratios of neighbouring
runs in the others.

{rows(["pipeline", "best", "chosen", "of the best", "over the start", "trials", "time"], cells)}"""
