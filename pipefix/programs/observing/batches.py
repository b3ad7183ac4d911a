"""Samples in a batch, and for the first batches of an epoch a checksum that tells them apart."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

FIRST = 16
"""Batches of a loop's first epoch that are told apart."""
_VALUES = 64
"""Of each tensor, at even distances."""
_TENSORS = 4
_DEEPEST = 4
_NOWHERE = 99
"""In the place of a level: nothing holds a sample by each item, as of sentences whose words are in one row."""


def samples_in(batch: Any, otherwise: int, level: int | None = None) -> int:
    """The length of the first tensor in it, or what is at ``level``; ``otherwise`` where there is none."""
    with suppress(Exception):  # as of one number, or of no tensor; and whatever a class of the user's raises
        *containers, first = _down(batch)
        return int(first.shape[0] if level is None else [*map(len, containers), *first.shape][level])
    return otherwise


def level_of_samples(batch: Any, size: int) -> int | None:
    """Which of the containers around the first tensor holds a sample by each item, as of images that differ in size, or, counted
    after these, which of its dimensions, as where time is the first; None where its first does. ``size``: samples of this batch."""
    with suppress(Exception):  # as above
        *containers, first = _down(batch)
        if first.shape[0] != size:
            lengths = [len(held) if isinstance(held, (list, tuple)) else 0 for held in containers] + [*first.shape[:2]]
            return lengths.index(size) if size in lengths else _NOWHERE if 1 < size < first.shape[0] else None
    return None


def _down(batch: Any) -> Iterator[Any]:
    """It, the first that it holds, the first that this holds, down to a tensor or what holds nothing."""
    for _ in range(_DEEPEST):
        yield batch
        if hasattr(batch, "shape"):
            return
        if isinstance(batch, (list, tuple)):
            batch = batch[0]
        elif isinstance(batch, Mapping):
            batch = next(iter(batch.values()))
        else:
            return


def checksum(batch: Any) -> int | None:
    """The same for batches that hold the same values, as far as a quick look tells; None where it tells nothing.

    Of tensors on a device nothing is read: that would wait for it.
    """
    with suppress(Exception):  # whatever a class of the user's raises
        read = [values for held, _ in zip(_tensors(batch, 0), range(_TENSORS), strict=False) if (values := _values(held))]
        return zlib.crc32(repr(read).encode()) if read else None
    return None


def tensors_in(batch: Any) -> int:
    """How many tensors it is made of, as far as a look into its containers tells."""
    with suppress(Exception):  # whatever a class of the user's raises
        return sum(hasattr(held, "shape") for held in _tensors(batch, 0))
    return 0


def _tensors(value: Any, depth: int) -> Iterator[Any]:
    if hasattr(value, "shape") and hasattr(value, "tolist"):
        yield value
    elif isinstance(value, (list, tuple, Mapping)) and depth < _DEEPEST:
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(item, depth + 1)
    elif isinstance(value, (str, bytes, int, float)):
        yield value


def _values(held: Any) -> Any:
    if isinstance(held, (str, bytes, int, float)):
        return held[:_VALUES] if isinstance(held, (str, bytes)) else held
    if getattr(held, "is_cuda", False) or str(getattr(held, "device", "cpu")) != "cpu":
        return None
    if not (held.is_contiguous() if hasattr(held, "is_contiguous") else held.flags.c_contiguous):
        return None  # values that do not lie in a row would be copied to look at some
    flat = held.reshape(-1)[:: max(1, math.prod(held.shape) // _VALUES)]
    return tuple(held.shape), flat[:_VALUES].tolist()
