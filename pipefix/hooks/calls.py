"""Wraps calls of libraries so that they are timed: `Calls`, the rows of `simple_calls.TABLE`, and `hook` for one function.

With what a module for one library needs besides: the types that its `install` is given, and the stages.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import mmap
import os
import sys
import weakref
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from enum import Enum, auto
from types import BuiltinFunctionType, ModuleType
from typing import Any, NamedTuple, TypeVar

from pipefix.hooks.files import ORIGINAL_OPEN
from pipefix.hooks.patches import Patches
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.vocabulary.stage import AUGMENT, DECODE, STORAGE, Stage

__all__ = ["AUGMENT", "DECODE", "STORAGE", "Calls", "How", "Patches", "SampleTimer", "Stage", "hook", "install_row", "wait_stage"]

F = TypeVar("F", bound=Callable[..., Any])

_MMAP, _ISFILE = mmap.mmap, os.path.isfile
_WHOLE_AT_MOST = 1 << 30
"""A larger file is not fetched before a call that may need little of it."""


class How(Enum):
    """How a recorded result can stand for a call."""

    RESULT = auto()
    """It is what the call gives."""
    TIMED = auto()
    """It cannot: the call gives a handle, or changes something in place."""
    STREAM = auto()
    """The first argument is a file, which is also left where the call would leave it."""
    FILE = auto()
    """The call reads the file that its first argument names by itself: its pages are brought in first, as storage, and what follows
    is decoding alone. (With storage replaced that step is left out: pages that were just recorded are still there.)"""
    STEPS = auto()
    """The call gives an iterator, each of whose steps is an operation of its own."""
    PROPERTY = auto()
    """As RESULT, of a property."""
    FUTURE = auto()
    """The call gives a future at once; `wait_stage` tells whoever waits for it what stage that wait belongs to."""


class Calls(NamedTuple):
    """Functions of a module, or methods of a class in it, that are operations of one stage."""

    module: str
    owner: str
    """Class, dotted from the module; empty for the module itself."""
    names: str
    """Separated by spaces. ``resize@2``: argument 2 may be an array to write into; then no recording can stand for the call."""
    stage: Stage | Callable[[Any], Stage | None]
    """Or what tells it from the object; None where the call is no operation of its own."""
    label: str
    """Of the operation. One that ends with a dot is continued by the function's name."""
    how: How = How.RESULT
    parts: tuple[str, ...] = ()
    """FILE: keywords that ask for a part of the file. What part, is for the library to know: nothing is brought in."""
    counts: Callable[[Any], int] | None = None
    """How many bytes a storage call read, from its result (where nothing below it counts them)."""
    into: str = ""
    """Keyword of the array to write into."""
    unpacks: Callable[[SampleTimer, Sequence[Any], Any], None] | None = None
    """Counts what is unpacked for a call, by its arguments and its result, while samples are recorded."""
    leaf: bool = True
    """Whether calls of the same stage inside are part of it: not where it calls what it was given, which has a name of its own."""


def install_row(row: Calls, timer: SampleTimer, patches: Patches) -> None:
    owner: Any = sys.modules[row.module]
    for part in row.owner.split(".") if row.owner else ():
        owner = getattr(owner, part, None)  # not every release has every class
    for named in row.names.split() if owner is not None else ():  # None has an ``__init__`` as well
        name, _, position = named.partition("@")
        # Every class has a ``__call__`` from its own class: only one that it defines is meant.
        if getattr(owner, name, None) is not None and (name != "__call__" or name in vars(owner)):
            label = f"{row.label[:-1]}()" if name == "__call__" else row.label + name if row.label.endswith(".") else row.label
            wrapper = _wrapper(row, timer, getattr(owner, name), label, int(position or sys.maxsize))
            _replace(patches, owner, name, wrapper)


def hook(timer: SampleTimer, patches: Patches, owner: Any, name: str) -> Callable[[F], F]:
    """While a sample is under the clock the decorated function is called in the place of ``owner.name``; at other times that is."""

    def put_in_place(take: F) -> F:
        _replace(patches, owner, name, _while_live(timer, getattr(owner, name), take))
        return take

    return put_in_place


