"""Encodes a sample as bytes and decodes it: plain values, arrays, tensors and pictures. Nothing that is read is executed.

    payload 0 | payload 1 | … | description (MessagePack) | its length, 4 bytes | "PFR1"

Payloads begin at multiples of 16, so that arrays can be used where they lie; a record of one picture begins with the picture's
own bytes, which other programs read as they are. The description is the sample's tree with payloads as (offset, length).
"""

from __future__ import annotations

import collections
import math
import struct
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pipefix.vocabulary.errors import CacheDamaged

MARK = b"PFR1"
ALIGN = 16
_TAIL = struct.Struct("<I4s")
_PLAIN = (type(None), bool, float, str)
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
_DEEPEST = 32
_INTEGERS = frozenset(("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"))
"""Tensor types besides floating-point ones; quantised types need more than bytes, and crash without it."""
_KINDS = frozenset("biufcSUMm")
"""Kinds of array that are nothing but bytes."""


class Unstorable(TypeError):
    """This value has no place in a record. The text says what it is and where it was found."""


class Picture(NamedTuple):
    """An encoded image on its way into a record, or out of it."""

    data: Any
    """Bytes of an image file."""
    kind: str
    """jpeg, png or webp."""
    width: int
    height: int
    like: str
    """What the dataset gave: image (PIL), tensor or array."""


class Pixels(NamedTuple):
    """A raw image: an array of height x width (x channels), and the PIL mode it stands for."""

    array: Any
    mode: str
    palette: bytes | None
    like: str
    marks: dict[str, Any] | None = None
    """What PIL tells of it beside its pixels: ``orientation`` (EXIF's), ``transparency`` (a colour)."""


def encode(tree: Any) -> bytes:
    """The record of a sample."""
    payloads: list[Any] = []
    place = 0

    def put(data: Any) -> list[int]:
        nonlocal place
        gap, length = -place % ALIGN, data.nbytes if isinstance(data, memoryview) else len(data)
        payloads.extend((bytes(gap), data))
        place += gap + length
        return [place - length, length]

    return closed(payloads, _describe(tree, put, 0))


def closed(payloads: Sequence[Any], described: Any) -> bytes:
    """Payloads, already aligned, and the description that names their places."""
    try:
        description = msgspec.msgpack.encode(described)
    except (UnicodeEncodeError, OverflowError) as error:  # half a surrogate pair, or a dict's key beyond 64 bits
        raise Unstorable(f"what it holds cannot be written: {error}") from error
    return b"".join((*payloads, description, _TAIL.pack(len(description), MARK)))


def _describe(value: Any, put: Callable[[Any], list[int]], depth: int) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        if not _SMALLEST <= value <= _LARGEST:
            raise Unstorable(f"the integer {str(value)[:40]} does not fit into 64 bits")
        return value
    if depth > _DEEPEST:
        raise Unstorable(f"it is nested more than {_DEEPEST} deep")
    if kind is bytes:
        return ["b", *put(value)]
    if kind is Picture:
        return ["p", *put(value.data), value.kind, value.width, value.height, value.like]
    if kind is Pixels:
        marks = [value.marks] if value.marks else []
        return ["x", *_array(value.array, put), value.mode, value.palette, value.like, *marks]
    if kind in (list, tuple):
        return ["l" if kind is list else "t", *(_describe(element, put, depth + 1) for element in value)]
    if kind in (dict, collections.OrderedDict):
        return ["d" if kind is dict else "o", *(_pair(key, element, put, depth) for key, element in value.items())]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        name = f"{kind.__module__}:{kind.__qualname__}"
        return ["n", name, list(value._fields), *(_describe(element, put, depth + 1) for element in value)]
    return _numeric(value, kind, put)


def _pair(key: Any, value: Any, put: Callable[[Any], list[int]], depth: int) -> list[Any]:
    if type(key) not in (str, int, bool, float):
        raise Unstorable(f"a dict's key of type {type(key).__qualname__}: keys may be strings and numbers")
    return [key, _describe(value, put, depth + 1)]


