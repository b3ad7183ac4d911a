"""What the bench of a process is told by the dataset that stands in for the user's, and what it hands over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

from pipefix.measurement.time_limit import LIMIT

SWITCH_WORDS = 2
"""Of the switch: which arm, and how often it was turned. After them every worker counts the batches that it made."""


class Delivered(NamedTuple):
    """What the loader hands to the training process."""

    batch: Any
    trace: bytes
    skipped: bool = False
    """Whether `batch` only stands for one that the training process has kept."""


@dataclass(frozen=True)
class StandInOptions:
    recording_bytes: int
    """Byte budget of one process's recording."""
    workers: int
    cut: bool = True
    """False: no hooks at all, the pipeline untouched (for pools that only try settings)."""
    limit: float = LIMIT
    """Seconds that one batch may take."""
    package: str = ""
    """An installed one that counts as the user's own."""
    observe: Callable[[Any], dict[str, float]] | None = None
    """Asked once in every process, with its first batch: facts that the audit reads."""


class StandsIn(Protocol):
    """What a bench is told by the dataset that stands in for the user's."""

    dataset: Any
    collate: Callable[[Any], Any]
    switch: torch.Tensor
    options: StandInOptions
    kind: str
    batch_size: int | None
    """Of a stream; others are asked for whole orders."""
    whole_batches: bool
    """Whether it is the user's own batch sampler that says which samples make a batch together."""
    places_batches: bool
    """Whether the loader itself puts batches where the training process finds them."""
