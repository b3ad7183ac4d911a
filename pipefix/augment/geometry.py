"""Shapes of whole batches, a parameter set for each sample: resampling by weights, and sampling on a grid.

Kornia crops and resizes without antialiasing, so its results lie 8/255 from torchvision's on average. These kernels weigh pixels as
torchvision and PIL do, as two matrix products for the whole batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as nnf
from torchvision.transforms.v2 import functional as tv

from pipefix.augment.on_device import constant, table
from pipefix.augment.stream import flat, normal


def snapped(floats: torch.Tensor, like: torch.Tensor, *, cut: bool = False) -> torch.Tensor:
    """Back to the kind of picture it was: bytes are rounded (colour operations of torchvision cut instead)."""
    if like.is_floating_point():
        return floats.to(like.dtype)
    return (floats if cut else floats.round()).clamp(0, 255).to(like.dtype)


def working(images: torch.Tensor) -> torch.Tensor:
    """In floating point, in the units that they have."""
    return images if images.is_floating_point() else images.to(torch.float32)


# -- resampling --------------------------------------------------------------------------------------------------------


def _triangle(distance: torch.Tensor) -> torch.Tensor:
    return (1 - distance.abs()).clamp(min=0)


def _cubic(distance: torch.Tensor, a: float) -> torch.Tensor:
    x = distance.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def weights(start: torch.Tensor, length: torch.Tensor, size: int, source: int, interpolation: str, antialias: bool) -> torch.Tensor:
    """For each sample the (size, source) matrix that resamples ``length`` pixels from ``start`` on to ``size``."""
    device = start.device
    scale = (length / size).view(-1, 1, 1)
    out = torch.arange(size, device=device, dtype=torch.float32).view(1, -1, 1)
    pixel = torch.arange(source, device=device, dtype=torch.float32).view(1, 1, -1) - start.view(-1, 1, 1)
    inside = (pixel >= 0) & (pixel < length.view(-1, 1, 1))
    last = (length - 1).view(-1, 1, 1)
    if interpolation == "nearest":
        chosen = torch.floor(out * scale).minimum(last)
        return (pixel == chosen).to(torch.float32)
    if interpolation == "nearest-exact":
        chosen = torch.floor((out + 0.5) * scale).minimum(last)
        return (pixel == chosen).to(torch.float32)
    middle = (out + 0.5) * scale
    if antialias:
        width = scale.clamp(min=1.0)
        distance = (pixel + 0.5 - middle) / width
        shape = _triangle(distance) if interpolation == "bilinear" else _cubic(distance, -0.5)
        reach = width * (1 if interpolation == "bilinear" else 2)
        # Pixels are counted in from the rounded ends of the window, as torchvision counts them.
        low, high = torch.floor(middle - reach + 0.5), torch.floor(middle + reach + 0.5)
        shape = shape * (inside & (pixel >= low) & (pixel < high))
        return shape / shape.sum(dim=2, keepdim=True)
    # Without antialiasing the edge pixel stands for those beyond it.
    middle = middle - 0.5
    if interpolation == "bilinear":
        middle = middle.clamp(min=0)
    reach_out = range(2) if interpolation == "bilinear" else range(-1, 3)
    left = torch.floor(middle)
    result = torch.zeros((len(start), size, source), device=device)
    for offset in reach_out:
        distance = middle - left - offset
        share = _triangle(distance) if interpolation == "bilinear" else _cubic(distance, -0.75)
        chosen = torch.minimum((left + offset).clamp(min=0), last)
        result = result + share * (pixel == chosen)
    return result


def _resample(
    images: torch.Tensor, window: tuple[torch.Tensor, ...], size: tuple[int, int], interpolation: str, antialias: bool
) -> torch.Tensor:
    top, left, height, width = (one.to(torch.float32) for one in window)
    down = weights(top, height, size[0], images.shape[-2], interpolation, antialias)
    across = weights(left, width, size[1], images.shape[-1], interpolation, antialias)
    if interpolation.startswith("nearest") and not images.is_floating_point():
        return _picked(images, down.argmax(dim=2), across.argmax(dim=2))
    floats = working(images)
    down, across = down.to(floats.dtype), across.to(floats.dtype)
    narrow = floats @ across.transpose(1, 2).unsqueeze(1)
    return snapped(down.unsqueeze(1) @ narrow, images)


def _picked(images: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Rows and columns of each picture, by number."""
    every = torch.arange(len(images), device=images.device).view(-1, 1, 1, 1)
    channel = torch.arange(images.shape[1], device=images.device).view(1, -1, 1, 1)
    return images[every, channel, rows.view(len(images), 1, -1, 1), columns.view(len(images), 1, 1, -1)]


def resized_crop(
    images: torch.Tensor, *, top: torch.Tensor, left: torch.Tensor, height: torch.Tensor, width: torch.Tensor,
    size: tuple[int, int], interpolation: str, antialias: bool,
) -> torch.Tensor:  # fmt: skip
    return _resample(images, (top, left, height, width), size, interpolation, antialias)


