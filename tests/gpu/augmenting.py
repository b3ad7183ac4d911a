"""What augmentation on the fake device waits for. Kernels compute nothing there: only what is asked of the device counts."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torchvision.transforms import v2

from pipefix.augment import kornia
from pipefix.augment.translate import translate
from tests.augment import coverage
from tests.augment.lists import ALL

OF_LIBRARIES = ("aten::mm", "aten::bmm", "aten::convolution", "aten::_linalg_solve_ex")
"""Operators of cuBLAS, cuDNN and cuSOLVER, which the fake device lacks. On a real one they wait for nothing."""


class WithoutLibraries(TorchDispatchMode):
    """Results of those operators are memory that nobody wrote to."""

    def __torch_dispatch__(self, operator: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        named = named or {}
        if operator.name().split(".")[0] not in OF_LIBRARIES:
            return operator(*given, **named)
        shapes = operator(*tree_map_only(torch.Tensor, _shape, given), **tree_map_only(torch.Tensor, _shape, named))
        return tree_map_only(torch.Tensor, lambda one: torch.empty_like(one, device="cuda"), shapes)


def _shape(of: torch.Tensor) -> torch.Tensor:
    return of.to("meta")


WITH_LABELS = ("MixUp", "CutMix", "LinearTransformation", "Normalize")
"""Transforms whose examples do not take bytes of pictures of any size alone."""


def lists() -> dict[str, Any]:
    """Every list that swaps are tried with, and an example of each transform that goes to Kornia."""
    found: dict[str, Any] = dict(ALL)
    for row in coverage.rows():
        if row.why_not["kornia"] is None and row.name not in WITH_LABELS:
            found[f"{row.name}, an example"] = coverage.example(row.name)
    floats = [v2.ToDtype(torch.float32, scale=True), v2.Normalize((0.5,) * 3, (0.2,) * 3)]
    mixed = {"MixUp": v2.Compose([*floats, v2.MixUp(num_classes=4)]), "CutMix": v2.CutMix(num_classes=4)}
    return {**found, "Normalize": v2.Compose(floats), **mixed}


def waits() -> dict[str, list[int]]:
    """For each of them, how often the host waits for the device in each of three batches."""
    fake = ctypes.CDLL(None)
    found: dict[str, list[int]] = {}
    with WithoutLibraries():
        for name, transform in lists().items():
            augment = kornia.augmentation(translate(transform).ops)
            images = torch.zeros((8, 3, 120, 124), dtype=torch.uint8, device="cuda")
            labels = torch.zeros(8, dtype=torch.int64, device="cuda")
            found[name] = []
            for _ in range(3):
                torch.cuda.synchronize()
                before = fake.fake_waits()
                # Sizes that are drawn for each sample make no batch: their pictures come as a list.
                alone = list(images) if "example" in name else images
                augment((images, labels) if name in ("MixUp", "CutMix") else alone)
                found[name].append(fake.fake_waits() - before)
    return found
