"""Rows of a Parquet cache: some of their columns, those that meet conditions, one at a time or many at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from pipefix.caches import rows
from pipefix.caches.manifest import Manifest
from pipefix.caches.parts import Parts
from pipefix.vocabulary.errors import BadUsage, CacheDamaged

_OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")
_KEPT_GROUPS = 8


class Rows:
    """All rows, until it is narrowed to some."""

    def __init__(self, manifest: Manifest, parts: Parts, starts: list[int]) -> None:
        self._manifest, self._parts, self._starts = manifest, parts, starts
        self._positions: Any = None
        self._rebuilt = rows.Rebuilt(manifest.columns, manifest.shape)
        self._groups: dict[tuple[int, int], list[Any]] = {}
        self._kept = _KEPT_GROUPS
        parts.options = {"columns": [one.name for one in manifest.columns]}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_groups": {}}

    def __len__(self) -> int:
        return self._manifest.length if self._positions is None else len(self._positions)

    def narrow(self, columns: Sequence[str] | None, where: Sequence[tuple[str, str, Any]] | None) -> None:
        known = [one.name for one in self._manifest.columns]
        for name in (*(columns or ()), *(condition[0] for condition in where or ())):
            if name not in known:
                raise BadUsage(f"There is no column {name!r}; the cache has {', '.join(known)}.", advice="Name one of those.")
        if where:
            self._positions = np.array(
                [place for number in range(len(self._starts)) for place in self._meeting(number, where)], np.int64
            )
        if columns is not None:
            self._parts.options = {"columns": list(columns)}
            self._parts.forget()

    def _meeting(self, number: int, where: Sequence[tuple[str, str, Any]]) -> list[int]:
        """Positions of a part's rows that meet the conditions; row groups whose statistics rule them out are not read."""
        reader = self._parts[number]
        names = list(dict.fromkeys(condition[0] for condition in where))
        found: list[int] = []
        metadata = reader.file.metadata
        for group in range(metadata.num_row_groups):
            if not all(_possible(metadata.row_group(group), *condition) for condition in where):
                continue
            table = reader.group(group, names)
            mask = np.logical_and.reduce([_mask(table.column(name), operator, value) for name, operator, value in where])
            found += (self._starts[number] + reader.firsts[group] + np.flatnonzero(mask)).tolist()
        return found

    def keep(self, count: int) -> None:
        """Hold so many row groups at a time, if not more."""
        self._kept = max(self._kept, count)

    def position(self, index: int) -> int:
        """Among all rows."""
        return index if self._positions is None else int(self._positions[index])

    def one(self, index: int) -> Any:
        position = self.position(index)
        number = bisect_right(self._starts, position) - 1
        reader = self._parts[number]
        group, row = reader.group_of(position - self._starts[number])
        return self._group(number, group)[row]

    def many(self, indices: Sequence[int]) -> list[Any]:
        found: list[Any] = [None] * len(indices)
        for place in sorted(range(len(indices)), key=indices.__getitem__):
            found[place] = self.one(indices[place])
        return found

    def _group(self, number: int, group: int) -> list[Any]:
        """The samples of a row group; the last few are kept."""
        key = (number, group)
        found = self._groups.get(key)
        if found is None:
            table = self._parts[number].group(group)
            try:
                found = self._rebuilt.all(table)
            except (AttributeError, TypeError, ValueError, KeyError) as error:
                raise CacheDamaged(f"The rows of a cache are not what its manifest says: {error}.") from error
            while len(self._groups) >= self._kept:
                del self._groups[next(iter(self._groups))]
            self._groups[key] = found
        return found

    @property
    def held(self) -> Container[tuple[int, int]]:
        """Part and number of the row groups that are kept."""
        return self._groups.keys()

    def groups(self) -> list[tuple[int, int]]:
        """First index and number of rows of every row group, for samplers."""
        if self._positions is not None:
            raise BadUsage("Row groups of some rows only are uneven.", advice="Shuffle a cache without conditions by row groups.")
        return [
            (start + first, following - first)
            for number, start in enumerate(self._starts)
            for first, following in zip(
                self._parts[number].firsts, [*self._parts[number].firsts[1:], self._manifest.parts[number].records], strict=True
            )
            if following > first
        ]


