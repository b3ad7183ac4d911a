"""Records what a list of transforms does to a sample: the functions that it calls, with the arguments that it drew.

torchvision's transforms dispatch on the type of what they are given (`register_kernel`). Given an image that has a shape and no
pixels, they draw their parameters as ever, from the same generators, and what reaches this file is each call.
"""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as tv
from typing_extensions import Self

from pipefix.augment.batched import BY_NAME, NOT_MOVED, TABLE, BatchedOp
from pipefix.augment.geometry import mode_name


class NotRecordable(Exception):
    """Why a transform cannot be moved."""


@dataclass(frozen=True)
class RecordedCall:
    """One call of a torchvision function."""

    place: int
    """Which transform of the moved list made it."""
    name: str
    arguments: dict[str, Any]


class RecordedImage(tv_tensors.Image):  # type: ignore[misc]
    """A picture without pixels. ``calls`` is what was done to it; ``from_pil``: it is no tensor yet."""

    calls: list[RecordedCall]
    place: list[int]
    from_pil: bool

    @classmethod
    def of(cls, shape: Sequence[int], dtype: torch.dtype, *, from_pil: bool = True) -> Self:
        image = torch.empty(tuple(shape), dtype=dtype, device="meta").as_subclass(cls)
        image.calls, image.place, image.from_pil = [], [0], from_pil
        return image

    def after(self, shape: Sequence[int], dtype: torch.dtype) -> Self:
        """The picture after a call."""
        if tuple(shape) == tuple(self.shape) and dtype == self.dtype:
            return self
        image = self.of(shape, dtype, from_pil=self.from_pil)
        image.calls, image.place = self.calls, self.place
        return image

    @property
    def device(self) -> torch.device:
        """Where pictures are recorded."""
        return torch.device("cpu")

    def as_subclass(self, _: Any) -> Self:
        """A picture without pixels stays one."""
        return self

    def __format__(self, _: str) -> str:
        return repr(self)

    def __repr__(self, **_: Any) -> str:
        return f"RecordedImage({tuple(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func))
        raise NotRecordable(f"it computes on pixels by itself (torch's {name})")


def _kernel(row: BatchedOp) -> Callable[..., Any]:
    parameters = list(inspect.signature(row.functional).parameters.values())[1:]
    names = [parameter.name for parameter in parameters]
    defaults = {parameter.name: parameter.default for parameter in parameters if parameter.default is not parameter.empty}

    def kernel(image: RecordedImage, *args: Any, **named: Any) -> RecordedImage:
        arguments = {**defaults, **dict(zip(names, args, strict=False)), **named}
        if image.from_pil and "antialias" in arguments:
            arguments["antialias"] = True  # PIL has no other resize
            if mode_name(arguments["interpolation"]) == "nearest":  # of those that become one PIL takes the middle one
                arguments["interpolation"] = InterpolationMode.NEAREST_EXACT
        shape = tuple(image.shape)
        why = row.refuses(shape, arguments) if row.refuses is not None else None
        if why is not None:
            raise NotRecordable(why)
        for name in row.per_sample:
            if arguments[name] is None:
                raise NotRecordable(f"{row.name} without {name}")
        arrays = {name: value.numpy() for name, value in arguments.items() if isinstance(value, torch.Tensor)}
        image.calls.append(RecordedCall(image.place[0], row.name, {**arguments, **arrays}))
        dtype = arguments["dtype"] if row.name == "to_dtype" else image.dtype
        return image.after(row.size_after(shape, arguments) if row.size_after is not None else shape, dtype)

    return kernel


def _refuse(why: str, *_: Any, **__: Any) -> Any:
    raise NotRecordable(why)


_KERNELS: dict[Any, Callable[..., Any]] = {
    **{row.functional: _kernel(row) for row in TABLE},
    **{getattr(tv, name): partial(_refuse, why) for name, why in NOT_MOVED.items()},
    tv.get_dimensions: lambda image: list(image.shape),
    tv.get_size: lambda image: list(image.shape[-2:]),
    tv.get_num_channels: lambda image: image.shape[-3],
}
for _function, _own in _KERNELS.items():
    tv.register_kernel(_function, RecordedImage)(_own)


# -- on the way to the batch ---------------------------------------------------------------------------------------------------


_Call = TypeVar("_Call")


@dataclass(frozen=True)
class Program(Generic[_Call]):
    """The calls of one sample, and by what its picture is known in a batch."""

    calls: Sequence[_Call]
    shape: tuple[int, ...]
    """Of the picture before them."""
    place: int | None = None
    """Which leaf of the sample it is; None within a class of the user's own."""
    leaves: int = 0
    """How many the sample has."""


