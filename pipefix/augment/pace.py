"""What a batch takes on a device, through Kornia and through torchvision on tensors: beside each other, in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from pipefix.augment import support
from pipefix.augment.operation import Op
from pipefix.augment.swap import build
from pipefix.vocabulary.errors import MissingExtra

BATCH, WARM, TURNS = 32, 2, 5
TARGETS = ("kornia", "tensor")


def batch_seconds(listed: Sequence[Op], images: Sequence[torch.Tensor], device: str) -> dict[str, float]:
    """Of a batch of `BATCH` pictures, by target; those that do not do the list, or cannot be had here, are left out."""
    batch: Any = [images[place % len(images)].to(device) for place in range(BATCH)]
    if len({(one.shape, one.dtype) for one in batch}) == 1:
        batch = torch.stack(batch)
    modules = {}
    for target in TARGETS:
        if support.why_not_any(listed, target) is None:
            try:
                modules[target] = build(target, listed)
            except MissingExtra:
                continue
    spent: dict[str, list[float]] = {target: [] for target in modules}
    for _ in range(WARM + TURNS):
        for target, module in modules.items():
            spent[target].append(_seconds(module, batch, device))
    return {target: statistics.median(seconds[WARM:]) for target, seconds in spent.items()}


def _seconds(module: Any, batch: Any, device: str) -> float:
    """As the training loop feels it behind an idle device: with what the host does."""
    begun = time.perf_counter()
    module(batch)
    if device != "cpu":
        torch.accelerator.synchronize(torch.device(device))
    return time.perf_counter() - begun
