"""Jobs whose device fails, run by the command line on the fake device: what the user is told."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from pipefix.cli.main import main

JOB = """
import ctypes
import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return torch.zeros(1 << 16)


loader = DataLoader(Numbers(), batch_size=64, num_workers=0)
steps = []


def train_step(batch):
    steps.append(1)
    {step}
"""
STEPS = {
    "assertion": "torch.cuda._sleep(1000); len(steps) == 5 and ctypes.CDLL(None).fake_assertion()",
    "nothing": "pass",
    "too much": "torch.empty(2 << 30, dtype=torch.uint8, device='cuda')",
    "launch": "len(steps) == 5 and ctypes.CDLL(None).fake_fail_next_launch(719); torch.cuda._sleep(1000)",
}
TOLD = {
    "assertion": ("device-side assert triggered", "CUDA_LAUNCH_BLOCKING=1"),
    "launch": ("unspecified launch failure", "CUDA_LAUNCH_BLOCKING=1"),
    "too much": ("CUDA out of memory", "--batch-size N"),
}
"""What is said of it, and advised."""
VERBS: dict[str, list[str]] = {"probe": ["--budget", "60s"], "tune": ["--budget", "60s", "--trials", "2"]}
"""With more time than is spent: all is over when the step fails, which it does in its fifth call at the latest."""


def run(folder: str, step: str, *arguments: str) -> dict[str, Any]:
    file = Path(folder) / "job.py"
    file.write_text(JOB.replace("{step}", STEPS[step]))
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main([arguments[0], str(file), *arguments[1:]])
    return {"code": code, "said": said.getvalue()}


def is_told(fake_device: Any, folder: Path, step: str, verb: str) -> None:
    found = fake_device(run, str(folder), step, verb, *VERBS[verb], FAKE_GIB=1)
    assert found["code"] == 3, found["said"]
    for words in ("The consumer (train_step) raised", *TOLD[step]):
        assert words in found["said"]
