"""A swapped list of transforms: the dataset does what stays and records what moves, the module does that to whole batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, default_collate
from torchvision import tv_tensors

from pipefix.augment import support
from pipefix.augment.dali_front import front_of
from pipefix.augment.module import Augment, pictures_of
from pipefix.augment.record import Program, RecordedImage, apart, outline_of, packed
from pipefix.augment.split import Split, as_tensor
from pipefix.augment.transforms import TO_TENSOR, files_of, parts_of, replaced
from pipefix.vocabulary.errors import BadUsage, TargetError
from pipefix.vocabulary.held_transforms import HeldTransforms
from pipefix.vocabulary.nested import leaves, map_leaves, members

_CALLS = "_pipefix_calls"
"""The attribute of a picture that holds its recorded calls, from the transforms to the end of ``__getitem__``."""
DEEPEST = 8
_OF_BYTES = ("L", "LA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB", "P")
_AS_TENSORS = ("L", "RGB")
"""Modes in which PIL does what torchvision does to a tensor of the same bytes: it knows more of the others (palettes, alpha)."""


class DatasetTransform:
    """What the dataset calls in place of its transforms: those that stay are called, those that move are recorded."""

    def __init__(self, cut: Split) -> None:
        self.stays = [part.source for part in cut.in_dataset]
        self.moves = [part.recorded for part in cut.on_batch]
        self.first = cut.names[0]
        self.size = () if cut.target == "dali" else (cut.format_after.shape or ())[1:]
        """Height and width of all pictures that were looked at; empty where they differ."""

    def __call__(self, *sample: Any) -> Any:
        unpack = len(sample) > 1
        for transform in self.stays:
            result = transform(*sample)
            sample = result if unpack else (result,)
        picture = _picture_of(sample)
        if isinstance(picture, np.ndarray) and self.first not in TO_TENSOR:
            raise TargetError(
                f"The dataset gives arrays, which {self.first} passes over: it would be done to the batch all the same.",
                advice="Begin the list with torchvision.transforms.v2.ToImage(), or leave the transforms in the dataset.",
            )
        if isinstance(picture, Image.Image) and picture.mode not in (_OF_BYTES if self.first in TO_TENSOR else _AS_TENSORS):
            raise TargetError(
                f"A picture has the mode {picture.mode!r}, of which {self.first} makes something else than it would of the batch.",
                advice="Convert pictures to RGB or L where they are read, or leave the transforms in the dataset.",
            )
        tensor = as_tensor(picture)
        if self.size and tuple(tensor.shape[1:]) != self.size:
            own, others = (" x ".join(map(str, size)) for size in (tensor.shape[1:], self.size))
            raise TargetError(
                f"A picture has {own} pixels before {self.first}, those looked at have {others}, and a batch holds one size.",
                advice="Have more looked at, pipefix.swap(..., check=True, samples=200): where sizes differ, the crop stays.",
            )
        image = RecordedImage.of(tuple(tensor.shape), tensor.dtype, from_pil=not isinstance(picture, torch.Tensor))
        recorded_sample: Any = tuple(map_leaves(lambda leaf: image if leaf is picture else leaf, sample))
        for place, transform in enumerate(self.moves):
            image.place[0] = place
            result = transform(*recorded_sample)  # type: ignore[misc]
            recorded_sample = result if unpack else (result,)

        def pixels(leaf: Any) -> Any:
            if not isinstance(leaf, RecordedImage):
                return leaf
            setattr(tensor, _CALLS, image.calls)
            return tensor

        result = map_leaves(pixels, recorded_sample)
        return tuple(result) if unpack else result[0]


def _picture_of(sample: Any) -> Any:
    """By torchvision's rule: what is marked as an image, or else the first tensor."""
    every = list(leaves(sample))
    marked = [leaf for leaf in every if isinstance(leaf, (Image.Image, tv_tensors.Image, np.ndarray))]
    pictures = marked or [leaf for leaf in every if type(leaf) is torch.Tensor][:1]
    if len(pictures) != 1:
        raise TargetError(
            f"The transforms were given {len(pictures) or 'no'} pictures in one sample, where one can move to the batch.",
            advice="Leave these transforms in the dataset, or mark masks as torchvision.tv_tensors.Mask.",
        )
    return pictures[0]


