"""Workers that share a stream are told from those that each go through all of it, augmented samples and other orders included."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from pipefix.measurement.stream_parts import whole_stream_each
from tests.measurement.planted import subject


class Labelled(IterableDataset[Any]):
    """Augmented samples with their numbers; ``share``: each worker takes its part; ``shuffles``: in an order of its own."""

    def __init__(self, *, share: bool = False, shuffles: bool = False) -> None:
        self.share, self.shuffles = share, shuffles

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        numbers = list(range(1000))
        if info is not None and self.share:
            numbers = numbers[info.id :: info.num_workers]
        if info is not None and self.shuffles:
            random.Random(info.seed).shuffle(numbers)
        for number in numbers:
            yield torch.full((4,), float(number)) + torch.rand(4), number


class Drawn(IterableDataset[Any]):
    """Endless random numbers: no worker repeats another's, though all would if they began alike."""

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield np.random.rand(4), torch.rand(1)


class Halves(IterableDataset[Any]):
    """Numbers of a type that numpy does not know."""

    def __iter__(self) -> Iterator[Any]:
        for number in range(1000):
            yield torch.tensor([number // 256, number % 256], dtype=torch.bfloat16)


class Failing(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise ValueError("torn")


@pytest.mark.parametrize(
    ("stream", "each"),
    [(Labelled(), True), (Labelled(share=True), False), (Labelled(share=True, shuffles=True), False), (Failing(), False),
     (Labelled(shuffles=True), None), (Drawn(), None), (Halves(), True)],
)  # fmt: skip
def test_a_stream_that_every_worker_reads_whole_is_told_from_one_that_is_shared(stream: Any, each: bool | None) -> None:
    before = torch.get_rng_state()
    assert whole_stream_each(subject(DataLoader(stream, batch_size=4))) is each
    assert torch.equal(before, torch.get_rng_state()), "what the program draws stays as it was"


def test_a_dataset_with_indices_is_no_stream() -> None:
    assert not whole_stream_each(subject(DataLoader(torch.utils.data.TensorDataset(torch.zeros(8)))))
