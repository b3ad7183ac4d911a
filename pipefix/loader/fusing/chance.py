"""Random numbers that belong to a sample: the same for (seed, epoch, index) whatever the worker, the order or the engine.

The key seeds a generator as ``torch.manual_seed`` would, so that transforms that draw from torch's own generator, seeded with the
same key, draw the same numbers.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

_WORD = (1 << 64) - 1


def sample_key(seed: int, epoch: int, index: int) -> int:
    """32 bits, well mixed: as many as torch's generator on the CPU takes from a seed. Part of what runs rest on: never changes."""
    state = 0
    for part in (seed, epoch, index):
        state = _mixed((state ^ (part & _WORD)) & _WORD)
    return state >> 32


def _mixed(value: int) -> int:
    """A step of splitmix64."""
    value = (value + 0x9E3779B97F4A7C15) & _WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _WORD
    return value ^ (value >> 31)


_generators = threading.local()


def generator_of(key: int) -> torch.Generator:
    """This thread's own generator, at the beginning of the key's numbers."""
    generator: torch.Generator | None = getattr(_generators, "one", None)
    if generator is None:
        generator = _generators.one = torch.Generator()
    return generator.manual_seed(key)


_global_state = threading.RLock()


@contextmanager
def seeded(key: int) -> Iterator[None]:
    """torch's, NumPy's and Python's own generators at the beginning of the key's numbers; afterwards as they were.

    They are the process's, so one thread at a time.
    """
    with _global_state:
        kept = torch.get_rng_state(), np.random.get_state(), random.getstate()
        torch.default_generator.manual_seed(key)
        np.random.seed(key)
        random.seed(key)
        try:
            yield
        finally:
            torch.set_rng_state(kept[0])
            np.random.set_state(kept[1])
            random.setstate(kept[2])
