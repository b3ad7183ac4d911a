"""The table of torchvision functions that a swap can move to the batch, each with the function that does it to whole batches.

A row's function takes the pictures of a batch and the arguments of torchvision's function by their names: those ``per_sample`` as
tensors with a row for each picture, the others as they are. Where nothing differs between pictures, torchvision's function does the
batch itself. Kornia does the rest wherever it gives the same pixels; why it does not is the row's ``note``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torchvision.transforms.v2 import functional as tv

from pipefix.augment import color, geometry

Arguments = dict[str, Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class BatchedOp:
    """One row."""

    functional: Callable[..., Any]
    """torchvision's: names the operation, and is what one sample is held against."""
    batched: Callable[..., torch.Tensor]
    per_sample: tuple[str, ...] = ()
    """Arguments that may differ within a batch; all others are the same in a group."""
    tolerance: Literal["exact", "close"] = "exact"
    """On the CPU, of pictures as tensors: to the bit, or within 1/255 on average and 4/255 at the 99th percentile."""
    size_after: Callable[[Shape, Arguments], Shape] | None = None
    """Channels, height and width afterwards; None: as before."""
    refuses: Callable[[Shape, Arguments], str | None] | None = None
    """Why these arguments are left to the CPU; None where they are not."""
    note: str = ""
    alone: Callable[[Arguments], bool] | None = None
    """Whether such a call is made for one picture at a time, by torchvision's function."""
    blend: int | None = None
    """Which of the blends it is that `color.blended` does together, where the samples of a batch call several at one point."""

    @property
    def name(self) -> str:
        return str(self.functional.__name__)


# -- sizes -------------------------------------------------------------------------------------------------------------------


def _resized(shape: Shape, arguments: Arguments) -> Shape:
    """torchvision's rule for one length: the shorter side becomes it, the longer one is cut to a whole number."""
    size = [arguments["size"]] if isinstance(arguments["size"], int) else list(arguments["size"])
    channels, height, width = shape
    if len(size) == 2:
        return (channels, size[0], size[1])
    short, long = (height, width) if height <= width else (width, height)
    new_short, new_long = size[0], int(size[0] * long / short)
    most = arguments["max_size"]
    if most is not None and new_long > most:
        new_short, new_long = int(most * new_short / new_long), most
    return (channels, new_short, new_long) if height <= width else (channels, new_long, new_short)


