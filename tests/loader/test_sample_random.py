"""Numbers that belong to a sample are those torch would draw."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torchvision import transforms

from pipefix.kernels.request import Filter
from pipefix.loader.fusing import recipe
from pipefix.loader.fusing.sample_random import numbers_of

keys = some.integers(0, 2**32 - 1)


@given(
    keys,
    some.lists(
        some.one_of(some.none(), some.integers(1, 2**24), some.tuples(some.floats(-9, 9), some.floats(0.01, 9))), max_size=40
    ),
)
def test_single_numbers_are_torchs(key: int, asked: list[Any]) -> None:
    chance = numbers_of(key)
    torchs = torch.Generator().manual_seed(key)
    for what in asked:
        if what is None:
            assert chance.unit() == torch.rand(1, generator=torchs).item()
        elif isinstance(what, int):
            assert chance.whole(what) == torch.randint(0, what, (1,), generator=torchs).item()
        else:
            low, high = what[0], what[0] + what[1]
            drawn = torch.empty(1).uniform_(low, high, generator=torchs).item()
            assert chance.between(low, high) == pytest.approx(drawn, abs=4e-7 * max(1.0, abs(low), abs(high)))
    assert torch.rand(1, generator=chance.torchs(len(asked))).item() == torch.rand(1, generator=torchs).item()


@given(keys, some.integers(1, 3000), some.integers(1, 3000), some.sampled_from([(0.08, 1.0), (0.5, 0.5), (0.9, 1.1)]))
def test_random_crops_are_torchvisions(key: int, width: int, height: int, scale: tuple[float, float]) -> None:
    ratio = (3 / 4, 4 / 3)
    torch.manual_seed(key)
    wanted = transforms.RandomResizedCrop.get_params(torch.empty(3, height, width), list(scale), list(ratio))
    crop = recipe.RandomResizedCropStep(224, 224, scale, ratio, next(iter(Filter)))
    assert crop._crop(width, height, numbers_of(key)) == tuple(wanted)


def test_what_single_precision_could_round_otherwise_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every side were in doubt."""
    monkeypatch.setattr(recipe, "DOUBT", 1.0)
    for key in range(200):
        torch.manual_seed(key)
        wanted = transforms.RandomResizedCrop.get_params(torch.empty(3, 333, 500), [0.08, 1.0], [3 / 4, 4 / 3])
        crop = recipe.RandomResizedCropStep(224, 224, (0.08, 1.0), (3 / 4, 4 / 3), next(iter(Filter)))
        assert crop._crop(500, 333, numbers_of(key)) == tuple(wanted)
