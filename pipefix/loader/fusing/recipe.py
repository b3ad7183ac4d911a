"""The compiled form of a list of transforms: geometry in steps, everything else as a table from bytes to values.

Crops, a resize and flips are followed from the whole picture to what is wanted of it (`Layout`), with nothing computed. Each step
draws the numbers that torchvision's transform draws, in its order.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from pipefix.kernels.request import Arithmetic, Box, Filter, Finish, PictureCut
from pipefix.loader.fusing.errors import CannotFollow
from pipefix.loader.fusing.sample_random import SampleNumbers, numbers_of


@dataclass(frozen=True)
class FusedRecipe:
    steps: tuple[GeometryStep, ...]
    finish: Finish
    arithmetic: Arithmetic
    """Of the library that the list resizes with."""
    inexact: str | None
    """Why pixels cannot equal the list's own to the bit; None: they can."""

    def cut(self, width: int, height: int, key: int, *, exact: bool) -> PictureCut:
        """What the key's random choices ask of a picture. Raises `CannotFollow`."""
        numbers = numbers_of(key)
        layout = Layout(width, height)
        for step in self.steps:
            step.take(layout, numbers)
        return layout.cut(self.arithmetic) if exact else layout.cut(Arithmetic.TORCH, coarsest=8)


class Layout:
    """What a list of transforms has made of a picture so far, with nothing computed yet. Steps change it in place."""

    def __init__(self, width: int, height: int) -> None:
        self.box = Box(0, 0, width, height)
        self.full: tuple[int, int] | None = None
        """The size that the box is resized to; None: not resized."""
        self.window: Box | None = None
        self.mirrored = self.upside_down = False
        self.filter = Filter.BILINEAR

    @property
    def size(self) -> tuple[int, int]:
        """Width and height as the next transform sees them."""
        return (self.window or self.box)[2:]

    def crop(self, top: int, left: int, height: int, width: int) -> None:
        visible = self.window or self.box
        if top < 0 or left < 0 or top + height > visible.height or left + width > visible.width:
            raise CannotFollow(f"a crop of {width} x {height} reaches beyond {visible.width} x {visible.height}")
        # Counted from the picture's own left and top, whichever way round it is seen.
        across = visible.width - left - width if self.mirrored else left
        down = visible.height - top - height if self.upside_down else top
        part = Box(visible.x + across, visible.y + down, width, height)
        if self.window is None:
            self.box = part
        else:
            self.window = part

    def resize(self, height: int, width: int, filter: Filter) -> None:
        if self.full is not None:
            raise CannotFollow("a second resize")
        self.full, self.window, self.filter = (width, height), Box(0, 0, width, height), filter

    def flip(self, *, across: bool) -> None:
        self.mirrored ^= across
        self.upside_down ^= not across

    def cut(self, arithmetic: Arithmetic, coarsest: int = 1) -> PictureCut:
        whole = self.full or (self.box.width, self.box.height)
        window = self.window or Box(0, 0, *whole)
        return PictureCut(self.box, whole, window, self.mirrored, self.upside_down, self.filter, arithmetic, coarsest)


# -- steps -------------------------------------------------------------------------------------------------------------------


class GeometryStep:
    resizes: ClassVar[bool] = False

    def take(self, layout: Layout, numbers: SampleNumbers) -> None:
        raise NotImplementedError


DOUBT = 1e-6
"""Within which a number, and what is computed of it, is known before it is rounded to single precision as torchvision does."""


def _doubtful(side: float) -> bool:
    """Whether rounding to single precision before could round it to another whole number."""
    return abs(side % 1.0 - 0.5) <= DOUBT * side


@dataclass(frozen=True)
class RandomResizedCropStep(GeometryStep):
    height: int
    width: int
    scale: tuple[float, float]
    ratio: tuple[float, float]
    filter: Filter
    resizes = True

    def take(self, layout: Layout, numbers: SampleNumbers) -> None:
        top, left, height, width = self._crop(*layout.size, numbers)
        layout.crop(top, left, height, width)
        layout.resize(self.height, self.width, self.filter)

    def _crop(self, width: int, height: int, numbers: SampleNumbers) -> tuple[int, int, int, int]:
        area = height * width
        low, high = self._logarithms
        for _ in range(10):
            place = numbers.place
            wanted, aspect = area * numbers.between(*self.scale), math.exp(numbers.between(low, high))
            across, down = math.sqrt(wanted * aspect), math.sqrt(wanted / aspect)
            if _doubtful(across) or _doubtful(down):
                generator = numbers.torchs(place)
                wanted = area * torch.empty(1, device="cpu").uniform_(*self.scale, generator=generator).item()
                aspect = torch.exp(torch.empty(1, device="cpu").uniform_(low, high, generator=generator)).item()
                across, down = math.sqrt(wanted * aspect), math.sqrt(wanted / aspect)
            w, h = round(across), round(down)
            if 0 < w <= width and 0 < h <= height:
                top = numbers.whole(height - h + 1)
                return top, numbers.whole(width - w + 1), h, w
        shape, w, h = width / height, width, height  # the largest in the middle
        if shape < min(self.ratio):
            h = round(w / min(self.ratio))
        elif shape > max(self.ratio):
            w = round(h * max(self.ratio))
        return (height - h) // 2, (width - w) // 2, h, w

    @functools.cached_property
    def _logarithms(self) -> tuple[float, float]:
        """Of the ratio, in single precision as torchvision takes them."""
        low, high = torch.log(torch.tensor(self.ratio, device="cpu")).tolist()
        return low, high


@dataclass(frozen=True)
class ResizeStep(GeometryStep):
    size: tuple[int, ...]
    """(height, width), or the shorter side alone."""
    filter: Filter
    resizes = True

    def take(self, layout: Layout, numbers: SampleNumbers) -> None:
        width, height = layout.size
        if len(self.size) == 2:
            layout.resize(*self.size, self.filter)
            return
        shorter = self.size[0]
        longer = int(shorter * max(width, height) / min(width, height))
        new = (longer, shorter) if width <= height else (shorter, longer)
        layout.resize(*new, self.filter)


@dataclass(frozen=True)
class CenterCropStep(GeometryStep):
    height: int
    width: int

    def take(self, layout: Layout, numbers: SampleNumbers) -> None:
        width, height = layout.size
        top, left = round((height - self.height) / 2.0), round((width - self.width) / 2.0)
        layout.crop(top, left, self.height, self.width)


@dataclass(frozen=True)
class RandomCropStep(GeometryStep):
    height: int
    width: int
    both: bool
    """v1 draws for both axes as soon as one has room, v2 only for those that have."""

    def take(self, layout: Layout, numbers: SampleNumbers) -> None:
        width, height = layout.size
        down, across = height - self.height, width - self.width
        some = down > 0 or across > 0
        top = numbers.whole(down + 1) if down >= 0 and (down > 0 or (self.both and some)) else 0
        left = numbers.whole(across + 1) if across >= 0 and (across > 0 or (self.both and some)) else 0
        layout.crop(top, left, self.height, self.width)


@dataclass(frozen=True)
class FlipStep(GeometryStep):
    probability: float
    across: bool
    """Left and right change places; else top and bottom."""

    def take(self, layout: Layout, numbers: SampleNumbers) -> None:
        if numbers.unit() < self.probability:
            layout.flip(across=self.across)
