"""Whatever draws random numbers goes on as if nothing had run."""

from __future__ import annotations

import functools
import random
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

from pipefix.vocabulary.generators import generators, untouched


class Slotted:
    __slots__ = ("rng", "unset")

    def __init__(self) -> None:
        self.rng = random.Random(1)


class Eager:
    """Answers to any name: looking into it must not ask."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"asked for {name}")


class Drawing(Dataset[float]):
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.old = np.random.RandomState(0)
        self.transforms = [Slotted(), {"inner": random.Random(2)}]
        self.noise = torch.Generator()
        self.eager = Eager()
        self.itself = self
        self.samples = list(range(100_000))

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> float:
        slotted: Any = self.transforms[0]
        return float(self.rng.random() + self.old.rand() + slotted.rng.random() + torch.rand(1, generator=self.noise).item())


def draws(loader: DataLoader[Any]) -> list[float]:
    dataset: Any = loader.dataset
    return [
        random.random(), np.random.rand(), torch.rand(1).item(), torch.rand(1, generator=loader.generator).item(), dataset[0],
        dataset.transforms[1]["inner"].random(), torch.rand(1, generator=loader.sampler.generator).item(),
    ]  # fmt: skip


def make() -> DataLoader[Any]:
    dataset = Drawing()
    sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(4))
    return DataLoader(dataset, sampler=sampler, generator=torch.Generator().manual_seed(3))


def test_everything_goes_on_as_it_was() -> None:
    def seed() -> DataLoader[Any]:
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        return make()

    expected = draws(seed())
    loader = seed()
    with untouched(loader):
        for _ in range(3):
            assert draws(loader)
            list(loader)
    assert draws(loader) == expected


def test_generators_are_found_wherever_they_are_held() -> None:
    loader = make()
    kinds = sorted(type(generator).__name__ for generator in generators(loader))
    assert kinds == ["Generator"] * 4 + ["Random"] * 2 + ["RandomState"]


def test_they_are_found_behind_functions() -> None:
    first, other, third, fourth = random.Random(1), np.random.default_rng(1), random.Random(2), torch.Generator()

    def enclosing() -> float:
        return first.random()

    held = [enclosing, other.random, functools.partial(torch.rand, (), generator=fourth), third.shuffle]
    assert {id(generator) for generator in generators(held)} == {id(first), id(other), id(third), id(fourth)}


MODULE = """
import numpy
rng = numpy.random.default_rng(0)
class Noisy:
    def __getitem__(self, index):
        return rng.random()
def noise(index):
    return rng.random()
"""


def test_those_of_the_module_that_a_class_or_a_function_is_written_in(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("of_a_notebook")
    exec(MODULE, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for held, draw in ((module.Noisy(), lambda: module.Noisy()[0]), (module.noise, lambda: module.noise(0))):
        with untouched([held]):
            first = draw()
        assert draw() == first


def test_the_system_s_own_randomness_has_no_state_to_keep() -> None:
    assert generators([random.SystemRandom()]) == []


def test_a_sleeping_cuda_is_not_woken() -> None:
    with untouched(make()):
        pass
    assert not torch.cuda.is_initialized()


def test_a_cuda_that_woke_up_inside_begins_as_it_would_have_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies that a probe measures wake it, and a model's dropout draws from it."""
    awake, seeds = [False], list[int]()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: awake[0])
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    with untouched(None):
        torch.default_generator.manual_seed(4711)
    assert seeds == []
    torch.default_generator.manual_seed(31)
    with untouched(None):
        torch.default_generator.manual_seed(4711)
        awake[0] = True
    assert seeds == [31]
