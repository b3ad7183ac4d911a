"""Kornia: every step for the whole batch on the device, each sample with parameters of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from pipefix.augment import colour, geometry
from pipefix.augment.augment import Augment
from pipefix.augment.operation import Op

KERNELS: dict[str, Callable[..., torch.Tensor]] = {
    kernel.__name__: kernel
    for kernel in (
        geometry.resize, geometry.resized_crop, geometry.crop, geometry.center_crop, geometry.pad, geometry.hflip, geometry.vflip,
        geometry.rotate, geometry.affine, geometry.perspective, geometry.elastic, geometry.erase, geometry.linear,
        colour.brightness, colour.contrast, colour.saturation, colour.hue, colour.gamma, colour.grayscale, colour.rgb,
        colour.permute, colour.invert, colour.posterize, colour.solarize, colour.autocontrast, colour.equalize, colour.sharpness,
        colour.gaussian_blur, colour.gaussian_noise, colour.normalize, colour.to_dtype, colour.to_tensor,
    )
}  # fmt: skip
"""What each step does to a batch."""

FUSED = (
    "brightness", "contrast", "saturation", "hue", "grayscale", "solarize", "posterize", "normalize", "to_dtype", "gaussian_noise",
)  # fmt: skip
"""Rows of small operations on every pixel: one kernel each where torch.compile makes it."""


def augmentation(ops: Iterable[Op], *, compiled: bool = False, **settings: Any) -> Augment:
    """``compiled``: the operations on single pixels are fused by torch.compile; worth it on a GPU, slow to begin with."""
    kernels = {
        name: torch.compile(kernel, dynamic=True) if compiled and name in FUSED else kernel for name, kernel in KERNELS.items()
    }
    return Augment(ops, kernels=kernels, **settings)
