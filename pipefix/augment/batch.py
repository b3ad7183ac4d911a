"""What a loader's batch holds: the pictures, and the boxes, points and masks that must follow them. Anything else is passed on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.functional import one_hot
from torchvision import tv_tensors

from pipefix.hooks.torch_internals import SequenceKey, tree_flatten_with_path, tree_unflatten

FOLLOWERS = tuple(getattr(tv_tensors, name) for name in ("BoundingBoxes", "KeyPoints", "Mask") if hasattr(tv_tensors, name))
"""KeyPoints are newer than the rest."""


@dataclass
class ImageBatch:
    """A batch taken apart. ``whole()`` puts it together again."""

    leaves: list[Any]
    spec: Any
    pictures: list[int]
    """Where the pictures are among the leaves: one tensor of all, or one of each."""
    followers: list[tuple[int, int | None]] = field(default_factory=list)
    """Where what follows them is, and to which sample it belongs; None where it holds all samples."""
    labels: int | None = None

    @classmethod
    def of(cls, given: Any) -> ImageBatch:
        paths, spec = tree_flatten_with_path(given)
        leaves = [leaf for _, leaf in paths]
        numbers = [[key.idx for key in path if isinstance(key, SequenceKey)] for path, _ in paths]
        pictures = _pictures(leaves, numbers)
        depth = _depth(pictures, numbers)
        followers = []
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, FOLLOWERS):
                own = numbers[place]
                followers.append((place, own[depth] if len(own) > depth else None))
        return cls(leaves, spec, pictures, followers, _labels(paths, pictures, leaves))

    @property
    def images(self) -> Any:
        """A tensor (samples, channels, height, width), or a list of (channels, height, width)."""
        found = [self.leaves[place] for place in self.pictures]
        if len(found) == 1 and found[0].ndim == 4:
            return found[0].as_subclass(torch.Tensor)
        return [one.as_subclass(torch.Tensor) for one in found]

    @images.setter
    def images(self, new: Any) -> None:
        if len(self.pictures) == 1 and self.leaves[self.pictures[0]].ndim == 4:
            if isinstance(new, list):
                raise ValueError(
                    "The augmented pictures differ in size, so they make no batch: end the list with a crop or one size."
                )
            self.leaves[self.pictures[0]] = _like(self.leaves[self.pictures[0]], new)
            return
        for place, one in zip(self.pictures, new, strict=True):
            self.leaves[place] = _like(self.leaves[place], one)

    def whole(self) -> Any:
        return tree_unflatten(self.leaves, self.spec)


def _like(old: Any, new: torch.Tensor) -> Any:
    return tv_tensors.wrap(new, like=old) if isinstance(old, tv_tensors.TVTensor) else new


def _pictures(leaves: list[Any], numbers: list[list[int]]) -> list[int]:
    """Tensors marked as images; without any, the first tensor, and its like beside it where it is one picture of a list."""
    marked = [place for place, leaf in enumerate(leaves) if isinstance(leaf, tv_tensors.Image)]
    if marked:
        return marked
    plain = [place for place, leaf in enumerate(leaves) if type(leaf) is torch.Tensor]
    if plain and leaves[plain[0]].ndim == 4:
        return plain[:1]
    if plain and leaves[plain[0]].ndim == 3 and numbers[plain[0]]:
        above = len(numbers[plain[0]]) - 1
        return [
            place for place in plain
            if leaves[place].ndim == 3 and len(numbers[place]) == above + 1 and numbers[place][:above] == numbers[plain[0]][:above]
        ]  # fmt: skip
    found = f"a tensor of shape {tuple(leaves[plain[0]].shape)}" if plain else "no tensor"
    raise ValueError(
        f"A batch of pictures is a tensor (samples, channels, height, width) or a list of pictures; this one begins with {found}."
    )


def _depth(pictures: list[int], numbers: list[list[int]]) -> int:
    """At which sequence of the batch its samples are told apart."""
    first, last = numbers[pictures[0]], numbers[pictures[-1]]
    if len(pictures) == 1:
        return 1
    return next(depth for depth, (one, other) in enumerate(zip(first, last, strict=True)) if one != other)


def _labels(paths: list[Any], pictures: list[int], leaves: list[Any]) -> int | None:
    """Class labels of the samples: under a key that says so, or else the first plain tensor with as many rows as pictures."""
    count = len(leaves[pictures[0]]) if len(pictures) == 1 else len(pictures)
    fitting = [
        (place, path)
        for place, (path, leaf) in enumerate(paths)
        if place not in pictures and type(leaf) is torch.Tensor and leaf.ndim in (1, 2) and len(leaf) == count
    ]
    named = [place for place, path in fitting if any("label" in str(getattr(key, "key", "")).lower() for key in path)]
    return next(iter(named or [place for place, _ in fitting]), None)


def mixed_labels(labels: torch.Tensor, share: float, num_classes: int | None) -> torch.Tensor:
    """Each label beside that of its predecessor in the batch, as its picture is."""
    if labels.ndim == 1:
        if num_classes is None:
            raise ValueError("Labels given as numbers are mixed only where num_classes is known; give it to MixUp or CutMix.")
        labels = one_hot(labels, num_classes=num_classes)
    labels = labels if labels.is_floating_point() else labels.float()
    return labels.roll(1, 0) * (1 - share) + labels * share
