"""Geometric operations on whole batches, with parameters for each picture: crops resized by weights, and sampling on a grid.

These are what Kornia does otherwise than torchvision. By how much stands in the rows of `batched`
(mean and 99th percentile in 1/255).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.nn import functional as nnf
from torchvision.transforms import InterpolationMode


@lru_cache(maxsize=256)
def constant(values: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of a number or of a tuple of some, made once for each device: nobody writes to it, and no step waits for its copy
    again."""
    with torch.inference_mode(False):  # it may be used in training later
        return torch.tensor(values, dtype=dtype, device=device)


def finest(device: torch.device) -> torch.dtype:
    """The floating point of most digits that a device surely has: Apple's GPUs, and some of Intel's, have no float64."""
    return torch.float64 if device.type in ("cpu", "cuda") else torch.float32


_PILLOW_MODES = {0: "nearest", 2: "bilinear", 3: "bicubic"}


def mode_name(interpolation: Any) -> str:
    """What torchvision takes as an interpolation, by name."""
    if isinstance(interpolation, InterpolationMode):
        return str(interpolation.value)
    return _PILLOW_MODES.get(interpolation, "") if isinstance(interpolation, int) else str(interpolation)


def pair(size: Any) -> tuple[int, int]:
    """Height and width, of what torchvision takes as a size."""
    values = [size] if isinstance(size, int) else list(size)
    return (values[0], values[0]) if len(values) == 1 else (values[0], values[1])


def to_input_dtype(floats: torch.Tensor, like: torch.Tensor, *, truncate: bool = False) -> torch.Tensor:
    """Convert back to the dtype of the input: whole numbers are rounded, or truncated as torchvision's colour functions do."""
    if like.is_floating_point():
        return floats.to(like.dtype)
    whole = floats if truncate else floats.round()
    return (whole.clamp(0, 255) if like.dtype == torch.uint8 else whole).to(like.dtype)


def as_float(images: torch.Tensor) -> torch.Tensor:
    """In floating point, in the units that they have."""
    return images if images.is_floating_point() else images.to(torch.float32)


# -- resampling --------------------------------------------------------------------------------------------------------


def _cubic(distance: torch.Tensor) -> torch.Tensor:
    x, a = distance.abs(), -0.5
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def _weights(start: torch.Tensor, length: torch.Tensor, size: int, source: int, interpolation: str) -> torch.Tensor:
    """For each sample the (size, source) matrix that resamples ``length`` pixels from ``start`` on to ``size``."""
    scale = (length / size).view(-1, 1, 1)
    middle = (torch.arange(size, device=start.device, dtype=torch.float32).view(1, -1, 1) + 0.5) * scale
    pixel = torch.arange(source, device=start.device, dtype=torch.float32).view(1, 1, -1) - start.view(-1, 1, 1)
    inside = (pixel >= 0) & (pixel < length.view(-1, 1, 1))
    width = scale.clamp(min=1.0)
    distance = (pixel + 0.5 - middle) / width
    shape, reach = ((1 - distance.abs()).clamp(min=0), width) if interpolation == "bilinear" else (_cubic(distance), 2 * width)
    # Pixels are counted in from the rounded ends of the window, as torchvision counts them.
    low, high = torch.floor(middle - reach + 0.5), torch.floor(middle + reach + 0.5)
    shape = shape * (inside & (pixel >= low) & (pixel < high))
    return shape / shape.sum(dim=2, keepdim=True)


def resized_crop(
    images: torch.Tensor, *, top: torch.Tensor, left: torch.Tensor, height: torch.Tensor, width: torch.Tensor,
    size: tuple[int, ...], interpolation: Any, **_: Any,
) -> torch.Tensor:  # fmt: skip
    """Windows of each picture's own, resized to one size with antialiasing."""
    (rows, columns), mode = pair(size), mode_name(interpolation)
    floats = as_float(images)
    down = _weights(top.to(torch.float32), height.to(torch.float32), rows, images.shape[-2], mode).to(floats.dtype)
    across = _weights(left.to(torch.float32), width.to(torch.float32), columns, images.shape[-1], mode).to(floats.dtype)
    return to_input_dtype(down.unsqueeze(1) @ (floats @ across.transpose(1, 2).unsqueeze(1)), images)


# -- moving whole pixels -----------------------------------------------------------------------------------------------


