"""Recognises lists of transforms that can be fused: torchvision's, v1 and v2, of geometry and of values, in any usual order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image
from torchvision import transforms as v1
from torchvision.transforms import v2
from torchvision.transforms.functional import InterpolationMode

from pipefix.kernels.request import UINT8, Arithmetic, Filter, Finish, Ramp, Target
from pipefix.loader.fusing import recipe
from pipefix.loader.fusing.errors import NotFused
from pipefix.loader.fusing.sample_random import seeded
from pipefix.vocabulary.quantity import counted

FILTERS = {InterpolationMode.BILINEAR: Filter.BILINEAR, InterpolationMode.BICUBIC: Filter.BICUBIC}


def flat(transform: Any) -> Iterator[Any]:
    """The list without its nesting."""
    if type(transform) in (v1.Compose, v2.Compose):
        for nested in transform.transforms:
            yield from flat(nested)
    elif type(transform) is torch.nn.Sequential or isinstance(transform, (list, tuple)):
        for nested in transform:
            yield from flat(nested)
    elif type(transform) not in (v2.Identity, torch.nn.Identity):
        yield transform


def recognise(transform: Any, *, source: str) -> recipe.FusedRecipe:
    """The recipe of a transform list. ``source``: what enters it, ``pil`` or ``tensor`` (3 x H x W of uint8). Raises `NotFused`."""
    geometry: list[recipe.GeometryStep] = []
    rest: list[Any] = []
    kind, resized_as, inexact = source, source, None
    for operation in flat(transform):
        make = _GEOMETRY.get(type(operation))
        if make is None:
            if type(operation) not in _VALUES:
                raise NotFused(f"{_name(operation)} is no transform that can be fused")
            rest.append(operation)
            made = _valued(rest, source)
            kind = "pil" if not isinstance(made, torch.Tensor) else "float" if made.is_floating_point() else "tensor"
            continue
        step = make(operation)
        if step.resizes:
            if any(earlier.resizes for earlier in geometry):
                raise NotFused("the list resizes twice")
            if kind != "pil" and operation.antialias is not True:
                raise NotFused(f"{_name(operation)} resizes tensors without antialiasing")
            resized_as = kind
            if kind == "tensor" and isinstance(operation, (v1.Resize, v1.RandomResizedCrop)):
                inexact = "torchvision's v1 turns tensors to floats to resize them"
            elif kind == "float":
                inexact = "the list resizes floats, the kernel bytes"
            elif kind == "tensor" and not resizes_bytes(_filter(operation)):
                inexact = f"torchvision {torchvision.__version__} turns bytes into floats to resize them on this CPU"
            elif any(isinstance(earlier, recipe.FlipStep) for earlier in geometry):
                inexact = "the list flips before it resizes"
        geometry.append(step)
    if not geometry:
        raise NotFused("the list crops and resizes nothing: there is nothing to fuse")
    arithmetic = pillow_order() if resized_as == "pil" else Arithmetic.TORCH
    if arithmetic is None:
        inexact = inexact or f"Pillow {PIL.__version__} resizes in a way that is not known"
    return recipe.FusedRecipe(tuple(geometry), _finish(rest, source), arithmetic or Arithmetic.TORCH, inexact)


def _name(operation: Any) -> str:
    kind = type(operation)
    where = kind.__module__.split(".")[0]
    return f"{kind.__qualname__} (of {where})" if where not in ("torchvision", "__main__") else kind.__qualname__


# ---- geometry ----


def _filter(operation: Any) -> Filter:
    mode = operation.interpolation
    filter_of_mode = FILTERS.get(InterpolationMode(mode) if isinstance(mode, str) else mode)
    if filter_of_mode is None:
        raise NotFused(f"{_name(operation)} interpolates by {getattr(mode, 'value', mode)}; bilinear and bicubic can be fused")
    return filter_of_mode


def _pair(size: Any) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    numbers = [int(side) for side in size]
    return numbers[0], numbers[-1]


def _random_resized_crop(operation: Any) -> recipe.GeometryStep:
    scale, ratio = (tuple(float(end) for end in ends) for ends in (operation.scale, operation.ratio))
    return recipe.RandomResizedCropStep(*_pair(operation.size), (scale[0], scale[1]), (ratio[0], ratio[1]), _filter(operation))


def _resize(operation: Any) -> recipe.GeometryStep:
    if operation.size is None or operation.max_size is not None:
        raise NotFused("Resize with max_size is not fused")
    size = (operation.size,) if isinstance(operation.size, int) else tuple(int(side) for side in operation.size)
    return recipe.ResizeStep(size, _filter(operation))


def _random_crop(operation: Any, *, both: bool) -> recipe.GeometryStep:
    if operation.padding is not None:
        raise NotFused("RandomCrop with padding is not fused")
    return recipe.RandomCropStep(*_pair(operation.size), both)


_GEOMETRY: dict[type, Callable[[Any], recipe.GeometryStep]] = {
    **dict.fromkeys((v1.RandomResizedCrop, v2.RandomResizedCrop), _random_resized_crop),
    **dict.fromkeys((v1.Resize, v2.Resize), _resize),
    **dict.fromkeys((v1.CenterCrop, v2.CenterCrop), lambda crop: recipe.CenterCropStep(*_pair(crop.size))),
    v1.RandomCrop: functools.partial(_random_crop, both=True),
    v2.RandomCrop: functools.partial(_random_crop, both=False),
    **dict.fromkeys((v1.RandomHorizontalFlip, v2.RandomHorizontalFlip), lambda flip: recipe.FlipStep(float(flip.p), across=True)),
    **dict.fromkeys((v1.RandomVerticalFlip, v2.RandomVerticalFlip), lambda flip: recipe.FlipStep(float(flip.p), across=False)),
}
"""By the very class: a subclass may do anything."""


# ---- values ----

_VALUES: set[type] = {
    v1.ToTensor, v1.PILToTensor, v1.ConvertImageDtype, v1.Normalize,
    v2.ToTensor, v2.PILToTensor, v2.ConvertImageDtype, v2.Normalize, v2.ToImage, v2.ToPureTensor, v2.ToDtype, v2.RGB,
}  # fmt: skip
"""Each value of the outcome depends on one byte of the picture; that of the same place and channel."""
_TO_TENSOR: set[type] = {v1.ToTensor, v1.PILToTensor, v2.ToTensor, v2.PILToTensor, v2.ToImage}
_OTHERS_TO_TENSOR = {f"timm.data.transforms.{name}" for name in ("MaybeToTensor", "MaybePILToTensor")}
"""Subclasses that take tensors as well, and do the same to pictures."""


@functools.cache
def _levels() -> np.ndarray[Any, Any]:
    """A picture of one row with every level, alike in all channels."""
    return np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)


def _valued(rest: list[Any], source: str) -> Any:
    """What the list makes of every level."""
    picture: Any = Image.fromarray(_levels()) if source == "pil" else torch.from_numpy(_levels()).permute(2, 0, 1).contiguous()
    with seeded(0):
        for operation in rest:
            try:
                picture = operation(picture)
            except (TypeError, ValueError, RuntimeError) as error:
                raise NotFused(f"{_name(operation)} cannot take what the list hands it: {error}") from error
    return picture


def in_three(transform: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """A list's operations on pictures, those that make a tensor of one of Pillow's and go on with its values one by one, and those
    after them. Raises `NotFused` where there are none of the second kind."""
    operations = list(flat(transform))
    kinds = [type(operation) for operation in operations]
    named = [f"{kind.__module__}.{kind.__qualname__}" for kind in kinds]
    begin = next((at for at, kind in enumerate(kinds) if kind in _TO_TENSOR or named[at] in _OTHERS_TO_TENSOR), None)
    if begin is None:
        raise NotFused("no operation of the list makes a tensor of a picture of Pillow's")
    end = next((at for at in range(begin + 1, len(kinds)) if kinds[at] not in _VALUES), len(kinds))
    return operations[:begin], operations[begin:end], operations[end:]


def places_pixels(operation: Any) -> bool:
    """Whether this operation only says where the pixels of a picture go."""
    return type(operation) in _GEOMETRY


def finish_of(values: list[Any]) -> tuple[Finish, type]:
    """What such operations, the first of which takes a picture of Pillow's, make of every level, and what type of tensor."""
    return _finish(values, "pil"), type(_valued(values, "pil"))


