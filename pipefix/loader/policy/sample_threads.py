"""``threads_per_worker``: threads in the process that makes a batch, which read its samples where these wait for a network.

Generators are the process's own, so that threads whose samples draw would share them, and differ from run to run. The first batch
is read sample after sample; where it draws, all others are, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from pipefix.vocabulary.generators import generators
from pipefix.vocabulary.held_transforms import datasets_in
from pipefix.vocabulary.random_state import RandomState


class SampleThreads:
    """In one process."""

    def __init__(self, threads: int, dataset: Any) -> None:
        self.threads, self._dataset = threads, dataset
        self._pool: ThreadPoolExecutor | None = None
        self._draws: bool | None = None
        """Whether samples draw random numbers; None: nothing was read yet."""

    def map(self, read: Callable[[Any], Any], indices: list[Any]) -> Iterable[Any]:
        """What ``read`` gives for each index, in their order."""
        if self._draws or self.threads <= 1:
            return map(read, indices)
        before = RandomState(*_held(self._dataset))
        if self._draws is None:
            results = list(map(read, indices))
            self._draws = before.changed()
            return results
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, "pipefix-sample", initializer=partial(torch.set_num_threads, 1))
        results = list(self._pool.map(read, indices))
        if before.changed():
            self._draws = True
            warnings.warn(
                f"threads_per_worker={self.threads}: samples of a later batch drew random numbers, which threads share: that batch "
                "may differ from run to run. From now on samples are read one after the other. Leave threads_per_worker out for "
                "this dataset.",
                UserWarning,
                stacklevel=2,
            )
        return results


def _held(dataset: Any) -> list[Any]:
    """Generators of a dataset, of those that it is made of, and of the modules that their classes are written in."""
    held = (generator for _, part in datasets_in(dataset) for generator in generators(part))
    return list({id(generator): generator for generator in held}.values())
