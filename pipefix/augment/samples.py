"""Samples of a dataset as it hands them to its transforms, taken without running the transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import IterableDataset

from pipefix.augment.swap import FoundTransforms, replaced
from pipefix.vocabulary.errors import TargetError


class _Caught(BaseException):
    """Carries what a dataset gave its transforms out of its ``__getitem__``, past whatever that catches."""

    def __init__(self, picture: Any) -> None:
        super().__init__()
        self.picture = picture


class _Catch:
    def __call__(self, *sample: Any, **named: Any) -> Any:
        raise _Caught(named.get("image") if named else sample[0])


def pictures(dataset: Any, place: FoundTransforms, count: int) -> list[Any]:
    """Up to ``count`` of them, from all over the dataset."""
    catching = replaced(dataset, place.path, _Catch())
    found: list[Any] = []
    for item in places(dataset, count):
        try:
            if isinstance(dataset, IterableDataset):
                next(iter(catching))
            else:
                catching[item]
        except _Caught as caught:
            found.append(_checked(caught.picture))
        except StopIteration:
            break
        if isinstance(dataset, IterableDataset):
            break
    if not found:
        raise TargetError(
            f"The dataset's {'.'.join(place.path)} was not called for any sample, so there is nothing to check it on.",
            advice="Leave --check away, or name a dataset that applies its transforms in __getitem__.",
        )
    return found


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


def size_of(picture: Any) -> tuple[int, int, int]:
    """Channels, height and width."""
    if isinstance(picture, Image.Image):
        return (len(picture.getbands()), picture.height, picture.width)
    if isinstance(picture, torch.Tensor):
        return (int(picture.shape[-3]), int(picture.shape[-2]), int(picture.shape[-1]))
    return (picture.shape[2] if picture.ndim == 3 else 1, picture.shape[0], picture.shape[1])
