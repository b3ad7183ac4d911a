"""Pipelines with nothing to gain: the step sets the pace. They are to be told so, and no remedy is to be proposed.

Drawn as the unseen ones are, of the same libraries, with workers and a step of their own.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.cases import verdict_unseen
from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.planted import options as planted_options
from benchmarks.harness.record import Record
from benchmarks.unseen.pipeline import healthy

TITLE = "Healthy pipelines"
ISSUE = "32, bar 1"
MINUTES = 45
CODE = (*verdict_unseen.CODE, "plan")
QUICK = {"cases": 2, "budget": 5.0, "tries": 1, "patience": 0.0}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", type=int, default=66, help="how many pipelines to draw (default 66: some will drift)")
    planted_options(parser, budget=30.0, only="cases whose name contains")
    parser.add_argument("--seed", type=int, default=0)
    verdict_unseen.kept_and_tried(parser)


def measure(options: argparse.Namespace, record: Record) -> bool:
    return verdict_unseen.judged(options, record, healthy(options.cases, options.seed))


def bars(body: dict[str, Any]) -> list[Bar]:
    counted = [result for result in body["cases"] if result["outcome"] in verdict_unseen.COUNTED]
    well = sum(_told_healthy(result) for result in counted)
    return [
        at_least("healthy pipelines judged", len(counted), 60, "{:.0f}"),
        at_least("told as step-bound, and nothing proposed", well / max(1, len(counted)), 59 / 60, "{:.1%}"),
        none_of("told as input-bound", sum(result["outcome"] == "wrong" for result in counted)),
    ]


def _told_healthy(result: dict[str, Any]) -> bool:
    return result["said"] == "step" and result["remedy"] is None


def table(body: dict[str, Any]) -> str:
    amiss = [result for result in body["cases"] if not _told_healthy(result)]
    listed = [
        [result["name"], result["outcome"], result.get("remedy") or "none", result.get("sentence", result.get("error", ""))]
        for result in amiss
    ]
    return f"""
{verdict_unseen.summary(body["cases"])}. Probed for {body["budget_s"]:g} s each. Workers are kept from epoch to epoch: some epochs last
for a second or two, and starting workers in each is something to gain.

## All that were not told so

{rows(["pipeline", "outcome", "remedy", ""], listed or [["none", "", "", ""]])}"""
