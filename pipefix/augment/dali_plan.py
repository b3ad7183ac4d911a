"""How much of a list DALI does natively, from the front; a module does the rest to its batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipefix.augment import dali_graph, ops
from pipefix.augment.dali import DaliLoader
from pipefix.augment.dali_pipeline import Graph
from pipefix.augment.operation import Op


def loader(source: Any, listed: Sequence[Op], **settings: Any) -> DaliLoader:
    """Batches straight from encoded bytes. ``rest`` in the settings does what DALI does not."""
    return DaliLoader(source, plan(listed), **settings)


def plan(listed: Sequence[Op]) -> Graph:
    """As many operations from the front as DALI has."""
    before: list[Op] = []
    later: list[Op] = []
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    size, floats = None, False
    count, why = 0, None
    for place, op in enumerate(listed):
        why = dali_graph.why_not(op, size)
        if isinstance(op, ops.ToDtype):
            why = why or (None if op.dtype == "float32" and op.scale and not floats else "a conversion that is not to [0, 1]")
            floats = floats or why is None
        elif isinstance(op, ops.Normalize):
            earlier = listed[place - 1] if place else None
            why = why or (None if isinstance(earlier, ops.ToDtype) and len(op.mean) == 3 else "it does not follow the conversion")
            if why is None:
                mean, std = op.mean, op.std
        elif floats:
            why = why or (None if isinstance(op, (ops.Erasing, ops.ToTensor)) else "DALI is given it on bytes only")
            later.append(op)
        else:
            before.append(op)
        if why:
            later, before = [one for one in later if one is not op], [one for one in before if one is not op]
            break
        size, count = dali_graph.size_after(op, size), place + 1
    native, rest = listed[:count], listed[count:]
    if floats and count and not any(isinstance(op, ops.ToDtype) for op in native):
        floats = False
    slots, after = tuple(dali_graph.slots_of(before)), tuple(dali_graph.slots_of(later, size=size))
    return Graph(tuple(native), slots, after, floats, mean, std, tuple(rest), why or "" if rest else "")
