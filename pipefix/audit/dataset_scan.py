"""How many Python objects a dataset keeps in lists and dicts: estimated from a few hundred of them, within milliseconds.

What matters is objects, not bytes of data: reading one writes its reference count, and with it copies the memory page
it lies on in every forked worker. An array of a million numbers is one object; a list of a million paths is a million.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from pipefix.audit.finding import DatasetFacts
from pipefix.vocabulary.attributes import attributes

SAMPLED = 256
"""Entries of a container that are looked at. Enough to see that a thousand labels are shared by a million entries."""
SHARED = 0.9
"""Fewer distinct objects than this part of those looked at: they are shared, and counted once each."""
PAGE = 4096
"""Counting a reference to an object copies one page, however large the object is."""
MAX_DEPTH = 5
MAX_CHILDREN = 32
FEW = 64
"""A container with no more entries than this may hold datasets of its own and is looked into, entry by entry."""

CONTAINERS = (list, tuple, set, frozenset, deque, dict)
LEAVES = (str, bytes, bytearray, int, float, complex, bool, type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def scan_dataset(dataset: Any) -> DatasetFacts:
    """Estimate what ``dataset`` and the datasets inside it hold."""
    walk = _Walk()
    walk.visit(dataset, "dataset", 0)
    if not walk.found:
        return DatasetFacts()
    largest = max(walk.found, key=lambda held: held.bytes)
    return DatasetFacts(
        objects=sum(held.objects for held in walk.found),
        bytes=sum(held.bytes for held in walk.found),
        where=largest.where,
        entries=largest.entries,
    )


class _Walk:
    """Visits attributes, and the attributes of what they hold."""

    def __init__(self) -> None:
        self.found: list[DatasetFacts] = []
        self._seen: set[int] = set()

    def visit(self, value: Any, name: str, depth: int) -> None:
        if depth > MAX_DEPTH or id(value) in self._seen or value is None or isinstance(value, LEAVES):
            return
        self._seen.add(id(value))
        if isinstance(value, CONTAINERS):
            self._container(value, name, depth)
        elif _is_table(value):
            for column in value.columns:
                self.visit(value[column].array, f"{name}[{column!r}]", depth + 1)
        elif _object_array(value) is not None:
            self._keep(_object_array(value), len(value), name)
        elif type(value).__module__.partition(".")[0] not in ("torch", "numpy", "pandas") or hasattr(value, "__getitem__"):
            for attribute, held in attributes(value).items():
                self.visit(held, f"{name}.{attribute}", depth + 1)

    def _container(self, value: Any, name: str, depth: int) -> None:
        if len(value) > FEW:
            self._keep(value, len(value), name)
            return
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, held in entries:
            self.visit(held, f"{name}[{key!r}]", depth + 1)

    def _keep(self, container: Any, length: int, name: str) -> None:
        objects, weight = _weigh(container, length)
        self.found.append(DatasetFacts(objects=objects, bytes=weight, where=name, entries=length))


def _is_table(value: Any) -> bool:
    return type(value).__module__.startswith("pandas") and hasattr(value, "columns")


def _object_array(value: Any) -> Any:
    """An array whose elements are Python objects (NumPy's or pandas' dtype "object"); None for any other value."""
    if getattr(getattr(value, "dtype", None), "kind", None) != "O" or not hasattr(value, "__len__"):
        return None
    flat = value.reshape(-1) if getattr(value, "ndim", 1) != 1 else value
    return flat if getattr(flat.dtype, "hasobject", True) else None


class _Tally:
    """Objects met at the same place of every entry: all paths, all labels, all keys."""

    def __init__(self) -> None:
        self.ids: set[int] = set()
        self.met = 0
        self.weight = 0.0
        self.bytes = 0.0

    def add(self, value: Any, weight: float) -> None:
        self.met += 1
        self.weight += weight
        if id(value) not in self.ids:
            self.ids.add(id(value))
            self.bytes += min(sys.getsizeof(value, 0), PAGE)

    def total(self) -> tuple[float, float]:
        """Objects and bytes in the whole container."""
        distinct = len(self.ids)
        count = self.weight if distinct >= SHARED * self.met else float(distinct)
        return count, count * self.bytes / distinct


def _weigh(container: Any, length: int) -> tuple[int, int]:
    places: dict[str, _Tally] = {}
    sample = list(_sample(container, length))
    for entry in sample:
        _expand(entry, "", length / len(sample), places, 0)
    totals = [place.total() for place in places.values()]
    return round(sum(count for count, _ in totals)), round(sum(weight for _, weight in totals))


def _sample(container: Any, length: int) -> Iterator[Any]:
    """Evenly spread entries: the first ones are not like the others where a list is sorted."""
    count = min(length, SAMPLED)
    if isinstance(container, dict):
        yield from map(_Pair, islice(container.items(), 0, None, max(1, length // count)))
    elif isinstance(container, (set, frozenset, deque)):
        yield from islice(container, 0, None, max(1, length // count))
    else:
        for index in range(count):
            yield container[index * length // count]


class _Pair:
    """An entry of a dict, which is no object of its own there."""

    def __init__(self, item: tuple[Any, Any]) -> None:
        self.item = item


def _expand(value: Any, place: str, weight: float, places: dict[str, _Tally], depth: int) -> None:
    if isinstance(value, _Pair):
        _expand(value.item[0], f"{place}(key)", weight, places, depth)
        _expand(value.item[1], f"{place}(value)", weight, places, depth)
        return
    if _immortal(value):
        return
    places.setdefault(place, _Tally()).add(value, weight)
    if depth >= MAX_DEPTH:
        return
    for name, held, part in _children(value):
        _expand(held, f"{place}{name}", weight * part, places, depth + 1)


def _immortal(value: Any) -> bool:
    """Made once for the whole program, or not a matter of this dataset."""
    if value is None or isinstance(value, (bool, type, ModuleType, FunctionType, BuiltinFunctionType)):
        return True
    return type(value) is int and -5 <= value <= 256


def _children(value: Any) -> Iterator[tuple[str, Any, float]]:
    """(place, child, how many such children each one looked at stands for)."""
    if isinstance(value, Mapping):
        part = max(1.0, len(value) / MAX_CHILDREN)
        for key, held in islice(value.items(), MAX_CHILDREN):
            yield "{key}", key, part
            yield (f"[{key}]" if isinstance(key, str) else "[]"), held, part
    elif isinstance(value, tuple):
        part = max(1.0, len(value) / MAX_CHILDREN)
        for index, held in enumerate(islice(value, MAX_CHILDREN)):
            yield f"[{index}]", held, part
    elif isinstance(value, (set, frozenset)) or (
        isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, range))
    ):
        part = max(1.0, len(value) / MAX_CHILDREN)
        for held in islice(value, MAX_CHILDREN):
            yield "[]", held, part
    elif type(value).__module__.partition(".")[0] not in ("builtins", "torch", "numpy", "PIL", "pathlib"):
        for name, held in islice(attributes(value).items(), MAX_CHILDREN):
            yield f".{name}", held, 1.0
