"""What is tried in a forked process while CUDA is awake in the one that forks."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from pipefix.fixes import fused_trial
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.fusing.child_process import in_child_process
from pipefix.loader.fusing.errors import NotFused
from pipefix.tuning.trial import can_fork

CROP = v2.Compose([v2.ToImage(), v2.CenterCrop(32), v2.ToDtype(torch.float32, scale=True)])


def fused_call(folder: str) -> dict[str, str]:
    """Why a fused call is declined, by loader; empty where it is not."""
    torch.zeros(1, device="cuda")
    dataset = ImageFolder(folder, CROP)
    loaders: dict[str, Any] = {
        "pinned": DataLoader(dataset, batch_size=4, pin_memory=True),
        "pinned, by workers": DataLoader(dataset, batch_size=4, pin_memory=True, num_workers=1),
        "to a device": FastLoader(dataset, batch_size=4, device="cuda"),
        "pinned, to a device": FastLoader(dataset, batch_size=4, device="cuda", pin_memory=True, num_workers=1),
    }
    found = {}
    for name, loader in loaders.items():
        try:
            in_child_process(partial(fused_trial.try_on_dataset, loader, "exact", 0.1))
            found[name] = ""
        except NotFused as error:
            found[name] = str(error)
    return found


def forks(first: str) -> list[str | None]:
    """Why trials cannot be run, before and after something here touched CUDA."""
    before = can_fork()
    if first == "is_available":
        torch.cuda.is_available()
    elif first == "tensor":
        torch.zeros(1, device="cuda")
    return [before, can_fork()]


def driver_in_a_fork() -> str:
    """What a forked process is told that asks for the device."""
    torch.zeros(1, device="cuda")
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            torch.zeros(1, device="cuda")
            os.write(writes, b"it worked")
        except RuntimeError as error:
            os.write(writes, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(reads, 1000).decode()
