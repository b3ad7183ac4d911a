"""What libraries unpack for a sample, and how much of it the sample asks for: chunks of an array, row groups of a table.

Counted while samples are recorded, in the order of the user's own sampler, by the shapes alone: nothing is read for it.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MOST_CHUNKS = 256
"""Of one selection: which of more are still kept by the library is not followed."""


@dataclass
class ChunkReads:
    """Of one array or table, so far."""

    chunk: str = ""
    """Its chunks, such as ``50 x 64 x 64``."""
    asked: int = 0
    """Bytes of what was selected; 0 where only the sample tells what it used."""
    unpacked: int = 0
    """Bytes of the chunks that this lies in, but for those that the library still had."""
    _kept: OrderedDict[tuple[int, ...], None] = field(default_factory=OrderedDict)

    def select(self, index: Any, shape: Sequence[int], chunk: Sequence[int], itemsize: int, asked: int, *, keeps: int = 0) -> None:
        """``keeps``: bytes of unpacked chunks that the library keeps, those used last."""
        axes = chunks_of(index, shape, chunk)
        if axes is None:
            return
        self.chunk = " x ".join(map(str, chunk))
        size = itemsize * math.prod(min(length, step) for length, step in zip(shape, chunk, strict=True))
        self.asked += asked
        self.unpacked += size * self._fetched(axes, keeps // max(1, size))

    def _fetched(self, axes: Sequence[Sequence[int]], kept: int) -> int:
        """Chunks that the library does not have. ``kept``: how many it keeps."""
        count = math.prod(map(len, axes))
        if not kept or count > MOST_CHUNKS:
            self._kept.clear()
            return count
        fetched = 0
        for place in itertools.product(*axes):
            fetched += place not in self._kept
            self._kept[place] = None
            self._kept.move_to_end(place)
            if len(self._kept) > kept:
                self._kept.popitem(last=False)
        return fetched


def chunks_of(index: Any, shape: Sequence[int], chunk: Sequence[int]) -> list[Sequence[int]] | None:
    """By axis, the numbers of the chunks that a selection lies in; None for selections that are not followed (fields, masks)."""
    parts = list(index) if isinstance(index, tuple) else [index]
    dots = [place for place, part in enumerate(parts) if part is Ellipsis]
    if dots:
        parts[dots[0] : dots[0] + 1] = [slice(None)] * (len(shape) - len(parts) + 1)
    parts += [slice(None)] * (len(shape) - len(parts))
    if len(dots) > 1 or len(parts) != len(shape):
        return None
    axes = [_touched(part, length, step) for part, length, step in zip(parts, shape, chunk, strict=True)]
    return None if None in axes else [axis for axis in axes if axis is not None]


def _touched(part: Any, length: int, step: int) -> Sequence[int] | None:
    if isinstance(part, slice):
        places = range(*part.indices(length))
        return range(min(places[0], places[-1]) // step, max(places[0], places[-1]) // step + 1) if places else ()
    numbers = np.asarray(part)
    if numbers.ndim > 1 or numbers.dtype.kind not in "iub":
        return None
    if numbers.dtype.kind == "b":
        numbers = np.flatnonzero(numbers)
    return sorted({int(number) % length // step for number in numbers.reshape(-1)}) if length else ()
