"""Whole verbs on the fake device, over jobs of which everything is known."""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

import pipefix
from pipefix.cli.main import main
from pipefix.loader.fast_loader import FastLoader
from pipefix.measurement.consumer import ModelStep
from pipefix.measurement.kept_batch import KeptBatch
from pipefix.measurement.step_scan import StepScan

MOVING = """
import time
import torch
from torch.utils.data import Dataset
from pipefix import FastLoader


class Numbers(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.full((3, 8, 8), index % 256, dtype=torch.uint8)


def to_float(batch):
    return batch.to(torch.float32)


loader = FastLoader(Numbers(), batch_size=4, num_workers={workers}, device="cuda", augment=to_float)


def train_step(batch):
    assert batch.device.type == "cuda" and batch.dtype == torch.float32, (batch.device, batch.dtype)
    torch.cuda._sleep(12_000_000)
"""


def job(folder: str | Path, text: str, **parts: Any) -> str:
    """The loader of a file with that text."""
    file = Path(folder) / "job.py"
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", str(part))
    file.write_text(text)
    return f"{file}:loader"


def probed(folder: str, workers: int) -> dict[str, Any]:
    run = pipefix.probe(job(folder, MOVING, workers=workers), budget=5)
    assert run.verdict is not None
    return {"verdict": run.verdict.kind, "consumer": run.consumer}


def tuned(folder: str, workers: int) -> dict[str, Any]:
    found = pipefix.tune(job(folder, MOVING, workers=workers), budget=6, trials=2)
    return {"trials": [[trial.status, trial.reason] for trial in found.trials], "owner": ctypes.CDLL(None).fake_owner()}


class Scale(nn.Module):
    """A model that needs no library of the device's; its forward takes 5 ms there, and its backward what the hook adds."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        torch.cuda._sleep(5_000_000)
        out = images * self.weight
        out.register_hook(lambda _: torch.cuda._sleep(10_000_000))
        return out


def model_step() -> dict[str, Any]:
    step = ModelStep(Scale(), nn.CrossEntropyLoss(weight=torch.ones(4)))
    batch = (torch.rand(8, 4), torch.zeros(8, dtype=torch.int64))
    step.try_on(batch)
    return {
        "present": step.present,
        "why": step.why_none,
        "criterion": str(step._criterion.weight.device),
        "split": step.split(KeptBatch(batch)),
    }


COPYING = """
import torch
from torch.utils.data import DataLoader, Dataset


class Large(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return torch.zeros(250_000)


loader = DataLoader(Large(), batch_size=8, num_workers=1, pin_memory={pinned})


def train_step(batch):
    batch.to("cuda", non_blocking=True)
    torch.cuda._sleep(10_000_000)
"""


def copied(folder: str, pinned: bool) -> dict[str, Any]:
    """A batch of 8 MB in every step, which takes 10 ms besides."""
    run = pipefix.probe(job(folder, COPYING, pinned=pinned), budget=6)
    stages = {one.stage: one for one in run.stages}
    walls = {name: one.wall_s.value * 8 for name, one in stages.items() if one.wall_s is not None}
    return {
        "walls": walls,
        "hidden": stages["transfer"].hidden,
        "verdict": [run.verdict.kind, run.verdict.stage] if run.verdict is not None else None,
        "pinning": [one.why for one in run.remedies if one.id == "pinning"],
        "speedup": [one.speedup.value for one in run.remedies if one.id == "pinning" and one.speedup is not None],
    }


STEPPING = """
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.zeros(512, 4)), batch_size=4)
losses = []


def train_step(batch):
    (inputs,) = batch
    inputs = inputs.to("cuda"{how})
    torch.cuda._sleep(1_000_000)
    {then}
