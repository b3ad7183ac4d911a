"""Operations on the shape of a picture: resizing, cropping, padding, turning, bending; and what is written over a part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipefix.augment.operation import Op, Sometimes, chance
from pipefix.augment.steps import DrawnStep, Frame
from pipefix.augment.stream import Stream

TRIES = 10
"""How often a crop is drawn anew when it does not fit."""

# -- resizing ----------------------------------------------------------------------------------------------------------


class _Resizing(Op):
    """Operations that end in one resize."""

    interpolation: str
    antialias: bool

    def resized(self, frame: Frame, height: Any, width: Any) -> list[DrawnStep]:
        frame.height, frame.width = np.broadcast_to(height, len(frame)).copy(), np.broadcast_to(width, len(frame)).copy()
        values = {"height": frame.height.copy(), "width": frame.width.copy()}
        return [frame.step("resize", values, interpolation=self.interpolation, antialias=self.antialias)]


def _shorter_side(frame: Frame, side: Any, max_size: int | None) -> tuple[Any, Any]:
    """torchvision's rule: the longer side is cut to a whole number."""
    short, long = np.minimum(frame.height, frame.width), np.maximum(frame.height, frame.width)
    new_short = np.broadcast_to(np.asarray(side, dtype=np.int64), short.shape).copy()
    new_long = (new_short * long / short).astype(np.int64)
    if max_size is not None:
        over = new_long > max_size
        new_short[over] = (max_size * new_short[over] / new_long[over]).astype(np.int64)
        new_long[over] = max_size
    tall = frame.height >= frame.width
    return np.where(tall, new_long, new_short), np.where(tall, new_short, new_long)


def _times(frame: Frame, ratio: Any) -> tuple[Any, Any]:
    return (frame.height * ratio).astype(np.int64), (frame.width * ratio).astype(np.int64)


@dataclass(frozen=True)
class Resize(_Resizing):
    size: tuple[int, ...] | None
    """(height, width), or (shorter side,)."""
    interpolation: str = "bilinear"
    max_size: int | None = None
    antialias: bool = True

    random = False

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        if self.size is None:
            assert self.max_size is not None
            long = np.maximum(frame.height, frame.width)
            height, width = (
                np.where(side == long, self.max_size, (self.max_size * side / long).astype(np.int64))
                for side in (frame.height, frame.width)
            )
        elif len(self.size) == 2:
            height, width = np.asarray(self.size[0]), np.asarray(self.size[1])
        else:
            height, width = _shorter_side(frame, self.size[0], self.max_size)
        return self.resized(frame, height, width)


@dataclass(frozen=True)
class RandomResize(_Resizing):
    min_size: int
    max_size: int
    interpolation: str = "bilinear"
    antialias: bool = True

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        side = self.min_size + stream.below(self.max_size - self.min_size)
        return self.resized(frame, *_shorter_side(frame, side, None))


@dataclass(frozen=True)
class RandomShortestSize(_Resizing):
    min_size: tuple[int, ...]
    max_size: int | None = None
    interpolation: str = "bilinear"
    antialias: bool = True

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        ratio = np.asarray(self.min_size)[stream.below(len(self.min_size))] / np.minimum(frame.height, frame.width)
        if self.max_size is not None:
            ratio = np.minimum(ratio, self.max_size / np.maximum(frame.height, frame.width))
        return self.resized(frame, *_times(frame, ratio))


@dataclass(frozen=True)
class ScaleJitter(_Resizing):
    target_size: tuple[int, int]
    scale_range: tuple[float, float] = (0.1, 2.0)
    interpolation: str = "bilinear"
    antialias: bool = True

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        fitting = np.minimum(self.target_size[1] / frame.height, self.target_size[0] / frame.width)
        return self.resized(frame, *_times(frame, fitting * stream.between(*self.scale_range)))


# -- cropping and padding ----------------------------------------------------------------------------------------------


def _windows(scale: tuple[float, float], ratio: tuple[float, float], stream: Stream, frame: Frame) -> tuple[Any, Any]:
    """Heights and widths of random area and shape (width over height), so many tries a sample."""
    area = (frame.height * frame.width)[:, None] * (scale[0] + (scale[1] - scale[0]) * stream.fork(0).uniform(TRIES))
    low, high = np.log(ratio)
    aspect = np.exp(low + (high - low) * stream.fork(1).uniform(TRIES))
    return np.rint(np.sqrt(area / aspect)).astype(np.int64), np.rint(np.sqrt(area * aspect)).astype(np.int64)


@dataclass(frozen=True)
class CenterCrop(Op):
    size: tuple[int, int]

    random = False

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        step = frame.step("center_crop", size=self.size)
        frame.height, frame.width = np.full(len(frame), self.size[0]), np.full(len(frame), self.size[1])
        return [step]