def _finish(rest: list[Any], source: str) -> Finish:
    transformed = _valued(rest, source)
    if not isinstance(transformed, torch.Tensor):
        raise NotFused("the list ends with a picture of Pillow's, not with a tensor")
    if tuple(transformed.shape) != (3, 1, 256):
        raise NotFused(f"the list ends with {counted(transformed.shape[0], 'channel')}, not with 3")
    if transformed.dtype == torch.uint8:
        if not np.array_equal(transformed.numpy()[:, 0], _levels()[0].T):
            raise NotFused("the list changes bytes into other bytes")
        return UINT8
    if transformed.dtype != torch.float32:
        raise NotFused(f"the list ends with {transformed.dtype}; float32 and uint8 can be fused")
    table = transformed.as_subclass(torch.Tensor).numpy()[:, 0].copy()
    return _with_ramp(table, [operation for operation in rest if type(operation) in (v1.Normalize, v2.Normalize)])


def _with_ramp(table: np.ndarray[Any, Any], normalising: list[Any]) -> Finish:
    """The table, and its arithmetic where that gives the table to the bit."""
    mean, deviation = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if len(normalising) == 1:
        statistics = [tuple(float(value) for value in ends) for ends in (normalising[0].mean, normalising[0].std)]
        if all(len(values) == 3 for values in statistics):
            mean, deviation = statistics  # type: ignore[assignment]
    for factor, divides in ((255.0, True), (1 / 255, False), (1.0, False)):
        finish = Finish(table, Ramp(factor, divides, mean, deviation))
        if finish.ramp is not None:
            return finish
    return Finish(table)


