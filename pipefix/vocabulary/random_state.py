"""Saves, compares and restores the state of random generators.

"The process's own" are the generators behind ``random.random()``, ``numpy.random.rand()`` and ``torch.rand()``. Libraries are only
looked at where they are loaded: before that, nothing was drawn from theirs.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Access = tuple[Callable[[], Any], Callable[[Any], object]]
"""What gives a generator's state, and what sets it."""


class RandomState:
    """The states of the process's own generators, and of others, at the moment this is made."""

    def __init__(self, *generators: Any, cuda: bool = False) -> None:
        """
        Args:
            generators: Further generators (of Python, NumPy or torch) whose states are noted.
            cuda: Also those of every CUDA device, where this process has initialised CUDA. Asking an idle CUDA for its state would
                initialise it, and a process that has done so cannot fork workers that use CUDA. One that is initialised later
                begins anew from torch's seed, as it would have begun.
        """
        self._sleeping_cuda = cuda and not is_cuda_awake()
        self._accesses = [*_of_process(cuda), *map(access, generators)]
        self._states = [state() for state, _ in self._accesses]

    def changed(self) -> bool:
        """Whether anything was drawn (or seeded) since."""
        return not same_state([state() for state, _ in self._accesses], self._states)

    def restore(self) -> None:
        """Every generator as it was."""
        for (_, put), state in zip(self._accesses, self._states, strict=True):
            put(state)
        if self._sleeping_cuda and is_cuda_awake():
            torch = sys.modules["torch"]
            torch.cuda.manual_seed_all(torch.initial_seed())


@contextmanager
def preserved(*generators: Any, cuda: bool = False) -> Iterator[RandomState]:
    """Whatever is drawn inside, the generators go on afterwards as if nothing had been; arguments as of `RandomState`."""
    state = RandomState(*generators, cuda=cuda)
    try:
        yield state
    finally:
        state.restore()


@contextmanager
def seeded(number: int) -> Iterator[None]:
    """Inside, what the process's own generators draw depends on ``number`` alone; afterwards they go on as before.

    NumPy takes 32 bits of the number. CUDA's generators are left alone.
    """
    with preserved():
        random.seed(number)
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None:
            numpy.random.seed(number & 0xFFFFFFFF)
        if torch is not None:
            torch.default_generator.manual_seed(number)
        yield


def access(generator: Any) -> Access:
    """How the state of a generator of Python, NumPy or torch is read and set."""
    if isinstance(generator, random.Random):
        return generator.getstate, generator.setstate
    if hasattr(generator, "bit_generator"):
        bits = generator.bit_generator
        return lambda: copy.deepcopy(bits.state), lambda state: setattr(bits, "state", state)
    return generator.get_state, generator.set_state


def same_state(first: Any, second: Any) -> bool:
    """Whether two states are equal: nested values of numbers, arrays and tensors."""
    if hasattr(first, "dtype") and hasattr(second, "dtype"):
        return bool(first.shape == second.shape and (first == second).all())
    if isinstance(first, Mapping):
        return first.keys() == second.keys() and all(same_state(first[name], second[name]) for name in first)
    if isinstance(first, (tuple, list)):
        return len(first) == len(second) and all(map(same_state, first, second))
    return bool(first == second)


def is_cuda_awake() -> bool:
    """Whether this process has initialised CUDA; it is not asked in a way that would."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def _of_process(cuda: bool) -> list[Access]:
    accesses: list[Access] = [(random.getstate, random.setstate)]
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        accesses.append((lambda: numpy.random.get_state(legacy=False), numpy.random.set_state))
    if torch is not None:
        accesses.append((torch.get_rng_state, torch.set_rng_state))
        if cuda and is_cuda_awake():
            accesses.append((torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all))
    return accesses
