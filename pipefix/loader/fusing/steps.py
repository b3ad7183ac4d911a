"""torchvision's geometric transforms as steps of a layout. Each draws the numbers that torchvision draws, in its order."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Protocol

import torch

from pipefix.kernels.picture import Filter
from pipefix.loader.fusing.layout import Layout


class Step(Protocol):
    @property
    def resizes(self) -> bool: ...

    def take(self, layout: Layout, chance: torch.Generator) -> None: ...


def _whole(below: int, chance: torch.Generator) -> int:
    return int(torch.randint(0, below, (1,), generator=chance).item())


def _between(low: float, high: float, chance: torch.Generator) -> torch.Tensor:
    return torch.empty(1).uniform_(low, high, generator=chance)


@dataclass(frozen=True)
class RandomResizedCrop:
    height: int
    width: int
    scale: tuple[float, float]
    ratio: tuple[float, float]
    filter: Filter
    resizes: bool = field(default=True, init=False)

    def take(self, layout: Layout, chance: torch.Generator) -> None:
        top, left, height, width = self._crop(*layout.size, chance)
        layout.crop(top, left, height, width)
        layout.resize(self.height, self.width, self.filter)

    def _crop(self, width: int, height: int, chance: torch.Generator) -> tuple[int, int, int, int]:
        area = height * width
        low, high = self._logarithms
        for _ in range(10):
            wanted = area * _between(*self.scale, chance).item()
            aspect = torch.exp(_between(low, high, chance)).item()
            w, h = round(math.sqrt(wanted * aspect)), round(math.sqrt(wanted / aspect))
            if 0 < w <= width and 0 < h <= height:
                top = _whole(height - h + 1, chance)
                return top, _whole(width - w + 1, chance), h, w
        return self._central(width, height)

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
class Resize:
    size: tuple[int, ...]
    """(height, width), or the shorter side alone."""
    filter: Filter
    resizes: bool = field(default=True, init=False)

    def take(self, layout: Layout, chance: torch.Generator) -> None:
        width, height = layout.size
        if len(self.size) == 2:
            layout.resize(*self.size, self.filter)
            return
        shorter = self.size[0]
        longer = int(shorter * max(width, height) / min(width, height))
        new = (longer, shorter) if width <= height else (shorter, longer)
        layout.resize(*new, self.filter)


@dataclass(frozen=True)
class CenterCrop:
    height: int
    width: int
    resizes: bool = field(default=False, init=False)

    def take(self, layout: Layout, chance: torch.Generator) -> None:
        width, height = layout.size
        top, left = round((height - self.height) / 2.0), round((width - self.width) / 2.0)
        layout.crop(top, left, self.height, self.width)


@dataclass(frozen=True)
class RandomCrop:
    height: int
    width: int
    both: bool
    """v1 draws for both axes as soon as one has room, v2 only for those that have."""
    resizes: bool = field(default=False, init=False)

    def take(self, layout: Layout, chance: torch.Generator) -> None:
        width, height = layout.size
        down, across = height - self.height, width - self.width
        some = down > 0 or across > 0
        top = _whole(down + 1, chance) if down >= 0 and (down > 0 or (self.both and some)) else 0
        left = _whole(across + 1, chance) if across >= 0 and (across > 0 or (self.both and some)) else 0
        layout.crop(top, left, self.height, self.width)


@dataclass(frozen=True)
class Flip:
    probability: float
    across: bool
    """Left and right change places; else top and bottom."""
    resizes: bool = field(default=False, init=False)

    def take(self, layout: Layout, chance: torch.Generator) -> None:
        if torch.rand(1, generator=chance).item() < self.probability:
            layout.flip(across=self.across)
