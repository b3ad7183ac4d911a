"""albumentations' transforms as operations, where the targets compute as they do. Its resizing has no antialiasing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from pipefix.augment import ops
from pipefix.augment.operation import NotTranslatable, Op, Untranslatable

Reader: TypeAlias = "Callable[[Any], tuple[Op, ...]]"

_MODES = {0: "nearest", 1: "bilinear", 2: "bicubic"}
"""OpenCV's numbers."""


def members(transform: Any) -> Iterable[Any] | None:
    """What a composition calls one after the other, always."""
    if not type(transform).__module__.startswith("albumentations."):
        return None
    if type(transform).__name__ not in ("Compose", "Sequential") or transform.p < 1:
        return None
    found: Iterable[Any] = transform.transforms
    return found


def read(transform: Any, inner: Reader) -> tuple[Op, ...]:
    name = type(transform).__name__
    if name in ("OneOf", "Compose", "Sequential", "RandomOrder"):
        return _container(transform, name, inner)
    reader = READERS.get(name)
    if reader is None:
        return (Untranslatable(name, f"the targets have nothing that computes as albumentations' {name} does"),)
    try:
        found = reader(transform)
    except NotTranslatable as why:
        return (Untranslatable(name, str(why)),)
    own_p = name in _OWN_P
    return found if own_p or transform.p >= 1 else (ops.Apply(found, float(transform.p)),)


def _container(t: Any, name: str, inner: Reader) -> tuple[Op, ...]:
    if name == "RandomOrder" and not (t.n == len(t.transforms) and not t.replace):
        return (Untranslatable(name, "it takes some of its transforms only"),)
    if name == "OneOf":
        # The chosen one is applied whatever its own probability, which is only its weight.
        total = sum(one.p for one in t.transforms)
        lists = tuple(_certain(inner(one)) for one in t.transforms)
        found: tuple[Op, ...] = (ops.Choice(lists, tuple(one.p / total for one in t.transforms)),)
    elif name == "RandomOrder":
        found = (ops.Order(tuple(inner(one) for one in t.transforms)),)
    else:
        found = tuple(op for one in t.transforms for op in inner(one))
    return found if t.p >= 1 else (ops.Apply(found, float(t.p)),)


def _certain(listed: tuple[Op, ...]) -> tuple[Op, ...]:
    sure: dict[str, Any] = {"p": 1.0}
    found: list[Op] = []
    for op in listed:
        if isinstance(op, ops.Apply):
            found += op.ops
        else:
            found.append(replace(op, **sure) if hasattr(op, "p") and not isinstance(op, ops.Choice) else op)
    return tuple(found)


def _mode(t: Any) -> str:
    if getattr(t, "area_for_downscale", None):
        raise NotTranslatable("it shrinks by area, which the targets do not")
    if t.interpolation not in _MODES:
        raise NotTranslatable(f"OpenCV's interpolation {t.interpolation} is not one of the targets'")
    return _MODES[t.interpolation]


def _resample(t: Any) -> dict[str, Any]:
    return {"interpolation": _mode(t), "antialias": False}


def _crop(t: Any) -> tuple[Op, ...]:
    if t.pad_if_needed:
        raise NotTranslatable("it pads to one side or the other as it needs")
    return (ops.RandomCrop((t.height, t.width)),)


def _center(t: Any) -> tuple[Op, ...]:
    if t.pad_if_needed:
        raise NotTranslatable("it pads to one side or the other as it needs")
    return (ops.CenterCrop((t.height, t.width)),)


def _normalize(t: Any) -> tuple[Op, ...]:
    if t.normalization != "standard" or t.max_pixel_value != 255:
        raise NotTranslatable(f"it normalises by {t.normalization} and {t.max_pixel_value}, not by given means of bytes")
    return (ops.ToDtype("float32", True), ops.Normalize(tuple(map(float, t.mean)), tuple(map(float, t.std))))


def _gray(t: Any) -> tuple[Op, ...]:
    if t.method != "weighted_average":
        raise NotTranslatable(f"the targets have no grey by {t.method}")
    return (ops.Grayscale(None if t.num_output_channels == 3 else 1, float(t.p)),)


def _posterize(t: Any) -> tuple[Op, ...]:
    low, high = t.num_bits if isinstance(t.num_bits, tuple) else (t.num_bits, t.num_bits)
    if low != high or not isinstance(low, int):
        raise NotTranslatable("it draws the number of bits")
    return (ops.Posterize(low, float(t.p)),)


def _solarize(t: Any) -> tuple[Op, ...]:
    low, high = t.threshold_range
    if low != high:
        raise NotTranslatable("it draws its threshold")
    return (ops.Solarize(float(low) * 255, float(t.p)),)


def _gamma(t: Any) -> tuple[Op, ...]:
    return (ops.Gamma((t.gamma_limit[0] / 100, t.gamma_limit[1] / 100), float(t.p)),)


def _jitter(t: Any) -> tuple[Op, ...]:
    return (ops.ColorJitter(t.brightness, t.contrast, t.saturation, t.hue),)


READERS: dict[str, Callable[[Any], tuple[Op, ...]]] = {
    "NoOp": lambda t: (ops.Identity(),),
    "ToTensorV2": lambda t: (ops.ToTensor(),),
    "Normalize": _normalize,
    "HorizontalFlip": lambda t: (ops.HorizontalFlip(float(t.p)),),
    "VerticalFlip": lambda t: (ops.VerticalFlip(float(t.p)),),
    "Resize": lambda t: (ops.Resize((t.height, t.width), **_resample(t)),),
    "RandomCrop": _crop,
    "CenterCrop": _center,
    "RandomResizedCrop": lambda t: (ops.RandomResizedCrop(tuple(t.size), tuple(t.scale), tuple(t.ratio), **_resample(t)),),
    "ColorJitter": _jitter,
    "ToGray": _gray,
    "InvertImg": lambda t: (ops.Invert(float(t.p)),),
    "Posterize": _posterize,
    "Solarize": _solarize,
    "RandomGamma": _gamma,
    "ChannelShuffle": lambda t: (ops.ChannelPermutation(),),
}
"""Transforms that are read."""
_OWN_P = frozenset(("HorizontalFlip", "VerticalFlip", "ToGray", "InvertImg", "Posterize", "Solarize", "RandomGamma"))
"""Those whose operation has a probability of its own."""