def _numeric(value: Any, kind: type, put: Callable[[Any], list[int]]) -> Any:
    module = kind.__module__.partition(".")[0]
    if module == "numpy":
        if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
            return ["a", *_array(value, put)]
        if isinstance(value, np.generic) and value.dtype.kind in _KINDS:
            if value.dtype.itemsize == 0:  # an empty text: bytes of no length would be of any number of values
                return ["s", f"{value.dtype.str[:-1]}1", bytes(np.dtype(f"{value.dtype.kind}1").itemsize)]
            return ["s", value.dtype.str, value.tobytes()]
    if module == "torch" and hasattr(value, "detach"):
        return ["T", *_tensor(value, put)]
    if isinstance(value, (int, float, str)):  # numbers and strings with a class of their own, such as an IntEnum's member
        return _describe(plain_of(value), put, 0)
    if isinstance(value, dict):
        raise Unstorable(f"a {kind.__module__}.{kind.__qualname__}: it would come back as a dict; give dict(...) or an OrderedDict")
    raise Unstorable(f"a {kind.__module__}.{kind.__qualname__}: records hold numbers, text, bytes, arrays, tensors and images")


def plain_of(value: Any) -> Any:
    """A number or text of a class of its own as Python's. Text of a ``class Split(str, Enum)`` is its value, and not its name."""
    return str.__str__(value) if isinstance(value, str) else int(value) if isinstance(value, int) else float(value)


def _array(value: Any, put: Callable[[Any], list[int]]) -> list[Any]:
    if value.dtype.kind not in _KINDS:
        raise Unstorable(f"an array of {value.dtype}: its elements are not plain numbers")
    flat = np.ascontiguousarray(value)
    data = flat.reshape(-1).view(np.uint8).data if flat.size else b""
    return [value.dtype.str, list(value.shape), *put(data)]


def _tensor(value: Any, put: Callable[[Any], list[int]]) -> list[Any]:
    import torch

    if value.layout is not torch.strided or value.is_quantized or value.is_complex():
        raise Unstorable(f"a tensor of layout {value.layout} and type {value.dtype}")
    if value.requires_grad:
        raise Unstorable("a tensor that requires a gradient: it would come back as one that does not")
    flat = value.detach().cpu().contiguous()
    name = str(flat.dtype).removeprefix("torch.")
    data = flat.reshape(-1).view(torch.uint8).numpy().data if flat.numel() else b""
    return [name, list(flat.shape), *put(data)]


# -- and back --------------------------------------------------------------------------------------------------------------


class RecordDecoder:
    """Makes samples of records. ``picture`` and ``pixels`` say what images become."""

    def __init__(self, picture: Callable[[Picture], Any], pixels: Callable[[Pixels], Any]) -> None:
        self.picture = picture
        self.pixels = pixels

    def __call__(self, record: memoryview) -> Any:
        try:
            return self._value(description(record), record, 0)
        except (IndexError, TypeError, ValueError, KeyError, OverflowError, AttributeError, RuntimeError, MemoryError) as error:
            raise CacheDamaged(f"A record is not a sample: {error}.") from error

    def _value(self, node: Any, record: memoryview, depth: int) -> Any:
        if not isinstance(node, list):
            return node
        if depth > _DEEPEST:
            raise ValueError(f"nested more than {_DEEPEST} deep")
        tag, *rest = node
        if tag in ("t", "l"):
            elements = [self._value(element, record, depth + 1) for element in rest]
            return tuple(elements) if tag == "t" else elements
        if tag == "p":
            offset, length, kind, width, height, like = rest
            return self.picture(Picture(payload(record, offset, length), kind, width, height, like))
        if tag == "x":
            dtype, shape, offset, length, *told = rest
            return self.pixels(Pixels(self._as_array(record, dtype, shape, offset, length), *told))
        if tag == "a":
            array = self._as_array(record, *rest)
            return array if array.flags.writeable else array.copy()
        if tag == "T":
            return self._as_tensor(record, *rest)
        if tag == "s":
            name, data = rest
            kind = _dtype(name)
            _fits((), kind.itemsize, len(data))
            return np.frombuffer(data, kind)[0]
        if tag == "b":
            return bytes(payload(record, *rest))
        if tag in ("d", "o"):
            pairs = {key: self._value(element, record, depth + 1) for key, element in rest}
            return pairs if tag == "d" else collections.OrderedDict(pairs)
        if tag == "n":
            name, fields, *values = rest
            return tuple.__new__(_named(name, tuple(fields)), [self._value(element, record, depth + 1) for element in values])
        raise ValueError(f"a value of unknown kind {str(tag)[:20]!r}")

    def _as_array(self, record: memoryview, dtype: str, shape: Sequence[int], offset: int, length: int) -> Any:
        kind = _dtype(dtype)
        _fits(shape, kind.itemsize, length)
        if not length:
            return np.empty(shape, kind)
        return np.frombuffer(payload(record, offset, length), kind).reshape(shape)

    def _as_tensor(self, record: memoryview, name: str, shape: Sequence[int], offset: int, length: int) -> Any:
        import torch

        dtype = _torch_dtype(name)
        _fits(shape, dtype.itemsize, length)
        if not length:
            return torch.empty(shape, dtype=dtype, device="cpu")
        data = payload(record, offset, length)  # tensors can be written to: they get bytes of their own
        return torch.frombuffer(bytearray(data) if data.readonly else data, dtype=dtype).reshape(shape)


