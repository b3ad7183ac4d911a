"""Epochs of FastLoader for many minutes, a worker killed every so often: no sample lost or doubled, nothing left behind.

After each death the loop goes on from the loader's state.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from measured.soaking import SAMPLES, WAYS, WORKERS, Told, left, soak

TITLE = "A soak"
ISSUE = "4, bar 9"
MINUTES = 20
QUICK = {"minutes": 0.2, "every": 3.0}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=20.0, help="how long (default 20)")
    parser.add_argument("--every", type=float, default=30.0, metavar="SECONDS", help="between two kills, on average (default 30)")
    parser.add_argument("--seed", type=int, default=0, help="of who is killed when (default 0)")


def measure(options: argparse.Namespace, record: Record) -> None:
    def progress(told: Told) -> None:
        seconds, memory = told.memory[-1]
        print(f"{seconds:6.0f} s: {told.epochs} epochs, {told.kills} kills, {memory / 1e6:.0f} MB", file=sys.stderr)

    told = soak(60 * options.minutes, every=options.every, seed=options.seed, progress=progress)
    record.body |= {
        "minutes": options.minutes, "every_s": options.every, "epochs": told.epochs, "samples": told.samples, "kills": told.kills,
        "raised": told.raised, "wrong": told.wrong, "left": left(told), "memory": told.memory,
    }  # fmt: skip


def bars(body: dict[str, Any]) -> list[Bar]:
    return [
        at_least("minutes of epochs", body["minutes"], 20, "{:.0f}"),
        none_of("epochs with a sample lost, doubled or not its own", len(body["wrong"])),
        none_of("kinds of things left behind (memory, files, shared memory, threads)", len(body["left"])),
    ]


def table(body: dict[str, Any]) -> str:
    memory = [size / 1e6 for _, size in body["memory"]]
    figures = [
        ("epochs", body["epochs"]),
        ("samples", body["samples"]),
        ("workers killed", body["kills"]),
        ("of which the loop was told", body["raised"]),
        ("left behind", ", ".join(body["left"]) or "nothing"),
        ("memory after the first epochs, most, at the end (MB)", f"{memory[0]:.0f}, {max(memory):.0f}, {memory[-1]:.0f}"),
    ]
    return f"""
FastLoader over {SAMPLES} samples, {WORKERS} workers, in {len(WAYS)} ways (both kinds of random numbers, by sample and by batch, workers that
live on and that do not). A worker is killed (SIGKILL) every {body["every_s"]:g} s on average; the loop gets an error and goes on from the
loader's state.

{rows(["what", "figure"], figures)}"""
