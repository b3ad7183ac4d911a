"""What is read of NVML about the device that a job uses."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch import nn

from pipefix.diagnosis.costs import StageCosts
from pipefix.loader.device import Carrier
from pipefix.measurement import consumer_alone, gpu
from pipefix.measurement.consumer import ModelStep
from pipefix.measurement.measurement import Measurement
from pipefix.tuning.usage import Vram
from pipefix.vocabulary.settings import LoaderSettings


def copies() -> dict[str, Any]:
    """Of a process that has memory on two of three devices, most of it on the last: what is told of copies to them."""
    kept = [torch.zeros(1 << 20, device="cuda:0"), torch.zeros(1 << 24, device="cuda:2")]
    found = consumer_alone.copy_seconds(torch.zeros(1 << 16))
    there = consumer_alone.on_device((torch.zeros(4), "name"))
    copies = StageCosts.__new__(StageCosts)
    copies.measurement = Measurement(LoaderSettings(batch_size=4, pin_memory=True), 0, 1.0, "train_step", True, transfer=found)
    model = ModelStep(nn.Linear(2, 2).to("cuda:2"), None)
    with torch.cuda.device(1):
        carrier = Carrier("cuda:2")
        moved = carrier.end(carrier.begin(torch.ones(8)))
        current = torch.cuda.current_device(), str(torch.cuda.current_stream("cuda:2") == torch.cuda.default_stream("cuda:2"))
    del kept
    return {
        "names": sorted(found), "resident": str(there[0].device), "rows": [op.name for op in copies._copies()],
        "model": str(model._device), "moved": str(moved.device), "current": current,
    }  # fmt: skip


def told(visible: str | None, awake: int | None) -> dict[str, Any]:
    """``awake``: the device on which this process has memory; None: it has used none."""
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    vram = Vram()
    kept = torch.zeros(1 << 20, device="cpu" if awake is None else f"cuda:{awake}")
    with gpu.NvmlWatch() as watch:
        until = time.monotonic() + 60
        while watch._thread is not None and watch._thread.is_alive() and time.monotonic() < until:
            if "nvml_memory_bytes" in watch._samples:
                break  # it was asked, and what is asked before it as well
            time.sleep(0.01)
    del kept
    return {"free": vram.free, "why": vram.why, "used": watch.figures.get("nvml_memory_bytes"), "figures": [*watch.figures]}
