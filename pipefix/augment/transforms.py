"""Prepares a dataset's transforms for a swap: picks them, lists the single ones in order, makes new ones (v2) of old (v1)."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from os import PathLike
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.data import Subset
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from pipefix.augment.record import NotRecordable, RecordedCall, RecordedImage
from pipefix.vocabulary.held_transforms import HeldTransforms, held_transforms
from pipefix.vocabulary.random_state import seeded

_USUAL = ("transform", "transforms", "augmentation", "augmentations", "augment", "aug", "tfm", "tfms", "preprocess")
"""Of several attributes that hold transforms, the first of these names is meant."""
SIZES = ((600, 700), (700, 600), (812, 640))
"""Heights and widths of the pictures without pixels that a list is tried with, where those of the dataset are not known."""
TRIALS = 8
TO_TENSOR = ("ToTensor", "ToImage", "PILToTensor")
_FILES_LOOKED_AT = 100
"""Of what a dataset lists, to see that it lists files."""


# -- where they are ------------------------------------------------------------------------------------------------------------


def find(dataset: Any, named: str | None = None) -> HeldTransforms | None:
    """The transforms of a dataset, or else of the one that it wraps; the attribute that is ``named``.

    None where there are none, or several of which none has a usual name.
    """
    if named is not None:
        owner, value = None, dataset
        for name in named.split("."):
            owner, value = value, getattr(value, name, None)
        holds = callable(value) and not isinstance(value, type)
        return HeldTransforms(tuple(named.split(".")), owner, value) if holds else None
    held = [each for each in held_transforms(dataset) if set(each.path[:-1]) <= {"dataset"}]
    beside = {each.name: each for each in held if len(each.path) == len(held[0].path)}
    usual = next((name for name in _USUAL if name in beside), None)
    return beside[usual] if usual is not None else held[0] if len(beside) == 1 else None


def replaced(dataset: Any, path: tuple[str, ...], value: Any) -> Any:
    """A copy of the dataset with ``value`` for its transforms."""
    changed = copy.copy(dataset)
    if len(path) > 1:
        setattr(changed, path[0], replaced(getattr(dataset, path[0]), path[1:], value))
        return changed
    setattr(changed, path[0], value)
    if path[0] == "transform" and hasattr(vars(changed).get("transforms"), "transform"):
        changed.transforms = copy.copy(changed.transforms)
        changed.transforms.transform = value
    return changed


def files_of(dataset: Any) -> tuple[list[Any], list[int]] | str:
    """The files of a dataset that lists them, and their labels; else why there are none to be had."""
    if isinstance(dataset, Subset):
        whole = files_of(dataset.dataset)
        if isinstance(whole, str):
            return whole
        return [whole[0][index] for index in dataset.indices], [whole[1][index] for index in dataset.indices]
    pairs = getattr(dataset, "samples", None) or getattr(dataset, "imgs", None)
    if not isinstance(pairs, (list, tuple)) or not all(map(_is_file_and_label, pairs[:_FILES_LOOKED_AT])):
        return "the dataset does not list its files: samples (or imgs), pairs of a path and a number, as ImageFolder has them"
    if getattr(dataset, "target_transform", None) is not None:
        return "the dataset changes its labels (target_transform)"
    return [pair[0] for pair in pairs], [int(pair[1]) for pair in pairs]


def _is_file_and_label(pair: Any) -> bool:
    is_pair = isinstance(pair, (list, tuple)) and len(pair) == 2
    return is_pair and isinstance(pair[0], (str, PathLike)) and isinstance(pair[1], Integral)


# -- in which order they are called ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ListedTransform:
    """One transform of the user's list."""

    source: Any
    """As it is."""
    recorded: Any | None
    """What is called with a picture without pixels to record what ``source`` does; None where that cannot be."""
    why_not: str = ""
    compared: bool = False
    """Whether it must be seen to do the same as ``source`` first: it was converted, or is a class of the user's own."""

    @property
    def name(self) -> str:
        return named(self.source)


def parts_of(transform: Any) -> list[ListedTransform]:
    """The members of a composition, one after the other; lists within lists are taken apart."""
    return [] if transform is None else [_part(source) for source in _flat(transform)]


def _flat(transform: Any) -> Iterator[Any]:
    if isinstance(transform, (list, tuple, nn.Sequential)) or type(transform) in (v1.Compose, v2.Compose):
        for inner in transform.transforms if hasattr(transform, "transforms") else transform:
            yield from _flat(inner)
    else:
        yield transform


def named(transform: Any) -> str:
    """As a person would recognise it."""
    if isinstance(transform, functools.partial):
        return f"partial({named(transform.func)})"
    name = getattr(transform, "__name__", None)
    return str(name) if name else type(transform).__name__


