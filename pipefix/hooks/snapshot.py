"""Copies of recorded values that the user's code may change without harming the recording; and the bytes that a value holds.

Common types are copied by hand, fast. Libraries are only looked at where they are loaded: before that, no value is of their types.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import io
import mmap
import os
import pathlib
import sys
import types
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from pipefix.vocabulary.attributes import has_any

Copier = Callable[[Any], Any]
Sizer = Callable[[Any], int]
Kind = tuple[str, str, Copier, Sizer]
"""Module, class in it, how one is copied, and how many bytes it holds."""


class NotCopyable(Exception):
    """This value cannot be kept. The text says why, for the report."""


_AS_THEY_ARE: set[type] = {
    type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis), type(NotImplemented),
    decimal.Decimal, fractions.Fraction, datetime.datetime, datetime.date, datetime.time, datetime.timedelta, uuid.UUID,
    os.stat_result, pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath,
    types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type,
}  # fmt: skip
"""Nothing that the user does to these can be seen from outside."""
_NEVER = (io.IOBase, mmap.mmap, types.GeneratorType, types.CoroutineType, types.FrameType)
_HANDLES = ("_thread", "threading", "socket", "ssl", "select", "subprocess", "lmdb", "sqlite3", "_sqlite3")
"""Libraries whose objects are handles, too."""
_OBJECT_OVERHEAD = 64
"""What an object without a known size is taken to hold, in bytes."""


def snapshot(value: Any) -> Any:
    """A copy that shares nothing changeable with ``value``; raises `NotCopyable`."""
    return value if type(value) in _AS_THEY_ARE else _tried(_copier, value, "cannot be copied")


def is_unchangeable(value: Any) -> bool:
    """Whether ``value`` is of a kind that is shared, and not copied."""
    return type(value) in _AS_THEY_ARE


def nbytes(value: Any) -> int:
    """How many bytes ``value`` holds, its parts included; nearly right for containers, exact for arrays, tensors and strings.
    Raises `NotCopyable` of what has no end, or does not tell."""
    return int(_tried(_sizer, value, "does not tell its size"))


def _tried(work_of: Callable[[Any], Callable[[Any], Any]], value: Any, failing: str) -> Any:
    try:
        return work_of(type(value))(value)
    except NotCopyable:
        raise
    except RecursionError:
        raise NotCopyable(f"a {type(value).__qualname__} that contains itself, or is nested too deep") from None
    except Exception as error:  # whatever a stranger's __reduce__ raises, or a picture whose file is torn
        raise NotCopyable(f"a {type(value).__qualname__} {failing}: {error}") from error


def force(*values: Any) -> None:
    """Decode the lazily opened images among ``values`` (and a few levels inside lists, tuples and dicts)."""
    pil = sys.modules.get("PIL.ImageFile")
    if pil is not None:
        _force(values, pil.ImageFile, 5)


def _force(values: Any, lazy: type, depth: int) -> None:
    for value in values:
        kind = type(value)
        if kind in (tuple, list):
            if depth and value and type(value[0]) not in (int, float, str):
                _force(value, lazy, depth - 1)
        elif kind is dict:
            if depth:
                _force(value.values(), lazy, depth - 1)
        elif isinstance(value, lazy) and getattr(value, "fp", None) is not None:
            value.load()  # type: ignore[attr-defined]


# -- copies ---------------------------------------------------------------------------------------------------------


def _itself(value: Any) -> Any:
    return value


def _slots_and_dict(value: Any) -> Any:
    """A plain object: a shallow copy whose attributes are copied in turn."""
    new = copy.copy(value)
    for name, held in list(vars(value).items()):
        copied = snapshot(held)
        if copied is not held:
            object.__setattr__(new, name, copied)
    return new


def _never(value: Any) -> Any:
    raise NotCopyable(f"a {type(value).__qualname__} is a handle, not a value: it can only be made again")


def _array(value: Any) -> Any:
    if value.dtype.hasobject:
        return copy.deepcopy(value)
    new = value.copy(order="K")
    if not value.flags.writeable:
        new.flags.writeable = False
    return new


def _memmap(value: Any) -> Any:
    if isinstance(value.base, mmap.mmap):
        raise NotCopyable("a mapped array is a view of its file, not a value")
    import numpy as np

    return np.array(value, copy=True, order="K").view(type(value))


def _tensor(value: Any) -> Any:
    torch = sys.modules["torch"]
    if type(value) is not torch.Tensor or value.layout is not torch.strided or value.is_quantized:
        return copy.deepcopy(value)
    return value.detach().clone().requires_grad_(value.requires_grad)


def _image(value: Any) -> Any:
    """A decoded image without its file: the plain class, with all that the file told (format, info, palette, exif)."""
    value.load()
    new = value._new(value.im.copy())
    new.format = value.format
    if getattr(value, "filename", None):
        new.filename = value.filename
    exif = getattr(value, "_exif", None)
    if getattr(value, "tag_v2", None) or (exif is not None and exif._loaded and "exif" not in value.info):
        # TIFF keeps its exif in the file's own directory, not among the info.
        new._exif = sys.modules["PIL.Image"].Exif()
        new._exif.load(value.getexif().tobytes())
        new._exif._loaded = True
    return new


@functools.cache
def _copier(kind: type) -> Copier:
    if kind in _COPIERS:
        return _COPIERS[kind]
    if issubclass(kind, _NEVER):
        return _never
    if issubclass(kind, (enum.Enum, type)):
        return _itself
    known = _kind_of(kind)
    if known is not None:
        return known[2]
    if issubclass(kind, tuple):
        return (lambda value: value._make(map(snapshot, value))) if hasattr(kind, "_make") else copy.deepcopy
    if kind.__module__.partition(".")[0] in _HANDLES:
        return _never
    if dataclasses.is_dataclass(kind) and kind.__reduce_ex__ is object.__reduce_ex__ and "__dict__" in dir(kind):
        return _slots_and_dict if "__slots__" not in vars(kind) and not hasattr(kind, "__copy__") else copy.deepcopy
    return copy.deepcopy


# -- sizes ----------------------------------------------------------------------------------------------------------


def _image_bytes(value: Any) -> int:
    width, height = value.size
    per_pixel = {"1": 1, "L": 1, "P": 1, "LA": 4, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}.get(value.mode, 4)
    facts = sum(len(fact) for fact in value.info.values() if isinstance(fact, bytes))
    return int(width * height * per_pixel) + facts + _OBJECT_OVERHEAD


def _sum_dict(value: Any) -> int:
    return _OBJECT_OVERHEAD + sum(16 + nbytes(key) + nbytes(part) for key, part in value.items())


@functools.cache
def _sizer(kind: type) -> Sizer:
    if issubclass(kind, (list, tuple, set, frozenset, collections.deque)):
        return lambda value: _OBJECT_OVERHEAD + sum(8 + nbytes(part) for part in value)
    if issubclass(kind, dict):
        return _sum_dict
    if kind is io.BytesIO:
        return lambda value: int(value.getbuffer().nbytes) + _OBJECT_OVERHEAD
    known = _kind_of(kind)
    if known is not None:
        return known[3]
    if kind not in _AS_THEY_ARE and "__dict__" in dir(kind) and not issubclass(kind, (type, types.ModuleType)):
        return lambda value: sys.getsizeof(value, _OBJECT_OVERHEAD) + (_sum_dict(vars(value)) if has_any(value) else 0)
    return lambda value: sys.getsizeof(value, _OBJECT_OVERHEAD)


# -- kinds of libraries -----------------------------------------------------------------------------------------------


def _nbytes(value: Any) -> int:
    return int(value.nbytes)


_KINDS: tuple[Kind, ...] = (
    ("numpy", "memmap", _memmap, _nbytes),
    ("numpy", "ndarray", _array, _nbytes),
    ("numpy", "generic", _itself, _nbytes),
    ("torch", "Tensor", _tensor, lambda tensor: int(tensor.numel() * tensor.element_size()) + _OBJECT_OVERHEAD),
    ("PIL.Image", "Image", _image, _image_bytes),
    # Frames are shared by whoever holds them: nobody writes into decoded frames, and their buffers are FFmpeg's own.
    *(("av", name, _itself, lambda frame: sum(int(plane.buffer_size) for plane in frame.planes))
      for name in ("VideoFrame", "AudioFrame")),
    ("decord", "nd.NDArray", lambda array: sys.modules["decord"].nd.array(array.asnumpy()), lambda array: _nbytes(array.asnumpy())),
    ("SimpleITK", "Image", lambda image: type(image)(image),
     lambda image: int(image.GetNumberOfPixels() * image.GetNumberOfComponentsPerPixel() * image.GetSizeOfPixelComponent())),
    ("pandas", "DataFrame", lambda frame: frame.copy(deep=True), lambda frame: int(frame.memory_usage(deep=True).sum())),
    ("pandas", "Series", lambda series: series.copy(deep=True), lambda series: int(series.memory_usage(deep=True))),
    *(("polars", name, lambda frame: frame.clone(), lambda frame: int(frame.estimated_size())) for name in ("DataFrame", "Series")),
    *(("pyarrow", name, _itself, _nbytes) for name in ("Table", "RecordBatch")),
)  # fmt: skip


def _kind_of(kind: type) -> Kind | None:
    for known in _KINDS:
        base: Any = sys.modules.get(known[0])
        for part in known[1].split("."):
            base = getattr(base, part, None)
        if isinstance(base, type) and issubclass(kind, base):
            return known
    return None


def _are_unchangeable(values: Iterable[Any]) -> bool:
    """Thousands of numbers, say, which took longer to copy one by one than json takes to read them."""
    return _AS_THEY_ARE.issuperset(map(type, values))


_COPIERS: dict[type, Copier] = {
    list: lambda value: value[:] if _are_unchangeable(value) else list(map(snapshot, value)),
    tuple: lambda value: value if _are_unchangeable(value) else tuple(map(snapshot, value)),
    dict: lambda value: value.copy() if _are_unchangeable(value.values()) else {key: snapshot(each) for key, each in value.items()},
    set: set,
    bytearray: bytearray,
    io.BytesIO: copy.copy,
    memoryview: lambda value: memoryview(bytes(value)) if value.format == "B" and value.ndim == 1 else _never(value),
}
"""Of these types alone, not of those derived from them."""
