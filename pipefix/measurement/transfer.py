"""Seconds of a batch's copy to the device, pinned and pageable, by events on a copy stream of its own."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from pipefix.measurement import gpu
from pipefix.measurement.measurement import Block
from pipefix.vocabulary.nested import leaves, map_leaves

REPEATS = 20
TO = " to cuda:"


def would_wake_cuda() -> bool:
    """Whether nobody has used the CUDA device in this process so far."""
    return torch.cuda.is_available() and not torch.cuda.is_initialized()


def measure(batch: Any) -> dict[str, float]:
    """Seconds a batch: ``pinned``, ``pageable``, and ``pinning`` (the copy into pinned memory); and its ``bytes``.

    Of copies to other devices that are in use, the same by names that end with the device.

    Empty without a CUDA device, or where no tensor of the batch lies in host memory.
    """
    if not torch.cuda.is_available():
        return {}
    tensors = [leaf for leaf in leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu"]
    if not tensors:
        return {}
    pinned = [tensor.pin_memory() for tensor in tensors]
    main = gpu.main_device()
    seconds = {
        "pinning": _pinning(tensors),
        "pinned": _copy(pinned, main, non_blocking=True),
        "pageable": _copy(tensors, main, non_blocking=False),
        "bytes": float(sum(tensor.nbytes for tensor in tensors)),
    }
    for device in gpu.devices():
        if device != main:
            seconds[f"pinned{TO}{device}"] = _copy(pinned, device, non_blocking=True)
            seconds[f"pageable{TO}{device}"] = _copy(tensors, device, non_blocking=False)
    return seconds


NOISE = 0.03
"""Part of a step below which what it takes more is not told from noise."""


def exposed(host: list[Block], resident: list[Block], size: int) -> float:
    """Seconds a batch of ``size`` samples that a step takes more where the batch is still to be copied; 0 within the noise."""
    whole, without = (statistics.median(size / block.rate for block in blocks) for blocks in (host, resident))
    return whole - without if without < (1 - NOISE) * whole else 0.0


def resident(batch: Any) -> Any:
    """The same batch on the device."""
    there = torch.device("cuda", gpu.main_device())
    return map_leaves(lambda leaf: leaf.to(there) if isinstance(leaf, torch.Tensor) else leaf, batch)


def _copy(tensors: list[torch.Tensor], device: int, *, non_blocking: bool) -> float:
    """Median over repeats; the stream is waited for once, at the end, so copies queue as they do in training."""
    stream = torch.cuda.Stream(device)
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(REPEATS)]
    with torch.cuda.stream(stream):
        for begun, ended in marks:
            begun.record(stream)
            for tensor in tensors:
                tensor.to(torch.device("cuda", device), non_blocking=non_blocking)
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
