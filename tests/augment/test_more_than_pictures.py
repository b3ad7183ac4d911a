"""What cannot move to the batch without harm is refused by name: masks, second views, later operations, files of other labels."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset, distributed
from torchvision import tv_tensors
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import pipefix
from pipefix.augment.samples import refuse_more_than_pictures, refuse_other_files
from pipefix.augment.transforms import files_of, parts_of
from pipefix.vocabulary.errors import BadUsage, TargetError
from tests.augment.calls import Pictures, swapped

LIST = v2.Compose([v2.RandomCrop(24), v2.RandomHorizontalFlip(0.5), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


class AsDictionary(Pictures):
    def __getitem__(self, index: int) -> Any:
        return SimpleNamespace(inputs={"image": self.transform(self.images[index])}, label=index)


class Masks(Pictures):
    def __getitem__(self, index: int) -> Any:
        return self.transform(self.images[index], self.images[index].convert("L"))


class MarkedMasks(Pictures):
    def __getitem__(self, index: int) -> Any:
        mask = tv_tensors.Mask(torch.arange(2000, dtype=torch.int32).reshape(40, 50))
        return self.transform(self.images[index], {"mask": mask, "labels": torch.tensor([index])})


class TwoViews(Pictures):
    def __getitem__(self, index: int) -> Any:
        return self.transform(self.images[index]), self.transform(self.images[index])


class Stacked(Pictures):
    def __getitem__(self, index: int) -> Any:
        return torch.stack([self.transform(self.images[index])] * 2)


class Later(Pictures):
    def __getitem__(self, index: int) -> Any:
        return self.transform(self.images[index]) * 2 - 1, index


class Denoising(Pictures):
    def __getitem__(self, index: int) -> Any:
        image = self.transform(self.images[index])
        return image + 0.1 * torch.rand(24, 24), image


class Levels(Pictures):
    def __getitem__(self, index: int) -> Any:
        image = self.transform(self.images[index])
        return {"image": image, "level": float(image.max())}


def refused(dataset: Any) -> str | None:
    swap = swapped(dataset)
    assert swap.place is not None
    try:
        refuse_more_than_pictures(dataset, swap.place, swap.split)
    except TargetError as error:
        return str(error)
    return None


def test_a_picture_and_what_lies_beside_it_can_move() -> None:
    assert refused(Pictures(LIST)) is None
    assert refused(AsDictionary(LIST)) is None
    assert refused(Subset(Pictures(LIST), [1, 2])) is None
    assert refused(MarkedMasks(LIST)) is None, "a mask that says what it is moves with its picture"


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Masks, "with a mask, boxes or other values"),
        (TwoViews, "holds 2 pictures that the transforms made"),
        (Stacked, "holds no pictures that the transforms made"),
        (Later, "holds no pictures that the transforms made"),
        (Denoising, "makes something else of what its transforms give"),
        (Levels, "makes something else of what its transforms give"),
    ],
)
def test_what_else_a_sample_holds_is_refused(kind: type, why: str) -> None:
    dataset = kind(LIST)
    before = torch.get_rng_state()
    assert why in (refused(dataset) or "")
    assert dataset.transform is LIST
    assert torch.equal(torch.get_rng_state(), before)


def test_files_whose_samples_are_others_are_not_given_to_dali(photos: Path) -> None:
    pytest.importorskip("nvidia.dali")

    class Renumbered(ImageFolder):
        def __getitem__(self, index: int) -> Any:
            image, label = super().__getitem__(index)
            return image, label + 100

    listed = v2.Compose([v2.RandomResizedCrop(24), v2.ToImage()])
    with pytest.raises(TargetError, match=r"dataset\[0\] is not the picture of .* and the number 0"):
        pipefix.swap(DataLoader(Renumbered(photos, listed)), to="dali")


def as_read(path: str) -> Image.Image:
    return Image.open(path).convert("RGB")


def handed_to_dali(dataset: Any) -> None:
    place, listed = swapped(dataset).place, files_of(dataset)
    assert place is not None
    assert not isinstance(listed, str)
    refuse_other_files(dataset, place, *listed)


READ: dict[str, Any] = {
    "grey": lambda path: as_read(path).convert("L"),
    "BGR": lambda path: Image.merge("RGB", as_read(path).split()[::-1]),
}


@pytest.mark.parametrize("kind", READ)
def test_pictures_that_are_read_otherwise_than_dali_reads_them_are_not_given_to_it(kind: str, tmp_path: Path) -> None:
    """Batches had three channels where the dataset gives one, or red for blue."""
    (tmp_path / "class").mkdir()
    for number in range(3):
        Image.new("RGB", (40, 30), (200, 30, 60)).save(tmp_path / "class" / f"{number}.png")
    handed_to_dali(ImageFolder(str(tmp_path), LIST))
    with pytest.raises(TargetError, match=r"dataset\[0\] is not the picture of .* as RGB"):
        handed_to_dali(ImageFolder(str(tmp_path), LIST, loader=READ[kind]))


class OfSome(ImageFolder):
    def __getitem__(self, index: int) -> Any:
        image = as_read(self.samples[index][0])
        return (self.transform(image) if index != 9 else image), self.targets[index]  # type: ignore[misc]


def test_a_sample_that_is_not_transformed_is_told_by_its_name(photos: Path) -> None:
    """It was said that zip() has an argument shorter than another."""
    dataset = OfSome(str(photos), LIST)
    with pytest.raises(TargetError, match=r"dataset\[9\] is not the picture of"):
        handed_to_dali(Subset(dataset, range(10)))
    with pytest.raises(TargetError, match="was not called for any sample that was looked at") as raised:
        pipefix.swap(DataLoader(Subset(dataset, [9, 9])))
    assert "--transforms NAME" in raised.value.advice


def test_a_part_of_a_dataset_brings_the_calls_of_its_own_samples() -> None:
    """A `Subset` reads whole batches itself, past whatever wraps it."""
    data = Subset(Pictures(LIST), [4, 2, 0, 1])
    swap = swapped(data)
    torch.manual_seed(3)
    expected, numbers = next(iter(DataLoader(data, 4)))
    torch.manual_seed(3)
    images, labels = swap.module()(*next(iter(DataLoader(swap.dataset(data), 4))))
    assert labels.tolist() == numbers.tolist() == [4, 2, 0, 1]
    assert torch.equal(images, expected)


def test_two_pictures_in_one_call_are_refused() -> None:
    dataset = Masks(LIST)
    with pytest.raises(TargetError, match="mask"):
        pipefix.swap(DataLoader(dataset), to="kornia")
    with pytest.raises(TargetError, match="given 2 pictures in one sample"):
        swapped(dataset).dataset(dataset)[0]


# -- ranks -------------------------------------------------------------------------------------------------------------------


def test_dali_makes_each_ranks_share(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dali = pytest.importorskip("pipefix.augment.dali")
    graph = parts_of([v2.RandomResizedCrop(24)])
    files = [f"{number}.jpg" for number in range(7)]
    shares = [dali.DaliLoader(files, graph, batch_size=2, rank=rank, world_size=3) for rank in range(3)]
    expected = [list(distributed.DistributedSampler(files, 3, rank, shuffle=False)) for rank in range(3)]
    assert [np.concatenate(share._order(0)).tolist() for share in shares] == expected
    assert [len(share) for share in shares] == [2, 2, 2]
    monkeypatch.setattr(dali, "_world_size", lambda: 3)
    with pytest.raises(BadUsage, match="3 ranks train here"):
        dali.DaliLoader(files, graph, batch_size=2)
