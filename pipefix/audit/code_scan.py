"""Where the user's own code pins memory: read from its compiled code, without running it."""

from __future__ import annotations

import dis
import functools
import os
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from pipefix.vocabulary.attributes import attributes, has_any

NAME = "pin_memory"
LIBRARIES = frozenset(
    ["torch", "torchvision", "torchaudio", "PIL", "numpy", "cv2", "albumentations", "kornia", "pipefix", "builtins", "functools"],
)
NOT_HOT = (NAME, "__init__", "__new__")
"""Methods that no sample passes through. One *named* pin_memory is the loader's protocol for batches of one's own, and right."""
MAX_INNER = 64
"""Datasets and transforms inside one another that are looked at."""


def pins(dataset: Any, collate_fn: Any) -> list[str]:
    """``function (file:line)`` of every place that calls ``.pin_memory()`` or passes ``pin_memory=...`` to a tensor's maker."""
    found: dict[str, None] = {}
    seen: set[int] = set()
    for thing in (*_inner(dataset), collate_fn):
        for function in _functions(thing):
            for place in _in_function(function, seen):
                found[place] = None
    return list(found)


def _inner(dataset: Any) -> list[Any]:
    """The dataset, the datasets it wraps, and the callables it holds."""
    found: list[Any] = []
    queue, seen = [dataset], set[int]()
    while queue and len(found) < MAX_INNER:
        thing = queue.pop(0)
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        found.append(thing)
        for held in attributes(thing).values():
            parts = held if isinstance(held, (list, tuple)) and len(held) <= MAX_INNER else [held]
            queue += [part for part in parts if callable(part) or (hasattr(part, "__getitem__") and has_any(part))]
    return found


def _functions(thing: Any) -> Iterator[FunctionType]:
    """The Python functions that a callable or a dataset may run."""
    if isinstance(thing, functools.partial):
        yield from _functions(thing.func)
    elif isinstance(thing, MethodType):
        yield from _functions(thing.__func__)
    elif isinstance(thing, FunctionType):
        if not _of_library(thing):
            yield thing
    elif not isinstance(thing, type):
        for owner in type(thing).__mro__:
            if not _of_library(owner):
                yield from (value for name, value in vars(owner).items() if isinstance(value, FunctionType) and name not in NOT_HOT)


def _of_library(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).partition(".")[0] in LIBRARIES


def _in_function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    if id(function) in seen:
        return
    seen.add(id(function))
    code = function.__code__
    for part in _with_inner_code(code):
        line = _pinning_line(part)
        if line is not None:
            yield f"{function.__qualname__} ({os.path.basename(code.co_filename)}:{line})"
    for name in code.co_names:
        called = function.__globals__.get(name)
        if isinstance(called, FunctionType) and called.__module__ == function.__module__:
            yield from _in_function(called, seen)


def _with_inner_code(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner_code(constant)


def _pinning_line(code: CodeType) -> int | None:
    """The first line that calls a method of that name, or the first line of all where an argument of that name is passed."""
    line = code.co_firstlineno
    for step in dis.get_instructions(code):
        line = _line(step, line)
        if step.argval == NAME and _is_method_call(step):
            return line
    # A tuple of names among the constants are those of keyword arguments; a loader that is built here may well have this one.
    named = any(isinstance(constant, tuple) and NAME in constant for constant in code.co_consts)
    return code.co_firstlineno if named and "DataLoader" not in code.co_names else None


def _is_method_call(step: dis.Instruction) -> bool:
    # Up to 3.11 methods are loaded by an instruction of their own; from 3.12 it is a flag of LOAD_ATTR.
    return step.opname == "LOAD_METHOD" or (
        step.opname.startswith("LOAD_ATTR") and bool(step.arg is not None and step.arg & 1) and _FLAGGED
    )


def _line(step: dis.Instruction, last: int) -> int:
    line = getattr(step, "line_number", None)  # 3.13
    if line is None and not hasattr(step, "line_number"):
        line = step.starts_line
    return line if isinstance(line, int) and not isinstance(line, bool) else last


_FLAGGED = "LOAD_METHOD" not in dis.opmap or dis.opmap["LOAD_METHOD"] >= 256