def _part(source: Any) -> ListedTransform:
    try:
        recorded = as_v2(source)
    except NotRecordable as why:
        return ListedTransform(source, None, str(why))
    converted = recorded is not source and not isinstance(recorded, _ToTensor)
    return ListedTransform(source, recorded, compared=converted or not _torchvisions(source))


def _torchvisions(transform: Any) -> bool:
    inner = getattr(transform, "transforms", None)
    return type(transform).__module__.startswith("torchvision.") and (
        not isinstance(inner, (list, tuple, nn.ModuleList)) or all(map(_torchvisions, inner))
    )


def possible_calls(transform: Any, like: RecordedImage) -> Iterator[list[RecordedCall]]:
    """What this transform, or each one within it, does to such a picture for sure: of a small chance a few trials see nothing."""
    chance, inner = getattr(transform, "p", None), getattr(transform, "transforms", None)
    if chance == 0:
        return
    if isinstance(inner, (list, tuple, nn.ModuleList)):
        for member in inner:
            yield from possible_calls(member, like)
        return
    certain, image = copy.copy(transform), RecordedImage.of(tuple(like.shape), like.dtype, from_pil=like.from_pil)
    if isinstance(chance, float):
        vars(certain)["p"] = 1.0
    try:
        with seeded(0):
            certain(image)
    except NotRecordable:
        raise
    except Exception:  # noqa: BLE001 - what comes before it in its list may be needed
        return
    yield image.calls


# -- old as new ------------------------------------------------------------------------------------------------------------------


class _ToTensor(v2.Transform):  # type: ignore[misc]
    """The step to a tensor; `ToTensor`'s is one to floating point too, for bytes that were none before."""

    _transformed_types = (RecordedImage,)

    def __init__(self, *, to_float: bool) -> None:
        super().__init__()
        self._to_float = to_float

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        scales = self._to_float and inpt.from_pil and inpt.dtype == torch.uint8
        image = tv.to_dtype(inpt, torch.float32, scale=True) if scales else inpt
        image.from_pil = False
        return image


def as_v2(transform: Any) -> Any:
    """The transform itself where it is one of v2's or derived from them; an old one as the new one of its name and settings."""
    name, home = type(transform).__name__, type(transform).__module__
    if name in TO_TENSOR and _torchvisions(transform):
        return _ToTensor(to_float=name == "ToTensor")
    if name == "ToPILImage" and _torchvisions(transform):
        raise NotRecordable("it makes pictures of PIL, which exist on the CPU only")
    if isinstance(transform, (v1.Lambda, v2.Lambda, FunctionType, MethodType, BuiltinFunctionType, functools.partial)):
        raise NotRecordable("a function cannot be looked into")
    if isinstance(transform, v2.Transform):
        return _with_new_members(transform)
    kind = getattr(v2, name, None)
    if home.startswith("torchvision.transforms._presets"):
        raise NotRecordable("a preset of torchvision's models; write its parts as a list")
    if home.startswith("torchvision.transforms.") and kind is not None:
        return _converted(transform, kind)
    if not callable(transform):
        raise NotRecordable(f"a {name} is no transform: it cannot be called")
    raise NotRecordable(f"{home}.{type(transform).__qualname__} is not derived from torchvision.transforms.v2.Transform")


def _with_new_members(transform: Any) -> Any:
    """A container of v2 may hold old transforms."""
    inner = getattr(transform, "transforms", None)
    if not isinstance(inner, (list, tuple, nn.ModuleList)):
        return _set_by_type(transform)
    new = [as_v2(member) for member in inner]
    if all(member is old for member, old in zip(new, inner, strict=True)):
        return transform
    changed = copy.copy(transform)
    changed.__dict__ = {**transform.__dict__, "_modules": dict(transform._modules)}
    changed.transforms = nn.ModuleList(new) if isinstance(inner, nn.ModuleList) else new
    return changed


def _set_by_type(transform: Any) -> Any:
    """Settings for each type of input (``dtype`` of `ToDtype`, ``fill``): a picture without pixels has those of an image."""
    by_type = {name: held for name, held in vars(transform).items() if isinstance(held, dict) and any(map(inspect.isclass, held))}
    if not by_type:
        return transform
    changed = copy.copy(transform)
    for name, held in by_type.items():
        vars(changed)[name] = {**held, RecordedImage: held.get(tv_tensors.Image, held.get("others"))}
    return changed


def _converted(transform: Any, kind: Any) -> Any:
    """An old transform keeps its settings under the names that the new one takes them by."""
    arguments = {name: getattr(transform, name) for name in inspect.signature(kind).parameters if hasattr(transform, name)}
    if "transforms" in arguments:
        arguments["transforms"] = [as_v2(member) for member in arguments["transforms"]]
    try:
        return kind(**arguments)
    except (TypeError, ValueError) as error:
        raise NotRecordable(f"torchvision's new {kind.__name__} does not take its settings: {error}") from error
