"""Colours of whole batches, a factor for each sample. The arithmetic is Kornia's where it agrees with torchvision's.

Bytes stay bytes from one operation to the next and are rounded or cut where torchvision does it, so that a threshold later in the
list (solarize, posterize, equalize) sees the same values.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from kornia import enhance, filters
from torchvision.transforms.v2 import functional as tv

from pipefix.augment.geometry import noise_like, snapped, working
from pipefix.augment.on_device import constant

GREY = (0.2989, 0.587, 0.114)
"""torchvision's weights; Kornia's have a digit less."""


def bound(images: torch.Tensor) -> float:
    return 1.0 if images.is_floating_point() else 255.0


def _column(factor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return factor.to(like.dtype).view(-1, 1, 1, 1)


def _unit(images: torch.Tensor) -> torch.Tensor:
    """Between 0 and 1."""
    return images if images.is_floating_point() else images.to(torch.float32) / 255


def grey(images: torch.Tensor) -> torch.Tensor:
    """The brightness of every pixel; whole where the pictures are bytes."""
    floats = working(images)
    if images.shape[1] == 1:
        return floats
    red, green, blue = floats.unbind(1)
    mixed = (red * GREY[0] + green * GREY[1] + blue * GREY[2]).unsqueeze(1)
    return mixed if images.is_floating_point() else mixed.floor()


def _towards(images: torch.Tensor, other: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    floats = working(images)
    share = _column(factor, floats)
    return snapped((floats * share + other * (1 - share)).clamp(0, bound(images)), images, cut=True)


def brightness(images: torch.Tensor, *, factor: torch.Tensor) -> torch.Tensor:
    floats = working(images)
    return snapped((floats * _column(factor, floats)).clamp(0, bound(images)), images, cut=True)


def contrast(images: torch.Tensor, *, factor: torch.Tensor) -> torch.Tensor:
    """Towards the mean brightness of each picture; `kornia.enhance.adjust_contrast` goes towards black instead."""
    return _towards(images, grey(images).mean(dim=(1, 2, 3), keepdim=True), factor)


def saturation(images: torch.Tensor, *, factor: torch.Tensor) -> torch.Tensor:
    return images if images.shape[1] == 1 else _towards(images, grey(images), factor)


def hue(images: torch.Tensor, *, factor: torch.Tensor) -> torch.Tensor:
    if images.shape[1] == 1:
        return images
    turned = enhance.adjust_hue(_unit(images), factor.to(torch.float32) * (2 * math.pi))
    # torchvision turns a floating-point picture into bytes by equal shares of the range.
    return turned if images.is_floating_point() else (turned * (256 - 1e-3)).floor().clamp(0, 255).to(images.dtype)


def gamma(images: torch.Tensor, *, factor: torch.Tensor) -> torch.Tensor:
    bent = enhance.adjust_gamma(_unit(images), factor.to(torch.float32))
    return bent if images.is_floating_point() else (bent * (256 - 1e-3)).floor().clamp(0, 255).to(images.dtype)


def grayscale(images: torch.Tensor, *, channels: int | None) -> torch.Tensor:
    wanted = channels or images.shape[1]
    return snapped(grey(images), images, cut=True).expand(-1, wanted, -1, -1).contiguous()


def rgb(images: torch.Tensor) -> torch.Tensor:
    return images.expand(-1, 3, -1, -1).contiguous() if images.shape[1] == 1 else images


def permute(images: torch.Tensor, *, permutation: torch.Tensor) -> torch.Tensor:
    return images[torch.arange(len(images), device=images.device).view(-1, 1), permutation]


def invert(images: torch.Tensor) -> torch.Tensor:
    return (
        enhance.invert(images, torch.ones((), dtype=images.dtype, device=images.device)) if images.is_floating_point() else ~images
    )


def posterize(images: torch.Tensor, *, bits: torch.Tensor) -> torch.Tensor:
    """Bytes lose their lowest bits; floating point is cut to as many levels of the range."""
    if not images.is_floating_point():
        kept = (255 << (8 - bits.to(torch.int64))) & 255
        return images & kept.to(images.dtype).view(-1, 1, 1, 1)
    levels = _column(2.0 ** bits.to(torch.float32), images)
    return torch.minimum((images * levels).floor().clamp(min=0), levels - 1) / levels


def solarize(images: torch.Tensor, *, threshold: torch.Tensor, relative: bool) -> torch.Tensor:
    least = _column(threshold.to(torch.float32) * (bound(images) if relative else 1.0), working(images))
    return torch.where(images >= least, invert(images), images)


def autocontrast(images: torch.Tensor) -> torch.Tensor:
    floats = working(images)
    least, most = floats.amin(dim=(2, 3), keepdim=True), floats.amax(dim=(2, 3), keepdim=True)
    even = most == least
    scale = torch.where(even, torch.ones_like(most), (most - least) * (1.0 / bound(images)))
    return snapped(((floats - torch.where(even, 0.0, least)) / scale).clamp(0, bound(images)), images, cut=True)


def equalize(images: torch.Tensor) -> torch.Tensor:
    """torchvision's own, which takes whole batches; it goes by way of bytes for floating point too."""
    return tv.equalize(images)


def sharpness(images: torch.Tensor, *, factor: torch.Tensor) -> torch.Tensor:
    if min(images.shape[-2:]) <= 2:
        return images
    floats = working(images)
    smooth = constant(((1, 1, 1), (1, 5, 1), (1, 1, 1)), floats.dtype, images.device) / 13
    inner = floats[..., 1:-1, 1:-1]
    blurred = torch.nn.functional.conv2d(floats, smooth.expand(images.shape[1], 1, 3, 3), groups=images.shape[1])
    blurred = blurred if images.is_floating_point() else blurred.round()
    out = floats.clone()
    out[..., 1:-1, 1:-1] = inner + (1 - _column(factor, floats)) * (blurred - inner)
    return snapped(out.clamp(0, bound(images)), images, cut=True)


def gaussian_blur(images: torch.Tensor, *, sigma: torch.Tensor, kernel_size: tuple[int, int]) -> torch.Tensor:
    """Not by `kornia.filters.gaussian_blur2d`, which waits for the device to see that each ``sigma`` is positive."""
    floats = working(images)
    column = sigma.to(floats.dtype).view(-1, 1)
    across, down = (filters.get_gaussian_kernel1d(size, column) for size in kernel_size)
    return snapped(filters.filter2d_separable(floats, across, down, "reflect"), images)


def gaussian_noise(images: torch.Tensor, *, key: Any, mean: float, sigma: float, clip: bool) -> torch.Tensor:
    floats = working(images)
    noise = mean * bound(images) + noise_like(floats, key) * (sigma * bound(images))
    if images.is_floating_point():
        return (images + noise).clamp(0, 1) if clip else images + noise
    out = images.to(torch.int16) + noise.to(torch.int16)
    return (out.clamp(0, 255) if clip else out).to(images.dtype)


def normalize(images: torch.Tensor, *, mean: tuple[float, ...], std: tuple[float, ...]) -> torch.Tensor:
    away, spread = (constant(tuple(one), images.dtype, images.device).view(1, -1, 1, 1) for one in (mean, std))
    return (images - away) / spread


def to_dtype(images: torch.Tensor, *, dtype: str, scale: bool) -> torch.Tensor:
    return tv.to_dtype(images, getattr(torch, dtype), scale=scale)


def to_tensor(images: torch.Tensor) -> torch.Tensor:
    return images
