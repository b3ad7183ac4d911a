"""What augmentation on the fake device waits for. Kernels compute nothing there: only what is asked of the device counts."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from pipefix.augment.module import Augment
from tests.augment.calls import calls_of
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


def waits() -> dict[str, list[int]]:
    """For each list that swaps are tried with, how often the host waits for the device in each of three batches."""
    fake = ctypes.CDLL(None)
    counted: dict[str, list[int]] = {}
    augment = Augment()
    recorded = {name: calls_of(transform, torch.zeros((8, 3, 120, 124), dtype=torch.uint8)) for name, transform in ALL.items()}
    with WithoutLibraries():
        for name, calls in recorded.items():
            images = torch.zeros((8, 3, 120, 124), dtype=torch.uint8, device="cuda")
            counted[name] = []
            for _ in range(3):
                torch.cuda.synchronize()
                before = fake.fake_waits()
                augment(images, calls)
                counted[name].append(fake.fake_waits() - before)
    return counted
