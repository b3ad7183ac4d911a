"""Kills runs of `pipefix fix` at random moments; after each, `--undo` or the next run is to bring a consistent state.

A run is a process of its own with real samples, caches, log and plan. What it looks for and how long it measures is planted, so
that kills fall on all of its moments, unless --cold asks for the command itself. Half the time only the first process is killed, and its
workers are left to find out.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from tests.fixes import killing

TITLE = "Kills of fix"
ISSUE = "6, bar 5"
MINUTES = 15
QUICK = {"kills": 2}
CODE = ("fixes",)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=50, help="in all (default 50)")
    parser.add_argument("--budget", type=float, default=1.5, help="seconds that each round of fix measures (default 1.5)")
    parser.add_argument(
        "--cold", action="store_true", help="each run is the command itself, probing and timing included (some 20 s a kill)"
    )


def measure(options: argparse.Namespace, record: Record) -> bool:
    whole = record.body.setdefault("figures", {"kills": 0, "pieces": 0, "wrong": []})
    missing = options.kills - whole["kills"]
    if missing > 0:
        folder = Path(tempfile.mkdtemp(prefix="pipefix-fix-kills-"))
        before = dict(whole, pieces=whole["pieces"] + 1)

        def note(told: dict[str, Any]) -> None:
            whole.update(before, **{name: before.get(name, type(value)()) + value for name, value in told.items()})
            record.save()
            print(f"{whole['kills']} kills, {len(whole['wrong'])} wrong", file=sys.stderr)

        # Each portion has kills of its own.
        seed = 1000 + whole["pieces"]
        killing.campaign(
            folder, missing, seed=seed, budget=options.budget, seconds=options.portion, warm=not options.cold, note=note
        )
        shutil.rmtree(folder)
    return bool(whole["kills"] >= options.kills)


def bars(body: dict[str, Any]) -> list[Bar]:
    figures = body["figures"]
    return [
        at_least("kills at random moments", figures["kills"], 50, "{:.0f}"),
        none_of("states that did not hold", len(figures["wrong"])),
    ]


def table(body: dict[str, Any]) -> str:
    return rows(["what", "count"], [[name, value] for name, value in body["figures"].items() if name not in ("wrong", "pieces")])
