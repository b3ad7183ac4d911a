"""Random numbers that belong to a sample: the same for (seed, epoch, index) whatever the batch, the worker or the target.

Each sample has a 64-bit key; a place in the list of operations forks a key of its own from it, and numbers are counted off that
key. Nothing is carried from one sample to the next, so nothing but the key decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def scramble(words: Any) -> Any:
    """SplitMix64's finaliser: every bit of the input changes half of the output's."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


def keys_of(seed: int, epoch: int, index: Any) -> Any:
    """One key for each sample of ``index``."""
    with np.errstate(over="ignore"):
        words = np.asarray(index, dtype=np.int64).astype(np.uint64)
        for number in (seed, epoch):
            words = scramble(words + _STEP) ^ scramble(np.uint64(number % 2**64) * _STEP + _FIRST)
        return scramble(words + _STEP)


@dataclass(frozen=True)
class Stream:
    """The numbers of some samples, a row each."""

    keys: Any
    """uint64, one a sample."""

    def __len__(self) -> int:
        return len(self.keys)

    def fork(self, place: int) -> Stream:
        """The stream of one place: an operation's position in its list."""
        with np.errstate(over="ignore"):
            return Stream(scramble(self.keys ^ scramble(np.uint64(place + 1) * _STEP)))

    def take(self, rows: Any) -> Stream:
        return Stream(self.keys[rows])

    def uniform(self, count: int) -> Any:
        """Numbers in [0, 1), ``count`` a sample."""
        with np.errstate(over="ignore"):
            words = scramble(self.keys[:, None] + np.arange(1, count + 1, dtype=np.uint64) * _STEP)
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def between(self, low: float, high: float) -> Any:
        """One number a sample in [low, high)."""
        return low + (high - low) * self.uniform(1)[:, 0]

    def below(self, bound: Any) -> Any:
        """One whole number a sample in [0, bound); the bound may differ from sample to sample."""
        return np.floor(self.uniform(1)[:, 0] * bound).astype(np.int64)

    def order(self, count: int) -> Any:
        """A permutation of ``count`` things for each sample."""
        return np.argsort(self.uniform(count), axis=1, kind="stable")

    def gamma(self, shape: float, count: int) -> Any:
        """Gamma variates, for weights that add up to one."""
        return np.stack([np.random.Generator(np.random.Philox(int(key))).gamma(shape, size=count) for key in self.keys])

    def together(self) -> Stream:
        """One stream for all samples: what a batch draws only once depends on which samples it holds, not on their order."""
        with np.errstate(over="ignore"):
            return Stream(scramble(np.add.reduce(self.keys, keepdims=True)))


def normal(keys: Any, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Standard normal numbers of ``shape`` for each key, from the device's own generator."""
    return torch.stack([torch.randn(shape, generator=_generator(key, device), device=device) for key in keys])


def flat(keys: Any, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Numbers in [0, 1) of ``shape`` for each key."""
    return torch.stack([torch.rand(shape, generator=_generator(key, device), device=device) for key in keys])


def _generator(key: Any, device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(int(key) >> 1)
