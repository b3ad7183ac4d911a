"""LMDB. Its classes are written in C and can be neither patched nor derived from, so thin stand-ins wrap the real objects.

``lmdb.open`` and the class names give stand-ins; an environment opened before the hooks came can be wrapped with `stand_in`.
Reading a value copies it out of the map, which is the read; with ``buffers=True`` nothing is copied, so the pages are touched.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

from pipefix.hooks.calls import STORAGE, Patches, SampleTimer

LIBRARY = "lmdb"

_classes: dict[str, type] = {}
"""The library's own classes, by name."""
_timers: list[SampleTimer] = []
"""Those whose hooks are in place."""
_READS = frozenset({"value", "item"})
_MOVES = frozenset({"get", "getmulti", "first", "last", "next", "prev", "set_key", "set_range", "first_dup", "next_dup",
                    "set_key_dup", "set_range_dup"})  # fmt: skip
_STEPS = frozenset({"iternext", "iterprev", "iternext_dup", "iterprev_dup", "iternext_nodup", "iterprev_nodup"})


class _Meta(type):
    """Real objects and stand-ins are instances of either."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(cls, instance) or type(instance) is _classes.get(cls.__name__)


class _StandIn(metaclass=_Meta):
    """Passes everything on to the real object, except what is timed."""

    _real: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._real = _called(_classes[type(self).__name__], args, kwargs)

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._real, name)
        return (lambda *args, **kwargs: _called(member, args, kwargs)) if callable(member) else member

    def __enter__(self) -> Any:
        self._real.__enter__()
        return self

    def __exit__(self, *why: object) -> Any:
        return self._real.__exit__(*why)


def _called(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """With the real objects for stand-ins among its arguments."""
    return function(*map(_real, args), **{name: _real(value) for name, value in kwargs.items()})


def _real(value: Any) -> Any:
    return value._real if isinstance(value, _StandIn) and "_real" in value.__dict__ else value


def _wrap(kind: type[_StandIn], real: Any) -> Any:
    proxy = kind.__new__(kind)
    proxy._real = real
    return proxy


class Environment(_StandIn):
    def begin(self, *args: Any, **kwargs: Any) -> Any:
        return _wrap(Transaction, _called(self._real.begin, args, kwargs))


class Transaction(_StandIn):
    def get(self, *args: Any, **kwargs: Any) -> Any:
        return _timed("lmdb.Transaction.get", self._real.get, args, kwargs)

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        return _wrap(Cursor, self._real.cursor(*args, **kwargs))


class Cursor(_StandIn):
    """Reading a value is recorded; moving is timed, and not replaced: it changes what the next read gives."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._real, name)
        if name in _READS or name in _MOVES:
            return lambda *args, **kwargs: _timed(f"lmdb.Cursor.{name}", method, args, kwargs, replayable=name in _READS)
        if name in _STEPS:
            return lambda *args, **kwargs: self._each(method(*args, **kwargs))
        return super().__getattr__(name)

    def __iter__(self) -> Iterator[Any]:
        return self._each(iter(self._real))

    def _each(self, steps: Iterator[Any]) -> Iterator[Any]:
        done = object()
        while (step := _timed("lmdb.Cursor.next", next, (steps, done), {}, replayable=False)) is not done:
            yield step


def _timed(op: str, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, replayable: bool = True) -> Any:
    """By the timer whose sample is made just now: two loaders of a process have one each, and may share an environment."""
    timer = next((timer for timer in _timers if timer.live), None)
    if timer is None:
        return method(*args, **kwargs)
    return timer.timed_call(STORAGE, op, _counted, (timer, method, args, kwargs), replayable=replayable)


def _counted(timer: SampleTimer, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = method(*args, **kwargs)
    for part in value if isinstance(value, tuple) else (value,):
        if isinstance(part, memoryview):
            bytes(part[:: mmap.PAGESIZE])
        if isinstance(part, (bytes, memoryview)):
            timer.bytes_read += len(part)
    return value


def install(timer: SampleTimer, patches: Patches) -> None:
    import lmdb

    if not _classes:
        _classes.update({name: getattr(lmdb, name) for name in ("Environment", "Transaction", "Cursor")})
    _timers.append(timer)
    patches.on_undo(lambda: _timers.remove(timer))
    for kind in (Environment, Transaction, Cursor):
        patches.replace(lmdb, kind.__name__, kind, everywhere=True)
    patches.replace(lmdb, "open", Environment)


def stand_in(_: SampleTimer, value: Any) -> Any:
    """An environment or transaction made before, wrapped; None for anything else."""
    return next((_wrap(kind, value) for kind in (Environment, Transaction) if _classes.get(kind.__name__) is type(value)), None)
