"""A list of transforms swapped: the part that stays in the dataset, and the module that does the rest to whole batches."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from numbers import Integral
from os import PathLike
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset
from torchvision.datasets import folder
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from pipefix.augment import encoded, ops, support
from pipefix.augment.augment import Augment
from pipefix.augment.encoded import Encoded
from pipefix.augment.single import SINGLE
from pipefix.augment.split import Split
from pipefix.augment.steps import Frame, programs_of
from pipefix.augment.stream import Stream, keys_of
from pipefix.augment.translate import Read
from pipefix.vocabulary.errors import BadUsage

_NAMES = ("transform", "transforms", "augmentation", "augmentations", "augment", "aug", "tfm", "tfms", "preprocess")
FILES_LOOKED_AT = 100
"""Of what a dataset lists, to see that it lists files."""
_INDEX: ContextVar[int | None] = ContextVar("index", default=None)
"""Which sample is being made, for the part of the list that stays in the dataset."""


@dataclass(frozen=True)
class FoundTransforms:
    """Where a dataset keeps its transforms."""

    path: tuple[str, ...]
    """Attributes from the dataset to the transform, such as ("dataset", "transform") within a Subset."""
    transform: Any


def find(dataset: Any, named: str | None = None) -> FoundTransforms | None:
    """The transforms of a dataset, or of the one that it wraps: under a usual name, or the attribute that is ``named``."""
    if named is not None:
        return _named(dataset, tuple(named.split(".")))
    path: tuple[str, ...] = ()
    owner = dataset
    for _ in range(8):
        for name in _NAMES:
            value = getattr(owner, name, None)
            if value is not None and callable(value) and not isinstance(value, type) and name in vars(owner):
                # A torchvision dataset wraps what it was given as transform= once more.
                if name == "transforms" and getattr(owner, "transform", None) is not None:
                    continue
                return FoundTransforms((*path, name), value)
        inner = getattr(owner, "dataset", None)
        if inner is None:
            return None
        owner, path = inner, (*path, "dataset")
    return None


def files_of(dataset: Any) -> tuple[list[Any], list[int]] | str:
    """The files of a dataset that lists them, and their labels; else why there are none to be had."""
    if isinstance(dataset, Subset):
        whole = files_of(dataset.dataset)
        if isinstance(whole, str):
            return whole
        files, labels = whole
        return [files[one] for one in dataset.indices], [labels[one] for one in dataset.indices]
    pairs = getattr(dataset, "samples", None) or getattr(dataset, "imgs", None)
    if not isinstance(pairs, (list, tuple)) or not all(map(_is_file_and_label, pairs[:FILES_LOOKED_AT])):
        return "the dataset does not list its files: samples (or imgs), pairs of a path and a number, as ImageFolder has them"
    if getattr(dataset, "target_transform", None) is not None:
        return "the dataset changes its labels (target_transform)"
    return [one[0] for one in pairs], [int(one[1]) for one in pairs]


def _is_file_and_label(one: Any) -> bool:
    return isinstance(one, (list, tuple)) and len(one) == 2 and isinstance(one[0], (str, PathLike)) and isinstance(one[1], Integral)


def _named(dataset: Any, path: tuple[str, ...]) -> FoundTransforms | None:
    value = dataset
    for name in path:
        value = getattr(value, name, None)
    return FoundTransforms(path, value) if callable(value) and not isinstance(value, type) else None


class Front:
    """What stays in the dataset: the user's own list up to the cut, each sample with numbers that belong to its index.

    Operations that can be read are run by the very functions that the user's transforms call, on the picture as the dataset gives
    it. What cannot be read is called as it is.
    """

    def __init__(self, reads: Sequence[Read], *, to_tensor: bool, seed: int, tensors: bool = False) -> None:
        self.reads, self.to_tensor, self.tensors, self.seed = tuple(reads), to_tensor, tensors, seed
        self.epoch = torch.full((1,), -1, dtype=torch.int64).share_memory_()
        """-1 until somebody tells it: every sample is then drawn anew from PyTorch's generator, as transforms do."""

    def __call__(self, *sample: Any, **named: Any) -> Any:
        if named:
            return self._of_arrays(named)
        if len(sample) > 1:
            whole = sample
            for read in self.reads:
                whole = read.source(*whole)
            return v2.PILToTensor()(whole) if self.to_tensor else whole
        return self._picture(sample[0])

    def _picture(self, picture: Any) -> Any:
        index = _INDEX.get()
        place = 0
        if isinstance(picture, Encoded) and (index is None or not self.reads):
            picture = picture.whole()
        if self.tensors and isinstance(picture, Image.Image):
            picture = tv.pil_to_tensor(picture)
        for read in self.reads:
            if index is None or read.untranslatable is not None or not _is_picture(picture):
                picture = read.source(picture)
            else:
                picture = self._keyed(picture, read, index, place)
            place += len(read.ops)
        if isinstance(picture, Encoded):
            picture = picture.whole()
        return tv.pil_to_tensor(picture) if self.to_tensor and isinstance(picture, Image.Image) else picture

    def _keyed(self, picture: Any, read: Read, index: int, place: int) -> Any:
        epoch = int(self.epoch)
        seed = int(torch.randint(2**62, ())) if epoch < 0 else self.seed
        stream = Stream(keys_of(seed, epoch, np.asarray([index])))
        size = (3, picture.height, picture.width) if isinstance(picture, Encoded) else tv.get_dimensions(picture)
        frame = Frame.of([size])
        for offset, op in enumerate(read.ops):
            for step in op.draw(stream.fork(place + offset), frame):
                for one, position in programs_of([step], 1)[0]:
                    picture = _applied(one.name, picture, one.scalars(position))
        return picture

    def _of_arrays(self, named: dict[str, Any]) -> dict[str, Any]:
        """albumentations' way: arrays by name, the picture under ``image``."""
        for read in self.reads:
            named = read.source(**named)
        if self.to_tensor and isinstance(named.get("image"), np.ndarray):
            array = named["image"]
            named["image"] = torch.from_numpy(np.ascontiguousarray(array if array.ndim == 3 else array[:, :, None])).permute(
                2, 0, 1
            )
        return named


