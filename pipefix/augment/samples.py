"""A few samples as a dataset hands them to its transforms; refuses datasets in which a swap would be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import IterableDataset
from torchvision import tv_tensors
from torchvision.datasets.folder import default_loader
from torchvision.transforms.v2 import functional as tv

from pipefix.augment.record import unpacked
from pipefix.augment.split import Split, as_tensor
from pipefix.augment.swap import DatasetTransform, with_calls
from pipefix.augment.transforms import replaced
from pipefix.vocabulary.errors import TargetError
from pipefix.vocabulary.held_transforms import HeldTransforms
from pipefix.vocabulary.nested import leaves
from pipefix.vocabulary.random_state import seeded

FOLLOWERS = tuple(getattr(tv_tensors, name) for name in ("BoundingBoxes", "KeyPoints", "Mask") if hasattr(tv_tensors, name))
"""What torchvision moves along with a picture. KeyPoints are newer than the rest."""

_DECODERS_DIFFER = 4.0
"""At most, from byte to byte of a picture on average. Of two orders of colours it is far more."""


class _Caught(BaseException):
    """Carries what a dataset gave its transforms out of its ``__getitem__``, past whatever that catches."""


def _catch(*sample: Any, **named: Any) -> Any:
    raise _Caught(named.get("image") if named else sample[0])


def pictures(dataset: Any, place: HeldTransforms, count: int) -> list[Any]:
    """Up to ``count`` of them, from all over the dataset."""
    catching = replaced(dataset, place.path, _catch)
    checked = [picture for item in places(dataset, count) for picture in _handed(catching, item)]
    if not checked:
        raise TargetError(
            f"The dataset's {'.'.join(place.path)} was not called for any sample that was looked at.",
            advice="Name the attribute that __getitem__ calls, --transforms NAME, or a dataset that applies its transforms there.",
        )
    return checked


def _handed(catching: Any, item: int) -> list[Any]:
    """The picture that is handed to the transforms for a sample; none where they are not called."""
    with suppress(StopIteration):
        try:
            next(iter(catching)) if isinstance(catching, IterableDataset) else catching[item]
        except _Caught as caught:
            return [_checked(caught.args[0])]
    return []


class _OfPictures(DatasetTransform):
    """Refuses what lies beside a picture and no tv_tensor says how to move."""

    def __call__(self, *sample: Any, **named: Any) -> Any:
        if named or any(map(_is_unmarked, leaves(sample[1:]))):
            raise TargetError(
                "The transforms are called with a mask, boxes or other values beside the picture, which would not follow it.",
                advice="Leave these transforms in the dataset, or mark masks as torchvision.tv_tensors.Mask.",
            )
        return super().__call__(*sample)


def _is_unmarked(leaf: Any) -> bool:
    """Whether it is a picture, or an array of more than one dimension, that no tv_tensor says how to move."""
    many = isinstance(leaf, (torch.Tensor, np.ndarray)) and leaf.ndim > 1
    return isinstance(leaf, Image.Image) or (many and not isinstance(leaf, FOLLOWERS))


def refuse_more_than_pictures(dataset: Any, place: HeldTransforms, cut: Split, count: int = 4) -> None:
    """Raise `TargetError` where a sample is more than its picture, transformed once and handed on as the transforms give it.

    What moves to the batch moves pictures only, and after everything that ``__getitem__`` does. A mask that the same transforms
    turn would stay unturned beside its picture, a second view would stay as it was read, and an operation after the transforms
    would be done before them.
    """
    recording = replaced(dataset, place.path, _OfPictures(cut))
    for item in places(dataset, count):
        sample, calls = with_calls(_sample(recording, item))
        picture = unpacked(calls).place
        every = zip(*(leaves(each) for each in (sample, _sample(dataset, item), _sample(dataset, item))), strict=False)
        for at, (made, own, again) in enumerate(every):
            if at != picture and _is_same(own, again) and not _is_same(own, made):
                raise TargetError(
                    f"dataset[{item}] makes something else of what its transforms give, besides the picture: it would be made of "
                    f"the picture before {cut.names[0]}.",
                    advice="Leave these transforms in the dataset, or make it of the batch, after the module.",
                )


def _sample(dataset: Any, item: int) -> Any:
    with seeded(item):
        return next(iter(dataset)) if isinstance(dataset, IterableDataset) else dataset[item]


def _is_same(value: Any, other: Any) -> bool:
    """Whether two leaves are equal; of what is neither tensor, array, number nor text it is not known, and taken for granted."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        equal: Any = torch.equal if isinstance(value, torch.Tensor) else np.array_equal
        return type(value) is type(other) and value.dtype == other.dtype and bool(equal(value, other))
    return value == other if isinstance(value, (int, float, str, bytes)) else True


def refuse_other_files(dataset: Any, place: HeldTransforms, files: Sequence[Any], labels: Sequence[int], count: int = 8) -> None:
    """Raise `TargetError` where samples are not pictures of the files that the dataset lists, in this order, as RGB, and the
    numbers beside them: DALI reads those, and runs none of the dataset's code."""
    catching = replaced(dataset, place.path, _catch)
    for item in places(dataset, count):
        handed = _handed(catching, item)
        with seeded(item):
            sample = dataset[item]
        label = sample[1] if isinstance(sample, (tuple, list)) and len(sample) == 2 else None
        alike = bool(handed) and _is_picture_of(files[item], handed[0])
        if not alike or not isinstance(label, (int, np.integer)) or int(label) != labels[item]:
            raise TargetError(
                f"dataset[{item}] is not the picture of {files[item]} as RGB and the number {labels[item]}, which the dataset "
                "lists there.",
                advice="Move to Kornia instead (--to kornia), or give DALI your files and labels yourself: "
                "pipefix.augment.swap.dali_loader.",
            )


def _is_picture_of(file: Any, picture: Any) -> bool:
    own, listed = as_tensor(picture), as_tensor(default_loader(file))
    if own.shape != listed.shape or own.dtype != listed.dtype:
        return False
    gap = own[:, ::4, ::4].float() - listed[:, ::4, ::4].float()
    return float(gap.abs().mean()) <= _DECODERS_DIFFER


def places(dataset: Any, count: int) -> Sequence[int]:
    """Where `pictures` looks."""
    if isinstance(dataset, IterableDataset):
        return [0]
    return list(dict.fromkeys(np.linspace(0, len(dataset) - 1, min(count, len(dataset))).astype(int).tolist()))


def _checked(picture: Any) -> Any:
    if isinstance(picture, (Image.Image, torch.Tensor)) or (isinstance(picture, np.ndarray) and picture.ndim in (2, 3)):
        return picture
    raise TargetError(
        f"The dataset hands a {type(picture).__name__} to its transforms, not a picture.",
        advice="Only pictures (PIL, arrays, tensors) can be swapped.",
    )


def described(pictures: Sequence[Any]) -> dict[str, Any]:
    """The arguments of `split` that say what a dataset hands to its transforms."""
    first, sizes = pictures[0], [tuple(tv.get_dimensions(as_tensor(picture))) for picture in pictures]
    kinds: dict[str, type] = {"pil": Image.Image, "image": tv_tensors.Image, "tensor": torch.Tensor}
    kind = next((kind for kind, held in kinds.items() if isinstance(first, held)), "array")
    dtype = torch.uint8 if kind == "pil" else as_tensor(first).dtype
    return {"size": sizes[0], "same_size": len(set(sizes)) == 1 and len(sizes) > 1, "kind": kind, "dtype": dtype}
