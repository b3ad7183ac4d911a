"""What a verb is used on, and how it says how far it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipefix.caches import target as cached_target
from pipefix.measurement.measure import silent as silent
from pipefix.subject.load import load
from pipefix.subject.subject import Subject

Progress = Callable[[str, float], None]
"""Told what is being done and the part of it that is done."""


def load_target(target: Any, *, batch_size: int | None = None, workers: int | None = None) -> Subject:
    """A target may also be a cache."""
    return load(target, batch_size=batch_size, workers=workers, directories=(cached_target.dataset,))
