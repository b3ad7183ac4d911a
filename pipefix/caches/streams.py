"""Streams (`IterableDataset`): samples by their place in them. They have one reader, and end where they end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from pipefix.caches.cut import Hook


class EndOfStream(Exception):
    """There is no sample of this number."""


def is_stream(dataset: Any) -> bool:
    torch = sys.modules.get("torch.utils.data")
    return torch is not None and isinstance(dataset, torch.IterableDataset)


def told_length(dataset: Any) -> int | None:
    """What a stream says of its own length."""
    try:
        return len(dataset) or None
    except (TypeError, NotImplementedError, AttributeError):
        return None


def stream(dataset: Any, hook: Hook | None) -> Callable[[int], Any]:
    """Samples of an iterable by their place in it: forward at no cost, backward from its beginning."""
    at = 0
    running: Iterator[Any] | None = None

    def get(index: int) -> Any:
        nonlocal at, running
        if running is None or index < at:
            at, running = 0, iter(dataset)
        try:
            while at < index:
                next(running)
                at += 1
            at += 1
            if hook is not None:
                hook.begin()
            return next(running)
        except StopIteration:
            raise EndOfStream from None

    return get
