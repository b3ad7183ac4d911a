"""All claims: what each bar is, the last figure for it, when and by which command it was measured, and how long that takes.

scripts/bars                     every bar of every issue
scripts/bars --missed            those that are missed or were never measured
scripts/bars --within MINUTES    of benchmarks that take no longer than that
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.case import load, names
from benchmarks.harness.record import RESULTS, result


@dataclasses.dataclass(frozen=True)
class Claims:
    """The bars of one benchmark, with the run that they were measured in."""

    name: str
    issue: str
    bars: list[Bar]
    date: str
    command: str
    minutes: float | None
    """That a whole run takes; None where it is part of something else."""
    note: str = ""


ELSEWHERE = (
    Claims("help", "2", [], "every test run", "tests/architecture/test_weight.py", None, "--help within 0.25 s, without torch"),
    Claims("golden caches", "3, bar 7", [], "every test run", "tests/caches/test_golden.py", None, "caches of version 1 are read"),
    Claims("operations", "5, bar 1", [], "every test run", "docs/swap.md", None, "operations covered by each target of swap"),
    Claims("on a GPU", "5, bar 5", [], "2026-11-27", "scripts/gpu_check", 15, "rates of augmentation and feeding"),
)
"""Held by tests, or measured where there is a CUDA device."""


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bars", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missed", action="store_true", help="only bars that are missed or were never measured")
    parser.add_argument("--within", type=float, metavar="MINUTES", help="only benchmarks that take no longer")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(given)
    found = [*every(RESULTS), *ELSEWHERE]
    if options.within is not None:
        found = [one for one in found if one.minutes is not None and one.minutes <= options.within]
    if options.missed:
        found = [dataclasses.replace(one, bars=[bar for bar in one.bars if bar.met is not True]) for one in found]
        found = [one for one in found if one.bars]
    print(json.dumps([as_dict(one) for one in found], indent=1) if options.json else text(found))
    return 0


def every(folder: Path) -> list[Claims]:
    return sorted([*(of_case(name, folder) for name in names()), matrix(folder)], key=lambda one: one.issue)


def of_case(name: str, folder: Path) -> Claims:
    try:
        case = load(name)
    except ImportError as error:
        return Claims(name, "?", [], "", f"scripts/bench {name}", None, f"cannot be imported here: {error}")
    body = result(name, folder)
    if body is None:
        return Claims(name, case.issue, [], "never", f"scripts/bench {name}", case.minutes)
    took = body["took_s"] / 60 if "took_s" in body else case.minutes
    return Claims(name, case.issue, case.bars(body), body["date"], body["command"], took, "" if case.bars(body) else case.about)


def matrix(folder: Path) -> Claims:
    """The contract suites on several versions of torch."""
    body = result("test_matrix", folder)
    if body is None:
        return Claims("test_matrix", "15, bar 1", [], "never", "scripts/test_matrix", 20)
    versions = body["versions"]
    failed = [none_of(f"failures of the contract suites on torch {one['torch']}", one["failed"]) for one in versions]
    passed = [one for one in versions if one["passed"] and not one["failed"]]
    bars = [at_least("versions of torch that the contract suites pass on", len(passed), 3, "{:.0f}"), *failed]
    took = sum(one["seconds"] for one in versions) / 60
    return Claims("test_matrix", "15, bar 1", bars, body["date"], "scripts/test_matrix", took)


def text(found: list[Claims]) -> str:
    lines = []
    for one in found:
        took = f", {one.minutes:.0f} min" if one.minutes is not None and one.minutes >= 1 else ""
        lines.append(f"{one.name} (issue {one.issue}): {one.command}{took}; {one.date}{f': {one.note}' if one.note else ''}")
        lines += [f"  {bar.state:12} {bar.figure:>10}  ({bar.wanted})  {bar.claim}" for bar in one.bars]
    bars = [bar for one in found for bar in one.bars]
    missed, absent = sum(bar.met is False for bar in bars), sum(bar.met is None for bar in bars)
    return "\n".join([*lines, "", f"{len(bars)} bars: {len(bars) - missed - absent} met, {missed} missed, {absent} not measured."])


def as_dict(one: Claims) -> dict[str, Any]:
    bars = [{"claim": bar.claim, "figure": bar.value, "bar": bar.wanted, "state": bar.state} for bar in one.bars]
    return {**dataclasses.asdict(one), "bars": bars}


if __name__ == "__main__":
    sys.exit(main())
