"""Probes planted pipelines whose limiting stage is known, and counts how often the verdict is right.

Every case runs in a fresh process. A pipeline that turned out not to be what had been planted (another program took the processor) is
probed again, and counted apart if it drifts every time.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections import Counter
from typing import Any

from benchmarks.harness.bar import Bar, at_least, at_most
from benchmarks.harness.page import rows
from benchmarks.harness.planted import options as planted_options
from benchmarks.harness.record import Record
from measured.planted import cases, confusion, quiet

TITLE = "Verdicts on planted pipelines"
ISSUE = "2, bar 1"
MINUTES = 150
QUICK = {"cases": 1, "budget": 4.0, "tries": 1, "patience": 0.0}


def probed(
    wanted: list[Any], budget: float, done: list[dict[str, Any]], options: argparse.Namespace, record: Record
) -> list[dict[str, Any]]:
    """The latest result of each case; ``done`` has every attempt, those of earlier portions too."""
    from measured.planted.children import in_child
    from measured.planted.judge import judge, preload
    from measured.planted.server import Server
    from measured.planted.sources import block_files

    preload()
    block_files()
    tried = Counter(result["name"] for result in done)
    settled = {result["name"]: result for result in done if result["outcome"] not in ("drifted", "error")}
    begun, fresh = time.monotonic(), 0
    with Server():
        for place, case in enumerate(wanted, 1):
            if options.only and not any(part in case.name for part in options.only):
                continue
            if record.over():
                break
            while case.name not in settled and tried[case.name] < options.tries:
                quiet.wait(options.patience)
                work = functools.partial(judge, case, budget=budget, full=False)
                result = in_child(work, timeout=60 + 8 * budget)
                if "error" in result:
                    result = {"name": case.name, "truth": case.truth, "outcome": "error", "said": "error", **result}
                tried[case.name] += 1
                done.append(result)
                record.save()
                if result["outcome"] not in ("drifted", "error"):
                    settled[case.name] = result
                fresh += 1
                print(_line(place, len(wanted), result), flush=True)
            if fresh and place % 20 == 0:
                left = (time.monotonic() - begun) / max(1, fresh) * (len(wanted) - place)
                print(f"{confusion.summary(_latest(done, wanted))}\nabout {left / 60:.0f} min left", flush=True)
    return _latest(done, wanted)


def _latest(done: list[dict[str, Any]], wanted: list[Any]) -> list[dict[str, Any]]:
    """One result a case: the settled one where there is one; each knows how often it had drifted."""
    names = {case.name for case in wanted}
    found: dict[str, dict[str, Any]] = {}
    drifts: dict[str, list[str]] = {name: [] for name in names}
    for result in done:
        name = result["name"]
        if name not in names:
            continue
        if result["outcome"] == "drifted":
            drifts[name].append(_as_planted(result))
        if name not in found or found[name]["outcome"] in ("drifted", "error"):
            found[name] = result
    return [result | {"drifts": len(drifts[name]), "drifted_said": drifts[name]} for name, result in found.items()]


def _as_planted(result: dict[str, Any]) -> str:
    """What the probe said of a pipeline that had drifted, held against what had been planted."""
    said = result["said"]
    return "as planted" if said == result["truth"] else said if said == "inconclusive" else "other"


def _line(place: int, count: int, result: dict[str, Any]) -> str:
    head = f"{place:3d}/{count} {result['outcome']:12s} {result['name']:32s} said {result['said']}"
    if result["outcome"] == "error":
        return f"{head}: {result['error']}\n{result.get('log', '')}"
    times = f"probe {result['probe_s']:.1f} s, case {result['case_s']:.1f} s"
    tail = f"({result['confidence']:.2f})  really ahead by {result['dominance']:.2f}x, others {result['others']:.0%}  {times}"
    return f"{head} {tail}{'  ' + result['drift'] if result['drift'] else ''}"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", type=int, default=300, help="how many pipelines to plant (default 300)")
    planted_options(parser, budget=10.0, only="cases whose name or number contains")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tries", type=int, default=3, help="how often a drifted case is built and probed (default 3)")
    parser.add_argument(
        "--longer", type=float, default=0.0, metavar="SECONDS",
        help="probe those whose verdict was left open once more, for so long, as the probe advises; counted apart",
    )  # fmt: skip


def measure(options: argparse.Namespace, record: Record) -> bool:
    wanted = cases.draw(options.cases, options.seed)
    tried: list[dict[str, Any]] = record.body.setdefault("tried", [])
    every = probed(wanted, options.budget, tried, options, record)
    record.body |= {"budget_s": options.budget, "seed": options.seed}
    if len(every) < len(wanted):
        print(f"{confusion.summary(every)}\n{len(wanted) - len(every)} pipelines are left")
        return False
    if options.longer:
        left_open = {result["name"] for result in every if result["outcome"] == "inconclusive"}
        wanted = [case for case in wanted if case.name in left_open]
        again = probed(wanted, options.longer, record.body.setdefault("tried_for_longer", []), options, record)
        if len(again) < len(wanted):
            print(f"{len(wanted) - len(again)} of those left open are left")
            return False
        record.body |= {"longer_s": options.longer, "probed_for_longer": slim(again)}
    del record.body["tried"]
    record.body.pop("tried_for_longer", None)
    record.body["cases"] = slim(every)
    return True


def slim(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in result.items() if key not in ("run", "log")} for result in results]


def bars(body: dict[str, Any]) -> list[Bar]:
    part = confusion.shares(body["cases"])
    return [
        at_least("planted pipelines judged", len(confusion.counted(body["cases"])), 300, "{:.0f}"),
        at_least("verdicts right", part["right"], 0.98, "{:.1%}"),
        at_most("verdicts confidently wrong", part["wrong"], 0.005, "{:.1%}"),
    ]


def table(body: dict[str, Any]) -> str:
    results = body["cases"]
    drifts = sum(result.get("drifts", 0) for result in results)
    said_of_drifted = Counter(said for result in results for said in result.get("drifted_said", []))
    amiss = [result for result in results if result["outcome"] in ("wrong", "drifted", "error")]
    why = [result.get("drift") or result.get("error") or result.get("sentence", "") for result in amiss]
    listed = [[result["name"], result["outcome"], result["said"], reason] for result, reason in zip(amiss, why, strict=True)]
    advised = f"\n\n{confusion.followed(results, body['probed_for_longer'])}." if "longer_s" in body else ""
    return f"""
{confusion.summary(results)}.{advised}

Each pipeline's costs are real work with a known limiting stage (`measured/planted/`). What it really spent was measured before and
after the probe, outside of it. A pipeline that had drifted from its description (its limiting stage was no longer ahead by 1.1, or
other programs used more than a tenth of the processors during the probe) was planted again: {drifts} times in all. What the probe
said of those: {dict(said_of_drifted)}.

{confusion.table(results)}

{confusion.breakdowns(results)}

## Wrong, drifted, failed

{rows(["pipeline", "outcome", "said", ""], listed or [["none", "", "", ""]])}"""