class ArgumentSpan(NamedTuple):
    """Where the numbers of a sample hold an argument of its own."""

    name: str
    begin: int
    end: int
    dtype: np.dtype
    shape: tuple[int, ...]
    is_array: bool
    """Given as an array, and not as numbers of Python's."""

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """A row for each sample. ``numbers``: bytes, likewise."""
        return np.ascontiguousarray(numbers[:, self.begin : self.end]).view(self.dtype).reshape(len(numbers), *self.shape)


@dataclass(frozen=True)
class OutlinedCall:
    """A recorded call without the numbers of its sample."""

    place: int
    name: str
    shared: dict[str, Any]
    columns: list[ArgumentSpan]
    alone: bool
    """Whether such a call is made for one picture at a time."""
    key: Any
    """Equal for calls that are made together where they are not made alone."""


Outline: TypeAlias = Program[OutlinedCall]
"""A program without the numbers of its sample."""
_LENGTH = 4
"""Bytes in which the length of an outline is written."""
_LONGEST_KEPT = 4096
"""Outlines of more bytes hold what was drawn for one picture alone, such as the noise of an erased rectangle."""


def packed(program: Program[RecordedCall]) -> bytes:
    """As it crosses to the training process: bytes, which every collate function lets be. An outline, which the samples of a batch
    mostly share, and the sample's own numbers behind it."""
    outline, numbers = [], []
    for call in program.calls:
        shared, columns = dict(call.arguments), []
        for name in BY_NAME[call.name].per_sample:
            value = shared.pop(name)
            array = np.asarray(value)
            if array.dtype.kind not in "iuf":
                array = array.astype(np.float64)
            columns.append((name, array.dtype.char, array.shape, isinstance(value, np.ndarray)))
            numbers.append(array.tobytes())
        outline.append((call.place, call.name, shared, columns))
    head = pickle.dumps((outline, program.shape, program.place, program.leaves), protocol=pickle.HIGHEST_PROTOCOL)
    return b"".join((len(head).to_bytes(_LENGTH, "little"), head, *numbers))


def apart(program: bytes) -> tuple[bytes, bytes]:
    """The packed outline, and the numbers."""
    end = _LENGTH + int.from_bytes(program[:_LENGTH], "little")
    return program[_LENGTH:end], program[end:]


def outline_of(head: bytes) -> Outline:
    """Unpacked, and kept where it is one that many samples share."""
    return _kept_outline(head) if len(head) <= _LONGEST_KEPT else _outline(head)


def _outline(head: bytes) -> Outline:
    calls, *picture = pickle.loads(head)
    outlined, end = [], 0
    for place, name, shared, own in calls:
        columns = []
        for argument, code, shape, is_array in own:
            begin, dtype = end, np.dtype(code)
            end += dtype.itemsize * math.prod(shape)
            columns.append(ArgumentSpan(argument, begin, end, dtype, shape, is_array))
        op = BY_NAME[name]
        alone = op.alone is not None and op.alone(shared)
        key = ("blend" if op.blend is not None else name, tuple(column.shape for column in columns))
        whole = None if alone else (key, _hashable(list(shared.values())))
        outlined.append(OutlinedCall(place, name, shared, columns, alone, whole))
    return Program(outlined, *picture)


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value


_kept_outline = lru_cache(maxsize=1024)(_outline)


def unpacked(program: bytes) -> Program[RecordedCall]:
    head, numbers = apart(program)
    outline = outline_of(head)
    row, calls = np.frombuffer(numbers, np.uint8)[None], []
    for call in outline.calls:
        own = {column.name: column.of(row)[0] if column.is_array else column.of(row)[0].tolist() for column in call.columns}
        calls.append(RecordedCall(call.place, call.name, {**call.shared, **own}))
    return Program(calls, outline.shape, outline.place, outline.leaves)


# -- one sample ----------------------------------------------------------------------------------------------------------------


def replayed(calls: Sequence[RecordedCall], picture: Any) -> Any:
    """The recorded calls done to one picture (a tensor, or PIL's) by torchvision's own functions."""
    for call in calls:
        if call.name in ("to_dtype", "normalize", "erase") and not isinstance(picture, torch.Tensor):
            picture = tv.pil_to_tensor(picture)
        arguments = {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in call.arguments.items()
        }
        picture = getattr(tv, call.name)(picture, **arguments)
    return picture
