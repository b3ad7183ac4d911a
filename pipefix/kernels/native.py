"""The native kernel: typed calls into the C extension, buffers out. Built by `pipefix.kernels.build`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipefix.kernels import _native
from pipefix.kernels.errors import REASONS, BadPicture, BadRequest
from pipefix.kernels.header import read_header
from pipefix.kernels.request import Arithmetic, Box, Data, Finish, PictureCut, Target, require_inside, require_rgb

SHARP = 3.0
"""Where the decoder scales down, every output is still made of at least so many of its pixels along each axis."""


class NativeKernel:
    """One call a picture, without the interpreter's lock, straight into the batch buffer."""

    name = "native"
    header = staticmethod(read_header)

    def jpeg_region(self, data: Data, box: Box) -> np.ndarray[Any, Any]:
        """The pixels of a box as they are, height x width x 3."""
        header = read_header(data)
        header.refuse()
        require_inside(box, header.width, header.height)
        out = np.empty((box.height, box.width, 3), dtype=np.uint8)
        _raise(_native.jpeg_region(data, box, out))
        return out

    def jpeg_into(self, data: Data, cut: PictureCut, finish: Finish, target: Target, index: int) -> None:
        """Decode what is needed of a JPEG and write sample ``index``."""
        self._resampled(data, cut, finish, target, index)

    def pixels_into(self, pixels: np.ndarray[Any, Any], cut: PictureCut, finish: Finish, target: Target, index: int) -> None:
        """Write sample ``index`` from RGB pixels, height x width x 3 bytes."""
        require_rgb(pixels)
        if pixels.strides[1:] != (3, 1) or pixels.strides[0] < 3 * pixels.shape[1]:
            pixels = np.ascontiguousarray(pixels)
        self._resampled(pixels, cut, finish, target, index)

    def hue_turned(self, pixels: np.ndarray[Any, Any], shift: int) -> np.ndarray[Any, Any]:
        """The hue of RGB pixels turned by so many of 256 parts, as Pillow does it by way of HSV."""
        require_rgb(pixels)
        out = np.empty(pixels.shape, dtype=np.uint8)
        _native.hue_turned(np.ascontiguousarray(pixels), out, shift)
        return out

    def blurred(self, pixels: np.ndarray[Any, Any], weight: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
        """RGB pixels convolved with rows x columns of weights, edges reflected, as torch does it; None: not by this processor."""
        require_rgb(pixels)
        out = np.empty(pixels.shape, dtype=np.uint8)
        weights = np.ascontiguousarray(weight, dtype=np.float32)
        return out if _native.blurred(np.ascontiguousarray(pixels), out, weights, *weight.shape) else None

    def _resampled(self, picture: Any, cut: PictureCut, finish: Finish, target: Target, index: int) -> None:
        target.require(cut, finish, index)
        request = (
            cut.box, cut.full, cut.window, cut.mirrored, cut.upside_down, cut.filter.value, cut.arithmetic is not Arithmetic.TORCH,
            cut.down_first, cut.coarsest, SHARP,
        )  # fmt: skip
        divides = finish.ramp is not None and finish.ramp.divides
        _raise(_native.resampled(picture, request, target.array, index, finish.table, finish.rows, divides))


def _raise(fault: tuple[int, str] | None) -> None:
    if fault is not None:
        reason, detail = REASONS[fault[0]], fault[1]
        raise BadRequest(f"{detail}.") if reason == "bad-request" else BadPicture(reason, detail)
