"""Verdicts on pipelines written as users write them: libraries known and unknown to seams, from 10 µs to 2 s a sample.

Each is a file of its own, made from seeds. A second copy of it with a clock around every part says what is true, before the probe and
after it; a pipeline that did not do what was drawn is drawn again later and counted apart. Half run beside a neighbour that comes
and goes.
"""

from __future__ import annotations

import argparse
import functools
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.harness.bar import Bar, at_least, at_most, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.planted import options as planted_options
from benchmarks.harness.record import Record
from benchmarks.unseen.parts import known
from benchmarks.unseen.pipeline import Unseen, draw

TITLE = "Verdicts on pipelines that the probe had not seen"
ISSUE = "17, bar 1"
MINUTES = 120
CODE = ("hooks", "subject", "measurement", "diagnosis")
QUICK = {"cases": 2, "budget": 5.0, "tries": 1, "patience": 0.0}

COUNTED = ("right", "inconclusive", "wrong")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", type=int, default=240, help="how many pipelines to draw (default 240)")
    planted_options(parser, budget=15.0, only="cases whose name contains")
    parser.add_argument("--seed", type=int, default=0)
    kept_and_tried(parser)


def kept_and_tried(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tries", type=int, default=2, help="how often one that drifted is made and probed (default 2)")
    parser.add_argument(
        "--keep", type=Path, help="folder for the measurements; one that is there is judged by today's rules, not measured"
    )


def measure(options: argparse.Namespace, record: Record) -> bool:
    return judged(options, record, draw(options.cases, options.seed))


def judged(options: argparse.Namespace, record: Record, drawn_pipelines: list[Unseen]) -> bool:
    """Judge one pipeline after the other, as far as this portion goes."""
    from benchmarks.unseen.judged import judge, judged_anew
    from measured.planted import quiet
    from measured.planted.children import in_child
    from measured.planted.judge import preload

    preload()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    tried: list[dict[str, Any]] = record.body.setdefault("tried", [])
    wanted = [each for each in drawn_pipelines if known(each.family).installed]
    for drawn in wanted:
        if options.only and not any(part in drawn.name for part in options.only):
            continue
        while not _settled(drawn.name, tried, options.tries):
            if record.over():
                break
            first = drawn.name not in {each["name"] for each in tried}
            result = judged_anew(drawn.name, options.keep) if options.keep and first else None
            if result is None:
                quiet.wait(options.patience)
                work = functools.partial(judge, drawn, budget=options.budget, keep=options.keep)
                result = in_child(work, timeout=120 + 6 * options.budget)
            if "error" in result:
                result = {"name": drawn.name, "truth": drawn.truth, "outcome": "error", "said": "error", **result}
            tried.append(result)
            record.save()
            print(
                f"{result['outcome']:12s} {result['name']:40s} said {result['said']}: {result.get('sentence') or result.get('error')}"
            )
    if not all(_settled(drawn.name, tried, options.tries) for drawn in wanted):
        print(f"{summary(tried)}\n{len(wanted) - len({each['name'] for each in tried})} of {len(wanted)} are left")
        return False
    latest = {result["name"]: result for result in tried}
    record.body |= {"cases": list(latest.values()), "budget_s": options.budget, "left_out": options.cases - len(wanted)}
    del record.body["tried"]
    return True


def _settled(name: str, tried: list[dict[str, Any]], most: int) -> bool:
    found = [result["outcome"] for result in tried if result["name"] == name]
    return bool(found) and (found[-1] in COUNTED or len(found) >= most)


def summary(results: list[dict[str, Any]]) -> str:
    latest = {result["name"]: result["outcome"] for result in results}
    return ", ".join(f"{count} {outcome}" for outcome, count in Counter(latest.values()).most_common())


def bars(body: dict[str, Any]) -> list[Bar]:
    counted = [result for result in body["cases"] if result["outcome"] in COUNTED]
    share = {outcome: sum(result["outcome"] == outcome for result in counted) / max(1, len(counted)) for outcome in COUNTED}
    own = [result["line"] for result in counted if result.get("own")]
    return [
        at_least("unseen pipelines judged", len(counted), 200, "{:.0f}"),
        at_least("verdicts right, in stage or line", share["right"], 0.96, "{:.1%}"),
        at_most("verdicts confidently wrong", share["wrong"], 0.005, "{:.1%}"),
        at_least(f"lines named, of {len(own)} pipelines whose own code limits", sum(own) / max(1, len(own)), 0.9, "{:.1%}"),
        none_of("probes that contradict themselves", sum(bool(result.get("broken")) for result in counted)),
    ]


def table(body: dict[str, Any]) -> str:
    results = body["cases"]
    cells = []
    for truth in sorted({result["truth"] for result in results}):
        of_it = [result for result in results if result["truth"] == truth and result["outcome"] in COUNTED]
        cells.append([truth, *(str(sum(result["outcome"] == outcome for result in of_it)) for outcome in COUNTED)])
    amiss = [result for result in results if result["outcome"] != "right"]
    listed = [
        [result["name"], result["outcome"], result["said"], result.get("sentence", result.get("error", ""))] for result in amiss
    ]
    return f"""
{summary(results)}; {body["left_out"]} stand on libraries that are not installed here. Probed for {body["budget_s"]:g} s each{_anew(results)}.

{rows(["what limits", *COUNTED], cells)}

## All that were not right

{rows(["pipeline", "outcome", "said", ""], listed or [["none", "", "", ""]])}"""


def _anew(results: list[dict[str, Any]]) -> str:
    count = sum(bool(result.get("anew")) for result in results)
    return f"; {count} of them were measured by earlier code, and judged anew by these rules" if count else ""
