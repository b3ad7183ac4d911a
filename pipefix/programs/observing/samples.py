"""Which samples an epoch asks for, and CPU seconds of making them, by which ranks and epochs are told apart."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import weakref
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

BATCHES, INDICES = 8, 256
"""Of an epoch's order: so many batches at its beginning, and so many of their indices."""
VALUES = 256
"""Numbers of an array's first rows, and characters of a text, by which datasets that hold them are told apart."""
_SHARES = ("num_replicas", "num_processes", "world_size")
"""Attributes of samplers that give each rank its share."""
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Orders:
    """The beginning of what each iterator asked its dataset for."""

    def __init__(self) -> None:
        self._asked: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()

    def watch(self, iterator_class: Any) -> None:
        following = iterator_class._next_index
        requests = self._asked

        @functools.wraps(following)
        def _next_index(iterator: Any) -> Any:
            index = following(iterator)
            request = requests.setdefault(iterator, [])
            if len(request) < BATCHES:
                request.append(index)
            return index

        iterator_class._next_index = _next_index

    def of(self, iterator: Any) -> dict[str, Any]:
        """Of the epoch that ended: ``order`` is the same for two epochs in the same order; empty where nothing is known.

        Persistent workers have one iterator for all epochs.
        """
        flat: list[int] = []
        for index in self._asked.pop(iterator, ()):
            flat += index if isinstance(index, list) else [index]
        if not flat or not all(isinstance(index, int) for index in flat):
            return {}
        flat = flat[:INDICES]
        steps = {after - before for before, after in itertools.pairwise(flat)}
        return {"order": zlib.crc32(repr(flat).encode()), "sequential": len(steps) <= 1}


def share_of(loader: Any) -> dict[str, Any]:
    """How large a part of its dataset the loader's sampler gives this process."""
    batches = getattr(loader, "batch_sampler", None)
    sampler, within = getattr(loader, "sampler", None), getattr(batches, "sampler", None)
    samplers = [loader, sampler, batches, within]
    facts: dict[str, Any] = {"shared": any(hasattr(sampler, name) for sampler in samplers for name in _SHARES)}
    if batches is not None and all(held is not sampler for held in (within, getattr(within, "sampler", None))):
        sampler = within  # torch makes a sampler of the whole dataset beside a batch sampler that it is given, and never asks it
    for name, of in (("dataset_length", getattr(loader, "dataset", None)), ("sampler_length", sampler)):
        facts[name] = None
        with suppress(Exception):  # streams have none, and whatever a class of the user's raises
            facts[name] = len(of)  # type: ignore[arg-type]
    dataset = getattr(loader, "dataset", None)
    facts["dataset"] = None
    with suppress(Exception):  # whatever a class of the user's raises
        # The same for datasets that hold the same things, as far as a quick look tells.
        facts["dataset"] = zlib.crc32(repr(_outline(dataset)).encode())
    facts["drop_last"] = any(getattr(sampler, "drop_last", False) is True for sampler in samplers)
    facts["stream"] = isinstance(dataset, getattr(sys.modules.get("torch.utils.data"), "IterableDataset", ()))
    facts["storage"] = storage_of(dataset)
    return facts


def storage_of(dataset: Any) -> str | None:
    """The kind of file system that its files lie on, by the first path that it holds; None where it holds none."""
    with suppress(Exception):  # there is no path, or no mount; and whatever a class of the user's raises
        held = getattr(dataset, "__dict__", {}).values()
        firsts = [item[0] if isinstance(item, (list, tuple)) and item else item for item in held]
        paths = [os.fspath(item) for item in firsts if isinstance(item, (str, os.PathLike))]
        place = str(next(os.path.realpath(path) for path in paths if os.sep in str(path) and os.path.exists(path)))
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            mounts = [line.split()[1:3] for line in file]
        return max((len(at), kind) for at, kind in mounts if place == at or place.startswith(at.rstrip("/") + "/"))[1]
    return None


def _outline(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return len(value), value[:VALUES]  # it may be a whole corpus
    if isinstance(value, (int, float, bool, os.PathLike)) or value is None:
        return value
    if hasattr(value, "shape") and hasattr(value, "tolist"):
        if not len(value.shape):
            return (), None
        rows = value[:4] if len(value.shape) == 1 else value[:4].reshape(-1)  # of pictures and volumes these are millions
        return tuple(value.shape), rows[:: max(1, len(rows) // VALUES)].tolist()
    if isinstance(value, (list, tuple)):
        ends = [*value[:2], *value[-1:]] if depth < 3 else []
        return len(value), [_outline(item, depth + 1) for item in ends]
    if depth < 3 and hasattr(value, "__dict__"):
        held = sorted(vars(value).items())[:40]
        return type(value).__name__, [(name, _outline(item, depth + 1)) for name, item in held]
    return type(value).__name__


def pids_of(iterator: Any) -> tuple[int, ...]:
    return tuple(worker.pid for worker in processes_of(iterator) if getattr(worker, "pid", None))


def processes_of(iterator: Any) -> list[Any]:
    """Torch's own attribute is asked for here as well: the program's Python may find no pipefix."""
    return list(getattr(iterator, "__dict__", {}).get("_workers") or ())


def idle_pools(epochs: Iterable[Any], loop: Any) -> list[tuple[str, int]]:
    """Workers that loaders of other loops keep beyond the end of their epochs, by the lines that made these loaders."""
    others = [epoch for epoch in epochs if epoch.pids and epoch.loop is not loop and not epoch.delivered]
    persistent = [epoch for epoch in others if getattr(epoch.loader(), "persistent_workers", False)]
    return [(epoch.loop.loader, len(epoch.pids)) for epoch in persistent]


def cpu_seconds(pids: tuple[int, ...]) -> float:
    """That processes have used so far."""
    return sum(_summed(f"/proc/{pid}/stat", 11, 12) for pid in pids) / _TICKS


def queued_seconds(of: Iterable[int | str] = ("thread-self",)) -> float:
    """That this thread, or the main threads of processes, were ready to run and had no CPU so far; 0 where nothing says that."""
    return sum(_summed(f"/proc/{name}/schedstat", 1) for name in of) / 1e9


def _summed(name: str, *places: int) -> int:
    """Of a file's numbers (after a process's name, in brackets) those at these places; what cannot be read counts as nothing."""
    with suppress(OSError, IndexError, ValueError):
        with open(name, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return sum(int(fields[place]) for place in places)
    return 0
