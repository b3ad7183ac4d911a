"""Drifts of a fifth planted in each stage of a real pipeline with workers, at a shortened pace: are they named?"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks import drifting_pipeline as pipeline
from benchmarks.cases.watch_simulated import counted
from benchmarks.harness.bar import Bar, at_least
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from pipefix.loader.metering import stage_clock
from pipefix.watching.drift import LAST, MACHINE, Drift, figures_of
from pipefix.watching.watch import Watch
from pipefix.watching.window import Notice, Window
from tests.watching import streams

TITLE = "What a watch notices in a real pipeline"
ISSUE = "6, bar 6"
MINUTES = 40
QUICK = {"repeats": 1, "turns": 1}
PACE = 0.5
"""Seconds a window, instead of 30: so many more looks are allowed that a window holds about as many."""
STEEP, LOOKS = 2.0, 3
"""How far a stage's knob is turned to see what it does to the stage, and for how many windows."""
AFTER, MORE = 90, 6
"""Windows that a drift has to be named in, and that it goes on for after that. A second of this machine differs from the next by more
than half a minute does, so that it takes more of them to be certain."""


def one_job(stages: dict[str, Any], factors: dict[str, float], turns: int) -> Iterator[None]:
    """A drift in each stage, in one job; may be left after each. ``factors`` is learned by the first."""
    stage_clock.SHARE = 1.0  # type: ignore[misc]
    stage_clock.StageClock.__init__.__kwdefaults__["a_sample"] = math.inf
    knobs = pipeline.Knobs()
    server = pipeline.Server(knobs)
    watched = Watch(pipeline.loader(knobs, server.address), every=1e9).start(thread=False)
    try:
        batches = iter(watched)
        run(watched, batches, knobs, 3)
        if not factors:
            factors.update(a_fifth_more(watched, batches, knobs, turns))
        for stage in sorted(pipeline.STAGES, key=lambda name: stages[name]["of"]):
            watched.drift = Drift()
            before = run(watched, batches, knobs, LAST)
            knobs[stage] = factors[stage]
            after = run(watched, batches, knobs, AFTER, named=True)
            after_all = after + run(watched, batches, knobs, MORE)
            knobs[stage] = 1.0
            names = [streams.named(alarm.kind, alarm.stage) for window in before + after_all for alarm in alarms(window)]
            entry = stages[stage]
            entry["of"] += 1
            entry["named"] += names == [stage]
            entry["waited"].append(len(after))
            entry["rose"].append(usual(after_all, stage) / usual(before, stage) - 1)
            told = "+".join(names) or "none"
            entry["alarms"][told] = entry["alarms"].get(told, 0) + 1
            yield
            run(watched, batches, knobs, 2)
        del batches
    finally:
        watched.close()
        server.close()


def a_fifth_more(watched: Watch, batches: Any, knobs: pipeline.Knobs, turns: int) -> dict[str, float]:
    """For each stage what its knob must be turned to, so that the stage as a whole takes a fifth longer: not all that it takes is
    what the knob turns. Neighbouring turns are compared: the machine's pace changes within seconds."""
    factors = {}
    for stage in pipeline.STAGES:
        figures = []
        for factor in (1.0, STEEP) * turns:
            knobs[stage] = factor
            run(watched, batches, knobs, 1)
            figures.append(usual(run(watched, batches, knobs, LOOKS), stage))
        knobs[stage] = 1.0
        rose = statistics.median(high / low for low, high in zip(figures[::2], figures[1::2], strict=True)) - 1
        factors[stage] = 1 + 0.2 * (STEEP - 1) / rose
    return factors


def usual(windows: list[Window], stage: str) -> float:
    """Seconds a sample of a stage."""
    return statistics.median(math.exp(figures_of(window)[stage]) for window in windows if stage in figures_of(window))


def run(watched: Watch, batches: Any, knobs: pipeline.Knobs, windows: int, *, named: bool = False) -> list[Window]:
    """The windows that went by. ``named``: no more of them after an alarm."""
    watched.pulse()
    found = []
    for _ in range(windows):
        until = time.perf_counter() + PACE
        while time.perf_counter() < until:
            next(batches)
            pipeline.step(knobs)
        found.append(watched.pulse())
        if named and alarms(found[-1]):
            break
    return found


def alarms(window: Window) -> list[Notice]:
    """But that of the machine, which may well have become busier."""
    return [notice for notice in window.notices if notice.alarm and notice.kind != MACHINE]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=4, help="drifts of each kind (default 4)")
    parser.add_argument("--turns", type=int, default=9, help="of each knob, to learn what it does to its stage (default 9)")


def measure(options: argparse.Namespace, record: Record) -> bool:
    """A drift of a fifth in one stage at a time; the stage that had the fewest comes next."""
    torch.set_num_threads(1)
    stages = record.body.setdefault("stages", {})
    for stage in pipeline.STAGES:
        stages.setdefault(stage, {"named": 0, "of": 0, "alarms": {}, "waited": [], "rose": []})
    factors: dict[str, float] = {}
    while min(entry["of"] for entry in stages.values()) < options.repeats:
        for _ in one_job(stages, factors, options.turns):
            record.save()
            if record.over():
                return False
            if options.quick:
                return True
    return True


def bars(body: dict[str, Any]) -> list[Bar]:
    named = sum(entry["named"] for entry in body["stages"].values())
    count = sum(entry["of"] for entry in body["stages"].values())
    return [at_least(f"drifts of 20 % planted in a real pipeline named right, of {count}", named / count, 0.95, "{:.1%}")]


def table(body: dict[str, Any]) -> str:
    cells = []
    for stage, entry in body["stages"].items():
        if not entry["of"]:
            continue
        after = f"{statistics.median(entry['waited']):.0f} windows"
        rose = f"{statistics.median(entry['rose']):.0%} ({min(entry['rose']):.0%} to {max(entry['rose']):.0%})"
        cells.append([stage, rose, f"{entry['named']} of {entry['of']}", after, counted(entry["alarms"])])
    return f"""
Two workers; windows of {PACE} s and every batch looked at, so that a window rests on about as many batches as one of 30 s does by
default. Named right: that stage, and no other; that the machine as a whole has become slower may be told besides, and may be true.

A drift goes on until it is named, at most {AFTER} windows. What is planted is a fifth of all that the stage takes (of storage: the
server's latency, and the wait for a core after it); "rose by" is what its figure then did.

{rows(["planted (+20 %)", "rose by (median)", "named right", "after (median)", "alarms"], cells)}"""
