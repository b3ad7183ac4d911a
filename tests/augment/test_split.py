"""Where a list is cut, what is said about it, and which old transforms are called as new ones."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn
from torchvision import transforms as v1
from torchvision.transforms import v2

from pipefix.augment.dali_front import Front, front_of
from pipefix.augment.split import SampleFormat, Split, split
from pipefix.augment.transforms import parts_of
from tests.augment.lists import STAYS

IMAGENET = v1.Compose([v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize((0.5,) * 3, (0.5,) * 3)])
UNIT = v2.ToDtype(torch.float32, scale=True)


def staying(cut: Split) -> list[str]:
    return [part.name for part in cut.in_dataset]


def test_pictures_of_any_size_are_cropped_before_they_are_a_batch() -> None:
    cut = split(IMAGENET, size=(3, 375, 500))
    assert staying(cut) == ["RandomResizedCrop"]
    assert cut.names == ["RandomHorizontalFlip", "ToTensor", "Normalize"]
    assert cut.reasons == (("RandomResizedCrop", "pictures differ in size until they are cropped or resized to one"),)
    assert cut.format_before == SampleFormat((3, 224, 224), "float32")
    assert cut.format_after == SampleFormat((3, 224, 224), "uint8")
    assert cut.format_before.nbytes == 4 * (cut.format_after.nbytes or 0) == 602112


def test_pictures_of_one_size_move_from_the_first() -> None:
    cut = split([v1.RandomCrop(32, padding=4), v1.ToTensor()], size=(3, 32, 32), same_size=True)
    assert not cut.in_dataset
    assert cut.format_after == SampleFormat((3, 32, 32), "uint8")


def test_what_cannot_be_recorded_stays_with_all_before_it() -> None:
    listed = [v2.RandomCrop(8), v2.ToImage(), v2.Lambda(lambda x: x), v2.RandomInvert(), UNIT]
    cut = split(listed, size=(3, 9, 9))
    assert cut.names == ["RandomInvert", "ToDtype"]
    assert cut.reasons == (
        ("RandomCrop", "Lambda follows, which stays"),
        ("ToImage", "Lambda follows, which stays"),
        ("Lambda", "a function cannot be looked into"),
    )


def test_a_shorter_side_is_no_size_and_neither_is_a_random_one() -> None:
    cut = split([v1.Resize(256), v1.CenterCrop(224), v1.ToTensor()], size=(3, 300, 400))
    assert staying(cut) == ["Resize", "CenterCrop"]
    assert [str(split([v1.Resize(9)]).format_after), split([v1.Resize(9)]).format_after.dtype] == ["uint8, of any size", "uint8"]
    assert staying(split([v2.RandomResize(30, 50), v2.RandomInvert()], size=(3, 60, 60), same_size=True)) != []


class Halves:
    """A transform of the user's own."""

    def __call__(self, picture: Image.Image) -> Image.Image:
        return picture.resize((picture.width // 2, picture.height // 2))


def test_of_what_stays_the_sizes_are_those_that_it_makes() -> None:
    """A batch of pictures of several sizes ends in torch's *stack expects each tensor to be equal size*."""
    either = v1.RandomChoice([v1.Pad(2), v1.CenterCrop(20)])
    cut = split([either, v1.RandomHorizontalFlip(), v1.Resize((24, 24)), v1.ToTensor()], size=(3, 40, 48), same_size=True)
    assert staying(cut) == ["RandomChoice", "RandomHorizontalFlip", "Resize"]
    cut = split([Halves(), v1.RandomHorizontalFlip(), v1.ToTensor()], size=(3, 40, 48), same_size=True)
    assert staying(cut) == ["Halves"]
    assert cut.format_after == SampleFormat((3, 20, 24), "uint8")


def test_dali_takes_the_whole_list_or_none() -> None:
    pytest.importorskip("nvidia.dali")
    assert not split(IMAGENET, "dali").in_dataset
    refused = split([v1.RandomCrop(8), v1.Lambda(lambda x: x)], "dali")
    assert not refused.on_batch
    assert ("RandomCrop", "Lambda stays, and DALI begins with the file") in refused.reasons
    ragged = split([v2.Pad(3), v2.CenterCrop(9)], "dali")
    assert "several sizes" in ragged.reasons[0][1]


@pytest.mark.parametrize("name", STAYS)
def test_a_function_without_a_row_stays(name: str) -> None:
    cut = split([STAYS[name][0], v2.RandomInvert()], size=(3, 40, 48), same_size=True)
    assert len(cut.in_dataset) in (1, 2)
    assert any(re.search(STAYS[name][1], why) for _, why in cut.reasons)


@pytest.mark.parametrize("rare", [v2.RandomApply, lambda listed, p: v2.RandomChoice([v2.Identity(), *listed], p=[1.0 - p, p])])
def test_what_hardly_ever_happens_is_known_of(rare: Any) -> None:
    """Epochs ended where the noise was drawn first; and to DALI a flip or a grey picture was lost without a word."""
    cut = split([rare([v2.GaussianNoise()], p=1e-9), v2.RandomInvert()], size=(3, 40, 48), same_size=True)
    assert cut.names == ["RandomInvert"]
    assert "drawn pixel by pixel" in cut.reasons[0][1]
    flips = front_of(parts_of([v2.CenterCrop(8), v2.RandomHorizontalFlip(1e-9), rare([v2.Grayscale(3)], p=1e-9), UNIT]))
    assert isinstance(flips, Front)
    assert (flips.count, flips.flip) == (2, True)


def test_arrays_are_passed_over_until_they_are_tensors() -> None:
    listed = [v2.RandomHorizontalFlip(), v2.ToImage(), v2.RandomInvert()]
    cut = split(listed, size=(3, 9, 9), same_size=True, kind="array")
    assert cut.names == ["ToImage", "RandomInvert"]
    assert "pass over" in cut.reasons[0][1]


# -- old as new ------------------------------------------------------------------------------------------------------------------

SAME: list[Any] = [
    v1.CenterCrop(20), v1.ColorJitter(0.4, 0.3, 0.2, 0.1), v1.GaussianBlur(3, (0.5, 2.0)), v1.Grayscale(3), v1.Pad(3, fill=9),
    v1.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), 5), v1.RandomCrop(24, padding=2), v1.RandomEqualize(), v1.RandomGrayscale(0.5),
    v1.RandomHorizontalFlip(), v1.RandomInvert(), v1.RandomPerspective(), v1.RandomPosterize(3), v1.RandomResizedCrop(24),
    v1.RandomRotation(30), v1.RandomSolarize(100), v1.RandomVerticalFlip(), v1.Resize((20, 22)), v1.RandomAutocontrast(),
    v1.RandomAdjustSharpness(2.0), v1.RandomApply([v1.ColorJitter(0.3), v1.GaussianBlur(3)], 0.6),
]  # fmt: skip


