"""Color operations on whole batches, with a factor for each picture. Kornia does the arithmetic where it agrees with torchvision.

Bytes stay bytes from one operation to the next and are rounded or truncated where torchvision does it, so that a threshold later in
the list (solarize, posterize, equalize) sees the same values.
"""

from __future__ import annotations

from typing import Any

import torch
from kornia import enhance, filters
from torchvision.transforms.v2 import functional as tv

from pipefix.augment.geometry import as_float, constant, pair, to_input_dtype

BLACK, MEAN_GREY, GREY = range(3)
"""What `blended` blends pictures with."""


def _white(images: torch.Tensor) -> float:
    return 1.0 if images.is_floating_point() or images.dtype == torch.bool else float(torch.iinfo(images.dtype).max)


def _column(factor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return factor.to(like.dtype).view(-1, 1, 1, 1)


def _grey(images: torch.Tensor) -> torch.Tensor:
    """The brightness of every pixel, by torchvision's weights (Kornia's have a digit less); whole where the pictures are bytes."""
    return as_float(tv.rgb_to_grayscale(images))


def _blend(images: torch.Tensor, base: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    floats = as_float(images)
    share = _column(factor, floats)
    return to_input_dtype((floats * share + base * (1 - share)).clamp(0, _white(images)), images, truncate=True)


def brightness(images: torch.Tensor, *, brightness_factor: torch.Tensor) -> torch.Tensor:
    floats = enhance.adjust_brightness_accumulative(as_float(images), brightness_factor.to(torch.float32), clip_output=False)
    return to_input_dtype(floats.clamp(0, _white(images)), images, truncate=True)


def contrast(images: torch.Tensor, *, contrast_factor: torch.Tensor) -> torch.Tensor:
    return _blend(images, _grey(images).mean(dim=(1, 2, 3), keepdim=True), contrast_factor)


def saturation(images: torch.Tensor, *, saturation_factor: torch.Tensor) -> torch.Tensor:
    return images if images.shape[1] == 1 else _blend(images, _grey(images), saturation_factor)


def blended(images: torch.Tensor, *, factor: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
    """Brightness, contrast or saturation, as each picture's ``kind`` says: what all do is blend it with black or grey."""
    grey, kinds = _grey(images), kind.view(-1, 1, 1, 1)
    base = torch.where(kinds == MEAN_GREY, grey.mean(dim=(1, 2, 3), keepdim=True), grey) * (kinds != BLACK)
    if images.shape[1] == 1:  # which has no saturation
        factor = torch.where(kind == GREY, 1.0, factor)
    return _blend(images, base, factor)


def hue(images: torch.Tensor, *, hue_factor: torch.Tensor) -> torch.Tensor:
    """Hues are counted in sixths of the circle, from red on."""
    if images.shape[1] == 1:
        return images
    unit = tv.to_dtype(images, torch.float32, scale=True)
    red, green, blue = unit.unbind(1)
    most, least = unit.amax(1), unit.amin(1)
    spread = most - least
    divisor = spread.clamp(min=torch.finfo(unit.dtype).tiny)  # grey has no hue: nothing is divided by it
    sixths = torch.where(
        most == red, (green - blue) / divisor, torch.where(most == green, (blue - red) / divisor + 2, (red - green) / divisor + 4)
    )
    turned = sixths.unsqueeze(1) + _column(6 * hue_factor, unit)
    distance = (turned + constant((5.0, 3.0, 1.0), unit.dtype, unit.device).view(1, 3, 1, 1)) % 6
    share = torch.minimum(distance, 4 - distance).clamp(0, 1)
    return tv.to_dtype(most.unsqueeze(1) - spread.unsqueeze(1) * share, images.dtype, scale=True)


def normalize(images: torch.Tensor, *, mean: tuple[float, ...], std: tuple[float, ...], **_: Any) -> torch.Tensor:
    shift, spread = (constant(tuple(values), images.dtype, images.device) for values in (mean, std))
    if images.shape[1] == 1:  # of grey pictures torchvision makes as many channels as there are numbers
        images = images.expand(-1, max(len(mean), len(std)), -1, -1)
    return enhance.normalize(images, shift, spread)


def permute_channels(images: torch.Tensor, *, permutation: torch.Tensor) -> torch.Tensor:
    return images[torch.arange(len(images), device=images.device).view(-1, 1), permutation.long()]


def posterize(images: torch.Tensor, *, bits: torch.Tensor) -> torch.Tensor:
    """Whole numbers lose their lowest bits; floating point is cut to as many levels of the range."""
    if not images.is_floating_point():
        most = torch.iinfo(images.dtype).max
        return images & ((most << (most.bit_length() - bits.to(torch.int64))) & most).to(images.dtype).view(-1, 1, 1, 1)
    levels = _column(2.0 ** bits.to(torch.float32), images)
    return torch.minimum((images * levels).floor().clamp(min=0), levels - 1) / levels


def solarize(images: torch.Tensor, *, threshold: torch.Tensor) -> torch.Tensor:
    return torch.where(images >= _column(threshold, as_float(images)), tv.invert(images), images)


def sharpness(images: torch.Tensor, *, sharpness_factor: torch.Tensor) -> torch.Tensor:
    if min(images.shape[-2:]) <= 2:
        return images
    floats = as_float(images)
    smooth = constant(((1, 1, 1), (1, 5, 1), (1, 1, 1)), floats.dtype, images.device) / 13
    inner = floats[..., 1:-1, 1:-1]
    blurred = torch.nn.functional.conv2d(floats, smooth.expand(images.shape[1], 1, 3, 3), groups=images.shape[1])
    blurred = blurred if images.is_floating_point() else blurred.round()
    out = floats.clone()
    out[..., 1:-1, 1:-1] = inner + (1 - _column(sharpness_factor, floats)) * (blurred - inner)
    return to_input_dtype(out.clamp(0, _white(images)), images, truncate=True)


def gaussian_blur(images: torch.Tensor, *, kernel_size: Any, sigma: torch.Tensor) -> torch.Tensor:
    """By Kornia's kernels and filter: `kornia.filters.gaussian_blur2d` waits for the device, to see that each sigma is positive."""
    floats = as_float(images)
    width, height = pair(kernel_size)
    sigma = sigma.to(floats.dtype).view(len(sigma), -1).expand(-1, 2)
    across = filters.get_gaussian_kernel1d(width, sigma[:, :1])
    down = filters.get_gaussian_kernel1d(height, sigma[:, 1:])
    return to_input_dtype(filters.filter2d_separable(floats, across, down, "reflect"), images)
