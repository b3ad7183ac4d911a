"""Finds the random generators that an object holds, without running its code.

Libraries are only looked at where they are loaded: before that, no generator is of theirs.
"""

from __future__ import annotations

import random
import sys
from contextlib import AbstractContextManager, suppress
from functools import partial
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import Any

from pipefix.vocabulary.attributes import attributes
from pipefix.vocabulary.random_state import preserved

_DEPTH = 6
_MEMBERS = 64
"""How many elements of a list are looked into: a list of transforms is short, a list of paths holds no generator."""
_LEAVES = (str, bytes, int, float, type, ModuleType, type(None))
_OF_PROCESS = {"builtins", "random", "numpy", "torch"}
"""Whose modules hold the generators of the process."""


def generators(root: Any) -> list[Any]:
    """Every random generator that can be reached through attributes, short lists and dicts, what functions enclose, and modules."""
    reached: dict[int, Any] = {}
    _walk(root, reached, set(), 0)
    return list(reached.values())


def untouched(root: Any) -> AbstractContextManager[object]:
    """Inside, anything may be drawn: the process's own generators, CUDA's and those that ``root`` holds go on as before."""
    return preserved(*generators(root), cuda=True)


def is_generator(value: Any) -> bool:
    """Python's, NumPy's or torch's."""
    if isinstance(value, random.Random):
        return not isinstance(value, random.SystemRandom)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Generator):
        return True
    return numpy is not None and isinstance(value, (numpy.random.Generator, numpy.random.RandomState))


def _walk(value: Any, reached: dict[int, Any], visited: set[int], depth: int) -> None:
    tensor = getattr(sys.modules.get("torch"), "Tensor", ())
    if depth > _DEPTH or id(value) in visited or isinstance(value, (*_LEAVES, tensor)):
        return
    visited.add(id(value))
    if is_generator(value):
        reached[id(value)] = value
        return
    reached.update((id(generator), generator) for generator in _of_modules(value, visited))
    for member in _members(value):
        _walk(member, reached, visited, depth + 1)


def _members(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return list(value[:_MEMBERS])
    if isinstance(value, dict):
        return list(value.values()) if len(value) <= _MEMBERS else []
    if isinstance(value, (MethodType, BuiltinMethodType)):
        return [value.__self__]
    held = list(attributes(value).values())
    if isinstance(value, partial):
        held += [value.func, value.args, value.keywords]
    elif isinstance(value, FunctionType):
        held += [value.__defaults__, *enclosed(value)]
    return held


def _of_modules(value: Any, visited: set[int]) -> list[Any]:
    """Generators of the modules that a function, or an object's classes, are written in (``rng = default_rng(0)``); once each."""
    names = {str(part.__module__) for part in ((value,) if isinstance(value, FunctionType) else type(value).__mro__)}
    modules = [sys.modules.get(name) for name in names if name.partition(".")[0] not in _OF_PROCESS]
    modules = [module for module in modules if isinstance(module, ModuleType) and id(module) not in visited]
    visited.update(map(id, modules))
    return [held for module in modules for held in list(vars(module).values()) if is_generator(held)]


def enclosed(function: Any) -> list[Any]:
    """What a function sees of those that it was made in."""
    contents = []
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # not filled yet
            contents.append(cell.cell_contents)
    return contents
