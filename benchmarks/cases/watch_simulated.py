"""Days of noise without drift, and drifts of a fifth planted into others, by stage: what a watch names, and its false alarms."""

from __future__ import annotations

import argparse
import random
import statistics
from collections import Counter
from typing import Any

from benchmarks.harness.bar import Bar, at_least, at_most
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from pipefix.watching.drift import Drift
from tests.watching import streams

TITLE = "What a watch notices in simulated days"
ISSUE = "6, bar 6"
MINUTES = 40
QUICK = {"days": 1, "drifts": 1}


def one_day(quiet: dict[str, Any]) -> None:
    """Alarms in a day without drift."""
    alarms = [name for _, name in raised(streams.Job(quiet["days"]), 0)]
    by_day = Counter(quiet["days_by_alarms"]) + Counter({str(len(alarms)): 1})
    quiet["days_by_alarms"] = {count: by_day[count] for count in sorted(by_day, key=int)}
    quiet["by_figure"] = dict(Counter(quiet["by_figure"]) + Counter(alarms))
    quiet["days"] += 1
    quiet["alarms"] += len(alarms)
    quiet["a_day"] = quiet["alarms"] / quiet["days"]


def one_drift(what: str, entry: dict[str, Any]) -> None:
    seed = entry["of"]
    at = random.Random(seed).randint(150, 700)
    alarms = raised(streams.Job(10_000 + seed, windows=at + 240, plant=streams.Plant(at, streams.DRIFTS[what])), at)
    names = [name for _, name in alarms]
    entry["of"] += 1
    if right(what, names):
        entry["right"] += 1
        entry["delays"].append(next(delay for delay, name in alarms if name == what))
    else:
        told = "+".join(names) or "none"
        entry["wrong"][told] = entry["wrong"].get(told, 0) + 1
    entry["named"], entry["minutes"] = entry["right"] / entry["of"], minutes(entry["delays"])


def raised(job: streams.Job, at: int) -> list[tuple[int, str]]:
    """What alarms from window ``at`` on say has drifted, each with the windows since then."""
    drift = Drift()
    found = []
    for window in job:
        alarms = [notice for notice in drift.feed(window) if notice.alarm]
        if window.number >= at:
            found += [(window.number - at, streams.named(notice.kind, notice.stage)) for notice in alarms]
    return found


def right(what: str, names: list[str]) -> bool:
    """The planted thing is named, and nothing that was not planted is."""
    return what in names and set(names) <= {what, *streams.DRIFTS[what]} - ({"bytes", "cpu"} - {what})


def minutes(delays: list[int]) -> float | None:
    return statistics.median(delays) * streams.SECONDS / 60 if delays else None


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--days", type=int, default=300, help="simulated days without drift (default 300)")
    parser.add_argument("--drifts", type=int, default=200, help="simulated drifts of each kind (default 200)")


def measure(options: argparse.Namespace, record: Record) -> bool:
    """Days without drift, and drifts of a fifth, each in a job of its own at a random time."""
    quiet = record.body.setdefault("quiet", {"days": 0, "alarms": 0, "a_day": 0.0, "days_by_alarms": {}, "by_figure": {}})
    drifts = record.body.setdefault("drifts", {})
    while quiet["days"] < options.days or any(drifts.get(what, {}).get("of", 0) < options.drifts for what in streams.DRIFTS):
        if record.over():
            return False
        if quiet["days"] < options.days:
            one_day(quiet)
        for what in streams.DRIFTS:
            entry = drifts.setdefault(what, {"of": 0, "right": 0, "delays": [], "wrong": {}})
            if entry["of"] < options.drifts:
                one_drift(what, entry)
        record.save()
    return True


def bars(body: dict[str, Any]) -> list[Bar]:
    worst = min(body["drifts"], key=lambda what: body["drifts"][what]["named"])
    claim = f"simulated drifts of 20 % named right, worst of {len(body['drifts'])} kinds ({worst})"
    return [
        at_most("false alarms in 24 simulated hours", body["quiet"]["a_day"], 1.0),
        at_least(claim, body["drifts"][worst]["named"], 0.95, "{:.1%}"),
    ]


def table(body: dict[str, Any]) -> str:
    quiet = body["quiet"]
    days = ", ".join(f"{number} days with {count}" for count, number in quiet["days_by_alarms"].items())
    cells = []
    for what, entry in body["drifts"].items():
        after = f"{entry['minutes']:.1f} min" if entry["minutes"] is not None else "-"
        cells.append([what, f"{entry['named']:.1%}", after, counted(entry["wrong"])])
    return f"""
Windows of 30 s with heavy tails, a daily wave, outliers, bursts on storage, epochs that begin anew and a cold first epoch
(`tests/watching/streams.py`); levels were learned from each job's own beginning.

False alarms: {days}. By figure: {quiet["by_figure"] or "none"}.

{rows(["planted (+20 %)", "named right", "after (median)", "otherwise said"], cells)}"""


def counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.items()) or "-"
