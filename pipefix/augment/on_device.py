"""Numbers that kernels take, on the device of the pictures: those of a batch in one copy that nobody waits for, constants once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from pipefix.augment.steps import DrawnStep

_ALIGNMENT = 16
_HOST = {"resize": {"height", "width"}, "pad": {"padding"}}


def on_host(step: DrawnStep) -> set[str]:
    """Values that stay on the host: they decide sizes, or seed generators."""
    turns_size = step.name == "rotate" and step.fixed["expand"]
    return _HOST.get(step.name, set()) | {"key"} | ({"angle"} if turns_size else set())


class DeviceValues:
    """What was drawn for a batch, on the device."""

    def __init__(self, steps: Iterable[DrawnStep], device: torch.device) -> None:
        self._device = device
        self._arrays: list[Any] = []
        self._tensors: dict[int, torch.Tensor] = {}
        """By the identity of the array on the host."""
        if device.type == "cuda":
            self._copy(list({id(array): array for array in _arrays(steps)}.values()))

    def __getitem__(self, array: Any) -> torch.Tensor:
        known = self._tensors.get(id(array))
        return torch.as_tensor(array).to(self._device) if known is None else known

    def _copy(self, arrays: list[Any]) -> None:
        """All of them in one copy from pinned memory."""
        places, end = [], 0
        for array in arrays:
            places.append(end)
            end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        if not end:
            return
        pinned = torch.empty(end, dtype=torch.uint8, pin_memory=True)
        view = pinned.numpy()
        for array, place in zip(arrays, places, strict=True):
            view[place : place + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        there = pinned.to(self._device, non_blocking=True)
        for array, place in zip(arrays, places, strict=True):
            kind = torch.from_numpy(np.empty(0, array.dtype)).dtype
            self._tensors[id(array)] = there[place : place + array.nbytes].view(kind).view(array.shape)
        self._arrays = arrays  # while they live, no other array has their identity


def _arrays(steps: Iterable[DrawnStep]) -> Iterator[Any]:
    for step in steps:
        stays = on_host(step)
        yield step.rows
        yield from (value for name, value in step.values.items() if name not in stays)
        for chain in step.fixed.get("chains", ()) if step.name == "blend" else ():
            yield from _arrays(chain)


# -- constants ---------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def constant(values: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of a number or of a tuple of some, made once: nobody writes to it."""
    with torch.inference_mode(False):  # it may be used in training later
        return torch.tensor(values, dtype=dtype, device=device)


def table(values: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The same for many numbers, known by the identity of the tuple that holds them."""
    return _table(_Same(values), dtype, device)


class _Same:
    def __init__(self, values: Any) -> None:
        self.values = values

    def __hash__(self) -> int:
        return id(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.values is other.values


@lru_cache(maxsize=8)
def _table(same: _Same, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    with torch.inference_mode(False):
        return torch.tensor(same.values, dtype=dtype, device=device)
