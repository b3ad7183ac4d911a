"""Tunes within limits drawn at random, on a made-up machine and on this one: no crash, no limit broken, nothing left behind."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from tests.tuning import grids
from tests.tuning.limited import made_up, real

TITLE = "Tuning within limits"
ISSUE = "6, bar 2"
MINUTES = 12
QUICK = {"count": 10, "real": 0}


def case(seed: int) -> dict[str, Any]:
    try:
        return made_up(seed, grids.every())
    except Exception as error:  # noqa: BLE001 - whatever is raised is the crash that is counted
        return {"seed": seed, "crash": f"{type(error).__name__}: {error}", "log": traceback.format_exc()[-2000:]}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=1000, help="limits on the made-up machine (default 1000)")
    parser.add_argument("--real", type=int, default=20, help="limits on this machine (default 20)")


def measure(options: argparse.Namespace, record: Record) -> bool:
    cases: list[dict[str, Any]] = record.body.setdefault("cases", [])
    lived: list[dict[str, Any]] = record.body.setdefault("real", [])
    with ProcessPoolExecutor(max(1, os.cpu_count() or 1), mp_context=multiprocessing.get_context("fork")) as pool:
        while len(cases) < options.count and not record.over():
            cases += pool.map(case, range(len(cases), min(len(cases) + 40, options.count)))
            record.save()
    while len(lived) < options.real and not record.over():
        lived.append({"seed": len(lived), **real(len(lived))})
        record.save()
        print(lived[-1], flush=True)
    for crash in (one["log"] for one in cases if "log" in one):
        print(crash)
    return len(cases) >= options.count and len(lived) >= options.real


def bars(body: dict[str, Any]) -> list[Bar]:
    every = [*body["cases"], *body["real"]]
    return [
        at_least("random limits", len(every), 1000, "{:.0f}"),
        none_of("crashes", sum("crash" in one for one in every)),
        none_of("breaches", sum(bool(one.get("breaches")) for one in every)),
        none_of("times that something was left behind", sum(bool(one.get("orphans")) for one in every)),
    ]


def table(body: dict[str, Any]) -> str:
    endings = Counter(one.get("ending", "crash") for one in body["cases"])
    lived = [[one["said"], one["ending"], f"{one['memory_mb']:.0f} MB", f"{one['limit_mb']:.0f} MB"] for one in body["real"]]
    return f"""
{len(body["cases"])} limits on a made-up machine and {len(body["real"])} here. Memory, shared memory, open files and CPU cores, each limited or not,
from far too little to plenty; pipelines that leak and pipelines that take more than they seem to.

{rows(["what came of it (made-up machine)", "times"], endings.most_common())}

{rows(["here, for real", "result", "most memory", "limit"], lived)}"""