@dataclass(frozen=True)
class RandomCrop(Op):
    size: tuple[int, int]
    padding: tuple[int, int, int, int] | None = None
    """Left, top, right, bottom."""
    pad_if_needed: bool = False
    fill: Any = 0
    padding_mode: str = "constant"

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        height, width = self.size
        padding = np.tile(np.asarray(self.padding or (0, 0, 0, 0)), (len(frame), 1))
        if self.pad_if_needed:
            lacking_width = np.maximum(width - frame.width - padding[:, 0] - padding[:, 2], 0)
            lacking_height = np.maximum(height - frame.height - padding[:, 1] - padding[:, 3], 0)
            padding = padding + np.stack([lacking_width, lacking_height, lacking_width, lacking_height], axis=1)
        steps = []
        if padding.any():
            steps.append(frame.step("pad", {"padding": padding}, fill=self.fill, padding_mode=self.padding_mode))
        padded_height = frame.height + padding[:, 1] + padding[:, 3]
        padded_width = frame.width + padding[:, 0] + padding[:, 2]
        if (padded_height < height).any() or (padded_width < width).any():
            smallest = (int(padded_height.min()), int(padded_width.min()))
            raise ValueError(f"a crop of {self.size} does not fit into a picture of {smallest}")
        top = stream.fork(0).below(padded_height - height + 1)
        left = stream.fork(1).below(padded_width - width + 1)
        if (padded_height != height).any() or (padded_width != width).any():
            steps.append(frame.step("crop", {"top": top, "left": left}, height=height, width=width))
        frame.height, frame.width = np.full(len(frame), height), np.full(len(frame), width)
        return steps