@pytest.mark.parametrize("old", SAME, ids=lambda old: type(old).__name__)
def test_an_old_transform_is_called_as_the_new_one(old: Any) -> None:
    cut = split([old], size=(3, 40, 48), same_size=True)
    assert cut.names == [type(old).__name__], cut.reasons


@pytest.mark.parametrize("old", [v1.RandAugment(), v1.RandomChoice([v1.RandomInvert(1.0), v1.RandomEqualize(1.0)])])
def test_an_old_transform_that_draws_otherwise_stays(old: Any) -> None:
    cut = split([old], size=(3, 40, 48), same_size=True)
    assert "draws otherwise" in cut.reasons[0][1]


def test_containers() -> None:
    listed = nn.Sequential(v2.RandomInvert(), v2.Compose([v2.RandomApply([v1.ColorJitter(0.3)]), v2.ToTensor()]))
    parts = parts_of([listed, v1.Compose([v1.ToPILImage()]), 7])
    assert [part.name for part in parts] == ["RandomInvert", "RandomApply", "ToTensor", "ToPILImage", "int"]
    assert [bool(part.recorded) for part in parts] == [True, True, True, False, False]
    assert "cannot be called" in parts[-1].why_not
    cut = split(listed, size=(3, 40, 48), same_size=True)
    assert cut.names == ["RandomInvert", "RandomApply", "ToTensor"]
    assert type(listed[1].transforms[0].transforms[0]) is v1.ColorJitter, "the user's own list is left as it is"
