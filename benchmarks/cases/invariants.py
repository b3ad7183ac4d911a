"""Nothing is told that no evidence stands under: promises of reports over many made-up measurements.

Arms agree with the clocks, contradict them, or did not run; the promises are those of ``tests/doubles/invariants.py``, which every probe of
the planted benchmarks is held to as well.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import re
import sys
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given

from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from tests.diagnosis.test_evidence import MADE_UP, MadeUp, told
from tests.doubles.invariants import broken

TITLE = "Promises of reports"
ISSUE = "17, bar 2"
MINUTES = 30
QUICK = {"measurements": 20}
TOGETHER = 100
"""Measurements drawn from one seed."""
CODE = ("diagnosis", "plan", "report")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--measurements", type=int, default=20_000, help="how many in all (default 20000)")


def held(seed: int, count: int, kinds: collections.Counter[str]) -> list[dict[str, Any]]:
    """What is broken in so many reports."""
    found: list[dict[str, Any]] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(MADE_UP)
    def each(made_up: MadeUp) -> None:
        run = told(made_up.measurement())
        kinds[run.verdict.kind if run.verdict is not None else "none"] += 1
        wrong = broken(run)
        if wrong:
            found.append({"made_up": str(made_up), "broken": wrong})

    with contextlib.redirect_stdout(sys.stderr):
        each()
    return found


def measure(options: argparse.Namespace, record: Record) -> bool:
    kept = record.body
    if not kept:
        kept |= {"measurements": 0, "seeds": 0, "broken": [], "kinds": {}}
    kinds = collections.Counter[str](kept["kinds"])
    while kept["measurements"] < options.measurements and not record.over():
        before = kinds.total()
        for one in held(kept["seeds"], min(TOGETHER, options.measurements - kept["measurements"]), kinds):
            kept["broken"].append(one)
            print(one, flush=True)
        kept |= {"seeds": kept["seeds"] + 1, "measurements": kept["measurements"] + kinds.total() - before, "kinds": dict(kinds)}
        record.save()
        if kept["seeds"] % 10 == 0:
            print(f"{kept['measurements']} measurements, {len(kept['broken'])} with a broken promise", file=sys.stderr, flush=True)
    return bool(kept["measurements"] >= options.measurements)


def bars(body: dict[str, Any]) -> list[Bar]:
    return [
        at_least("made-up measurements", body["measurements"], 20_000, "{:,.0f}"),
        none_of("reports that break a promise", len(body["broken"])),
    ]


def table(body: dict[str, Any]) -> str:
    which = collections.Counter(re.sub(r"[\d.]+", "N", one) for case in body["broken"] for one in case["broken"])
    broken_ones = f"\n\nBroken:\n\n{rows(['promise', 'times'], [list(one) for one in which.most_common()])}" if which else ""
    return f"""
Verdicts told of them:

{rows(["verdict", "measurements"], [[kind, f"{count:,}"] for kind, count in sorted(body["kinds"].items())])}{broken_ones}"""