def _applied(name: str, picture: Any, values: dict[str, Any]) -> Any:
    if isinstance(picture, Encoded):
        begun = picture.begun(name, values)
        if begun is not None:
            return begun
        picture = picture.whole()
    return SINGLE[name](picture, **values)


def _is_picture(value: Any) -> bool:
    return isinstance(value, (Image.Image, torch.Tensor, Encoded))


class Keyed(Dataset[Any]):
    """The dataset as it was, telling its transforms which sample they are for; with ``index`` each sample comes with its own."""

    def __init__(self, dataset: Any, front: Front, *, index: bool = False) -> None:
        self.dataset, self.front, self.index = dataset, front, index

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, item: int) -> Any:
        token = _INDEX.set(int(item))
        try:
            sample = self.dataset[item]
        finally:
            _INDEX.reset(token)
        return (sample, item) if self.index else sample

    def __getitems__(self, items: list[int]) -> list[Any]:
        """One by one: a dataset that reads whole batches itself (`Subset` does) would not be told which sample is being made."""
        return [self[item] for item in items]

    def __getattr__(self, name: str) -> Any:
        if name in ("dataset", "front", "index"):
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def set_epoch(self, epoch: int) -> None:
        """Tell it at the beginning of each epoch; worker processes that live on hear it too."""
        self.front.epoch.fill_(epoch)