# ---- what resizes the list's pictures ----


@functools.cache
def resizes_bytes(filter: Filter) -> bool:
    """Whether torchvision resizes bytes as bytes, which is what `Arithmetic.TORCH` follows to the bit. Found by asking its v2: on a
    processor without AVX2, and in older versions on some others, it turns bytes into floats to resize them bilinearly, and rounds
    once at the end."""
    name = filter.name.lower()
    pixels = torch.from_numpy(np.random.default_rng(5).integers(0, 256, (3, 40, 61), dtype=np.uint8))
    own = v2.functional.resize(pixels, [30, 41], interpolation=InterpolationMode(name), antialias=True)
    return torch.equal(own, torch.nn.functional.interpolate(pixels[None], size=(30, 41), mode=name, antialias=True)[0])


@functools.cache
def pillow_order() -> Arithmetic | None:
    """In which order the installed Pillow resizes, found by asking it; None where it is neither known one."""
    from pipefix.kernels.twin import TwinKernel

    rng = np.random.default_rng(5)
    fits = {Arithmetic.PILLOW, Arithmetic.PILLOW_13}
    # On both sides of the border at which newer versions turn the order round.
    for width, height, new_width, new_height in ((40, 61, 30, 40), (40, 60, 30, 40), (20, 64, 33, 21), (50, 40, 31, 60)):
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        own = np.asarray(Image.fromarray(pixels).resize((new_width, new_height), Image.Resampling.BILINEAR))
        for arithmetic in tuple(fits):
            layout = recipe.Layout(width, height)
            layout.resize(new_height, new_width, Filter.BILINEAR)
            out = np.empty((1, 3, new_height, new_width), dtype=np.uint8)
            TwinKernel().pixels_into(pixels, layout.cut(arithmetic), UINT8, Target(out), 0)
            if not np.array_equal(out[0].transpose(1, 2, 0), own):
                fits.discard(arithmetic)
    return min(fits, key=lambda arithmetic: arithmetic.value) if fits else None