class RecordingDataset(Dataset[Any]):
    """The dataset as it was; each sample comes with the calls recorded of it, as a pair."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, item: Any) -> tuple[Any, bytes]:
        return with_calls(self.dataset[item])

    def __getitems__(self, items: list[Any]) -> list[Any]:
        whole = getattr(self.dataset, "__getitems__", None)
        return [with_calls(sample) for sample in (whole(items) if whole is not None else map(self.dataset.__getitem__, items))]

    def __getattr__(self, name: str) -> Any:
        if name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)


class RecordingStream(RecordingDataset, IterableDataset[Any]):
    """The same for a stream."""

    def __iter__(self) -> Iterator[Any]:
        return map(with_calls, self.dataset)


def with_calls(sample: Any) -> tuple[Any, bytes]:
    """A sample, and what was recorded of its picture."""
    every = list(_recorded_in(sample))
    if len(every) != 1:
        raise TargetError(
            f"A sample holds {len(every) or 'no'} pictures that the transforms made, where one can move to the batch.",
            advice="Have __getitem__ call its transforms once, with the picture, and return what they give as it is; or leave "
            "these transforms in the dataset.",
        )
    picture = every[0]
    listed = list(leaves(sample))
    place = next((place for place, leaf in enumerate(listed) if leaf is picture), None)
    return sample, packed(Program(picture.__dict__.pop(_CALLS), tuple(picture.shape), place, len(listed)))


def _recorded_in(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if _CALLS in value.__dict__:
            yield value
        return
    inner = members(value) if depth < DEEPEST else []
    own = getattr(value, "__dict__", {})  # of a class of the user's own
    for _, member in own.items() if inner is None else inner:
        yield from _recorded_in(member, depth + 1)


def _collated(collate_fn: Callable[[Any], Any], samples: Sequence[Any]) -> tuple[Any, list[bytes]]:
    """Raises `TargetError` where the first or the last picture of the batch is another one: calls are done by their places."""
    calls = [own for _, own in samples]
    outlines = [outline_of(apart(own)[0]) for own in calls]
    ends = [(list(leaves(samples[end][0])), outlines[end].place) for end in (0, -1) if samples]
    own_pictures = [None if place is None else listed[place] for listed, place in ends]
    batch = collate_fn([sample for sample, _ in samples])
    with suppress(ValueError, IndexError):  # a batch without such pictures: the module says so, if it is given it
        pictures, _ = pictures_of(batch, outlines)
        for own, picture in zip(own_pictures, (pictures[0], pictures[-1]), strict=True):
            if own is not None and (own.dtype != picture.dtype or not torch.equal(own, picture.cpu())):
                raise TargetError(
                    "The collate function changes pictures or their order (as CutMix or sorting does), and what moved to the batch "
                    "is done to each picture afterwards, by its place.",
                    advice="Do that to the batch that the module returns, or leave the transforms in the dataset.",
                )
    return batch, calls


def with_calls_apart(collate_fn: Callable[[Any], Any]) -> Any:
    """A collate function for samples that come with their calls: the batch as ``collate_fn`` makes it, and the calls beside it.
    `default_collate` takes such samples as they are."""
    return collate_fn if collate_fn is default_collate else partial(_collated, collate_fn)


@dataclass(frozen=True)
class Swap:
    """The swap of one list. ``dataset`` and ``module`` are its two halves."""

    split: Split
    place: HeldTransforms
    seed: int = 0

    def dataset(self, dataset: Any) -> Any:
        """A copy of the dataset whose transforms are the part that stays; yours is left as it was. Samples come as a pair: the
        sample, and what was recorded of the part that moves."""
        changed = replaced(dataset, self.place.path, DatasetTransform(self.split))
        return RecordingStream(changed) if isinstance(dataset, IterableDataset) else RecordingDataset(changed)

    def collate(self, collate_fn: Callable[[Any], Any]) -> Any:
        """Your collate function, for samples of ``dataset``. (`default_collate` takes them as they are.)"""
        return with_calls_apart(collate_fn) if self.split.on_batch else collate_fn

    def module(self, **settings: Any) -> Augment:
        """What is done to batches: ``images, labels = module((images, labels), calls)``."""
        if self.split.target == "dali":
            raise BadUsage("A swap to DALI makes a loader, not a module.", advice="Use swapped.loader(batch_size=256).")
        return Augment(operations=self.split.names, **settings)

    def loader(self, dataset: Any, **settings: Any) -> Any:
        """DALI's loader over the dataset's files."""
        listed = files_of(dataset)
        if self.split.target != "dali" or not self.split.on_batch or isinstance(listed, str):
            raise BadUsage(
                "Only a swap to DALI of a dataset that lists its files (samples) makes a loader by itself.",
                advice="Give files, transforms and labels to pipefix.augment.swap.dali_loader(files, transform, labels=labels).",
            )
        files, labels = listed
        return dali_loader(files, [part.source for part in self.split.on_batch], labels=labels, seed=self.seed, **settings)

    def notes(self) -> list[str]:
        """What else is worth knowing about it."""
        gpu = support.gpu_declined(self.split.target)
        notes = [f"{gpu[:1].upper()}{gpu[1:]}."] if gpu else []
        front = front_of(self.split.on_batch) if self.split.target == "dali" and self.split.on_batch else ""
        rest = [] if isinstance(front, str) else self.split.names[front.count :]
        if rest:
            after = "from there the module of --to kornia does it to its batches"
            notes.append(f"DALI decodes and does the list up to {rest[0]}; {after}.")
        return notes


def dali_loader(source: Any, transform: Any, **settings: Any) -> Any:
    """DALI's loader from files or encoded bytes to batches of a list of transforms; settings are `DaliLoader`'s."""
    support.check("dali")
    from pipefix.augment.dali import DaliLoader

    return DaliLoader(source, parts_of(transform), **settings)
