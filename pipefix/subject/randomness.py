"""The user's random state: everything that draws numbers goes on after a probe as if nothing had run."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader

from pipefix.vocabulary.generators import access, generators

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
    state_of, put = access(generator)
    state = state_of()
    return lambda: put(state)
