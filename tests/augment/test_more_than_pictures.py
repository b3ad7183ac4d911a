"""What cannot move to the batch without harm is refused by name: masks, second views, later operations, files of other labels."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset, distributed
from torchvision import tv_tensors
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import pipefix
from pipefix.augment import kornia
from pipefix.augment.augment import Augment
from pipefix.augment.samples import refuse_more_than_pictures
from pipefix.augment.split import split
from pipefix.augment.swap import Swap, find
from pipefix.augment.translate import translate
from pipefix.vocabulary.errors import BadUsage, TargetError
from tests.augment.lists import pictures

LIST = v2.Compose([v2.RandomCrop(24), v2.RandomHorizontalFlip(0.5), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


class Pictures(Dataset[Any]):
    def __init__(self, transform: Any = LIST) -> None:
        self.images = [Image.fromarray(one.permute(1, 2, 0).numpy()) for one in pictures(6, 40, 50)]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.images[index]), index


class AsDictionary(Pictures):
    def __getitem__(self, index: int) -> Any:
        return SimpleNamespace(inputs={"image": self.transform(self.images[index])}, label=index)


class Masks(Pictures):
    def __getitem__(self, index: int) -> Any:
        return self.transform(self.images[index], self.images[index].convert("L"))


class MarkedMasks(Pictures):
    def __getitem__(self, index: int) -> Any:
        mask = tv_tensors.Mask(torch.zeros(40, 50, dtype=torch.uint8))
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


def refused(dataset: Any, collate_fn: Any = None) -> str | None:
    place = find(dataset)
    assert place is not None
    try:
        refuse_more_than_pictures(dataset, place, collate_fn)
    except TargetError as error:
        return str(error)
    return None


def test_a_picture_and_what_lies_beside_it_can_move() -> None:
    assert refused(Pictures()) is None
    assert refused(AsDictionary()) is None
    assert refused(Subset(Pictures(), [1, 2])) is None


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Masks, "with a mask, boxes or other values"),
        (MarkedMasks, "default_collate makes plain tensors"),
        (TwoViews, "calls them 2 times"),
        (Stacked, "does more with what they give"),
        (Later, "does more with what they give"),
    ],
)
def test_what_else_a_sample_holds_is_refused(kind: type, why: str) -> None:
    dataset = kind()
    before = torch.get_rng_state()
    assert why in (refused(dataset) or "")
    assert dataset.transform is LIST
    assert torch.equal(torch.get_rng_state(), before)


def test_masks_that_say_what_they_are_can_move_where_batches_keep_them() -> None:
    assert refused(MarkedMasks(), lambda samples: samples) is None


def test_albumentations_with_a_mask() -> None:
    albumentations = pytest.importorskip("albumentations")

    class Masked(Pictures):
        def __getitem__(self, index: int) -> Any:
            image = np.asarray(self.images[index])
            made = self.transform(image=image, **({"mask": image[:, :, 0]} if self.masked else {}))
            return made["image"], index

    dataset = Masked(albumentations.Compose([albumentations.RandomCrop(24, 24), albumentations.ToTensorV2()]))
    dataset.masked = False  # type: ignore[attr-defined]
    assert refused(dataset) is None
    dataset.masked = True  # type: ignore[attr-defined]
    assert "with a mask" in (refused(dataset) or "")


def test_swap_refuses_it() -> None:
    with pytest.raises(TargetError, match="mask"):
        pipefix.swap(DataLoader(Masks()), to="tensor")


def test_files_whose_samples_are_others_are_not_given_to_dali(photos: Path) -> None:
    pytest.importorskip("nvidia.dali")

    class Renumbered(ImageFolder):
        def __getitem__(self, index: int) -> Any:
            image, label = super().__getitem__(index)
            return image, label + 100

    listed = v2.Compose([v2.RandomResizedCrop(24), v2.ToImage()])
    with pytest.raises(TargetError, match=r"dataset\[0\] is not the picture of .* and the number 0"):
        pipefix.swap(DataLoader(Renumbered(photos, listed)), to="dali")


def test_a_part_of_a_dataset_is_told_its_indices() -> None:
    """A `Subset` reads whole batches itself, past whatever wraps it."""
    data = Subset(Pictures(), [4, 2, 0, 1])
    place = find(data)
    assert place is not None
    dataset = Swap(split(translate(place.transform), "tensor"), place, 3).dataset(data, index=True)
    dataset.set_epoch(1)
    ((images, labels), index) = next(iter(DataLoader(dataset, 4)))
    assert index.tolist() == [0, 1, 2, 3]
    assert labels.tolist() == [4, 2, 0, 1]
    ((again, _), _) = next(iter(DataLoader(dataset, 4)))
    assert torch.equal(images, again)


# -- draws -------------------------------------------------------------------------------------------------------------------


def test_each_rank_draws_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures(4, 30, 30)
    listed = translate([v2.ColorJitter(0.5)]).ops

    def drawn(rank: int) -> torch.Tensor:
        monkeypatch.setattr("pipefix.augment.augment.distributed.is_initialized", lambda: True)
        monkeypatch.setattr("pipefix.augment.augment.distributed.get_rank", lambda: rank)
        return torch.as_tensor(kornia.augmentation(listed)(images))

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(0), drawn(1))


def test_an_epoch_that_is_gone_on_with_draws_what_it_would_have_drawn() -> None:
    images, listed = pictures(6, 30, 30), translate([v2.ColorJitter(0.5)]).ops
    whole, cut = kornia.augmentation(listed), kornia.augmentation(listed)
    for each in (whole, cut):
        each.set_epoch(2)
    whole(images[:4])
    cut.pass_over(4)
    assert torch.equal(whole(images[4:]), cut(images[4:]))


def test_dali_makes_each_ranks_share(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dali = pytest.importorskip("pipefix.augment.dali")
    from pipefix.augment.dali_plan import plan

    graph = plan(translate([v2.RandomResizedCrop(24)]).ops)
    files = [f"{number}.jpg" for number in range(7)]
    shares = [dali.DaliLoader(files, graph, batch_size=2, rank=rank, world_size=3) for rank in range(3)]
    expected = [list(distributed.DistributedSampler(files, 3, rank, shuffle=False)) for rank in range(3)]
    assert [np.concatenate(one._order(0)).tolist() for one in shares] == expected
    assert [len(one) for one in shares] == [2, 2, 2]
    monkeypatch.setattr(dali, "_world_size", lambda: 3)
    with pytest.raises(BadUsage, match="3 ranks train here"):
        dali.DaliLoader(files, graph, batch_size=2)


# -- pictures of several sizes -----------------------------------------------------------------------------------------------


def test_a_blend_of_pictures_of_several_sizes_is_each_pictures_own() -> None:
    images = [pictures(1, 30 + place, 40)[0] for place in range(3)]
    module = kornia.augmentation(translate([v2.AugMix()]).ops, seed=2)
    for epoch in range(4):
        together = module(images, index=[5, 6, 7], epoch=epoch)
        for place, one in enumerate(images):
            alone = module([one], index=[5 + place], epoch=epoch)[0]
            assert torch.equal(together[place], alone)


@pytest.mark.parametrize("mixing", [v2.MixUp(num_classes=3), v2.CutMix(num_classes=3)])
def test_pictures_of_several_sizes_cannot_be_mixed(mixing: Any) -> None:
    module: Augment = kornia.augmentation(translate([mixing]).ops)
    images = [pictures(1, 30 + place, 40)[0].float() for place in range(2)]
    with pytest.raises(ValueError, match="mixes pictures of one size"):
        module((images, torch.tensor([0, 1])))
