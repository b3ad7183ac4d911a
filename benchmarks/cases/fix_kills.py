"""Kills `pipefix fix` and `fix --undo` at random moments; the same command, or `--undo`, is to bring a consistent state.

The command itself is killed, probe, timing and caches included, in a small folder of pictures (tests/system/attacks/kills.py). Now and
then only its first process is killed, and its workers are left to find out.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from tests.attacks.scene import warm
from tests.system.attacks import kills

TITLE = "Kills of fix"
ISSUE = "6, bar 5"
MINUTES = 15
QUICK = {"kills": 2}
CODE = ("fixes",)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=50, help="in all, half of them of --undo (default 50)")


def measure(options: argparse.Namespace, record: Record) -> bool:
    figures = record.body.setdefault("figures", {"kills": 0, "over before": 0, "pieces": 0, "wrong": []})
    warm()
    for verb, share in (("fix", options.kills // 2), ("undo", options.kills)):
        missing = share - figures["kills"]
        if missing <= 0:
            continue
        before = dict(figures, pieces=figures["pieces"] + 1)

        def note(done: int, over: int, wrong: list[str], before: dict[str, Any] = before) -> None:
            counted = {"kills": done, "over before": over, "wrong": wrong}
            figures.update(before, **{name: before[name] + value for name, value in counted.items()})
            record.save()
            print(f"{figures['kills']} kills, {len(figures['wrong'])} wrong", file=sys.stderr)

        with tempfile.TemporaryDirectory(prefix="pipefix-fix-kills-") as folder:
            # Each portion has kills of its own.
            kills.campaign(Path(folder), verb, missing, 1000 + figures["pieces"], options.portion or 0, note)
    return bool(figures["kills"] >= options.kills)


def bars(body: dict[str, Any]) -> list[Bar]:
    figures = body["figures"]
    return [
        at_least("kills at random moments", figures["kills"], 50, "{:.0f}"),
        none_of("states that did not hold", len(figures["wrong"])),
    ]


def table(body: dict[str, Any]) -> str:
    return rows(["what", "count"], [[name, value] for name, value in body["figures"].items() if name not in ("wrong", "pieces")])
