"""The own options of a `FastLoader`: which there are, and what they may be."""

from __future__ import annotations

import math
import os
from numbers import Integral, Real
from typing import Any

import torch
from torch.utils.data import IterableDataset, IterDataPipe, MapDataPipe

from pipefix.loader.fusing.fusion import MODES

_CHOICES = {
    "engine": (("auto", "processes", "torch"), ""),
    "rng": (("torch", "sample"), ""),
    "fuse": (MODES, " or None"),
    "on_bad": (("raise", "skip", "refill"), ""),
}
NAMES = (*_CHOICES, "plan", "max_bad", "quarantine", "sample_timeout", "augment", "device", "threads_per_worker")
"""They act from the next epoch on where they are set later."""


def of(loader: Any) -> dict[str, Any]:
    return {name: getattr(loader, name) for name in NAMES}


def check(loader: Any) -> None:
    """Wrong ones are refused where they are given, or, set afterwards, when the next epoch begins."""
    for name, (known, others) in _CHOICES.items():
        if (choice := getattr(loader, name)) not in known and not (others and choice is None):
            raise ValueError(f"{name} option should be one of {', '.join(map(repr, known))}{others}, but got {name}={choice!r}")
    if loader.plan != loader._planned_by:
        since = f"with {loader._planned_by!r}, and was set to {loader.plan!r} since: make another FastLoader with that plan"
        raise ValueError(f"plan is read when a loader is made, {since}")
    threads, timeout, path = loader.threads_per_worker, loader.sample_timeout, loader.quarantine
    for name, right, what in (
        ("max_bad", _is_number(loader.max_bad) and 0 <= loader.max_bad <= 1, "a share between 0 and 1"),
        ("sample_timeout", _is_number(timeout) and 0 <= timeout < math.inf, "seconds, such as 60, or 0 for no limit"),
        ("threads_per_worker", _is_number(threads, Integral) and threads > 0, "a whole number above 0"),
        ("quarantine", path is None or isinstance(path, (str, os.PathLike)), "the path of a file, or None"),
        ("augment", loader.augment is None or callable(loader.augment), "a function of a batch, or None"),
        ("device", loader.device is None or _is_device(loader.device), "a device, such as 'cuda', 'cuda:0' or 'cpu', or None"),
    ):
        if not right:
            raise ValueError(f"{name} option should be {what}, but got {name}={getattr(loader, name)!r}")
    if threads > 1 and timeout:
        others = f"with threads_per_worker={threads} others read the samples. Leave one of them out."
        raise ValueError(f"sample_timeout={timeout!r} interrupts the main thread of a worker, and {others}")
    by_index = loader.on_bad != "raise" or timeout or loader.rng != "torch" or threads > 1
    if by_index and isinstance(loader.dataset, (IterableDataset, IterDataPipe, MapDataPipe)):
        raise ValueError(
            "on_bad, sample_timeout, rng and threads_per_worker belong to datasets whose samples are asked for by index, which "
            f"a stream's are not. This is a {type(loader.dataset).__name__}; leave those options out."
        )


def _is_number(value: Any, kind: type = Real) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_device(value: Any) -> bool:
    try:
        return bool(torch.device(value).type)
    except (RuntimeError, TypeError):
        return False
