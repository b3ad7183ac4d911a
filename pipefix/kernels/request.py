"""The request to a kernel: which part of a picture, how large, mirrored or not, and the batch buffer that it is written to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import torch

from pipefix.kernels.errors import BadRequest

Data = bytes | bytearray | memoryview | np.ndarray[Any, Any]
"""An encoded picture."""


class Filter(Enum):
    BILINEAR = 0
    BICUBIC = 1


class Arithmetic(Enum):
    """Whose rounding is followed, bit for bit."""

    TORCH = 0
    """torch's antialiased resize of uint8 tensors: weights of up to 15 bits, rows first."""
    PILLOW = 1
    """Pillow's: weights of 22 bits, rows first."""
    PILLOW_13 = 2
    """Pillow's from version 13 on: columns first where the height shrinks by more than twice as many pixels as the width."""


class Box(NamedTuple):
    """A rectangle of whole pixels."""

    x: int
    y: int
    width: int
    height: int


class PictureCut(NamedTuple):
    """The box of a picture, resized to ``full`` (width, height), of which the window is wanted, maybe mirrored."""

    box: Box
    full: tuple[int, int]
    window: Box
    mirrored: bool = False
    upside_down: bool = False
    filter: Filter = Filter.BILINEAR
    arithmetic: Arithmetic = Arithmetic.TORCH
    coarsest: int = 1
    """1, 2, 4 or 8: the decoder may scale down by as much while it decodes. More than 1 changes pixels a little."""

    @property
    def down_first(self) -> bool:
        """Whether columns are resized before rows."""
        if self.arithmetic is not Arithmetic.PILLOW_13:
            return False
        shorter, narrower = self.box.height - self.full[1], self.box.width - self.full[0]
        return shorter > 0 and shorter > 2 * narrower


def require_inside(box: Box, width: int, height: int) -> None:
    if min(box.x, box.y) < 0 or min(box.width, box.height) < 1 or box.x + box.width > width or box.y + box.height > height:
        raise BadRequest(
            f"the box at ({box.x}, {box.y}) of {box.width} x {box.height} does not lie in the picture of {width} x {height}."
        )


def require_rgb(pixels: np.ndarray[Any, Any]) -> None:
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise BadRequest(f"Pixels are height x width x 3 of uint8; these are {pixels.shape} of {pixels.dtype}.")


class Finish:
    """What becomes of the 8-bit values of each channel: a table, and the same as arithmetic where that is the same to the bit."""

    def __init__(self, table: np.ndarray[Any, Any] | None, ramp: Ramp | None = None) -> None:
        self.table = None if table is None else np.ascontiguousarray(table, dtype=np.float32)
        """3 x 256 float32; None leaves bytes as they are."""
        if self.table is not None and self.table.shape != (3, 256):
            raise BadRequest(f"A table for each of 3 channels has 256 entries; this one has the shape {self.table.shape}.")
        self.ramp = ramp if ramp is not None and self.table is not None and np.array_equal(ramp.table(), self.table) else None
        self.rows = None if self.ramp is None else self.ramp.rows()
        """The arithmetic as native code wants it: 3 x (factor, mean, deviation) of float32."""

    def level(self) -> torch.Tensor:
        """What one level of 255 is worth in each channel of the outcome."""
        if self.table is None:
            return torch.ones(3, device="cpu")
        return torch.from_numpy((self.table[:, 255] - self.table[:, 0]) / 255).abs()


@dataclass(frozen=True)
class Ramp:
    """``(x / factor - mean) / deviation`` for each channel, or ``(x * factor - mean) / deviation``, in single precision."""

    factor: float
    divides: bool
    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]

    def table(self) -> np.ndarray[Any, Any]:
        level = np.arange(256, dtype=np.float32)
        scaled = level / np.float32(self.factor) if self.divides else level * np.float32(self.factor)
        mean, deviation = (np.array(each, dtype=np.float32)[:, None] for each in (self.mean, self.deviation))
        return np.asarray((scaled[None] - mean) / deviation, dtype=np.float32)

    def rows(self) -> np.ndarray[Any, Any]:
        return np.array([[self.factor, m, d] for m, d in zip(self.mean, self.deviation, strict=True)], dtype=np.float32)


UINT8 = Finish(None)


class Target:
    """A batch buffer whose rows are written one picture at a time: N x 3 x H x W in any memory order (`channels_last` too)."""

    def __init__(self, batch: torch.Tensor | np.ndarray[Any, Any]) -> None:
        if isinstance(batch, np.ndarray) and not batch.flags.writeable:
            raise BadRequest("A batch buffer is written to; this array is read-only.")
        tensor = torch.from_numpy(batch) if isinstance(batch, np.ndarray) else batch.detach()
        float_or_bytes = tensor.dtype in (torch.float32, torch.uint8)
        if tensor.ndim != 4 or tensor.shape[1] != 3 or not float_or_bytes or tensor.device.type != "cpu":
            raise BadRequest(
                f"A batch buffer is N x 3 x H x W of float32 or uint8 in main memory; this is {tuple(tensor.shape)} of "
                f"{tensor.dtype} on {tensor.device}."
            )
        if tensor.layout != torch.strided or _extent(tensor) > tensor.untyped_storage().nbytes():
            raise BadRequest(f"A batch buffer has memory for all of its elements; this tensor of {tuple(tensor.shape)} has not.")
        self.tensor = tensor
        self.array = tensor.numpy()
        """The same memory, which cannot be resized or let go of as long as this is there."""
        self.is_float = tensor.dtype == torch.float32
        self.length, _, self.height, self.width = tensor.shape

    def require(self, cut: PictureCut, finish: Finish, index: int) -> None:
        """Raise `BadRequest` where this sample cannot be written so."""
        if not 0 <= index < self.length:
            raise BadRequest(f"The batch buffer has {self.length} samples; there is no number {index}.")
        if (cut.window.width, cut.window.height) != (self.width, self.height):
            raise BadRequest(
                f"The window is {cut.window.width} x {cut.window.height}, the samples of the batch buffer are "
                f"{self.width} x {self.height}."
            )
        if self.is_float is (finish.table is None):
            raise BadRequest("A float32 batch buffer needs a table from bytes to floats, and one of uint8 takes none.")


def _extent(tensor: torch.Tensor) -> int:
    """Bytes of its storage, from the beginning to its last element."""
    if not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset() + last + 1) * tensor.element_size()