def resize(images: torch.Tensor, *, height: torch.Tensor, width: torch.Tensor, interpolation: str, antialias: bool) -> torch.Tensor:
    size = (int(height[0]), int(width[0]))
    if size == tuple(images.shape[-2:]):
        return images
    zero = torch.zeros(len(images), device=images.device)
    window = (zero, zero, zero + images.shape[-2], zero + images.shape[-1])
    return _resample(images, window, size, interpolation, antialias)


# -- moving whole pixels -----------------------------------------------------------------------------------------------


def crop(images: torch.Tensor, *, top: torch.Tensor, left: torch.Tensor, height: int, width: int) -> torch.Tensor:
    rows = top.view(-1, 1) + torch.arange(height, device=images.device)
    columns = left.view(-1, 1) + torch.arange(width, device=images.device)
    return _picked(images, rows, columns)


def center_crop(images: torch.Tensor, *, size: tuple[int, int]) -> torch.Tensor:
    return tv.center_crop(images, list(size))


def pad(images: torch.Tensor, *, padding: Any, fill: Any, padding_mode: str) -> torch.Tensor:
    return tv.pad(images, padding[0].tolist(), fill=fill, padding_mode=padding_mode)


def hflip(images: torch.Tensor) -> torch.Tensor:
    return images.flip(-1)


def vflip(images: torch.Tensor) -> torch.Tensor:
    return images.flip(-2)


# -- sampling on a grid ------------------------------------------------------------------------------------------------


def on_grid(images: torch.Tensor, grid: torch.Tensor, interpolation: str, fill: Any) -> torch.Tensor:
    """Pixels at the places of the grid (n, height, width, 2); ``fill`` beyond the edges."""
    floats = working(images)
    grid = grid.to(floats.dtype)
    if fill is not None:
        floats = torch.cat((floats, torch.ones_like(floats[:, :1])), dim=1)
    out = nnf.grid_sample(floats, grid, mode=interpolation, padding_mode="zeros", align_corners=False)
    if fill is not None:
        out, covered = out[:, :-1], out[:, -1:]
        colours = tuple(fill) if isinstance(fill, (tuple, list)) else (float(fill),)
        colour = constant(colours, out.dtype, out.device).view(1, -1, 1, 1)
        # Half-covered pixels are blended twice, as torchvision blends them.
        out = torch.where(covered < 0.5, colour, out) if interpolation == "nearest" else (out - colour) * covered + colour
    return snapped(out, images)


def affine_grid(theta: torch.Tensor, height: int, width: int, out_height: int, out_width: int) -> torch.Tensor:
    """Where every pixel comes from; ``theta`` (n, 2, 3) counts pixels from the middle."""
    x = torch.linspace((1 - out_width) * 0.5, (out_width - 1) * 0.5, out_width, device=theta.device)
    y = torch.linspace((1 - out_height) * 0.5, (out_height - 1) * 0.5, out_height, device=theta.device)
    base = torch.stack([*torch.meshgrid(x, y, indexing="xy"), torch.ones(out_height, out_width, device=theta.device)], dim=-1)
    half = constant((0.5 * width, 0.5 * height), torch.float32, theta.device)
    scaled = theta.transpose(1, 2) / half
    return (base.view(1, -1, 3).expand(len(theta), -1, -1) @ scaled).view(len(theta), out_height, out_width, 2)


def inverse_affine(
    angle: torch.Tensor, translate: torch.Tensor, scale: torch.Tensor, shear: torch.Tensor, center: tuple[float, float]
) -> torch.Tensor:
    """The matrices that lead from a pixel of the result to its origin; angles in degrees, lengths in pixels from the middle."""
    turn, lean = torch.deg2rad(angle.double()), torch.deg2rad(shear.double())
    lean_x, lean_y = lean[:, 0], lean[:, 1]
    a = torch.cos(turn - lean_y) / torch.cos(lean_y)
    b = -(a * torch.tan(lean_x) + torch.sin(turn))
    c = torch.sin(turn - lean_y) / torch.cos(lean_y)
    d = torch.cos(turn) - c * torch.tan(lean_x)
    rows = torch.stack([torch.stack([d, -b], dim=1), torch.stack([-c, a], dim=1)], dim=1) / scale.double().view(-1, 1, 1)
    middle = constant(tuple(center), torch.float64, angle.device).view(1, 2, 1)
    offset = middle - rows @ (middle + translate.double().unsqueeze(2))
    return torch.cat([rows, offset], dim=2).to(torch.float32)


def _from_middle(center: tuple[float, float] | None, images: torch.Tensor) -> tuple[float, float]:
    if center is None:
        return (0.0, 0.0)
    return (center[0] - images.shape[-1] * 0.5, center[1] - images.shape[-2] * 0.5)


def affine(
    images: torch.Tensor, *, angle: torch.Tensor, translate: torch.Tensor, scale: torch.Tensor, shear: torch.Tensor,
    interpolation: str, fill: Any, center: tuple[float, float] | None,
) -> torch.Tensor:  # fmt: skip
    height, width = images.shape[-2:]
    theta = inverse_affine(angle, translate, scale, shear, _from_middle(center, images))
    return on_grid(images, affine_grid(theta, height, width, height, width), interpolation, fill)