def _possible(group: Any, name: str, operator: str, value: Any) -> bool:
    """Whether the row group's statistics leave room for such a row."""
    if operator not in _OPERATORS:
        raise BadUsage(f"There is no condition {operator!r}.", advice=f"Use one of {', '.join(_OPERATORS)}.")
    column = next((group.column(at) for at in range(group.num_columns) if group.column(at).path_in_schema == name), None)
    told = column.statistics if column is not None else None
    if told is None or not told.has_min_max:
        return True
    low, high = told.min, told.max
    rules: dict[str, Callable[[], bool]] = {
        "==": lambda: low <= value <= high,
        "<": lambda: low < value,
        "<=": lambda: low <= value,
        ">": lambda: high > value,
        ">=": lambda: high >= value,
        "in": lambda: any(low <= one <= high for one in value),
    }
    try:
        return rules[operator]() if operator in rules else True
    except TypeError:
        return True


def _mask(column: Any, operator: str, value: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        if operator in ("in", "not in"):
            found = pc.is_in(column, pa.array(list(value), column.type))
            found = pc.invert(found) if operator == "not in" else found
        else:
            name = {"==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}[
                operator
            ]
            found = pc.call_function(name, [column, pa.scalar(value, column.type)])
    except (pa.ArrowException, TypeError) as error:
        raise BadUsage(
            f"{value!r} cannot be compared with a column of {column.type}: {error}.", advice="Give a value of its type."
        ) from error
    return pc.fill_null(found, False).to_numpy(zero_copy_only=False)


class GroupSampler:
    """Shuffles by row groups: some are drawn, and their rows are mixed, so that each is read once. Give it to a DataLoader.

    ``window`` row groups are mixed at a time; more mix better and keep more rows in memory. `quality` says how well.
    """

    def __init__(self, dataset: Any, *, window: int = 8, seed: int = 0) -> None:
        if dataset._rows is None:
            raise BadUsage(
                f"{dataset!r} has no row groups.", advice="Shuffle it with shuffle=True: its records are read one by one."
            )
        if window < 1:
            raise BadUsage(f"A window of {window} row groups holds none.", advice="Give at least one.")
        self._groups = dataset._rows.groups()
        self.window, self.seed, self.epoch = window, seed, 0
        dataset._rows.keep(window)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return sum(count for _, count in self._groups)

    def __iter__(self) -> Any:
        random = np.random.default_rng((self.seed, self.epoch))
        order = random.permutation(len(self._groups))
        for at in range(0, len(order), self.window):
            drawn = [self._groups[number] for number in order[at : at + self.window]]
            mixed = np.concatenate([np.arange(first, first + count) for first, count in drawn])
            random.shuffle(mixed)
            yield from mixed.tolist()

    def quality(self, batch_size: int) -> float:
        """Row groups in a batch on average, over what a uniform shuffle would have: 1.0 is as good as uniform."""
        groups = np.repeat(np.arange(len(self._groups)), [count for _, count in self._groups])
        shuffled = np.array(list(self))
        own = _groups_a_batch(groups[shuffled], batch_size)
        uniform = _groups_a_batch(groups[np.random.default_rng(self.seed).permutation(len(groups))], batch_size)
        return own / uniform


def _groups_a_batch(groups: Any, batch_size: int) -> float:
    whole = len(groups) // batch_size * batch_size
    if not whole:
        return float(len(np.unique(groups)))
    return float(np.mean([len(np.unique(batch)) for batch in groups[:whole].reshape(-1, batch_size)]))
