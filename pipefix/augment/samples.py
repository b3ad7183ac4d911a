"""Samples as a dataset hands them to its transforms; refuses datasets that use a picture otherwise as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch.utils.data import IterableDataset
from torchvision import tv_tensors
from torchvision.datasets.folder import default_loader

from pipefix.augment.transforms import replaced
from pipefix.vocabulary.errors import TargetError
from pipefix.vocabulary.held_transforms import HeldTransforms
from pipefix.vocabulary.nested import members
from pipefix.vocabulary.random_state import seeded

FOLLOWERS = tuple(getattr(tv_tensors, name) for name in ("BoundingBoxes", "KeyPoints", "Mask") if hasattr(tv_tensors, name))
"""What torchvision moves along with a picture. KeyPoints are newer than the rest."""
DEEPEST = 8
"""Levels of a sample that are searched for its picture."""


class _Caught(BaseException):
    """Carries what a dataset gave its transforms out of its ``__getitem__``, past whatever that catches."""

    def __init__(self, picture: Any) -> None:
        super().__init__()
        self.picture = picture


class _Catch:
    def __call__(self, *sample: Any, **named: Any) -> Any:
        raise _Caught(named.get("image") if named else sample[0])


def pictures(dataset: Any, place: HeldTransforms, count: int) -> list[Any]:
    """Up to ``count`` of them, from all over the dataset."""
    catching = replaced(dataset, place.path, _Catch())
    checked: list[Any] = []
    for item in places(dataset, count):
        try:
            if isinstance(dataset, IterableDataset):
                next(iter(catching))
            else:
                catching[item]
        except _Caught as caught:
            checked.append(_checked(caught.picture))
        except StopIteration:
            break
        if isinstance(dataset, IterableDataset):
            break
    if not checked:
        raise TargetError(
            f"The dataset's {'.'.join(place.path)} was not called for any sample, so there is nothing to check it on.",
            advice="Leave --check away, or name a dataset that applies its transforms in __getitem__.",
        )
    return checked


class _Recorder:
    """The transforms as they are; their calls are noted."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any], Any]] = []

    def __call__(self, *sample: Any, **named: Any) -> Any:
        result = self.transform(*sample, **named)
        self.calls.append((sample, named, result))
        return result

    def __getattr__(self, name: str) -> Any:
        if name in ("transform", "calls"):
            raise AttributeError(name)
        return getattr(self.transform, name)


def refuse_more_than_pictures(dataset: Any, place: HeldTransforms, count: int = 4) -> None:
    """Raise `TargetError` where a sample is more than its picture, transformed once and handed on as the transforms give it.

    What moves to the batch moves pictures only, and after everything that ``__getitem__`` does. A mask that the same transforms
    turn would stay unturned beside its picture, a second view would stay as it was read, and an operation after the transforms
    would be done before them.
    """
    recorder = _Recorder(place.value)
    recording = replaced(dataset, place.path, recorder)
    for item in places(dataset, count):
        recorder.calls.clear()
        with seeded(item):
            sample = next(iter(recording), None) if isinstance(dataset, IterableDataset) else recording[item]
        why = _more_than_a_picture(recorder.calls, sample, stream=isinstance(dataset, IterableDataset))
        if why is not None:
            raise TargetError(
                f"The dataset's {'.'.join(place.path)} cannot move to the batch: {why}.",
                advice="Leave these transforms in the dataset; or have __getitem__ call them once, with the picture alone, and "
                "return what they give as it is.",
            )


