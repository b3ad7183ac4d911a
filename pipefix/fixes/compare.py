"""Two samples held against each other: where they differ, and by how much. Pure."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

_DEEPEST = 12


@dataclass(frozen=True)
class SampleDifference:
    """One place of a sample where the two are not equal."""

    what: str
    mean: float | None = None
    """How far values lie apart on average; None where that cannot be told, such as for another shape."""
    scale: float = 0.0
    """Their range."""


def differences(one: Any, other: Any, way: str = "the sample", depth: int = 0) -> Iterator[SampleDifference]:
    """Every place where two samples differ; none where they are equal to the last bit."""
    one, other = _plain(one), _plain(other)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        yield from _arrays(one, other, way)
    elif type(one) is not type(other):
        yield SampleDifference(f"{way} is a {type(other).__name__} instead of a {type(one).__name__}")
    elif isinstance(one, dict) and depth < _DEEPEST:
        if one.keys() != other.keys():
            yield SampleDifference(f"{way} has other keys")
            return
        for key, value in one.items():
            yield from differences(value, other[key], f"{way}[{key!r}]", depth + 1)
    elif isinstance(one, (list, tuple)) and depth < _DEEPEST:
        if len(one) != len(other):
            yield SampleDifference(f"{way} has {len(other)} parts instead of {len(one)}")
            return
        for place, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from differences(first, second, f"{way}[{place}]", depth + 1)
    elif not _equal(one, other):
        yield SampleDifference(f"{way} is {_short(other)} instead of {_short(one)}")


def _plain(value: Any) -> Any:
    """Tensors and pictures as arrays; a tensor that is none, and a picture in colours of its own, as what it is made of."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.is_nested:
            return [_plain(one) for one in value.unbind()]
        if value.layout is not torch.strided:
            return {"layout": str(value.layout), "dense": _plain(value.to_dense())}
        return value.cpu().numpy() if value.dtype is not torch.bfloat16 else value.cpu().float().numpy()
    if isinstance(value, Image.Image):
        return {"mode": value.mode, "palette": value.getpalette("RGBA") if value.mode == "P" else None, "pixels": np.asarray(value)}
    return value


def _arrays(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], way: str) -> Iterator[SampleDifference]:
    if one.shape != other.shape or one.dtype != other.dtype:
        yield SampleDifference(f"{way} is {other.dtype} {_shape(other)} instead of {one.dtype} {_shape(one)}")
    elif one.tobytes() != other.tobytes():
        if one.dtype.kind not in "biuf":
            yield SampleDifference(f"{way} holds other values")
            return
        same = one == other  # zeros of another sign too
        if one.dtype.kind == "f":
            same |= np.isnan(one) & np.isnan(other)
        if same.all():
            return
        first, second = one.astype(np.float64), other.astype(np.float64)
        with np.errstate(invalid="ignore"):
            apart = np.abs(first - second)
        apart = apart[np.isfinite(apart)]
        yield SampleDifference(f"{way} holds other values", float(apart.mean()) if apart.size else None, float(np.ptp(first)))


def _shape(array: np.ndarray[Any, Any]) -> str:
    return "x".join(map(str, array.shape)) or "of one value"


def _equal(one: Any, other: Any) -> bool:
    try:
        if bool(one == other) or bool(one != one and other != other):
            return True
    except Exception:  # noqa: BLE001 - the user's own __eq__
        return _pickled(one) == _pickled(other)
    return _pickled(one) is not None and _pickled(one) == _pickled(other)


def _pickled(value: Any) -> bytes | None:
    try:
        return pickle.dumps(value)
    except Exception:  # noqa: BLE001 - whatever a sample holds
        return None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def fingerprint(sample: Any) -> str:
    """Equal samples have equal ones."""
    told = hashlib.blake2b(digest_size=16)

    def walk(value: Any, depth: int) -> None:
        value = _plain(value)
        told.update(type(value).__name__.encode())
        if isinstance(value, np.ndarray):
            told.update(
                f"{value.dtype}{value.shape}".encode() + (value.tobytes() if value.dtype.kind != "O" else repr(value).encode())
            )
        elif isinstance(value, dict) and depth < _DEEPEST:
            for key, inner in value.items():
                told.update(repr(key).encode())
                walk(inner, depth + 1)
        elif isinstance(value, (list, tuple)) and depth < _DEEPEST:
            for inner in value:
                walk(inner, depth + 1)
        else:
            told.update(repr(value).encode())

    walk(sample, 0)
    return told.hexdigest()
