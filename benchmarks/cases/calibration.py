"""Calibrate the harness: a dataset that costs nothing, with an emulated consumer, must score at least 99 % fed."""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.harness.bar import Bar, at_least
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from measured.planted.children import in_child
from measured.planted.judge import preload

TITLE = "The probe's harness, calibrated"
ISSUE = "2, bar 6"
MINUTES = 2
QUICK = {"budget": 3.0, "steps": (20.0,)}
STEPS_MS = (2.0, 5.0, 20.0)
WORKERS = (0, 1, 2)


class Free(Dataset[Any]):
    """Samples that are there already."""

    def __init__(self) -> None:
        self.sample = torch.zeros(16)

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> Any:
        return self.sample


READY = torch.zeros(4, 16)


def ready(samples: Any) -> Any:
    """A batch that is there already: collating would be a cost of the pipeline."""
    return READY


def bare(loader: DataLoader[Any], step_s: float, batches: int = 120, first: int = 20) -> float:
    """The same loop without pipefix: the part of its time in which it was not waiting, by medians."""
    waits = []
    iterator = iter(loader)
    for _ in range(batches):
        begun = time.perf_counter()
        next(iterator)
        waits.append(time.perf_counter() - begun)
        time.sleep(step_s)
    return step_s / (step_s + statistics.median(waits[first:]))


def probed(step_ms: float, workers: int, budget: float, collate: str) -> dict[str, Any]:
    from pipefix import probe

    loader = DataLoader(Free(), batch_size=4, num_workers=workers, collate_fn=ready if collate == "ready" else None)
    alone = bare(loader, step_ms / 1e3)
    run = probe(loader, step_ms=step_ms, budget=budget)
    assert run.waits is not None
    assert run.verdict is not None
    return {
        "step_ms": step_ms,
        "workers": workers,
        "fed": run.waits.fed,
        "bare": alone,
        "kind": run.verdict.kind,
        "sentence": run.verdict.sentence,
    }


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--budget", type=float, default=6.0, help="seconds a probe may take (default 6)")
    parser.add_argument(
        "--steps", type=float, nargs="*", default=STEPS_MS, help="milliseconds of the emulated step (default 2 5 20)"
    )
    parser.add_argument(
        "--collate", choices=("ready", "default"), default="ready", help="batches that cost nothing, or torch's own"
    )


def measure(options: argparse.Namespace, record: Record) -> None:
    preload()
    cases = record.body["cases"] = []
    for step_ms in options.steps:
        for workers in WORKERS:
            work = functools.partial(probed, step_ms, workers, options.budget, options.collate)
            found = in_child(work, timeout=60 + 5 * options.budget)
            cases.append({"step_ms": step_ms, "workers": workers, "fed": 0.0, "bare": 0.0, "kind": "error", **found})
            print(f"step {step_ms:g} ms, {workers} workers: fed {cases[-1]['fed']:.2%}, {cases[-1]['kind']}", flush=True)


def bars(body: dict[str, Any]) -> list[Bar]:
    return [
        at_least(
            "a dataset without cost and an emulated consumer: least fed", min(one["fed"] for one in body["cases"]), 0.99, "{:.2%}"
        )
    ]


def table(body: dict[str, Any]) -> str:
    cells = [
        [f"{one['step_ms']:g} ms", one["workers"], f"{one['fed']:.2%}", f"{one['bare']:.2%}", one["kind"]] for one in body["cases"]
    ]
    return f"""
A dataset whose samples cost nothing, batches that are there already (unless `--collate default` was given), and a consumer that sleeps:
the part of the loop's time in which the consumer was not waiting. Without pipefix: by the loop alone, before the probe. What a
DataLoader takes to hand over a batch that is there is a wait as well, and longer after a processor has slept.

{rows(["step a batch", "workers", "fed", "fed without pipefix", "verdict"], cells)}"""
