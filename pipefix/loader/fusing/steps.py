"""torchvision's geometric transforms as steps of a layout. Each draws the numbers that torchvision draws, in its order."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Protocol

import torch

from pipefix.kernels.picture import Filter
from pipefix.loader.fusing.layout import Layout
from pipefix.loader.fusing.sample_random import SampleNumbers


class GeometryStep(Protocol):
    @property
    def resizes(self) -> bool: ...

    def take(self, layout: Layout, numbers: SampleNumbers) -> None: ...


DOUBT = 1e-6
"""Within which a number, and what is computed of it, is known before it is rounded to single precision as torchvision does."""


def _doubtful(side: float) -> bool:
    """Whether rounding to single precision before could round it to another whole number."""
    return abs(side % 1.0 - 0.5) <= DOUBT * side


@dataclass(frozen=True)
class RandomResizedCropStep:
    height: int
    width: int
    scale: tuple[float, float]
    ratio: tuple[float, float]
    filter: Filter
    resizes: bool = field(default=True, init=False)

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
                wanted, aspect = self._as_torchvision(area, numbers.torchs(place))
                across, down = math.sqrt(wanted * aspect), math.sqrt(wanted / aspect)
            w, h = round(across), round(down)
            if 0 < w <= width and 0 < h <= height:
                top = numbers.whole(height - h + 1)
                return top, numbers.whole(width - w + 1), h, w
        return self._central(width, height)

    def _as_torchvision(self, area: int, generator: torch.Generator) -> tuple[float, float]:
        wanted = area * torch.empty(1).uniform_(*self.scale, generator=generator).item()
        return wanted, torch.exp(torch.empty(1).uniform_(*self._logarithms, generator=generator)).item()

    @functools.cached_property
    def _logarithms(self) -> tuple[float, float]:
        """Of the ratio, in single precision as torchvision takes them."""
        low, high = torch.log(torch.tensor(self.ratio)).tolist()
        return low, high

    def _central(self, width: int, height: int) -> tuple[int, int, int, int]:
        shape = width / height
        w, h = width, height
        if shape < min(self.ratio):
            h = round(w / min(self.ratio))
        elif shape > max(self.ratio):
            w = round(h * max(self.ratio))
        return (height - h) // 2, (width - w) // 2, h, w


@dataclass(frozen=True)
class ResizeStep:
    size: tuple[int, ...]
    """(height, width), or the shorter side alone."""
    filter: Filter
    resizes: bool = field(default=True, init=False)

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
class CenterCropStep:
    height: int
    width: int
    resizes: bool = field(default=False, init=False)

    def take(self, layout: Layout, numbers: SampleNumbers) -> None:
        width, height = layout.size
        top, left = round((height - self.height) / 2.0), round((width - self.width) / 2.0)
        layout.crop(top, left, self.height, self.width)


@dataclass(frozen=True)
class RandomCropStep:
    height: int
    width: int
    both: bool
    """v1 draws for both axes as soon as one has room, v2 only for those that have."""
    resizes: bool = field(default=False, init=False)

    def take(self, layout: Layout, numbers: SampleNumbers) -> None:
        width, height = layout.size
        down, across = height - self.height, width - self.width
        some = down > 0 or across > 0
        top = numbers.whole(down + 1) if down >= 0 and (down > 0 or (self.both and some)) else 0
        left = numbers.whole(across + 1) if across >= 0 and (across > 0 or (self.both and some)) else 0
        layout.crop(top, left, self.height, self.width)


@dataclass(frozen=True)
class FlipStep:
    probability: float
    across: bool
    """Left and right change places; else top and bottom."""
    resizes: bool = field(default=False, init=False)

    def take(self, layout: Layout, numbers: SampleNumbers) -> None:
        if numbers.unit() < self.probability:
            layout.flip(across=self.across)