def rotate(
    images: torch.Tensor, *, angle: torch.Tensor, interpolation: str, expand: bool, center: tuple[float, float] | None, fill: Any
) -> torch.Tensor:
    height, width = images.shape[-2:]
    if expand:
        mode = tv.InterpolationMode(interpolation)
        return tv.rotate(
            images, float(angle[0]), interpolation=mode, expand=True, center=list(center) if center else None, fill=fill
        )
    nothing = torch.zeros_like(angle)
    pairs = torch.stack([nothing, nothing], dim=1)
    theta = inverse_affine(-(angle % 360), pairs, nothing + 1, pairs, _from_middle(center, images))
    return on_grid(images, affine_grid(theta, height, width, height, width), interpolation, fill)


def perspective(images: torch.Tensor, *, start: torch.Tensor, end: torch.Tensor, interpolation: str, fill: Any) -> torch.Tensor:
    """``start`` and ``end`` (n, 4, 2): where four points are and where they go."""
    height, width = images.shape[-2:]
    start, end = start.double(), end.double()
    one, nothing = torch.ones_like(end[..., :1]), torch.zeros_like(end)
    known = torch.cat([end, one], dim=2)
    first = torch.cat([known, nothing, one * 0, -start[..., :1] * end], dim=2)
    second = torch.cat([nothing, one * 0, known, -start[..., 1:] * end], dim=2)
    left = torch.stack([first, second], dim=2).reshape(len(images), 8, 8)
    # (solve would wait for the device, to see whether it has succeeded)
    found = torch.linalg.solve_ex(left, start.reshape(len(images), 8)).result.to(torch.float32)
    matrix = torch.cat([found, torch.ones_like(found[:, :1])], dim=1).view(-1, 3, 3)
    x = torch.arange(width, device=images.device, dtype=torch.float32) + 0.5
    y = torch.arange(height, device=images.device, dtype=torch.float32) + 0.5
    base = torch.stack([*torch.meshgrid(x, y, indexing="xy"), torch.ones(height, width, device=images.device)], dim=-1)
    moved = base.view(1, -1, 3).expand(len(images), -1, -1) @ matrix.transpose(1, 2)
    half = constant((0.5 * width, 0.5 * height), torch.float32, images.device)
    grid = moved[..., :2] / half / moved[..., 2:] - 1
    return on_grid(images, grid.view(len(images), height, width, 2), interpolation, fill)


def displacement(
    keys: Any, alpha: tuple[float, float], sigma: tuple[float, float], height: int, width: int, device: torch.device
) -> torch.Tensor:
    """Smooth random shifts for each key, in parts of the picture."""
    noise = flat(keys, (2, height, width), device) * 2 - 1
    shifts = []
    for axis, side in enumerate((width, height)):
        field = noise[:, axis : axis + 1]
        if sigma[axis] > 0:
            reach = int(8 * sigma[axis] + 1) | 1
            field = tv.gaussian_blur(field, [reach, reach], list(sigma))
        shifts.append(field * alpha[axis] / side)
    return torch.cat(shifts, dim=1).permute(0, 2, 3, 1)


def elastic(
    images: torch.Tensor, *, key: Any, alpha: tuple[float, float], sigma: tuple[float, float], interpolation: str, fill: Any
) -> torch.Tensor:
    height, width = images.shape[-2:]
    y = torch.linspace((1 - height) / height, (height - 1) / height, height, device=images.device)
    x = torch.linspace((1 - width) / width, (width - 1) / width, width, device=images.device)
    base = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)
    return on_grid(images, base + displacement(key, alpha, sigma, height, width, images.device), interpolation, fill)


def erase(
    images: torch.Tensor, *, top: torch.Tensor, left: torch.Tensor, height: torch.Tensor, width: torch.Tensor, key: Any,
    value: tuple[float, ...] | None,
) -> torch.Tensor:  # fmt: skip
    rows = torch.arange(images.shape[-2], device=images.device).view(1, -1, 1)
    columns = torch.arange(images.shape[-1], device=images.device).view(1, 1, -1)
    tall = (rows >= top.view(-1, 1, 1)) & (rows < (top + height).view(-1, 1, 1))
    wide = (columns >= left.view(-1, 1, 1)) & (columns < (left + width).view(-1, 1, 1))
    hole = (tall & wide).unsqueeze(1)
    if value is not None:
        colour = constant(tuple(value), torch.float32, images.device).view(1, -1, 1, 1).to(images.dtype)
        return torch.where(hole, colour, images)
    return torch.where(hole, noise_like(images, key), images)


def noise_like(images: torch.Tensor, key: Any) -> torch.Tensor:
    """Standard normal numbers in the pictures' type, drawn for each key."""
    return normal(key, tuple(images.shape[1:]), images.device).to(images.dtype)


def linear(images: torch.Tensor, *, matrix: Any, mean: Any) -> torch.Tensor:
    flat_images = images.reshape(len(images), -1)
    away = table(mean, images.dtype, images.device)
    return ((flat_images - away) @ table(matrix, images.dtype, images.device)).reshape(images.shape)
