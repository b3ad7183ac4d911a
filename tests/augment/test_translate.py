"""What is read from people's lists, and what is not."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import v2

from pipefix.augment import ops
from pipefix.augment.translate import translate

IMAGENET = (
    ops.RandomResizedCrop((224, 224)),
    ops.HorizontalFlip(0.5),
    ops.ToTensor(),
    ops.ToDtype("float32", True),
    ops.Normalize((0.5, 0.4, 0.3), (0.2, 0.2, 0.2)),
)


def test_old_and_new_say_the_same() -> None:
    parts = [
        ("RandomResizedCrop", (224,)),
        ("RandomHorizontalFlip", ()),
        ("ToTensor", ()),
        ("Normalize", ((0.5, 0.4, 0.3), (0.2,) * 3)),
    ]
    for library in (v1, v2):
        made = library.Compose([getattr(library, name)(*given) for name, given in parts])
        assert translate(made).ops == IMAGENET


def test_lists_within_lists_are_taken_apart() -> None:
    made = [v2.Compose([v1.Compose([v2.RandomInvert()]), v2.Identity()]), nn.Sequential(v2.RandomEqualize())]
    assert [read.name for read in translate(made).reads] == ["RandomInvert", "Identity", "RandomEqualize"]


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        (v1.Lambda(lambda x: x), "a function cannot be looked into"),
        (lambda x: x, "a function cannot be looked into"),
        (functools.partial(max, 1), "a function cannot be looked into"),
        (v2.RandomApply([lambda x: x]), "a function cannot be looked into"),
        (v2.TenCrop(8), "several pictures of one"),
        (v2.RandomIoUCrop(), "depends on the boxes"),
        (v1.ToPILImage(), "exist on the CPU only"),
        (v2.Resize(8, interpolation=v2.InterpolationMode.LANCZOS), "lanczos interpolation exists for pictures of PIL only"),
        (v2.RandomAffine(3, interpolation=v2.InterpolationMode.BICUBIC), "not turned or bent with bicubic"),
        (v2.Pad(2, fill={tv_tensors.Image: 1, tv_tensors.Mask: 0}), "pictures and masks with different values"),
        (nn.Dropout(), "torch.nn.modules.dropout.Dropout is a class that pipefix does not know"),
        (5, "a int is no transform"),
    ],
)
def test_what_cannot_be_read_says_why(transform: Any, why: str) -> None:
    (read,) = translate([transform]).reads
    assert read.untranslatable is not None
    assert why in read.untranslatable.why


def test_a_class_of_ones_own_is_not_guessed_at() -> None:
    class Flip(v2.RandomHorizontalFlip):
        def transform(self, inpt: Any, params: Any) -> Any:
            return inpt

    (read,) = translate(Flip()).reads
    assert read.untranslatable is not None
    assert "Flip is a class that pipefix does not know" in read.untranslatable.why


def test_every_parameter_is_kept() -> None:
    assert translate(v1.RandomCrop((3, 4), padding=(1, 2), pad_if_needed=True, fill=(1, 2, 3), padding_mode="edge")).ops == (
        ops.RandomCrop((3, 4), (1, 2, 1, 2), True, (1, 2, 3), "edge"),
    )
    assert translate(v2.RandomCrop((3, 4), padding=[1, 2, 3, 4])).ops == (ops.RandomCrop((3, 4), (1, 2, 3, 4)),)
    assert translate(v1.RandomErasing(0.3, (0.1, 0.2), (0.5, 2), "random")).ops == (ops.Erasing(0.3, (0.1, 0.2), (0.5, 2.0), None),)
    assert translate(v2.Resize(8, interpolation=3, max_size=20)).ops == (ops.Resize((8,), "bicubic", 20, True),)
    assert translate(v2.RandomChoice([v2.RandomInvert(1), v2.Identity()], p=[1, 3])).ops == (
        ops.Choice(((ops.Invert(1),), (ops.Identity(),)), (0.25, 0.75)),
    )
    both = {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}
    assert translate(v2.ToDtype(both, scale=True)).ops == (
        ops.ToDtype("float32", True),
        ops.OfBoxes("mask_dtype", (("dtype", "int64"),)),
    )


def test_policies_of_both_generations_are_read_alike() -> None:
    for name in ("AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix"):
        assert translate(getattr(v1, name)()).ops == translate(getattr(v2, name)()).ops


def test_albumentations() -> None:
    albumentations = pytest.importorskip("albumentations")
    made = albumentations.Compose(
        [
            albumentations.RandomResizedCrop((32, 24)),
            albumentations.HorizontalFlip(p=0.3),
            albumentations.OneOf([albumentations.InvertImg(p=1), albumentations.ToGray(p=3 / 4)], p=0.5),
            albumentations.ColorJitter((0.8, 1.2), (0.9, 1.1), (1, 1), (0, 0), p=0.4),
            albumentations.Normalize(),
            albumentations.ToTensorV2(),
        ]
    )
    found = translate(made)
    assert found.library == "albumentations"
    assert [type(op).__name__ for op in found.ops] == [
        "RandomResizedCrop", "HorizontalFlip", "Apply", "Apply", "ToDtype", "Normalize", "ToTensor",
    ]  # fmt: skip
    assert found.ops[0] == ops.RandomResizedCrop((32, 24), antialias=False)
    assert found.ops[2] == ops.Apply((ops.Choice(((ops.Invert(1.0),), (ops.Grayscale(None, 1.0),)), (4 / 7, 3 / 7)),), 0.5)


def test_albumentations_that_computes_otherwise_stays() -> None:
    albumentations = pytest.importorskip("albumentations")
    for one in (albumentations.CLAHE(), albumentations.Posterize((2, 4)), albumentations.SomeOf([albumentations.NoOp()], 1)):
        (read,) = translate(one).reads
        assert read.untranslatable is not None
