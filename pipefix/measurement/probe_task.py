"""The messages between a probe and its worker processes: the task before the loader starts, and what comes in place of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

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
class ProbeOptions:
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


@dataclass(frozen=True)
class ProbeTask:
    """The same for every process that makes batches of a loader."""

    collate: Callable[[Any], Any]
    """The user's."""
    switch: torch.Tensor
    options: ProbeOptions
    kind: str
    """How samples are asked for: ``map``, ``batched`` (by `__getitems__`), ``single`` (no auto-collation) or ``stream``."""
    whole_batches: bool = False
    """Whether it is the user's own batch sampler that says which samples make a batch together."""
    leaves_out: bool = False
    """Whether the loader leaves out samples that cannot be read (a FastLoader's ``on_bad``), of those asked for by index."""
