"""Reads a list of transforms into operations. What cannot be read says why, and stays where it is."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from pipefix.augment import from_albumentations, from_torchvision
from pipefix.augment.operation import Op, Untranslatable


@dataclass(frozen=True)
class Read:
    """One transform of the user's, and what it does."""

    source: Any
    """The transform itself, unchanged."""
    ops: tuple[Op, ...]

    @property
    def name(self) -> str:
        return named(self.source)

    @property
    def untranslatable(self) -> Untranslatable | None:
        return next((op for op in _flat(self.ops) if isinstance(op, Untranslatable)), None)


@dataclass(frozen=True)
class Translation:
    """A whole list, in the user's order; lists within lists are taken apart."""

    reads: tuple[Read, ...]
    library: str
    """"torchvision" or "albumentations": how the list is called."""

    @property
    def ops(self) -> tuple[Op, ...]:
        return tuple(op for read in self.reads for op in read.ops)


def translate(transform: Any) -> Translation:
    """The operations of a transform, a list of them, or a whole composition."""
    library = "albumentations" if type(transform).__module__.startswith("albumentations.") else "torchvision"
    return Translation(tuple(_reads(transform)), library)


def _reads(transform: Any) -> Iterator[Read]:
    inner = _plain_list(transform)
    if inner is not None:
        for one in inner:
            yield from _reads(one)
    elif transform is not None:
        yield Read(transform, read(transform))


def _plain_list(transform: Any) -> Iterable[Any] | None:
    """The members of a composition that only calls one after the other."""
    if isinstance(transform, (list, tuple, nn.Sequential)):
        return transform
    if from_torchvision.is_compose(transform):
        return transform.transforms
    return from_albumentations.members(transform)


def read(transform: Any) -> tuple[Op, ...]:
    """The operations of one transform."""
    inner = _plain_list(transform)
    if inner is not None:
        return tuple(op for one in inner for op in read(one))
    home = type(transform).__module__
    if home.startswith("torchvision.transforms"):
        return from_torchvision.read(transform, read)
    if home.startswith("albumentations."):
        return from_albumentations.read(transform, read)
    return (Untranslatable(named(transform), _why_unknown(transform)),)


def _why_unknown(transform: Any) -> str:
    if isinstance(transform, (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)):
        return "a function cannot be looked into"
    if not callable(transform):
        return f"a {type(transform).__name__} is no transform: it cannot be called"
    return f"{type(transform).__module__}.{type(transform).__qualname__} is a class that pipefix does not know"


def named(transform: Any) -> str:
    """As a person would recognise it."""
    if isinstance(transform, functools.partial):
        return f"partial({named(transform.func)})"
    name = getattr(transform, "__name__", None)
    return str(name) if name else type(transform).__name__


def _flat(listed: Iterable[Op]) -> Iterator[Op]:
    for op in listed:
        yield op
        for inner in op.within:
            yield from _flat(inner)