"""


def heard(folder: str, how: str, then: str) -> dict[str, str]:
    """What the audit minds of a step, by rule."""
    to = torch.Tensor.to
    run = pipefix.probe(job(folder, STEPPING, how=how, then=then), budget=2)
    assert torch.Tensor.to is to and torch.cuda.get_sync_debug_mode() == 0
    return {finding.id: finding.found for finding in run.audit}


def is_heard(fake_device: Any, folder: Path, how: str, then: str, lines: dict[str, int]) -> None:
    """``lines``: those that the audit minds, by rule."""
    found = fake_device(heard, str(folder), how, then)
    assert {"blocking-copies", "step-waits", "full-precision"} & found.keys() == lines.keys()
    for rule, line in lines.items():
        assert f"train_step at job.py:{line}" in found[rule]


def swapped(folder: str, to: str) -> dict[str, Any]:
    """`pipefix swap --check` over a folder of pictures; DALI asks the driver for more than the fake one has."""
    beside = Path(folder).with_name("swapped")  # what Python compiles of the file would be a class of the folder
    beside.mkdir(exist_ok=True)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(["swap", job(beside, PICTURES, pictures=folder), "--to", to, "--check"])
    return {"code": code, "said": " ".join(said.getvalue().split())}


def pinned_by_fix(folder: str) -> dict[str, Any]:
    """`pipefix fix` of a job whose copies from ordinary memory take twice its step."""
    fixed = pipefix.fix(job(folder, COPYING, pinned=False), budget=8, only="pinning", out=Path(folder) / "out").fixed
    plan = Path(folder) / "out" / "pipefix.plan.toml"
    told = [[type(one).__name__, getattr(one, "why", "")] for one in fixed.outcomes]
    gains = [one.measured.gain.value for one in fixed.outcomes if one.measured is not None]
    return {"outcomes": told, "gains": gains, "plan": plan.read_text() if plan.exists() else ""}


def early() -> dict[str, float]:
    """Seconds of an epoch whose steps copy their batch themselves, and of one whose loader does that ahead. 16 batches of 8 MB."""
    found = {}
    for name, device in (("in the step", None), ("ahead", "cuda")):
        loader = FastLoader(Rows(), batch_size=8, num_workers=2, device=device)
        took = []
        for _ in range(3):
            begun = time.perf_counter()
            for batch in loader:
                batch.to("cuda", non_blocking=True)
                torch.cuda._sleep(20_000_000)
            torch.cuda.synchronize()
            took.append(time.perf_counter() - begun)
        found[name] = min(took)
    return found


class Rows(Dataset[torch.Tensor]):
    """Rows of 1 MB."""

    def __init__(self) -> None:
        self.row = torch.zeros(250_000)

    def __len__(self) -> int:
        return 128

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.row


def watched(folder: str) -> dict[str, Any]:
    """The last window of a watched loop that computes on the device."""
    lines = Path(folder) / "watch.jsonl"
    loader = FastLoader(Rows(), batch_size=8, device="cuda")
    with pipefix.watch(loader, jsonl=lines, every=0.5) as watch:
        until = time.monotonic() + 60
        while time.monotonic() < until and "gpu_utilisation" not in (lines.read_text() if lines.exists() else ""):
            for _ in watch:
                torch.cuda._sleep(1_000_000)
    windows = [json.loads(line) for line in lines.read_text().splitlines()]
    return next((one for one in windows if "gpu_utilisation" in json.dumps(one)), {})


PICTURES = """
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import CenterCrop, Compose, ToTensor

loader = DataLoader(ImageFolder("{pictures}", Compose([CenterCrop(32), ToTensor()])), batch_size=4)
"""


def full_precision() -> list[int]:
    """Weights that a scan counts of a layer of 400: as it is, under autocast, with TF32. It cannot be computed here."""
    layer, counted = nn.Linear(20, 20, device="cuda"), []

    def called() -> None:
        try:
            layer(torch.zeros(1, 20, device="cuda"))
        except RuntimeError:
            pass

    def autocast() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            called()

    for precision, step in (("highest", called), ("highest", autocast), ("high", called)):
        torch.set_float32_matmul_precision(precision)
        scan = StepScan()
        scan.run(step)
        counted.append(scan.facts["full_precision"])
    return counted
