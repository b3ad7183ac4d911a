"""Boxes, points and masks go where their pixels go; labels are mixed as pictures are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchvision import tv_tensors
from torchvision.transforms import v2

from pipefix.augment import kornia, tensor
from pipefix.augment.translate import translate
from tests.augment.lists import pictures

TARGETS = [kornia, tensor]


def spot(count: int, size: int = 40) -> tuple[torch.Tensor, Any, Any]:
    """A bright rectangle in each picture, its box and its mask."""
    images = torch.zeros(count, 3, size, size, dtype=torch.uint8)
    masks = torch.zeros(count, size, size, dtype=torch.uint8)
    boxes = []
    for place in range(count):
        x, y = 6 + place % 8, 10 + place % 5
        images[place, :, y : y + 12, x : x + 9] = 255
        masks[place, y : y + 12, x : x + 9] = 1
        boxes.append([x, y, x + 9, y + 12])
    return images, tv_tensors.BoundingBoxes(torch.tensor(boxes), format="XYXY", canvas_size=(size, size)), tv_tensors.Mask(masks)


@pytest.mark.parametrize("target", TARGETS)
def test_they_follow_in_one_tensor(target: Any) -> None:
    images, boxes, masks = spot(12)
    listed = [v2.RandomHorizontalFlip(), v2.RandomVerticalFlip(), v2.RandomCrop(36), v2.Resize((72, 36)), v2.ColorJitter(0.1)]
    found, moved, shown = target.augmentation(translate(listed).ops, seed=3)((images, boxes, masks))
    assert moved.canvas_size == (72, 36)
    for image, box, mask in zip(found, moved.as_subclass(torch.Tensor), shown, strict=True):
        left, top, right, bottom = (int(one) for one in box)
        assert image[:, top + 2 : bottom - 2, left + 1 : right - 1].min() > 150
        assert mask[top + 2 : bottom - 2, left + 1 : right - 1].min() == 1
        assert abs(int(mask.sum()) - (bottom - top) * (right - left)) <= bottom - top + right - left


@pytest.mark.parametrize("target", TARGETS)
def test_they_follow_in_lists_of_targets(target: Any) -> None:
    images, boxes, masks = spot(5)
    batch = (
        [tv_tensors.Image(one) for one in images],
        [
            {"boxes": tv_tensors.wrap(box[None], like=boxes), "labels": torch.tensor([place]), "masks": mask}
            for place, (box, mask) in enumerate(zip(boxes, masks, strict=True))
        ],
    )
    found, targets = target.augmentation(translate([v2.RandomHorizontalFlip(1.0)]).ops)(batch)
    assert isinstance(found[0], tv_tensors.Image)
    for place, one in enumerate(targets):
        assert int(one["labels"]) == place
        left, top, right, bottom = (int(value) for value in one["boxes"][0])
        assert found[place][:, top:bottom, left:right].min() == 255


def test_empty_boxes_are_left_out_with_their_labels() -> None:
    images, _, _ = spot(2)
    one = tv_tensors.BoundingBoxes([[0, 0, 3, 3], [20, 20, 30, 30]], format="XYXY", canvas_size=(40, 40))
    batch = (list(images), [{"boxes": one, "labels": torch.tensor([1, 2])} for _ in range(2)])
    listed = [v2.CenterCrop(20), v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes()]
    _, targets = kornia.augmentation(translate(listed).ops)(batch)
    assert [target["labels"].tolist() for target in targets] == [[2], [2]]
    assert targets[0]["boxes"].tolist() == [[10.0, 10.0, 20.0, 20.0]]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mixing", [v2.MixUp(num_classes=4), v2.CutMix(num_classes=4)])
def test_labels_are_mixed_as_pictures_are(target: Any, mixing: Any) -> None:
    """Pictures of one value each: what a picture holds of its neighbour is what its label says."""
    images = torch.tensor([0.0, 1.0, 0.0, 1.0]).view(4, 1, 1, 1).expand(4, 3, 32, 32).clone()
    labels = torch.tensor([0, 1, 2, 3])
    augment = target.augmentation(translate(mixing).ops, seed=2)
    shares = set()
    for _ in range(4):
        found, told = augment((images, labels))
        assert torch.allclose(told.sum(dim=1), torch.ones(4))
        odd = found[1].mean()
        assert told[1, 1] == pytest.approx(float(odd), abs=1e-4)
        shares.add(round(float(odd), 3))
    assert len(shares) > 1


def test_other_values_are_passed_on() -> None:
    batch = {"image": pictures(3), "label": torch.arange(3), "name": ["a", "b", "c"], "weight": torch.rand(3, 7)}
    found = kornia.augmentation(translate(v2.RandomInvert(1.0)).ops)(batch)
    assert torch.equal(found["image"], 255 - batch["image"])
    assert found["name"] == ["a", "b", "c"]
    assert found["label"] is batch["label"]


def test_what_is_no_batch_of_pictures_is_refused() -> None:
    augment = kornia.augmentation(translate(v2.RandomInvert(1.0)).ops)
    with pytest.raises(ValueError, match="begins with a tensor of shape"):
        augment(torch.zeros(3, 4))
    with pytest.raises(ValueError, match="differ in size"):
        kornia.augmentation(translate(v2.RandomZoomOut(p=0.5)).ops)(pictures(8))
    with pytest.raises(ValueError, match="2 indices for 8 pictures"):
        augment(pictures(8), index=[1, 2])
