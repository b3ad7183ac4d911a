"""Whether something draws random numbers: it is done once, and the states of all generators are compared, and put back."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch

from pipefix.loader.resume import same
from pipefix.vocabulary.generators import access, generators, is_generator

T = TypeVar("T")
_OF_THE_PROCESS: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (random.getstate, random.setstate),
    (lambda: np.random.get_state(legacy=False), np.random.set_state),
    (torch.get_rng_state, torch.set_rng_state),
)


def tried(do: Callable[[], T], *holders: Any) -> tuple[T, bool]:
    """What ``do`` gives, and whether it draws: from the process's own generators, or from those that ``holders`` and their modules
    hold. All of them are as they were."""
    held = {id(one): one for holder in holders for one in (*generators(holder), *_of_module(holder))}
    reached = [*_OF_THE_PROCESS, *map(access, held.values())]
    before = [state() for state, _ in reached]
    try:
        given = do()
        return given, not same([state() for state, _ in reached], before)
    finally:
        for (_, put), state in zip(reached, before, strict=True):
            put(state)


def _of_module(holder: Any) -> list[Any]:
    """Global names of the module that a dataset's class or a function is written in."""
    module = sys.modules.get(getattr(holder, "__module__", None) or "")
    return [] if module is None else [value for value in list(vars(module).values()) if is_generator(value)]
