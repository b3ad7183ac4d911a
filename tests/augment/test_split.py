"""Where a list is cut, and what is said about it."""

from __future__ import annotations

import pytest
import torch
from torchvision import transforms as v1
from torchvision.transforms import v2

from pipefix.augment.split import Wire, split
from pipefix.augment.translate import translate

IMAGENET = v1.Compose([v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize((0.5,) * 3, (0.5,) * 3)])


@pytest.mark.parametrize("target", ["kornia", "tensor"])
def test_pictures_of_any_size_are_cropped_before_they_are_a_batch(target: str) -> None:
    found = split(translate(IMAGENET), target, size=(3, 375, 500))
    assert [read.name for read in found.stays] == ["RandomResizedCrop"]
    assert [read.name for read in found.moves] == ["RandomHorizontalFlip", "ToTensor", "Normalize"]
    assert found.whys == (("RandomResizedCrop", "pictures differ in size until they are cropped or resized to one"),)
    assert found.before == Wire((3, 224, 224), "float32")
    assert found.after == Wire((3, 224, 224), "uint8")
    assert found.before.nbytes == 4 * (found.after.nbytes or 0) == 602112
    assert found.needs_tensor


def test_pictures_of_one_size_move_from_the_first() -> None:
    found = split(translate([v1.RandomCrop(32, padding=4), v1.ToTensor()]), "kornia", size=(3, 32, 32), same_size=True)
    assert not found.stays
    assert found.after == Wire((3, 32, 32), "uint8")


def test_what_cannot_be_read_stays_with_all_before_it() -> None:
    listed = [v2.RandomCrop(8), v2.ToImage(), v2.Lambda(lambda x: x), v2.RandomInvert(), v2.ToDtype(torch.float32, scale=True)]
    found = split(translate(listed), "kornia", size=(3, 9, 9))
    assert [read.name for read in found.moves] == ["RandomInvert", "ToDtype"]
    assert found.whys == (
        ("RandomCrop", "Lambda follows, which stays"),
        ("ToImage", "Lambda follows, which stays"),
        ("Lambda", "a function cannot be looked into"),
    )
    assert not found.needs_tensor


def test_a_shorter_side_is_no_size() -> None:
    found = split(translate([v1.Resize(256), v1.CenterCrop(224), v1.ToTensor()]), "kornia", size=(3, 300, 400))
    assert [read.name for read in found.stays] == ["Resize", "CenterCrop"]
    assert [str(split(translate([v1.Resize(9)]), "kornia").after), found.after.dtype] == ["uint8, of any size", "uint8"]


def test_dali_takes_the_whole_list_or_none() -> None:
    assert not split(translate(IMAGENET), "dali").stays
    refused = split(translate([v1.RandomCrop(8), v1.Lambda(lambda x: x)]), "dali")
    assert not refused.moves
    assert ("RandomCrop", "Lambda stays, and DALI begins with the file") in refused.whys


def test_an_operation_that_the_target_lacks_stays() -> None:
    found = split(translate([v2.JPEG((50, 90)), v2.RandomInvert()]), "kornia", same_size=True)
    assert [read.name for read in found.stays] == ["JPEG"]
    assert "libjpeg" in found.whys[0][1]
    assert not split(translate([v2.JPEG((50, 90))]), "tensor", same_size=True).stays
