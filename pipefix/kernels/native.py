"""The kernels in native code: typed calls in, addresses out. Importable where the code was built: see `pipefix.kernels.build`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipefix.kernels import _native
from pipefix.kernels.errors import REASONS, BadRequest, raised
from pipefix.kernels.header import Header
from pipefix.kernels.picture import Arithmetic, Box, Cut, Data, Finish, Target, address_of

SHARP = 3.0
"""Where the decoder scales down, every output is still made of at least so many of its pixels along each axis."""


class NativeKernel:
    """One call a picture, without the interpreter's lock, straight into the batch buffer."""

    name = "native"

    @property
    def loops(self) -> str:
        """The instruction set in use: avx2 or baseline."""
        return str(_native.loops())

    def header(self, data: Data) -> Header:
        """What a picture says of itself. Raises `BadPicture` where there is no JPEG, or its header is cut off."""
        said = _native.jpeg_header(*_bytes(data))
        if said is None or len(said) == 2:
            raise raised(REASONS[said[0]], said[1]) if said else RuntimeError("the header was neither read nor refused")
        return Header(said[0], said[1], said[2], said[3], bool(said[4]), said[5])

    def jpeg_region(self, data: Data, box: Box) -> np.ndarray[Any, Any]:
        """The pixels of a box as they are, height x width x 3."""
        out = np.empty((box.height, box.width, 3), dtype=np.uint8)
        _judge(_native.jpeg_region(*_bytes(data), box.x, box.y, box.width, box.height, address_of(out), out.strides[0]))
        return out

    def jpeg_into(self, data: Data, cut: Cut, finish: Finish, target: Target, index: int) -> None:
        """Decode what is needed of a JPEG and write sample ``index``."""
        target.takes(cut, finish)
        _judge(_native.jpeg_resampled(*_bytes(data), *_request(cut), *_target(target, index, finish)))

    def pixels_into(self, pixels: np.ndarray[Any, Any], cut: Cut, finish: Finish, target: Target, index: int) -> None:
        """Write sample ``index`` from RGB pixels, height x width x 3 bytes."""
        target.takes(cut, finish)
        if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
            raise BadRequest(f"Pixels are height x width x 3 of uint8; these are {pixels.shape} of {pixels.dtype}.")
        if pixels.strides[1:] != (3, 1) or pixels.strides[0] < 3 * pixels.shape[1]:
            pixels = np.ascontiguousarray(pixels)
        size = pixels.shape[1], pixels.shape[0], pixels.strides[0]
        _judge(_native.pixels_resampled(address_of(pixels), *size, *_request(cut), *_target(target, index, finish)))


def _judge(said: tuple[int, str] | None) -> None:
    if said is not None:
        raise raised(REASONS[said[0]], said[1])


def _bytes(data: Data) -> tuple[Any, int]:
    if isinstance(data, bytes):
        return data, len(data)
    array = np.frombuffer(data, dtype=np.uint8)
    return address_of(array), array.nbytes


def _request(cut: Cut) -> tuple[Any, ...]:
    box, window = cut.box, cut.window
    return (
        box.x, box.y, box.width, box.height, *cut.full, window.x, window.y, window.width, window.height,
        int(cut.mirrored), int(cut.upside_down), cut.filter.value, int(cut.arithmetic is not Arithmetic.TORCH),
        int(cut.down_first), cut.coarsest, SHARP,
    )  # fmt: skip


def _target(target: Target, index: int, finish: Finish) -> tuple[int, ...]:
    table, ramp = finish.addresses
    return (
        target.at(index), int(target.is_float), target.channel, target.row, target.column,
        table, ramp, int(finish.ramp is not None and finish.ramp.divides),
    )  # fmt: skip
