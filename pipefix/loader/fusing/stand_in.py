"""Runs the user's own `__getitem__` with a stand-in for the picture, to see what it does beside decoding and transforming.

A copy of the dataset gets a loader that reads nothing and transforms that do nothing. What its code returns then says which file it
wanted, where in the sample the picture lies, and all the rest of the sample (labels, names), made by the user's own code. Code that
does anything to the picture but hand it on touches the stand-in, and is found out.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NoReturn

from pipefix.hooks.torch_internals import collate_by, collate_table

Path = tuple[Any, ...]


def remembered(make: Callable[[], Any]) -> bool:
    """Whether any stand-in that was made meanwhile is still there afterwards, though nobody was given it to keep."""
    before = _stand_ins()
    make()
    return _stand_ins() > before


def _stand_ins() -> int:
    gc.collect()
    return sum(issubclass(type(known), PictureStandIn) for known in gc.get_objects())


class Touched(Exception):
    """The dataset's code looked into the picture. No AttributeError: `hasattr` would take that for an answer."""


class PictureStandIn:
    """A picture that is not there: its file's path, or what a cache holds of it."""

    __slots__ = ("kind", "what")

    def __init__(self, content: Any, kind: str = "file") -> None:
        self.what, self.kind = content, kind

    @property
    def __class__(self) -> Any:
        raise Touched("asks what the picture is")

    @__class__.setter
    def __class__(self, kind: Any) -> None:
        raise Touched("makes something else of the picture")

    def __getattr__(self, name: str) -> NoReturn:
        raise Touched(f"asks the picture for its {name}")

    def _touch(self, *_: Any) -> NoReturn:
        raise Touched("computes with the picture")

    __array__ = __len__ = __iter__ = __getitem__ = __add__ = __sub__ = __mul__ = __truediv__ = _touch
    __eq__ = __bool__ = __hash__ = _touch


class PicturePlace(PictureStandIn):
    """What the transforms will make of a picture: its place in the sample."""

    __slots__ = ()


class Transforms:
    """Stands in the place of the transforms."""

    def __call__(self, *args: Any, **named: Any) -> PicturePlace:
        if len(args) != 1 or named or type(args[0]) is not PictureStandIn:
            raise Touched("hands its transforms something else than the picture that was loaded")
        return PicturePlace(args[0].what, args[0].kind)

    def __getattr__(self, name: str) -> NoReturn:
        raise Touched(f"asks its transforms for their {name}")


def loaded(path: Any, *more: Any, **named: Any) -> PictureStandIn:
    """Stands in the place of a loader."""
    if more or named:
        raise Touched("loads pictures with more than a path")
    return PictureStandIn(path)


def chain_of(dataset: Any) -> list[Any]:
    """The dataset, the one that it wraps, and so on."""
    chain = [dataset]
    while len(chain) < 8 and (inner := getattr(chain[-1], "__dict__", {}).get("dataset")) is not None:
        chain.append(inner)
    return chain


def copied(dataset: Any) -> list[Any]:
    """The chain again, each a shallow copy that wraps the copy of the next."""
    chain = [copy.copy(link) for link in chain_of(dataset)]
    for outer, inner in pairwise(chain):
        vars(outer)["dataset"] = inner
    return chain


def paths(sample: Any) -> list[Path]:
    """Where the pictures of a sample lie: the keys that lead to each."""
    if type(sample) is PicturePlace:
        return [()]
    inner = sample.items() if isinstance(sample, dict) else enumerate(sample) if isinstance(sample, (tuple, list)) else ()
    return [(key, *path) for key, value in inner for path in paths(value)]


def collated(samples: list[Any], pictures: Any) -> Any:
    """The batch: what `default_collate` makes of the samples, with ``pictures`` where they have a `PicturePlace`."""

    def put(*_: Any, **__: Any) -> Any:
        return pictures

    assert collate_by is not None
    assert collate_table is not None
    return collate_by(samples, collate_fn_map={PicturePlace: put, **collate_table})