def crop(images: torch.Tensor, *, top: torch.Tensor, left: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Windows of one size, at a place of each picture's own."""
    every = torch.arange(len(images), device=images.device).view(-1, 1, 1, 1)
    channel = torch.arange(images.shape[1], device=images.device).view(1, -1, 1, 1)
    rows = top.long().view(-1, 1, 1, 1) + torch.arange(height, device=images.device).view(-1, 1)
    columns = left.long().view(-1, 1, 1, 1) + torch.arange(width, device=images.device)
    return images[every, channel, rows, columns]


# -- sampling on a grid ------------------------------------------------------------------------------------------------


def on_grid(images: torch.Tensor, grid: torch.Tensor, interpolation: str, fill: Any) -> torch.Tensor:
    """Pixels at the places of the grid (n, height, width, 2); ``fill`` beyond the edges."""
    floats = as_float(images)
    grid = grid.to(floats.dtype)
    if fill is not None:
        floats = torch.cat((floats, torch.ones_like(floats[:, :1])), dim=1)
    out = nnf.grid_sample(floats, grid, mode=interpolation, padding_mode="zeros", align_corners=False)
    if fill is not None:
        out, covered = out[:, :-1], out[:, -1:]
        fill_values = tuple(fill) if isinstance(fill, (tuple, list)) else (float(fill),)
        fill_color = constant(fill_values, out.dtype, out.device).view(1, -1, 1, 1)
        # Half-covered pixels are blended twice, as torchvision blends them.
        out = (
            torch.where(covered < 0.5, fill_color, out) if interpolation == "nearest" else (out - fill_color) * covered + fill_color
        )
    return to_input_dtype(out, images)


def _mapped(x: torch.Tensor, y: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    """The places (x, y, 1) of every row and column, by each of the matrices (n, 3, m): n, height, width, m."""
    places = torch.stack([*torch.meshgrid(x, y, indexing="xy"), torch.ones(len(y), len(x), device=x.device)], dim=-1)
    return (places.view(1, -1, 3).expand(len(matrices), -1, -1) @ matrices).view(len(matrices), len(y), len(x), -1)


def _half(images: torch.Tensor) -> torch.Tensor:
    """Of width and height."""
    return constant((0.5 * images.shape[-1], 0.5 * images.shape[-2]), torch.float32, images.device)


def _inverse_affine(
    angle: torch.Tensor, translate: torch.Tensor, scale: torch.Tensor, shear: torch.Tensor, center: tuple[float, float]
) -> torch.Tensor:
    """The matrices that lead from a pixel of the result to its origin; angles in degrees, lengths in pixels from the middle."""
    exact = finest(angle.device)
    turn, lean = torch.deg2rad(angle.to(exact)), torch.deg2rad(shear.to(exact))
    lean_x, lean_y = lean[:, 0], lean[:, 1]
    a = torch.cos(turn - lean_y) / torch.cos(lean_y)
    b = -(a * torch.tan(lean_x) + torch.sin(turn))
    c = torch.sin(turn - lean_y) / torch.cos(lean_y)
    d = torch.cos(turn) - c * torch.tan(lean_x)
    rows = torch.stack([torch.stack([d, -b], dim=1), torch.stack([-c, a], dim=1)], dim=1) / scale.to(exact).view(-1, 1, 1)
    middle = constant(tuple(center), exact, angle.device).view(1, 2, 1)
    offset = middle - rows @ (middle + translate.to(exact).unsqueeze(2))
    return torch.cat([rows, offset], dim=2).to(torch.float32)


def affine(
    images: torch.Tensor, *, angle: torch.Tensor, translate: torch.Tensor, scale: torch.Tensor, shear: torch.Tensor,
    interpolation: Any, fill: Any, center: tuple[float, float] | None,
) -> torch.Tensor:  # fmt: skip
    height, width = images.shape[-2:]
    from_middle = (0.0, 0.0) if center is None else (center[0] - width * 0.5, center[1] - height * 0.5)
    # A number leans along x alone; a list of one along both.
    shear = torch.stack([shear, torch.zeros_like(shear)], dim=1) if shear.ndim == 1 else shear.expand(-1, 2)
    matrices = _inverse_affine(angle, translate, scale, shear, from_middle)
    y, x = (torch.linspace((1 - side) * 0.5, (side - 1) * 0.5, side, device=images.device) for side in (height, width))
    return on_grid(images, _mapped(x, y, matrices.transpose(1, 2) / _half(images)), mode_name(interpolation), fill)


def rotate(
    images: torch.Tensor, *, angle: torch.Tensor, interpolation: Any, center: tuple[float, float] | None, fill: Any, **_: Any
) -> torch.Tensor:
    one, pairs = torch.ones_like(angle), torch.zeros_like(angle).view(-1, 1).expand(-1, 2)
    return affine(
        images, angle=-(angle % 360), translate=pairs, scale=one, shear=pairs, interpolation=interpolation, fill=fill, center=center
    )


def perspective(images: torch.Tensor, *, coefficients: torch.Tensor, interpolation: Any, fill: Any, **_: Any) -> torch.Tensor:
    """``coefficients`` (n, 8): torchvision's, solved from the points where they were drawn."""
    coefficients = coefficients.to(torch.float32)
    matrices = torch.cat([coefficients, torch.ones_like(coefficients[:, :1])], dim=1).view(-1, 3, 3)
    y, x = (torch.arange(side, device=images.device, dtype=torch.float32) + 0.5 for side in images.shape[-2:])
    moved = _mapped(x, y, matrices.transpose(1, 2))
    return on_grid(images, moved[..., :2] / _half(images) / moved[..., 2:] - 1, mode_name(interpolation), fill)


def elastic(images: torch.Tensor, *, displacement: torch.Tensor, interpolation: Any, fill: Any) -> torch.Tensor:
    """Each picture by its own field of shifts (n, 1, height, width, 2)."""
    y, x = (torch.linspace((1 - side) / side, (side - 1) / side, side, device=images.device) for side in images.shape[-2:])
    base = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)
    return on_grid(images, base + displacement[:, 0].to(torch.float32), mode_name(interpolation), fill)


def erase(
    images: torch.Tensor, *, i: torch.Tensor, j: torch.Tensor, h: torch.Tensor, w: torch.Tensor, v: Any, **_: Any
) -> torch.Tensor:
    """A rectangle of each picture's own, of one color ``v`` (channels, 1, 1)."""
    rows = torch.arange(images.shape[-2], device=images.device).view(1, -1, 1)
    columns = torch.arange(images.shape[-1], device=images.device).view(1, 1, -1)
    top, left, height, width = (value.view(-1, 1, 1) for value in (i, j, h, w))
    hole = (rows >= top) & (rows < top + height) & (columns >= left) & (columns < left + width)
    color = constant(tuple(v.flatten().tolist()), torch.float32, images.device).view(1, -1, 1, 1).to(images.dtype)
    return torch.where(hole.unsqueeze(1), color, images)
