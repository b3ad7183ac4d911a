"""Random numbers keyed by (seed, epoch, index): the same whatever the worker, the order or the engine.

The key seeds a generator as ``torch.manual_seed`` would, so that transforms that draw from torch's own generator, seeded with the
same key, draw the same numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from pipefix.vocabulary import random_state

_WORD = (1 << 64) - 1


def sample_key(seed: int, epoch: int, index: int) -> int:
    """32 bits, well mixed: as many as torch's generator on the CPU takes from a seed. Part of what runs rest on: never changes."""
    state = 0
    for part in (seed, epoch, index):  # a step of splitmix64 each
        state = ((state ^ (part & _WORD)) + 0x9E3779B97F4A7C15) & _WORD
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _WORD
        state ^= state >> 31
    return state >> 32


class SampleNumbers:
    """Torch's generator on the CPU, as it gives single numbers: each is made of the next word of the same Mersenne twister.

    Calls of torch for single numbers take microseconds each, and hand over Python's lock each time.
    """

    AHEAD = 8
    """Words drawn at a time."""

    def __init__(self) -> None:
        self._twister = np.random.MT19937()
        self._seeding = np.random.RandomState(self._twister)
        self._torchs = torch.Generator()

    def begin(self, key: int) -> None:
        """At the beginning of the key's numbers."""
        self._key = key
        self._seeding.seed(key)
        self._words: list[int] = self._twister.random_raw(self.AHEAD).tolist()
        self.place = 0
        """How many were taken."""

    def _word(self) -> int:
        if self.place == len(self._words):
            self._words += self._twister.random_raw(self.AHEAD).tolist()
        self.place += 1
        return self._words[self.place - 1]

    def unit(self) -> float:
        """What ``torch.rand(1)`` would be."""
        return (self._word() & _DIGITS) * _DIGIT

    def whole(self, below: int) -> int:
        """What ``torch.randint(0, below, (1,))`` would be, for fewer than 2 ** 24."""
        return self._word() % below

    def between(self, low: float, high: float) -> float:
        """What ``torch.empty(1).uniform_(low, high)`` would be, but for the rounding to single precision."""
        return self.unit() * (high - low) + low

    def torchs(self, place: int) -> torch.Generator:
        """Torch's own generator, where so many numbers were taken."""
        generator = self._torchs.manual_seed(self._key)
        if place:
            torch.rand(place, generator=generator, device="cpu")
        return generator


_DIGITS, _DIGIT = (1 << 24) - 1, 2.0**-24
"""Of a number in single precision."""
_numbers = threading.local()


def numbers_of(key: int) -> SampleNumbers:
    """This thread's own, at the beginning of the key's numbers."""
    numbers: SampleNumbers | None = getattr(_numbers, "one", None)
    if numbers is None:
        numbers = _numbers.one = SampleNumbers()
    numbers.begin(key)
    return numbers


_global_state = threading.RLock()


@contextmanager
def seeded(key: int) -> Iterator[None]:
    """torch's, NumPy's and Python's own generators at the beginning of the key's numbers; afterwards as they were.

    They are the process's, so one thread at a time.
    """
    with _global_state, random_state.seeded(key):
        yield
