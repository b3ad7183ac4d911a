"""Plays the tuner's search on full grids: how far its choice is from the best of all, and how many trials it takes."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from benchmarks.harness.bar import Bar, at_least, at_most
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from pipefix.tuning.space import Settings
from tests.tuning import grids
from tests.tuning.replaying import play

TITLE = "The search on full grids"
ISSUE = "6, bar 1"
MINUTES = 1
QUICK = {"seeds": 1}
FEWEST = "workers over the fewest that feed"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=6, help="draws of the noise a grid (default 6)")
    parser.add_argument("--only", default="", help="grids whose name holds this; no results are written")


def measure(options: argparse.Namespace, record: Record) -> bool:
    done: list[dict[str, Any]] = record.body.setdefault("grids", [])
    every = [grid for grid in grids.every() if options.only in grid.name]
    for grid in every[: 2 if options.quick else None]:
        if grid.name in [row["grid"] for row in done]:
            continue
        if record.over():
            return False
        done.append(searched(grid, options.seeds))
        record.save()
        row = done[-1]
        print(f"{grid.name:28} mean {row['mean']:.1%} worst {row['worst']:.1%} trials {row['trials']}", flush=True)
    return not options.only


def searched(grid: Any, seeds: int) -> dict[str, Any]:
    starts = [0, max(1, int(min(grid.cores, 16))), 4]
    played = [play(grid, Settings(starts[seed % 3]), seed=seed) for seed in range(seeds)]
    regret = [one.regret for one in played]
    fed = [one.workers / max(1, one.fewest) for one in played if one.fewest is not None]
    return {
        "grid": grid.name, "regret": regret, "mean": float(np.mean(regret)), "worst": max(regret),
        "start": float(np.mean([one.start for one in played])), "trials": max(one.trials for one in played),
        "workers_over_fewest": float(np.mean(fed)) if fed else None,
        "worse_than_start": sum(one.regret > one.start + 0.01 for one in played),
    }  # fmt: skip


def bars(body: dict[str, Any]) -> list[Bar]:
    regret = [value for row in body["grids"] for value in row["regret"]]
    return [
        at_least("full grids", len(body["grids"]), 30, "{:.0f}"),
        at_most("from the best of the grid, median", float(np.median(regret)), 0.03, "{:.1%}"),
        at_most("from the best of the grid, 95th percentile", float(np.percentile(regret, 95)), 0.05, "{:.1%}"),
        at_most("trials", max(row["trials"] for row in body["grids"]), 8, "{:.0f}"),
    ]


def table(body: dict[str, Any]) -> str:
    regret = np.array([value for row in body["grids"] for value in row["regret"]])
    good = sum(row["mean"] <= 0.03 for row in body["grids"])
    worse = sum(row["worse_than_start"] for row in body["grids"])
    older = replaced()
    cells = [
        [
            row["grid"], f"{row['start']:.0%}", f"{row['mean']:.1%}", f"{row['worst']:.1%}", row["trials"], *older_cells(older, row["grid"]),
            "" if row["workers_over_fewest"] is None else f"{row['workers_over_fewest']:.2f}",
        ]
        for row in body["grids"]
    ]  # fmt: skip
    before = np.array(older["regret"])
    return f"""
Every grid holds the throughput of all numbers of workers (and of prefetch, order and threads where they matter); trials read it with noise
of 2.5 to 6 %. Given is how much less the choice truly delivers than the best of the whole grid. Most grids are curves with shapes that
pipelines were seen to have; those called measured were run on the machine above. {np.mean(regret <= 0.03):.0%} of {len(regret)} searches and
{good} of the {len(body["grids"])} grids on average are within 3 %; the worst is {regret.max():.1%}; {worse} searches ended worse than the start. All together they are {regret.mean():.2%} from the best; the
search that this one replaced ({older["search"]}) was {before.mean():.2%}, its worst {before.max():.1%}.

{rows(["grid", "as it starts", "mean", "worst", "most trials", "replaced search: mean", "worst", "most trials", FEWEST], cells)}"""


def replaced() -> dict[str, Any]:
    """How the search did that was replaced, on the same grids."""
    found: dict[str, Any] = json.loads((grids.MEASURED.parent / "replaced_search.json").read_text())
    return found


def older_cells(older: dict[str, Any], grid: str) -> list[Any]:
    row = older["grids"].get(grid)
    return ["", "", ""] if row is None else [f"{row['mean']:.1%}", f"{row['worst']:.1%}", row["trials"]]