@dataclass(frozen=True)
class RandomResizedCrop(Op):
    size: tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: str = "bilinear"
    antialias: bool = True

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        values = self._boxes(stream, frame)
        frame.height, frame.width = np.full(len(frame), self.size[0]), np.full(len(frame), self.size[1])
        return [frame.step("resized_crop", values, size=self.size, interpolation=self.interpolation, antialias=self.antialias)]

    def _boxes(self, stream: Stream, frame: Frame) -> dict[str, Any]:
        """A crop of random area and shape for each sample; the middle where none fits."""
        height, width = _windows(self.scale, self.ratio, stream, frame)
        fits = (width > 0) & (width <= frame.width[:, None]) & (height > 0) & (height <= frame.height[:, None])
        first, every = fits.argmax(axis=1), np.arange(len(frame))
        fitting, height, width = fits.any(axis=1), height[every, first], width[every, first]
        shape = frame.width / frame.height
        narrow, wide = shape < min(self.ratio), shape > max(self.ratio)
        middle_width = np.where(wide, np.rint(frame.height * max(self.ratio)), frame.width).astype(np.int64)
        middle_height = np.where(narrow, np.rint(frame.width / min(self.ratio)), frame.height).astype(np.int64)
        height, width = np.where(fitting, height, middle_height), np.where(fitting, width, middle_width)
        spare_height, spare_width = frame.height - height, frame.width - width
        top = np.where(fitting, stream.fork(2).below(spare_height + 1), spare_height // 2)
        left = np.where(fitting, stream.fork(3).below(spare_width + 1), spare_width // 2)
        return {"top": top, "left": left, "height": height, "width": width}


@dataclass(frozen=True)
class Pad(Op):
    padding: tuple[int, int, int, int]
    fill: Any = 0
    padding_mode: str = "constant"

    random = False

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        left, top, right, bottom = self.padding
        frame.height, frame.width = frame.height + top + bottom, frame.width + left + right
        padding = np.tile(np.asarray(self.padding), (len(frame), 1))
        return [frame.step("pad", {"padding": padding}, fill=self.fill, padding_mode=self.padding_mode)]


@dataclass(frozen=True)
class ZoomOut(Op):
    fill: Any = 0
    side_range: tuple[float, float] = (1.0, 4.0)
    p: float = 0.5

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        stream, part, chosen = chance(self.p, stream, frame)
        ratio, across, down = (stream.fork(place).uniform(1)[:, 0] for place in range(3))
        height, width = _times(part, self.side_range[0] + ratio * (self.side_range[1] - self.side_range[0]))
        left, top = ((width - part.width) * across).astype(np.int64), ((height - part.height) * down).astype(np.int64)
        padding = np.stack([left, top, width - part.width - left, height - part.height - top], axis=1)
        part.height, part.width = height, width
        frame.put(chosen, part)
        return [part.step("pad", {"padding": padding}, fill=self.fill, padding_mode="constant")]


@dataclass(frozen=True)
class Erasing(Op):
    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: tuple[float, ...] | None = (0.0,)
    """None: noise."""

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        stream, frame, _ = chance(self.p, stream, frame)
        # torchvision's ratio is height over width here.
        width, height = _windows(self.scale, self.ratio, stream, frame)
        fits = (height < frame.height[:, None]) & (width < frame.width[:, None])
        every, first, fitting = np.arange(len(frame)), fits.argmax(axis=1), fits.any(axis=1)
        height, width = height[every, first], width[every, first]
        top, left = stream.fork(2).below(frame.height - height + 1), stream.fork(3).below(frame.width - width + 1)
        values = {"top": top, "left": left, "height": height, "width": width, "key": stream.keys}
        return [frame.take(fitting).step("erase", {key: each[fitting] for key, each in values.items()}, value=self.value)]


# -- turning and bending -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HorizontalFlip(Sometimes):
    step = "hflip"


@dataclass(frozen=True)
class VerticalFlip(Sometimes):
    step = "vflip"


@dataclass(frozen=True)
class Rotation(Op):
    degrees: tuple[float, float]
    interpolation: str = "nearest"
    expand: bool = False
    center: tuple[float, float] | None = None
    fill: Any = 0

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        angle = stream.between(*self.degrees)
        fixed = {"interpolation": self.interpolation, "expand": self.expand, "center": self.center, "fill": self.fill}
        step = frame.step("rotate", {"angle": angle}, **fixed)
        if self.expand:
            radians = np.deg2rad(angle)
            across, down = np.abs(np.cos(radians)), np.abs(np.sin(radians))
            height = np.ceil(frame.width * down + frame.height * across).astype(np.int64)
            frame.width, frame.height = np.ceil(frame.width * across + frame.height * down).astype(np.int64), height
        return [step]


@dataclass(frozen=True)
class Affine(Op):
    degrees: tuple[float, float]
    translate: tuple[float, float] | None = None
    scale: tuple[float, float] | None = None
    shear: tuple[float, ...] | None = None
    interpolation: str = "nearest"
    fill: Any = 0
    center: tuple[float, float] | None = None

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        nothing = np.zeros(len(frame))
        shift = [
            np.rint((2 * stream.fork(1 + axis).uniform(1)[:, 0] - 1) * part * side) + 0.0
            for axis, (part, side) in enumerate(zip(self.translate or (0.0, 0.0), (frame.width, frame.height), strict=True))
        ]
        shear = self.shear or ()
        shear_x = stream.fork(4).between(shear[0], shear[1]) if shear else nothing
        shear_y = stream.fork(5).between(shear[2], shear[3]) if len(shear) == 4 else nothing
        values = {
            "angle": stream.fork(0).between(*self.degrees),
            "translate": np.stack(shift, axis=1),
            "scale": stream.fork(3).between(*self.scale) if self.scale else nothing + 1,
            "shear": np.stack([shear_x, shear_y], axis=1),
        }
        return [frame.step("affine", values, interpolation=self.interpolation, fill=self.fill, center=self.center)]


@dataclass(frozen=True)
class Perspective(Op):
    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: str = "bilinear"
    fill: Any = 0

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        stream, frame, _ = chance(self.p, stream, frame)
        bound_height = (self.distortion_scale * (frame.height // 2)).astype(np.int64) + 1
        bound_width = (self.distortion_scale * (frame.width // 2)).astype(np.int64) + 1
        inward = [stream.fork(place).below((bound_width, bound_height)[place % 2]) for place in range(8)]
        right, bottom = frame.width - 1, frame.height - 1
        start = np.zeros((len(frame), 4, 2), dtype=np.int64)
        start[:, 1:3, 0], start[:, 2:4, 1] = right[:, None], bottom[:, None]
        end = np.stack(inward, axis=1).reshape(-1, 4, 2)
        end[:, 1:3, 0], end[:, 2:4, 1] = right[:, None] - end[:, 1:3, 0], bottom[:, None] - end[:, 2:4, 1]
        return [frame.step("perspective", {"start": start, "end": end}, interpolation=self.interpolation, fill=self.fill)]


@dataclass(frozen=True)
class Elastic(Op):
    alpha: tuple[float, float] = (50.0, 50.0)
    sigma: tuple[float, float] = (5.0, 5.0)
    interpolation: str = "bilinear"
    fill: Any = 0

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        fixed = {"alpha": self.alpha, "sigma": self.sigma, "interpolation": self.interpolation, "fill": self.fill}
        return [frame.step("elastic", {"key": stream.keys}, **fixed)]


SIZING = (Resize, CenterCrop, RandomCrop, RandomResizedCrop)
"""After these every picture may have the same size."""
