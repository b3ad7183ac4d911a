"""What a list does is recorded as it does it: the same functions, the same arguments, the same random numbers drawn."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from pipefix.augment.batched import TABLE
from pipefix.augment.module import run, waves
from pipefix.augment.record import Program, RecordedCall, RecordedImage, packed, replayed, unpacked
from pipefix.vocabulary.random_state import RandomState, seeded
from tests.augment.lists import ALL, pictures

SEEDS = 6
"""`benchmarks/cases/parity.py` takes 1,000."""


def recorded(transform: Any, like: torch.Tensor) -> RecordedImage:
    image: RecordedImage = transform(RecordedImage.of(like.shape, like.dtype, from_pil=False))
    return image


def both(transform: Any, images: torch.Tensor) -> tuple[list[torch.Tensor], list[list[Any]]]:
    """The list on each picture, and what is recorded of it with the same seed."""
    expected, programs = [], []
    for seed, image in enumerate(images):
        with seeded(seed):
            expected.append(torch.as_tensor(transform(image)))
            drawn = RandomState()
        with seeded(seed):
            result = recorded(transform, image)
            assert not drawn.changed(), "recording draws what the list draws"
        assert (result.shape, result.dtype) == (expected[-1].shape, expected[-1].dtype)
        programs.append(unpacked(packed(Program(result.calls, tuple(image.shape)))).calls)
    return expected, programs


@pytest.mark.parametrize("name", ALL)
def test_every_list(name: str) -> None:
    """Sample by sample to the bit; as a batch to the bit where each function's row says exact, and within 1/255 elsewhere."""
    images = pictures(SEEDS)
    expected, programs = both(ALL[name], images)
    for image, wanted, calls in zip(images, expected, programs, strict=True):
        assert torch.equal(replayed(calls, image), wanted)
    rows = {row.name: row for row in TABLE}
    exact = all(rows[call.name].tolerance == "exact" for calls in programs for call in calls)
    for sample, wanted in zip(run(images, programs), expected, strict=True):
        gap = (sample.double() - wanted.double()).abs() * (255 if wanted.is_floating_point() else 1)
        assert gap.max() == 0 if exact else (gap.mean() <= 1 and gap.quantile(0.99) <= 4)


@pytest.mark.parametrize(
    "name", ["RandomResizedCrop", "RandomAffine", "ColorJitter", "GaussianBlur", "RandomPosterize", "RandAugment"]
)
def test_floating_point(name: str) -> None:
    images = pictures(SEEDS, dtype=torch.float32)
    expected, programs = both(ALL[name], images)
    for image, wanted in zip(run(images, programs), expected, strict=True):
        gap = (image.double() - wanted.double()).abs() * 255
        assert gap.mean() <= 1
        assert gap.quantile(0.99) <= 4


@pytest.mark.parametrize("name", ["RandomResizedCrop", "RandomRotation bilinear", "ColorJitter", "GaussianBlur", "RandomPosterize"])
def test_pictures_of_16_bits(name: str) -> None:
    """All that they hold above 255 was lost."""
    images = pictures(SEEDS).to(torch.int16) * 100
    expected, programs = both(ALL[name], images)
    for image, wanted in zip(run(images, programs), expected, strict=True):
        gap = (image.double() - wanted.double()).abs() / 100
        assert gap.mean() <= 1
        assert gap.quantile(0.99) <= 4


def test_every_row_is_used_by_a_list_and_has_a_name_of_its_own() -> None:
    used = set()
    for transform in ALL.values():
        for seed in range(8):
            with seeded(seed):
                used |= {call.name for call in recorded(transform, pictures(1)[0]).calls}
    assert used == {row.name for row in TABLE} - {"adjust_gamma", "grayscale_to_rgb", "invert"} | used & {"invert"}
    assert len({row.name for row in TABLE}) == len(TABLE)


def test_gamma_and_channels() -> None:
    images = pictures(4)
    programs = []
    for gamma in (0.5, 1.0, 1.7, 2.5):
        image = RecordedImage.of(images[0].shape, torch.uint8)
        tv.adjust_gamma(image, gamma)
        programs.append(image.calls)
    expected = torch.stack([replayed(calls, image) for calls, image in zip(programs, images, strict=True)])
    assert (torch.as_tensor(run(images, programs)).int() - expected.int()).abs().max() <= 1
    assert tuple(recorded(v2.RGB(), pictures(1, channels=1)[0]).shape) == (3, 40, 48)


class Sometimes(v2.Transform):
    """A class of a user's own, which draws from Python's generator."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"degrees": random.uniform(-20, 20)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return tv.rotate(inpt, params["degrees"]) if params["degrees"] > 0 else tv.invert(inpt)


def test_a_users_own_class_is_recorded_by_the_functions_it_calls() -> None:
    images = pictures(SEEDS)
    expected, programs = both(Sometimes(), images)
    assert {call.name for calls in programs for call in calls} == {"rotate", "invert"}
    assert torch.equal(torch.stack([replayed(*pair) for pair in zip(programs, images, strict=True)]), torch.stack(expected))


class ByHand(v2.Transform):
    """Torchvision's functions as users call them: with one number where its own transforms give two."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        leaning = tv.affine(inpt, 0.0, [0, 0], 1.0, 20.0, interpolation=v2.InterpolationMode.BILINEAR)
        return tv.gaussian_blur(leaning, 5, 1.5)


def test_one_number_is_taken_for_two_as_torchvision_takes_it() -> None:
    images = pictures(4)
    expected, programs = both(ByHand(), images)
    for sample, wanted in zip(run(images, programs), expected, strict=True):
        gap = (sample.double() - wanted.double()).abs()
        assert gap.mean() <= 1 and gap.quantile(0.99) <= 4


def test_blends_of_one_point_are_made_together() -> None:
    """Pictures whose lists call brightness, contrast and saturation in different orders are one group at each turn."""
    images = pictures(24)
    _, programs = both(v2.ColorJitter(0.4, 0.4, 0.4), images)
    turns = waves([packed(Program(calls, ())) for calls in programs])
    assert [len(turn) for turn in turns] == [1, 1, 1]
    assert all(turn[0].rows == list(range(24)) for turn in turns)


def test_numbers_of_samples_come_back_as_they_were() -> None:
    arguments = {
        "angle": 12.5,
        "translate": [3, -4],
        "scale": 1.5,
        "shear": [0.5, 2.0],
        "interpolation": 2,
        "fill": None,
        "center": None,
    }
    field = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    program = Program(
        [RecordedCall(0, "affine", arguments), RecordedCall(2, "elastic", {"displacement": field, "fill": None})], (3, 2, 2)
    )
    again = unpacked(packed(program))
    assert again.calls[0] == program.calls[0]
    assert (again.calls[1].place, again.shape) == (2, (3, 2, 2))
    assert again.calls[1].arguments["displacement"].dtype == np.float32
    assert np.array_equal(again.calls[1].arguments["displacement"], field)


def test_a_picture_of_more_channels_than_three_keeps_them() -> None:
    """`v2.RGB` was recorded to leave three of four, and a permutation of channels after it was drawn for three."""
    images = pictures(3, channels=4)
    expected, programs = both(v2.Compose([v2.RGB(), v2.RandomChannelPermutation()]), images)
    assert torch.equal(run(images, programs), torch.stack(expected))
