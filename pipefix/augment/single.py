"""torchvision's own functions, for one sample with its parameters.

The same functions take a picture of PIL, a tensor, boxes, points or a mask, so this table is also how boxes follow, and what the
other targets are held against.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torchvision.transforms.v2 import functional as tv

from pipefix.augment.geometry import displacement
from pipefix.augment.stream import normal


def _mode(name: str) -> Any:
    return tv.InterpolationMode(name)


def resize(sample: Any, *, height: int, width: int, interpolation: str, antialias: bool) -> Any:
    return tv.resize(sample, [height, width], interpolation=_mode(interpolation), antialias=antialias)


def resized_crop(
    sample: Any, *, top: int, left: int, height: int, width: int, size: tuple[int, int], interpolation: str, antialias: bool
) -> Any:
    return tv.resized_crop(sample, top, left, height, width, list(size), interpolation=_mode(interpolation), antialias=antialias)


def crop(sample: Any, *, top: int, left: int, height: int, width: int) -> Any:
    return tv.crop(sample, top, left, height, width)


def center_crop(sample: Any, *, size: tuple[int, int]) -> Any:
    return tv.center_crop(sample, list(size))


def pad(sample: Any, *, padding: list[int], fill: Any, padding_mode: str) -> Any:
    return tv.pad(sample, padding, fill=fill, padding_mode=padding_mode)


def rotate(sample: Any, *, angle: float, interpolation: str, expand: bool, center: Any, fill: Any) -> Any:
    return tv.rotate(
        sample, angle, interpolation=_mode(interpolation), expand=expand, center=list(center) if center else None, fill=fill
    )


def affine(
    sample: Any, *, angle: float, translate: Any, scale: float, shear: Any, interpolation: str, fill: Any, center: Any
) -> Any:
    return tv.affine(
        sample, angle, translate, scale, shear, interpolation=_mode(interpolation), fill=fill,
        center=list(center) if center else None,
    )  # fmt: skip


def perspective(sample: Any, *, start: Any, end: Any, interpolation: str, fill: Any) -> Any:
    return tv.perspective(sample, start, end, interpolation=_mode(interpolation), fill=fill)


def elastic(sample: Any, *, key: int, alpha: Any, sigma: Any, interpolation: str, fill: Any) -> Any:
    height, width = tv.get_size(sample)
    device = sample.device if isinstance(sample, torch.Tensor) else torch.device("cpu")
    shifts = displacement(np.asarray([key], dtype=np.uint64), alpha, sigma, height, width, device)
    return tv.elastic(sample, shifts, interpolation=_mode(interpolation), fill=fill)


def erase(sample: Any, *, top: int, left: int, height: int, width: int, key: int, value: Any) -> Any:
    channels, tall, wide = tv.get_dimensions(sample)
    if value is not None:
        colour = torch.tensor(value).view(-1, 1, 1)
    else:
        device = sample.device if isinstance(sample, torch.Tensor) else torch.device("cpu")
        whole = normal(np.asarray([key], dtype=np.uint64), (channels, tall, wide), device)[0]
        colour = whole[:, top : top + height, left : left + width]
    return tv.erase(sample, top, left, height, width, colour)


def grayscale(sample: Any, *, channels: int | None) -> Any:
    if isinstance(sample, torch.Tensor) and sample.shape[-3] == 3:
        # torchvision refuses a view that it made itself when the next operation writes in place.
        return tv.rgb_to_grayscale(sample, num_output_channels=channels or 3).clone()
    return tv.rgb_to_grayscale(sample, num_output_channels=channels or tv.get_num_channels(sample))


def solarize(sample: Any, *, threshold: float, relative: bool) -> Any:
    top = 1.0 if isinstance(sample, torch.Tensor) and sample.is_floating_point() else 255.0
    return tv.solarize(sample, threshold * top if relative else threshold)


def posterize(sample: Any, *, bits: int) -> Any:
    return tv.posterize(sample, bits)


def hue(sample: Any, *, factor: float) -> Any:
    return tv.adjust_hue(sample, factor)


def gaussian_blur(sample: Any, *, sigma: float, kernel_size: tuple[int, int]) -> Any:
    return tv.gaussian_blur(sample, list(kernel_size), [sigma, sigma])


def gaussian_noise(sample: Any, *, key: int, mean: float, sigma: float, clip: bool) -> Any:
    whole = normal(np.asarray([key], dtype=np.uint64), tuple(sample.shape), sample.device)[0]
    if sample.is_floating_point():
        out = sample + (mean + whole.to(sample.dtype) * sigma)
        return out.clamp(0, 1) if clip else out
    shifted = sample + (mean * 255 + whole * (sigma * 255)).to(torch.int16)
    return (shifted.clamp(0, 255) if clip else shifted).to(torch.uint8)


def linear(sample: Any, *, matrix: Any, mean: Any) -> Any:
    table, away = torch.tensor(matrix, dtype=sample.dtype), torch.tensor(mean, dtype=sample.dtype)
    return ((sample.reshape(-1) - away.to(sample.device)) @ table.to(sample.device)).reshape(sample.shape)


def to_tensor(sample: Any) -> Any:
    return sample if isinstance(sample, torch.Tensor) else tv.pil_to_tensor(sample)


def to_dtype(sample: Any, *, dtype: str, scale: bool) -> Any:
    return tv.to_dtype(sample, getattr(torch, dtype), scale=scale)


def permute(sample: Any, *, permutation: Any) -> Any:
    return tv.permute_channels(sample, permutation)


def jpeg(sample: Any, *, quality: int) -> Any:
    return tv.jpeg(sample, quality)


def normalize(sample: Any, *, mean: Any, std: Any) -> Any:
    return tv.normalize(sample, list(mean), list(std))


def _called(name: str, sample: Any) -> Any:
    """torchvision's function of that name; by name, so that what is made of it can be sent to a spawned worker."""
    return getattr(tv, name)(sample)


def _by_factor(name: str, sample: Any, *, factor: float) -> Any:
    return getattr(tv, name)(sample, factor)


SINGLE: dict[str, Callable[..., Any]] = {
    "resize": resize,
    "resized_crop": resized_crop,
    "crop": crop,
    "center_crop": center_crop,
    "pad": pad,
    "hflip": functools.partial(_called, "horizontal_flip"),
    "vflip": functools.partial(_called, "vertical_flip"),
    "rotate": rotate,
    "affine": affine,
    "perspective": perspective,
    "elastic": elastic,
    "erase": erase,
    "brightness": functools.partial(_by_factor, "adjust_brightness"),
    "contrast": functools.partial(_by_factor, "adjust_contrast"),
    "saturation": functools.partial(_by_factor, "adjust_saturation"),
    "hue": hue,
    "gamma": functools.partial(_by_factor, "adjust_gamma"),
    "sharpness": functools.partial(_by_factor, "adjust_sharpness"),
    "grayscale": grayscale,
    "rgb": functools.partial(_called, "grayscale_to_rgb"),
    "permute": permute,
    "invert": functools.partial(_called, "invert"),
    "posterize": posterize,
    "solarize": solarize,
    "autocontrast": functools.partial(_called, "autocontrast"),
    "equalize": functools.partial(_called, "equalize"),
    "gaussian_blur": gaussian_blur,
    "gaussian_noise": gaussian_noise,
    "jpeg": jpeg,
    "normalize": normalize,
    "linear": linear,
    "to_tensor": to_tensor,
    "to_dtype": to_dtype,
}
"""What does each step to one sample."""
