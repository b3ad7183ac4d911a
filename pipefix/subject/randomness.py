"""The user's random state: everything that draws numbers goes on after a probe as if nothing had run."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch.utils.data import DataLoader

from pipefix.vocabulary.attributes import attributes

_DEPTH = 6
_MEMBERS = 64
"""How many elements of a list are looked into: a list of transforms is short, a list of paths holds no generator."""

Restore = Callable[[], object]


@contextmanager
def untouched(loader: DataLoader[Any]) -> Iterator[None]:
    """Python's, NumPy's and torch's own states, and every generator that the loader, its samplers or its dataset hold."""
    restores = [*_globals(), *(_restore_of(one) for one in generators(loader))]
    try:
        yield
    finally:
        for restore in restores:
            restore()


def _globals() -> list[Restore]:
    state, cpu = random.getstate(), torch.get_rng_state()
    restores: list[Restore] = [lambda: random.setstate(state), lambda: torch.set_rng_state(cpu)]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kept = numpy.random.get_state()
        restores.append(lambda: numpy.random.set_state(kept))
    # Asking an idle CUDA for its state would wake it up, and a process that has CUDA awake cannot fork workers that use it.
    if torch.cuda.is_initialized():
        cuda = torch.cuda.get_rng_state_all()
        restores.append(lambda: torch.cuda.set_rng_state_all(cuda))
    return restores


def _restore_of(generator: Any) -> Restore:
    if isinstance(generator, torch.Generator):
        state = generator.get_state()
        return lambda: generator.set_state(state)
    if isinstance(generator, random.Random):
        kept = generator.getstate()
        return lambda: generator.setstate(kept)
    if hasattr(generator, "bit_generator"):
        bits = copy.deepcopy(generator.bit_generator.state)
        return lambda: setattr(generator.bit_generator, "state", bits)
    whole = generator.get_state()
    return lambda: generator.set_state(whole)


def generators(root: Any) -> list[Any]:
    """Every random generator that can be reached through attributes, short lists and dicts."""
    found: dict[int, Any] = {}
    seen: set[int] = set()
    _walk(root, found, seen, 0)
    return list(found.values())


_LEAVES = (str, bytes, int, float, type, ModuleType, torch.Tensor, type(None))


def _walk(value: Any, found: dict[int, Any], seen: set[int], depth: int) -> None:
    if depth > _DEPTH or id(value) in seen or isinstance(value, _LEAVES):
        return
    seen.add(id(value))
    if _draws(value):
        found[id(value)] = value
        return
    if isinstance(value, (list, tuple)):
        members = list(value[:_MEMBERS])
    elif isinstance(value, dict):
        members = list(value.values()) if len(value) <= _MEMBERS else []
    else:
        members = list(attributes(value).values())
    for member in members:
        _walk(member, found, seen, depth + 1)


def _draws(value: Any) -> bool:
    if isinstance(value, (torch.Generator, random.Random)) and not isinstance(value, random.SystemRandom):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.random.Generator, numpy.random.RandomState))