def _padded(shape: Shape, arguments: Arguments) -> Shape:
    padding = [arguments["padding"]] if isinstance(arguments["padding"], int) else list(arguments["padding"])
    left, top, right, bottom = padding * (4 // len(padding))
    return (shape[0], shape[1] + top + bottom, shape[2] + left + right)


# -- what is left to the CPU ---------------------------------------------------------------------------------------------------


def _sampling(modes: tuple[str, ...]) -> Callable[[Shape, Arguments], str | None]:
    def refuses(_: Shape, arguments: Arguments) -> str | None:
        mode = geometry.mode_name(arguments["interpolation"])
        if mode not in modes:
            return f"interpolation {mode or arguments['interpolation']!r} exists for pictures of PIL only"
        if arguments.get("size", ()) is None:
            return "a size by the longer side alone"
        return "turned pictures that are expanded differ in size" if arguments.get("expand") else None

    return refuses


def _outside(shape: Shape, arguments: Arguments) -> str | None:
    top, left = arguments["top"], arguments["left"]
    inside = top >= 0 and left >= 0 and top + arguments["height"] <= shape[1] and left + arguments["width"] <= shape[2]
    return None if inside else "the window reaches beyond the picture"


_RESIZING = ("nearest", "nearest-exact", "bilinear", "bicubic")
_GRID = ("nearest", "bilinear")
_HALF_WAY = "a place half-way between two pixels may be rounded to the other one"
_THRESHOLDS = "Kornia's lies up to 1/255 away, which a threshold later in the list (posterize, equalize) would widen"
_RIM = "Kornia inverts the matrix once more in float32, and fills the rim without torchvision's blending"

TABLE = (
    BatchedOp(tv.resize, tv.resize, size_after=_resized, refuses=_sampling(_RESIZING)),
    BatchedOp(tv.resized_crop, geometry.resized_crop, ("top", "left", "height", "width"), "close",
              lambda shape, given: (shape[0], *geometry.pair(given["size"])),
              lambda shape, given: _sampling(_RESIZING)(shape, given) or _outside(shape, given),
              "torchvision weighs bytes with 16-bit integers and rounds between two passes, this rounds once (Kornia's "
              "crop_and_resize has no antialiasing: 3.3/255, 14 at the 99th percentile)",
              alone=lambda given: not given["antialias"] or geometry.mode_name(given["interpolation"]).startswith("nearest")),
    BatchedOp(tv.crop, geometry.crop, ("top", "left"), size_after=lambda shape, given: (shape[0], given["height"], given["width"]),
              refuses=_outside, note="Kornia's crop resamples"),
    BatchedOp(tv.center_crop, tv.center_crop, size_after=lambda shape, given: (shape[0], *geometry.pair(given["output_size"]))),
    BatchedOp(tv.pad, tv.pad, size_after=_padded),
    BatchedOp(tv.horizontal_flip, tv.horizontal_flip),
    BatchedOp(tv.vertical_flip, tv.vertical_flip),
    BatchedOp(tv.rotate, geometry.rotate, ("angle",), "close", refuses=_sampling(_GRID), note=f"{_HALF_WAY} ({_RIM})"),
    BatchedOp(tv.affine, geometry.affine, ("angle", "translate", "scale", "shear"), "close", refuses=_sampling(_GRID),
              note=f"{_HALF_WAY} ({_RIM})"),
    BatchedOp(tv.perspective, geometry.perspective, ("coefficients",), "close", refuses=_sampling(_GRID),
              note=f"{_HALF_WAY} (Kornia's warp_perspective: 2.4/255, 25 at the 99th percentile)"),
    BatchedOp(tv.elastic, geometry.elastic, ("displacement",), "close", refuses=_sampling(_GRID), note=_HALF_WAY),
    BatchedOp(tv.erase, geometry.erase, ("i", "j", "h", "w"), note="Kornia draws the rectangle by itself",
              alone=lambda given: given["v"].shape[-2:] != (1, 1)),
    BatchedOp(tv.adjust_brightness, color.brightness, ("brightness_factor",), blend=color.BLACK),
    BatchedOp(tv.adjust_contrast, color.contrast, ("contrast_factor",), "close", note=_THRESHOLDS, blend=color.MEAN_GREY),
    BatchedOp(tv.adjust_saturation, color.saturation, ("saturation_factor",), "close", note=_THRESHOLDS, blend=color.GREY),
    BatchedOp(tv.adjust_sharpness, color.sharpness, ("sharpness_factor",), "close", note=_THRESHOLDS),
    BatchedOp(tv.adjust_hue, color.hue, ("hue_factor",), "close",
              note="Kornia's takes 88 kernels and 3.7 ms of an H200 for 256 pictures of 224 x 224"),
    BatchedOp(tv.adjust_gamma, tv.adjust_gamma),
    BatchedOp(tv.gaussian_blur, color.gaussian_blur, ("sigma",), "close"),
    BatchedOp(tv.posterize, color.posterize, ("bits",), note="Kornia's goes through bytes for floating point too"),
    BatchedOp(tv.solarize, color.solarize, ("threshold",), note="torch.where: Kornia's takes pictures between 0 and 1 only"),
    BatchedOp(tv.permute_channels, color.permute_channels, ("permutation",)),
    BatchedOp(tv.autocontrast, tv.autocontrast),
    BatchedOp(tv.equalize, tv.equalize),
    BatchedOp(tv.invert, tv.invert),
    BatchedOp(tv.rgb_to_grayscale, tv.rgb_to_grayscale, size_after=lambda shape, given: (given["num_output_channels"], *shape[1:])),
    BatchedOp(tv.grayscale_to_rgb, tv.grayscale_to_rgb, size_after=lambda shape, _: (max(3, shape[0]), *shape[1:])),
    BatchedOp(tv.to_dtype, tv.to_dtype),
    BatchedOp(tv.normalize, color.normalize,
              size_after=lambda shape, given: (max(shape[0], len(given["mean"]), len(given["std"])), *shape[1:])),
)  # fmt: skip

BY_NAME = {row.name: row for row in TABLE}

NOT_MOVED = {
    "gaussian_noise": "its noise is drawn pixel by pixel, in the worker",
    "jpeg": "Kornia's differentiable codec lies 1.8/255 from libjpeg, and a GPU has no other here",
    "five_crop": "it makes several pictures of one",
    "ten_crop": "it makes several pictures of one",
}
"""What torchvision has functions for and the table on purpose no row."""