def _more_than_a_picture(calls: list[tuple[tuple[Any, ...], dict[str, Any], Any]], sample: Any, *, stream: bool) -> str | None:
    for args, named, _ in calls:
        beside = [*args[1:], *(value for name, value in named.items() if name != "image")]
        if named.keys() - {"image"} or any(_has_unmarked(value) for value in beside):
            return "they are called with a mask, boxes or other values beside the picture, which would not follow it"
    if len(calls) > 1 and not stream:  # a stream may read ahead
        return f"a sample calls them {len(calls)} times, and only one picture of it would be transformed"
    views = sum(_holds(sample, _picture_in(result)) for _, _, result in calls)
    if views > 1:
        return f"a sample holds {views} pictures, and only one of them would be transformed"
    return None if views or not calls else "__getitem__ does more with what they give than hand it on"


def _picture_in(result: Any) -> Any:
    if isinstance(result, dict):
        return result.get("image")
    return result[0] if isinstance(result, (tuple, list)) and result else result


def _has_unmarked(value: Any, depth: int = 0) -> bool:
    """Whether there is a picture, or an array of more than one dimension, that no tv_tensor says how to move."""
    if isinstance(value, FOLLOWERS):
        return False
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return value.ndim > 1
    inner = members(value) if depth < DEEPEST else None
    return isinstance(value, Image.Image) or any(_has_unmarked(member, depth + 1) for _, member in inner or ())


def _holds(value: Any, picture: Any, depth: int = 0) -> int:
    """How often a sample holds this very object."""
    if value is picture:
        return 1
    if depth == DEEPEST or isinstance(value, (torch.Tensor, Image.Image)):
        return 0
    inner = members(value)
    if inner is None:
        inner = list(getattr(value, "__dict__", {}).items())  # a class of the user's own
    return sum(_holds(member, picture, depth + 1) for _, member in inner)


def refuse_other_files(dataset: Any, place: HeldTransforms, files: Sequence[Any], labels: Sequence[int], count: int = 8) -> None:
    """Raise `TargetError` where samples are not pictures of the files that the dataset lists, in this order, and the numbers beside
    them: DALI reads those, and runs none of the dataset's code."""
    for item, picture in zip(places(dataset, count), pictures(dataset, place, count), strict=True):
        with seeded(item):
            sample = dataset[item]
        label = sample[1] if isinstance(sample, (tuple, list)) and len(sample) == 2 else None
        alike = size_of(picture)[1:] == size_of(default_loader(files[item]))[1:]
        if not alike or not isinstance(label, (int, np.integer)) or int(label) != labels[item]:
            raise TargetError(
                f"dataset[{item}] is not the picture of {files[item]} and the number {labels[item]}, which the dataset lists "
                "there.",
                advice="Move to Kornia instead (--to kornia), or give DALI your files and labels yourself: "
                "pipefix.augment.swap.dali_loader.",
            )


def places(dataset: Any, count: int) -> Sequence[int]:
    """Where `pictures` looks."""
    if isinstance(dataset, IterableDataset):
        return [0]
    return list(dict.fromkeys(np.linspace(0, len(dataset) - 1, min(count, len(dataset))).astype(int).tolist()))


def _checked(picture: Any) -> Any:
    if isinstance(picture, (Image.Image, torch.Tensor)):
        return picture
    if isinstance(picture, np.ndarray) and picture.ndim in (2, 3):
        return picture
    raise TargetError(
        f"The dataset hands a {type(picture).__name__} to its transforms, not a picture.",
        advice="Only pictures (PIL, arrays, tensors) can be swapped.",
    )


def kind_of(picture: Any) -> Literal["pil", "tensor", "array"]:
    """What the dataset hands to its transforms."""
    if isinstance(picture, Image.Image):
        return "pil"
    return "tensor" if isinstance(picture, torch.Tensor) else "array"


def size_of(picture: Any) -> tuple[int, int, int]:
    """Channels, height and width."""
    if isinstance(picture, Image.Image):
        return (len(picture.getbands()), picture.height, picture.width)
    if isinstance(picture, torch.Tensor):
        return (int(picture.shape[-3]), int(picture.shape[-2]), int(picture.shape[-1]))
    return (picture.shape[2] if picture.ndim == 3 else 1, picture.shape[0], picture.shape[1])