@dataclass(frozen=True)
class Swap:
    """The swap of one list. ``dataset`` and ``module`` are its two halves."""

    split: Split
    place: FoundTransforms | None
    seed: int = 0

    @property
    def target(self) -> str:
        return self.split.target

    def front(self) -> Front:
        """The part that stays in the dataset."""
        to_tensor = self.split.needs_tensor and bool(self.split.moves)
        return Front(
            self.split.stays, to_tensor=to_tensor, seed=self.seed, tensors=self.target == "tensor" and _readable(self.split)
        )

    def dataset(self, dataset: Any, *, index: bool = False) -> Any:
        """A copy of the dataset whose transforms are the part that stays; yours is left as it was."""
        if self.place is None:
            raise BadUsage(
                "The dataset's transforms were not found.", advice="Set the dataset's transform to swap.front() by yourself."
            )
        front = self.front()
        changed = replaced(dataset, self.place.path, front, tensors=self.target == "tensor" and _readable(self.split))
        if isinstance(dataset, IterableDataset):
            return changed
        return Keyed(changed, front, index=index)

    @property
    def library(self) -> str:
        """Whose transforms they are."""
        home = type(self.place.transform).__module__ if self.place is not None else ""
        return "albumentations" if home.startswith("albumentations.") else "torchvision"

    def notes(self) -> list[str]:
        """What else is worth knowing about it."""
        found = []
        gpu = support.gpu_declined(self.target)
        if gpu and self.target != "tensor":
            found.append(f"{gpu[:1].upper()}{gpu[1:]}.")
        if self.target == "dali" and self.split.moves:
            from pipefix.augment.dali_plan import plan

            made = plan(self.split.ops)
            if made.rest:
                names = ", ".join(type(op).__name__ for op in made.rest)
                found.append(f"DALI does the list up to {names}; that is done by Kornia's module to its batches: {made.why}.")
        return found

    def loader(self, dataset: Any, **settings: Any) -> Any:
        """DALI's loader over the dataset's files."""
        found = files_of(dataset)
        if self.target != "dali" or not self.split.moves or isinstance(found, str):
            raise BadUsage(
                "Only a swap to DALI of a dataset that lists its files (samples) makes a loader by itself.",
                advice="Give files and labels to pipefix.augment.swap.dali_loader(files, swap.split.ops, labels=labels).",
            )
        files, labels = found
        return dali_loader(files, self.split.ops, labels=labels, seed=self.seed, **settings)

    def module(self, **settings: Any) -> Augment:
        """What is done to batches: ``images, labels = module((images, labels))``. ``.to(device)`` is not needed."""
        if self.target == "dali":
            raise BadUsage("A swap to DALI makes a loader, not a module.", advice="Use swapped.loader(batch_size=256).")
        # Places of operations go on where those that stay left off, so that each has numbers of its own.
        kept = sum(len(read.ops) for read in self.split.stays)
        return build(self.target, self.split.ops, seed=self.seed, first=kept, **settings)


def build(target: str, listed: Sequence[ops.Op], **settings: Any) -> Augment:
    """The module of a target for a list of operations."""
    support.check(target)
    if target == "tensor":
        from pipefix.augment import tensor

        return tensor.augmentation(listed, **settings)
    from pipefix.augment import kornia

    return kornia.augmentation(listed, **settings)


def dali_loader(source: Any, listed: Sequence[ops.Op], *, seed: int = 0, **settings: Any) -> Any:
    """DALI's loader from files or encoded bytes to batches; what DALI does not compute is done to them by Kornia's module."""
    support.check("dali")
    from pipefix.augment.dali_plan import loader, plan

    made = plan(listed)
    rest = build("kornia", made.rest, seed=seed, first=len(made.listed)) if made.rest else None
    return loader(source, listed, seed=seed, rest=rest, **settings)


def _readable(split: Split) -> bool:
    """Whether all that stays can be done to tensors as well as to pictures."""
    return all(read.untranslatable is None for read in split.stays)


def replaced(dataset: Any, path: tuple[str, ...], value: Any, *, tensors: bool = False) -> Any:
    """A copy of the dataset with ``value`` for its transforms; with ``tensors`` its files are read as tensors where that can be."""
    changed = copy.copy(dataset)
    if len(path) > 1:
        setattr(changed, path[0], replaced(getattr(dataset, path[0]), path[1:], value, tensors=tensors))
        return changed
    setattr(changed, path[0], value)
    wrapper = vars(changed).get("transforms")
    if path[0] == "transform" and wrapper is not None and hasattr(wrapper, "transform"):
        wrapper = copy.copy(wrapper)
        wrapper.transform = value
        changed.transforms = wrapper
    opens = vars(changed).get("loader")
    if tensors and (opens is folder.default_loader or opens is folder.pil_loader):
        as_usual = type(changed).__getitem__ is folder.DatasetFolder.__getitem__
        changed.loader = encoded.opened if as_usual else encoded.decoded
    return changed
