"""Every remedy that probes of unseen pipelines propose is done as its command says, on a copy of the pipeline with few samples.

Commands of pipefix are typed; arguments of loaders are given, and the loader gives as many samples as before.
"""

from __future__ import annotations

import argparse
import functools
from collections import Counter
from typing import Any

from benchmarks.harness.bar import Bar, at_least, at_most, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.planted import options as planted_options
from benchmarks.harness.record import Record
from benchmarks.unseen.parts import known
from benchmarks.unseen.pipeline import draw

TITLE = "Remedies done as they are told"
ISSUE = "17, bar 3"
MINUTES = 45
CODE = ("hooks", "subject", "measurement", "diagnosis", "plan", "caches", "augment")
QUICK = {"cases": 2, "budget": 5.0, "patience": 0.0}

LEAST_DISK = 1 << 20
"""Bytes of disk below which a cache's own tables outweigh its records."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", type=int, default=80, help="how many pipelines to draw (default 80)")
    planted_options(parser, budget=10.0, only="cases whose name contains")
    parser.add_argument("--seed", type=int, default=1000)


def measure(options: argparse.Namespace, record: Record) -> bool:
    from benchmarks.unseen.remedied import judge
    from measured.planted import quiet
    from measured.planted.children import in_child
    from measured.planted.judge import preload

    preload()
    cases: list[dict[str, Any]] = record.body.setdefault("cases", [])
    wanted = [drawn for drawn in draw(options.cases, options.seed) if known(drawn.family).installed]
    wanted = [drawn for drawn in wanted if not options.only or any(part in drawn.name for part in options.only)]
    left = [drawn for drawn in wanted if drawn.name not in {case["name"] for case in cases}]
    for drawn in left:
        if record.over():
            return False
        quiet.wait(options.patience)
        case = in_child(functools.partial(judge, drawn, budget=options.budget), timeout=600 + 6 * options.budget)
        cases.append({"name": drawn.name, "remedies": [], **case})
        record.save()
        print(line(cases[-1]))
    record.body["left_out"] = options.cases - len(wanted)
    return True


def line(case: dict[str, Any]) -> str:
    if "error" in case:
        return f"{case['name']:40s} error: {case['error']}\n{case.get('log', '')}"
    told = [f"{remedy['id']} {'ok' if remedy['ok'] else 'FAILED ' + remedy['error']}{_off(remedy)}" for remedy in case["remedies"]]
    first = {None: "", True: "", False: ", the first does not act on what is named"}[case["first_acts"]]
    return f"{case['name']:40s} {case['kind']} {case['stage']}: {', '.join(told) or 'nothing proposed'}{first}"


def _off(remedy: dict[str, Any]) -> str:
    return f" (disk {remedy['disk_off']:+.1%})" if remedy["disk_off"] is not None else ""


def bars(body: dict[str, Any]) -> list[Bar]:
    cases = [case for case in body["cases"] if "error" not in case]
    remedies = [remedy for case in cases for remedy in case["remedies"]]
    firsts = [case["first_acts"] for case in cases if case["first_acts"] is not None]
    sized = [
        abs(remedy["disk_off"]) for remedy in remedies if remedy["disk_off"] is not None and remedy["disk_bytes"] >= LEAST_DISK
    ]
    return [
        at_least("remedies proposed", len(remedies), 60, "{:.0f}"),
        none_of("pipelines that could not be judged", len(body["cases"]) - len(cases)),
        none_of("remedies that do not run", sum(not remedy["ok"] for remedy in remedies)),
        at_most("disk told from disk taken, worst", max(sized, default=None), 0.1, "{:.1%}"),
        none_of("first remedies that leave what is named without a word", firsts.count(False)),
    ]


def table(body: dict[str, Any]) -> str:
    remedies = [remedy for case in body["cases"] for remedy in case["remedies"]]
    counts = Counter(remedy["id"] for remedy in remedies)
    cells = [
        [name, str(count), str(sum(remedy["id"] == name and remedy["ok"] for remedy in remedies))]
        for name, count in counts.most_common()
    ]
    amiss = [
        [case["name"], remedy["id"], remedy.get("error", "")[-300:].replace("\n", " ")]
        for case in body["cases"]
        for remedy in case["remedies"]
        if not remedy["ok"]
    ]
    return f"""
{len(body["cases"])} pipelines; {body["left_out"]} stand on libraries that are not installed here.

{rows(["remedy", "proposed", "done"], cells)}

## All that did not run

{rows(["pipeline", "remedy", "what it said"], amiss or [["none", "", ""]])}"""
