"""What a watch adds to a 20 ms step and to a sample's making: with and without it, interleaved."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.harness.bar import Bar, at_most
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record
from pipefix.loader.metering.meter import Meter
from pipefix.watching.watch import Watch

TITLE = "What a watch costs"
ISSUE = "4, bar 7; 6, bar 6"
MINUTES = 4
QUICK = {"rounds": 1}
STEP_S = 0.020


class Small(Dataset[Any]):
    """Samples that are read, decoded and worked on in a few tens of microseconds: what is added to them can be seen."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "sample.json"
        self.path.write_text(json.dumps(list(range(100))))

    def __len__(self) -> int:
        return 64 * 400

    def __getitem__(self, index: int) -> torch.Tensor:
        with open(self.path, "rb") as file:
            return torch.tensor(json.loads(file.read()), dtype=torch.float32) * 2


def summed(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    off, on = zip(*(one["step"] for one in rounds), strict=True)
    differences = [after - before for before, after in zip(off, on, strict=True)]
    step = {
        "off_ms": statistics.median(off) * 1e3, "on_ms": statistics.median(on) * 1e3,
        "added_us": statistics.median(differences) * 1e6, "share": statistics.median(differences) / STEP_S,
        "least_us": min(differences) * 1e6, "most_us": max(differences) * 1e6,
    }  # fmt: skip
    pairs = [pair for one in rounds for pair in one["samples"]]
    sample = {
        "off_us": statistics.median(pair[0] for pair in pairs) * 1e6, "on_us": statistics.median(pair[1] for pair in pairs) * 1e6,
        "added_us": statistics.median(pair[1] - pair[0] for pair in pairs) * 1e6,
    }  # fmt: skip
    return {"step": step, "sample": sample}


def step_time(*, watched: bool, steps: int = 250) -> float:
    """Seconds a step of the loop, the consumer computing for 20 ms. A worker keeps it fed."""
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(Small(Path(folder)), batch_size=64, num_workers=1)
        on = Watch(loader, every=1.0).start() if watched else None
        iterator = iter(loader)
        for _ in range(20):
            next(iterator)
        times = []
        for _ in range(steps):
            begun = time.perf_counter()
            next(iterator)
            until = time.perf_counter() + STEP_S
            while time.perf_counter() < until:
                pass
            times.append(time.perf_counter() - begun)
        del iterator
        if on is not None:
            on.close()
    return statistics.fmean(sorted(times)[: int(steps * 0.98)])


def sample_time(*, watched: bool, batches: int = 300) -> float:
    """Seconds a sample of making batches in the process itself, where everything that the watch does is felt."""
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(Small(Path(folder)), batch_size=64)
        on = Watch(loader, every=1.0).start() if watched else None
        iterator = iter(loader)
        for _ in range(20):
            next(iterator)
        begun = time.perf_counter()
        for _ in range(batches):
            next(iterator)
        spent = (time.perf_counter() - begun) / batches / 64
        del iterator
        if on is not None:
            on.close()
    return spent


def meter_cost(calls: int = 20_000) -> float:
    """Microseconds that the meter's two calls take in the training thread."""
    meter = Meter()
    rounds = []
    for _ in range(9):
        begun = time.perf_counter()
        for _ in range(calls):
            meter.asked()
            meter.got(64)
        rounds.append((time.perf_counter() - begun) / calls * 1e6)
    return statistics.median(rounds)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=6, help="interleaved (default 6)")


def measure(options: argparse.Namespace, record: Record) -> bool:
    """Rounds with and without a watch, one after the other."""
    torch.set_num_threads(1)
    done = record.body.setdefault("rounds", [])
    while len(done) < options.rounds:
        if record.over():
            return False
        step = [step_time(watched=on) for on in (False, True)]
        samples = [[sample_time(watched=on) for on in (False, True)] for _ in range(2)]
        done.append({"step": step, "samples": samples})
        record.save()
    record.body |= {**summed(done), "meter_us": meter_cost()}
    return True


def bars(body: dict[str, Any]) -> list[Bar]:
    return [
        at_most("a watch's share of a 20 ms step", body["step"]["share"], 0.003, "{:.2%}"),
        at_most("µs that a watch adds to a sample", body["sample"]["added_us"], 2.0),
        at_most("the meter's share of a 20 ms step", body["meter_us"] / 1e6 / STEP_S, 0.003, "{:.3%}"),
    ]


def table(body: dict[str, Any]) -> str:
    step, sample = body["step"], body["sample"]
    spread = f"{step['added_us']:.1f} µs ({step['least_us']:.0f} to {step['most_us']:.0f})"
    cells = [
        ["a 20 ms step, one worker", f"{step['off_ms']:.3f} ms", f"{step['on_ms']:.3f} ms", spread],
        ["a sample", f"{sample['off_us']:.2f} µs", f"{sample['on_us']:.2f} µs", f"{sample['added_us']:.2f} µs"],
    ]
    return f"""
{rows(["", "without", "with", "added"], cells)}

The meter's two calls a step take {body["meter_us"]:.2f} µs in the training thread. Epochs with and without were interleaved; a window was
made each second, thirty times as often as by default."""
