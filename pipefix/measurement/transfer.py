"""Host to device: what a batch's copy costs, pinned and pageable, by events on a copy stream of its own."""

from __future__ import annotations

import time
from typing import Any

import torch

REPEATS = 20


def measure(batch: Any) -> dict[str, float]:
    """Seconds a batch: ``pinned``, ``pageable``, and ``pinning`` (the copy into pinned memory); and its ``bytes``.

    Empty without a CUDA device, or where no tensor of the batch lies in host memory.
    """
    if not torch.cuda.is_available():
        return {}
    tensors = [tensor for tensor in _tensors(batch) if tensor.device.type == "cpu"]
    if not tensors:
        return {}
    pinned = [tensor.pin_memory() for tensor in tensors]
    return {
        "pinning": _pinning(tensors),
        "pinned": _copy(pinned, non_blocking=True),
        "pageable": _copy(tensors, non_blocking=False),
        "bytes": float(sum(tensor.nbytes for tensor in tensors)),
    }


def _copy(tensors: list[torch.Tensor], *, non_blocking: bool) -> float:
    """Median over repeats; the stream is waited for once, at the end, so copies queue as they do in training."""
    stream = torch.cuda.Stream()
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(REPEATS)]
    with torch.cuda.stream(stream):
        for begun, ended in marks:
            begun.record(stream)
            for tensor in tensors:
                tensor.to("cuda", non_blocking=non_blocking)
            ended.record(stream)
    stream.synchronize()
    spent = sorted(begun.elapsed_time(ended) / 1e3 for begun, ended in marks[2:])
    return float(spent[len(spent) // 2])


def _pinning(tensors: list[torch.Tensor]) -> float:
    """Median over repeats; page-locked memory that was freed is used again, as a loader's pinning thread does."""
    spent = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        held = [tensor.pin_memory() for tensor in tensors]
        spent.append(time.perf_counter() - begun)
        del held
    return sorted(spent)[len(spent) // 2]


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for one in inner for tensor in _tensors(one)]
