"""Verdicts on jobs with a device: is it the step, the copies or the input that limits?

The device is the one of ``tests/gpu/fake``: kernels and copies take as long as they are told to, and nothing is computed. It needs a C++
compiler and a torch that was built for its CUDA.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from pathlib import Path
from typing import Any

import pipefix
from benchmarks.harness.bar import Bar, at_least, none_of
from benchmarks.harness.page import rows
from benchmarks.harness.record import Record

TITLE = "Verdicts beside a device"
ISSUE = "18, bar 5"
MINUTES = 6
QUICK = {"jobs": 3}
BUDGET = 8.0
BATCH_BYTES = 8_000_000
LIMITS = {"step": ("step-bound", "step"), "copy": ("input-bound", "transfer"), "input": ("input-bound", None)}
"""The verdict that is right: its kind, and its stage where only one is."""
JOB = """
import time
import torch
from torch.utils.data import DataLoader, Dataset


class Job(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        time.sleep({making_ms} / 8e3)
        return torch.zeros({numbers})


loader = DataLoader(Job(), batch_size=8, num_workers={workers}, pin_memory={pinned})


def train_step(batch):
    batch.to("cuda", non_blocking=True)
    torch.cuda._sleep({step_ms} * 1_000_000)
"""


def jobs() -> list[dict[str, Any]]:
    """Milliseconds that a batch takes to be made by one worker, to be copied, and to be worked on by the device."""
    found = []
    for limit, workers, pinned in itertools.product(LIMITS, (0, 1, 2), (False, True)):
        step, copy, making = {"step": (30, 2, 8), "copy": (8, 40, 8), "input": (6, 2, 40 * max(1, workers))}[limit]
        found.append({"limit": limit, "workers": workers, "pinned": pinned, "step_ms": step, "copy_ms": copy, "making_ms": making})
    found.append({"limit": "step", "workers": 1, "pinned": True, "step_ms": 60, "copy_ms": 20, "making_ms": 20})
    found.append({"limit": "copy", "workers": 2, "pinned": False, "step_ms": 20, "copy_ms": 60, "making_ms": 20})
    return found


def probed(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    """What a probe says of it, in a process that has the device."""
    file = Path(folder) / "job.py"
    numbers = BATCH_BYTES // 32
    file.write_text(JOB.format(numbers=numbers, **{name: job[name] for name in ("making_ms", "workers", "pinned", "step_ms")}))
    run = pipefix.probe(f"{file}:loader", budget=BUDGET, trial_workers=())
    assert run.verdict is not None
    walls = {one.stage: one.wall_s.value * 8e3 for one in run.stages if one.wall_s is not None}
    return {"kind": run.verdict.kind, "stage": run.verdict.stage, "sentence": run.verdict.sentence, "walls_ms": walls}


def right(job: dict[str, Any], told: dict[str, Any]) -> bool:
    kind, stage = LIMITS[job["limit"]]
    named = told["stage"] == stage if stage is not None else told["stage"] not in ("step", "transfer")
    return bool(told["kind"] == kind and named)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=20, help="how many of the jobs (default: all 20)")


def measure(options: argparse.Namespace, record: Record) -> bool:
    from tests.gpu.conftest import FakeDevice
    from tests.gpu.fake import build

    why = build.why_not()
    if why is not None:
        print(f"no device can be made here: {why}", file=sys.stderr)
        return False
    done: list[dict[str, Any]] = record.body.setdefault("jobs", [])
    with tempfile.TemporaryDirectory() as folder:
        build.build(Path(folder))
        device = FakeDevice(Path(folder))
        try:
            for job in jobs()[len(done) : options.jobs]:
                if record.over():
                    return False
                rate = f"{BATCH_BYTES / job['copy_ms'] / 1e6:g}"
                told = device(probed, folder, job, FAKE_PAGEABLE_GBS=rate, FAKE_PINNED_GBS=rate)
                done.append({**job, **told, "right": right(job, told)})
                record.save()
                print(f"{job['limit']:6s} {job['workers']} workers  {told['sentence']}", flush=True)
        finally:
            device.close()
    return True


def bars(body: dict[str, Any]) -> list[Bar]:
    done = body["jobs"]
    wrong = [one for one in done if not one["right"]]
    return [
        at_least("jobs probed", len(done), 20, "{:.0f}"),
        none_of("verdicts that are not right", len(wrong)),
        none_of("of these confidently wrong", sum(one["kind"] != "inconclusive" for one in wrong)),
    ]


def table(body: dict[str, Any]) -> str:
    cells = [
        [
            one["limit"], one["workers"], "yes" if one["pinned"] else "no", f"{one['making_ms']} / {one['copy_ms']} / {one['step_ms']}",
            " / ".join(f"{one['walls_ms'].get(name, 0):.1f}" for name in ("transfer", "step")), one["kind"], one["stage"] or "",
        ]
        for one in body["jobs"]
    ]  # fmt: skip
    head = ["limits", "workers", "pinned", "making / copy / step ms", "told: transfer / step ms", "verdict", "stage"]
    return f"""
Jobs on the fake device, {BUDGET:g} s each, batches of 8 MB. A copy that hides behind the step is told as what it takes by itself.

{rows(head, cells)}"""
