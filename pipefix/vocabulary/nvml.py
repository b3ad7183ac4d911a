"""Asks NVML about the job's device, and finds which one that is: NVML counts all of the machine, CUDA the visible ones.

``CUDA_VISIBLE_DEVICES`` names them by number, by the beginning of a UUID, or by the UUID of an instance (MIG). Where a device is
cut into instances and none is named, CUDA takes the first.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from pipefix.vocabulary import quantity

IDLE = 1
"""NVML's reason for low clocks that is none: there was nothing to do."""
_TEMPERATURE_OF_GPU = 0


class NotVisible(LookupError):
    """``CUDA_VISIBLE_DEVICES`` shows CUDA no such device."""


def questions(nvml: Any, handle: Any) -> dict[str, Callable[[], float]]:
    """What can be asked of a device now, by name. Each may raise: of a part of a device, say, not all is known."""
    return {
        "utilisation": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        "memory_bytes": lambda: float(nvml.nvmlDeviceGetMemoryInfo(handle).used),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
        "temperature_c": lambda: float(nvml.nvmlDeviceGetTemperature(handle, _TEMPERATURE_OF_GPU)),
        "throttled": lambda: float(bool(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle) & ~IDLE)),
    }


def in_words(figures: dict[str, float], prefix: str) -> str:
    """What supports a verdict, with names that begin with ``prefix``; empty where nothing could be asked.

    NVML calls a device busy while any kernel runs, however small.
    """
    words: dict[str, Callable[[float], str]] = {
        "utilisation": lambda value: f"busy {quantity.percent(value)} of the time",
        "memory_bytes": lambda value: f"{quantity.size(value)} in use",
        "temperature_c": lambda value: f"{value:.0f} °C",
        "power_w": lambda value: f"{value:.0f} W",
        "throttled": lambda value: f"clocks held back {quantity.percent(value)} of the time" if value else "",
    }
    return ", ".join(filter(None, (word(figures[prefix + name]) for name, word in words.items() if prefix + name in figures)))


def job_handle(nvml: Any) -> Any:
    """Of the device on which this process has most memory; the first where it has none. Does not wake CUDA up."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return handle_of(nvml)
    number = max(range(cuda.device_count()), key=cuda.memory_reserved)
    uuid = getattr(cuda.get_device_properties(number), "uuid", None)
    return handle_of(nvml, number, None if uuid is None else str(uuid))


def handle_of(nvml: Any, number: int = 0, uuid: str | None = None) -> Any:
    """Raises `NotVisible`, or what ``nvml`` raises where it cannot be asked.

    Args:
        nvml: `pynvml`, begun.
        number: of the device, as CUDA counts.
        uuid: as CUDA tells it, where it is awake already: numbers of unlike devices may be in another order there.
    """
    known = None if uuid is None else _whole_called(nvml, f"GPU-{uuid.removeprefix('GPU-')}")
    if known is not None:
        return _instance_of(nvml, known)
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return _instance_of(nvml, nvml.nvmlDeviceGetHandleByIndex(number))
    visible = [part.strip() for part in named.split(",")]
    if number >= len(visible) or not visible[number]:
        raise NotVisible(f"CUDA_VISIBLE_DEVICES={named} shows no device {number}")
    wanted = visible[number]
    if wanted.startswith("MIG-"):
        return nvml.nvmlDeviceGetHandleByUUID(wanted)
    if wanted.isdigit() and all(part.isdigit() for part in visible[:number]) and int(wanted) < nvml.nvmlDeviceGetCount():
        return _instance_of(nvml, nvml.nvmlDeviceGetHandleByIndex(int(wanted)))
    known = _whole_called(nvml, wanted) if wanted.startswith("GPU-") else None
    if known is None:
        raise NotVisible(f"CUDA_VISIBLE_DEVICES={named} names no device of this machine at place {number}")
    return _instance_of(nvml, known)


def _whole_called(nvml: Any, beginning: str) -> Any:
    """The device whose UUID begins so; None where none does."""
    handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
    return next((handle for handle in handles if nvml.nvmlDeviceGetUUID(handle).startswith(beginning)), None)


def _instance_of(nvml: Any, whole: Any) -> Any:
    """Its first instance where it is cut into such; else itself."""
    with contextlib.suppress(Exception):  # devices and drivers that know of no instances
        for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(whole) if nvml.nvmlDeviceGetMigMode(whole)[0] else 0):
            with contextlib.suppress(Exception):  # places are not filled from the first on
                return nvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, place)
    return whole