def description(record: memoryview) -> Any:
    """The tree of a record, its payloads as places."""
    if len(record) < _TAIL.size:
        raise CacheDamaged("A record is too short to be one.")
    length, mark = _TAIL.unpack(record[-_TAIL.size :])
    if mark != MARK or length > len(record) - _TAIL.size:
        raise CacheDamaged("A record does not end as records do.")
    try:
        return msgspec.msgpack.decode(record[-_TAIL.size - length : -_TAIL.size])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # ValueError: text that is not UTF-8
        raise CacheDamaged(f"A record's description cannot be read: {error}.") from error


def payload(record: memoryview, offset: int, length: int) -> memoryview:
    if type(offset) is not int or type(length) is not int or offset < 0 or length < 0 or offset + length > len(record):
        raise ValueError(f"{length} bytes at {offset} lie outside the record of {len(record)}")
    return record[offset : offset + length]


def _fits(shape: Sequence[int], itemsize: int, length: int) -> None:
    sound = len(shape) <= _DEEPEST and all(type(side) is int and side >= 0 for side in shape)
    if not sound or math.prod(shape) * itemsize != length:
        raise ValueError(f"a shape of {shape} does not hold {length} bytes")


@lru_cache(maxsize=256)
def _dtype(name: str) -> Any:
    dtype = np.dtype(name)
    if dtype.kind not in _KINDS or dtype.itemsize == 0 or dtype.subdtype is not None:
        raise ValueError(f"arrays of {name!r} are not stored")
    return dtype


@lru_cache(maxsize=64)
def _torch_dtype(name: str) -> Any:
    import torch

    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not (dtype.is_floating_point or name in _INTEGERS):
        raise ValueError(f"no tensor type {name!r}")
    return dtype


def _named(name: str, fields: tuple[str, ...]) -> Any:
    """The class of this name, where the program has it and its fields are these; otherwise one like it. Nothing is imported."""
    module, _, path = name.rpartition(":")
    for place in (module, "__main__"):
        kind: Any = sys.modules.get(place)
        for step in path.split("."):
            kind = vars(kind).get(step) if hasattr(kind, "__dict__") else None
        if isinstance(kind, type) and issubclass(kind, tuple) and getattr(kind, "_fields", None) == fields:
            return kind
    kind = _made_up(path.rpartition(".")[2], fields)
    if kind._fields != fields:
        raise ValueError(f"a named tuple with the fields {fields}")
    return kind


_made_up: Any = lru_cache(maxsize=256)(partial(collections.namedtuple, rename=True))  # pandas renames, to names such as _1
