"""Kornia: every step for the whole batch on the device, each sample with parameters of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from pipefix.augment import colour, geometry
from pipefix.augment.augment import Augment
from pipefix.augment.draw_colour import ALL_DRAWS
from pipefix.augment.follow import follow
from pipefix.augment.ops import Op

KERNELS: dict[str, Callable[..., torch.Tensor]] = {
    "resize": geometry.resize,
    "resized_crop": geometry.resized_crop,
    "crop": geometry.crop,
    "center_crop": geometry.center_crop,
    "pad": geometry.pad,
    "hflip": geometry.hflip,
    "vflip": geometry.vflip,
    "rotate": geometry.rotate,
    "affine": geometry.affine,
    "perspective": geometry.perspective,
    "elastic": geometry.elastic,
    "erase": geometry.erase,
    "linear": geometry.linear,
    "brightness": colour.brightness,
    "contrast": colour.contrast,
    "saturation": colour.saturation,
    "hue": colour.hue,
    "gamma": colour.gamma,
    "grayscale": colour.grayscale,
    "rgb": colour.rgb,
    "permute": colour.permute,
    "invert": colour.invert,
    "posterize": colour.posterize,
    "solarize": colour.solarize,
    "autocontrast": colour.autocontrast,
    "equalize": colour.equalize,
    "sharpness": colour.sharpness,
    "gaussian_blur": colour.gaussian_blur,
    "gaussian_noise": colour.gaussian_noise,
    "normalize": colour.normalize,
    "to_dtype": colour.to_dtype,
    "to_tensor": colour.to_tensor,
}
"""What each step does to a batch."""

FUSED = (
    "brightness",
    "contrast",
    "saturation",
    "hue",
    "grayscale",
    "solarize",
    "posterize",
    "normalize",
    "to_dtype",
    "gaussian_noise",
)
"""Rows of small operations on every pixel: one kernel each where torch.compile makes it."""


def augmentation(ops: Iterable[Op], *, compiled: bool = False, **settings: Any) -> Augment:
    """``compiled``: the operations on single pixels are fused by torch.compile; worth it on a GPU, slow to begin with."""
    kernels = {
        name: torch.compile(kernel, dynamic=True) if compiled and name in FUSED else kernel for name, kernel in KERNELS.items()
    }
    return Augment(ops, kernels=kernels, draws=ALL_DRAWS, followers=follow, **settings)
