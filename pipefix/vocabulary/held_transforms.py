"""Finds where a dataset, and those that it wraps, keep their transforms: by names of attributes, without running any code."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from pipefix.vocabulary.attributes import in_dict

_NAMES = re.compile(r"(^|_)(transforms?|tfms?|aug\w*|preprocess\w*|pipeline)(_|$)", re.IGNORECASE)
_OF_LABELS = re.compile(r"target", re.IGNORECASE)
_MOST = 64
"""Datasets within a dataset that are looked at for transforms."""


class HeldTransforms(NamedTuple):
    """One attribute that holds transforms of samples."""

    path: tuple[str, ...]
    """Attributes from the outermost dataset to the transforms: ("dataset", "transform") within a Subset."""
    owner: Any
    value: Any

    @property
    def name(self) -> str:
        return self.path[-1]


def names_transforms(name: str) -> bool:
    """Whether an attribute of this name holds transforms of samples (and not of labels)."""
    return _NAMES.search(name) is not None and _OF_LABELS.search(name) is None


def datasets_in(dataset: Any, *, most: int = _MOST) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A dataset and those that it is made of (Subset, ConcatDataset …), the outermost first, each with the way to it."""
    waiting: deque[tuple[tuple[str, ...], Any]] = deque([((), dataset)])
    visited: set[int] = set()
    while waiting and len(visited) < most:
        path, part = waiting.popleft()
        if id(part) in visited:
            continue
        visited.add(id(part))
        yield path, part
        held = in_dict(part)
        inner, several = held.get("dataset"), held.get("datasets")
        waiting += [] if inner is None else [((*path, "dataset"), inner)]
        if isinstance(several, (list, tuple)):
            waiting += [((*path, f"datasets[{place}]"), each) for place, each in enumerate(several) if each is not None]


def held_transforms(dataset: Any) -> list[HeldTransforms]:
    """The attributes that hold transforms, those of the outermost dataset first."""
    return [held for path, part in datasets_in(dataset) for held in _of(part, path)]


def _of(owner: Any, path: tuple[str, ...]) -> Iterator[HeldTransforms]:
    values = {name: value for name, value in in_dict(owner).items() if names_transforms(name) and callable(value)}
    values = {name: value for name, value in values.items() if not isinstance(value, type)}
    # A dataset of torchvision's holds the same list once more, with the transform of labels, or that one alone.
    both = values.get("transforms")
    if "transform" in values or (type(both).__name__ == "StandardTransform" and getattr(both, "transform", None) is None):
        values.pop("transforms", None)
    yield from (HeldTransforms((*path, name), owner, value) for name, value in values.items())