def _while_live(timer: SampleTimer, original: Callable[..., Any], take: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return take(*args, **kwargs) if timer.live else original(*args, **kwargs)

    return wrapper


def _replace(patches: Patches, owner: Any, name: str, wrapper: Any) -> None:
    if isinstance(owner, type) and isinstance(vars(owner).get(name), BuiltinFunctionType):
        wrapper = staticmethod(wrapper)  # a function written in C is handed no object
    with contextlib.suppress(TypeError):  # an immutable class
        patches.replace(owner, name, wrapper, everywhere=isinstance(owner, ModuleType))


def _wrapper(row: Calls, timer: SampleTimer, original: Any, label: str, position: int) -> Any:
    stage: Any = row.stage
    if row.how is How.PROPERTY:
        return property(_wrapper(row._replace(how=How.RESULT), timer, original.fget, label, position), doc=original.__doc__)
    if row.how in _OTHERWISE:
        return _while_live(timer, original, _first_by_place(original, _OTHERWISE[row.how](timer, original, label, row)))
    replayable, into, leaf = row.how is How.RESULT, row.into, row.leaf
    called = original if row.counts is None and row.unpacks is None else _counted(timer, original, row)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not timer.live:
            return original(*args, **kwargs)
        return timer.timed_call(stage, label, called, args, kwargs, replayable=replayable, leaf=leaf)

    def write_into(*args: Any, **kwargs: Any) -> Any:
        written = kwargs.get(into) is not None or (len(args) > position and args[position] is not None)
        of = stage if isinstance(stage, Stage) else stage(args[0])
        if of is None:
            return original(*args, **kwargs)
        return timer.timed_call(of, label, called, args, kwargs, replayable=replayable and not written)

    return _while_live(timer, original, write_into) if into or not isinstance(stage, Stage) else wrapper


def _first_by_place(original: Callable[..., Any], take: Callable[..., Any]) -> Callable[..., Any]:
    """``take``, which is told its first argument by its place, also for calls that give it by its name (``load(path=...)``)."""
    first = ""
    with contextlib.suppress(TypeError, ValueError, StopIteration):  # what is written in C may not tell
        first = next(iter(inspect.signature(original).parameters))

    def call(*args: Any, **kwargs: Any) -> Any:
        if not args and first not in kwargs:
            return original(**kwargs)
        return take(*args or [kwargs.pop(first)], **kwargs)

    return call


def _counted(timer: SampleTimer, original: Callable[..., Any], row: Calls) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        value = original(*args, **kwargs)
        if row.counts is not None:
            timer.bytes_read += row.counts(value)
        if row.unpacks is not None and timer.counts_chunks:
            timer.pause()
            row.unpacks(timer, args, value)
            timer.resume()
        return value

    return call


def _steps(timer: SampleTimer, original: Callable[..., Any], label: str, row: Any) -> Callable[..., Any]:
    def timed(steps: Iterator[Any]) -> Iterator[Any]:
        while (value := timer.timed_call(row.stage, label, next, (steps, None))) is not None:
            yield value

    return lambda *args, **kwargs: timed(iter(original(*args, **kwargs)))


_awaited: MutableMapping[Any, Stage] = weakref.WeakKeyDictionary()
"""By future: the stage of the call that gave it."""


def _future(_: SampleTimer, original: Callable[..., Any], __: str, row: Any) -> Callable[..., Any]:
    def ask(self: Any, *args: Any, **kwargs: Any) -> Any:
        future = original(self, *args, **kwargs)
        _awaited[future] = row.stage(self)
        return future

    return ask


def wait_stage(future: Any) -> Stage:
    return _awaited.get(future, STORAGE)


def _stream(timer: SampleTimer, original: Callable[..., Any], label: str, row: Any) -> Callable[..., Any]:
    def and_where(file: Any, *args: Any, **kwargs: Any) -> Any:
        return original(file, *args, **kwargs), file.tell()

    def read(file: Any, *args: Any, **kwargs: Any) -> Any:
        tracks_position = timer.tapes(row.stage) and hasattr(file, "tell")
        if not tracks_position or not file.seekable():
            return timer.timed_call(row.stage, label, original, (file, *args), kwargs, replayable=not tracks_position)
        value, end = timer.timed_call(row.stage, label, and_where, (file, *args), kwargs)
        if end != file.tell():
            file.seek(end)
        return value

    return read


def _file(timer: SampleTimer, original: Callable[..., Any], label: str, row: Any) -> Callable[..., Any]:
    read_label = f"{label.partition('.')[0]} read"

    def decode(source: Any, *args: Any, **kwargs: Any) -> Any:
        named = isinstance(source, (str, os.PathLike)) and not any(kwargs.get(name) for name in row.parts)
        if named and STORAGE not in timer.replaced:
            timer.timed_call(STORAGE, read_label, _bring_in, (timer, os.fspath(source)), replayable=False)
        return timer.timed_call(row.stage, label, original, (source, *args), kwargs)

    return decode


_OTHERWISE = {How.STREAM: _stream, How.FILE: _file, How.STEPS: _steps, How.FUTURE: _future}
"""Than by a call that is timed as it is."""


def _bring_in(timer: SampleTimer, path: str) -> None:
    if not _ISFILE(path):
        return
    with ORIGINAL_OPEN(path, "rb", buffering=0) as file:
        length = file.seek(0, os.SEEK_END)
        if 0 < length <= _WHOLE_AT_MOST:
            with _MMAP(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                mapped[:: mmap.PAGESIZE]  # the copy brings the pages in
                timer.bytes_read += length
