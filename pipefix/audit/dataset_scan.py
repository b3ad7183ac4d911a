"""Estimates how many Python objects a dataset keeps in lists and dicts, from a few hundred of them; runs none of its code.

What matters is objects, not bytes of data: reading one writes its reference count, and with it copies the memory page it lies on in
every forked worker. An array of a million numbers is one object; a list of a million paths is a million, and so is a column of a
pandas table. Lists, tuples, sets, dicts and deques are looked into by Python's own methods, of subclasses too, which may compute
other entries when they are asked for them.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from pipefix.audit.facts import DatasetFacts
from pipefix.vocabulary.attributes import attributes

SAMPLED = 256
"""Entries of a container that are looked at. Enough to see that a thousand labels are shared by a million entries."""
SHARED = 0.9
"""Fewer distinct objects than this part of those looked at: they are shared, and counted once each."""
PAGE = 4096
"""Counting a reference to an object copies one page, however large the object is."""
MAX_DEPTH = 5
MAX_PARTS = 32
"""Parts of one entry that are looked at."""
FEW = 64
"""A container with no more entries than this may hold datasets of its own and is looked into, entry by entry."""

CONTAINERS = (list, tuple, set, frozenset, dict, deque)
LEAVES = (str, bytes, bytearray, int, float, complex, bool, type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def scan_dataset(dataset: Any) -> DatasetFacts:
    """Estimate what ``dataset`` and the datasets inside it hold."""
    held = [_weighed(container, name) for name, container in _large(dataset, "dataset", 0, set())]
    largest = max(held, key=lambda facts: facts.bytes, default=DatasetFacts())
    objects, size = sum(facts.objects for facts in held), sum(facts.bytes for facts in held)
    return DatasetFacts(objects=objects, bytes=size, where=largest.where)


def _large(value: Any, name: str, depth: int, visited: set[int]) -> Iterator[tuple[str, Any]]:
    """Containers of many entries among what a value holds, each with the place where it is held."""
    if depth > MAX_DEPTH or id(value) in visited or value is None or type(value) in LEAVES:
        return
    visited.add(id(value))
    if issubclass(type(value), np.ndarray):
        if value.dtype.hasobject and value.size > FEW:
            yield name, value.reshape(-1)
        return
    if (columns := _columns_of_objects(value)) is not None:
        yield from ((f"{name}{place}", column) for place, column in columns)
        return
    for attribute, held in attributes(value).items():
        yield from _large(held, f"{name}.{attribute}", depth + 1, visited)
    if not issubclass(type(value), CONTAINERS):
        return
    base = _base(value)
    if base.__len__(value) > FEW:
        yield name, value
    else:
        for key, held in dict.items(value) if base is dict else enumerate(base.__iter__(value)):
            yield from _large(held, f"{name}[{key!r}]" if type(key) in (int, str) else f"{name}[...]", depth + 1, visited)


def _columns_of_objects(table: Any) -> list[tuple[str, Any]] | None:
    """Those columns of a pandas table, or the one of a series, that hold Python objects; text in Arrow's memory is none."""
    kinds = {owner.__name__ for owner in type(table).__mro__ if owner.__module__.partition(".")[0] == "pandas"}
    if "DataFrame" in kinds:
        columns = [(f"[{name!r}]", table.iloc[:, place]) for place, name in enumerate(table.columns)]
    elif "Series" in kinds:
        columns = [("", table)]
    else:
        return None
    return [
        (place, column.to_numpy(dtype=object))
        for place, column in columns
        if len(column) > FEW and (column.dtype == object or getattr(column.dtype, "storage", "") == "python")
    ]


def _base(container: Any) -> Any:
    return next(kind for kind in (*CONTAINERS, np.ndarray) if issubclass(type(container), kind))


def _weighed(container: Any, name: str) -> DatasetFacts:
    """How many objects a container holds and how large they are, from evenly spread entries."""
    base = _base(container)
    length = base.__len__(container)
    step = max(1, length // SAMPLED)
    if base in (list, tuple, np.ndarray):
        sample = [base.__getitem__(container, place) for place in range(0, length, step)]
    else:
        sample = list(islice(base.items(container) if base is dict else base.__iter__(container), 0, None, step))
    places: dict[str, list[tuple[Any, float]]] = {}
    for entry in sample:
        _add(entry, "", places, 0, 1.0, counted=base is not dict)
    objects = weight = 0.0
    for met in places.values():
        distinct = {id(value): value for value, _ in met}
        each = length / len(sample)
        count = each * sum(parts for _, parts in met) if len(distinct) >= SHARED * len(met) else float(len(distinct))
        objects += count
        weight += count * sum(min(_size(value), PAGE) for value in distinct.values()) / len(distinct)
    return DatasetFacts(objects=round(objects), bytes=round(weight), where=name)


def _size(value: Any) -> int:
    """Bytes of one object, by no method of the user's."""
    return sys.getsizeof(value) if type(value).__module__ == "builtins" else object.__sizeof__(value)


def _add(
    value: Any, place: str, places: dict[str, list[tuple[Any, float]]], depth: int, stands_for: float, *, counted: bool = True
) -> None:
    """Note an object, and the objects that it is made of, each by its place in the entry.

    Args:
        stands_for: so many like it, since no more than `MAX_PARTS` of an entry are looked at.
        counted: it is an object itself.
    """
    if value is None or type(value) in (bool, type) or (type(value) is int and -5 <= value <= 256):
        return  # made once for the whole program
    if counted:
        places.setdefault(place, []).append((value, stands_for))
    if depth >= MAX_DEPTH or type(value) in LEAVES:
        return
    each = stands_for
    if issubclass(type(value), CONTAINERS):
        base = _base(value)
        each *= max(1.0, base.__len__(value) / MAX_PARTS)
        if base is dict:
            entries = list(islice(dict.items(value), MAX_PARTS))
            parts = [(f"{place}{{}}", key) for key, _ in entries]
            parts += [(f"{place}[{key!r}]" if type(key) is str else f"{place}[]", held) for key, held in entries]
        else:
            held = islice(base.__iter__(value), MAX_PARTS)
            parts = [(f"{place}[{index if base is tuple else ''}]", part) for index, part in enumerate(held)]
    elif type(value).__module__.partition(".")[0] in ("builtins", "torch", "numpy", "PIL", "pathlib"):
        return
    else:
        parts = [(f"{place}.{name}", part) for name, part in islice(attributes(value).items(), MAX_PARTS)]
    for name, part in parts:
        _add(part, name, places, depth + 1, each)
