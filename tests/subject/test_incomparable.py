"""Objects of the user's that raise wherever somebody compares them or asks whether they are true: nothing here may do so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import pipefix
from pipefix.fixes.same_samples import differences
from pipefix.loader.fast_loader import FastLoader
from pipefix.subject.load import load


class Incomparable:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise TypeError("cannot compare")

    def __ne__(self, other: object) -> bool:
        raise TypeError("cannot compare")

    def __bool__(self) -> bool:
        raise ValueError("the truth of many values is ambiguous")


class Column(Incomparable):
    def __init__(self, count: int) -> None:
        self.values = list(range(count))

    def take(self, index: int) -> int:
        return self.values[index]


class ToTensor(Incomparable):
    def __call__(self, value: Any) -> torch.Tensor:
        return torch.tensor([float(value)])


class Stacked(Incomparable):
    def __call__(self, samples: Any) -> torch.Tensor:
        return torch.stack(samples)


class Table(Incomparable, Dataset[Any]):
    """Holds them as attributes, in a list and a dict, and a method of one: as Hugging Face's datasets in memory do."""

    def __init__(self) -> None:
        self.column = Column(64)
        self.fetch = self.column.take
        self.transform = ToTensor()
        self.blocks = [Column(1), Column(1)]
        self.named = {"column": self.column}

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.fetch(index))


class Order(Incomparable):
    def __iter__(self) -> Iterator[int]:
        return iter(range(64))

    def __len__(self) -> int:
        return 64


def loader(**options: Any) -> DataLoader[Any]:
    return DataLoader(Table(), batch_size=8, sampler=Order(), collate_fn=Stacked(), **options)  # type: ignore[arg-type]


def test_the_target_is_loaded_with_other_settings_too() -> None:
    subject = load(loader(), batch_size=4, workers=1)
    assert subject.settings.batch_size == 4
    assert len(next(subject.orders())) == 4


def test_it_is_probed() -> None:
    run = pipefix.probe(loader(), budget=1.0)
    assert run.verdict is not None and run.throughput is not None


def test_the_machine_and_the_loader_are_audited() -> None:
    pipefix.doctor(loader())


@pytest.mark.parametrize("engine", ["auto", "processes"])
def test_it_is_delivered(engine: str) -> None:
    batches = FastLoader(Table(), batch_size=8, num_workers=2, sampler=Order(), collate_fn=Stacked(), engine=engine)  # type: ignore[arg-type]
    assert torch.cat(list(batches)).flatten().tolist() == list(range(64))


def test_samples_of_it_are_compared_by_what_they_pickle_to(tmp_path: Path) -> None:
    assert not list(differences(Column(3), Column(3)))
    assert list(differences(Column(3), Column(4)))
