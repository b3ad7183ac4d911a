"""Transforms are found by the names that people give them, in a dataset and in those that it wraps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pipefix.augment.transforms import find
from pipefix.caches.cut import holders
from pipefix.vocabulary.held_transforms import datasets_in, held_transforms


def first(sample: Any) -> Any:
    return sample


def second(sample: Any) -> Any:
    return sample


class StandardTransform(SimpleNamespace):
    """Named as torchvision's, which calls a transform and one for labels."""

    def __call__(self, sample: Any) -> Any:
        return sample


Dataset = SimpleNamespace
LABELS_ALONE = StandardTransform(transform=None, target_transform=first)


@pytest.mark.parametrize(
    ("dataset", "paths", "meant"),
    [
        (Dataset(transform=first), ["transform"], "transform"),
        (Dataset(tfm=first), ["tfm"], "tfm"),
        (Dataset(_augment_fn=first), ["_augment_fn"], "_augment_fn"),
        (Dataset(transform=first, transforms=StandardTransform(transform=first)), ["transform"], "transform"),
        (Dataset(transform=None, transforms=LABELS_ALONE, target_transform=first), [], None),
        (Dataset(transforms=first), ["transforms"], "transforms"),
        (Dataset(pipeline=[first]), [], None),
        (Dataset(transform=int, platform=first), [], None),
        (Dataset(dataset=Dataset(aug=first)), ["dataset.aug"], "dataset.aug"),
        (Dataset(aug=second, dataset=Dataset(transform=first)), ["aug", "dataset.transform"], "aug"),
        (Dataset(train_transform=first, val_transform=second), ["train_transform", "val_transform"], None),
        (Dataset(train_transform=first, transform=second), ["train_transform", "transform"], "transform"),
        (Dataset(datasets=[Dataset(aug=first), Dataset(aug=first)]), ["datasets[0].aug", "datasets[1].aug"], None),
        ([1, 2], [], None),
    ],
)
def test_one_finder(dataset: Any, paths: list[str], meant: str | None) -> None:
    held = held_transforms(dataset)
    assert [".".join(each.path) for each in held] == paths
    assert [(holder.owner, holder.name) for holder in holders(dataset)] == [(each.owner, each.name) for each in held]
    place = find(dataset)
    assert (place and ".".join(place.path)) == meant


def test_a_dataset_that_wraps_itself_has_an_end() -> None:
    outer = Dataset(aug=first)
    outer.dataset = outer
    assert [path for path, _ in datasets_in(outer)] == [()]
    assert len(held_transforms(outer)) == 1
