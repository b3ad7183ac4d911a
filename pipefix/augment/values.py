"""Operations on the values of pixels: conversions, colours, blur and noise; and what touches boxes only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipefix.augment.operation import Always, Op, Sometimes, chance
from pipefix.augment.steps import DrawnStep, Frame
from pipefix.augment.stream import Stream

# -- conversions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToTensor(Always):
    """A picture becomes a tensor of bytes, channels first. A tensor stays as it is."""

    step = "to_tensor"


@dataclass(frozen=True)
class ToDtype(Always):
    dtype: str = "float32"
    scale: bool = False
    """Whether 255 becomes 1."""

    step = "to_dtype"


@dataclass(frozen=True)
class Normalize(Always):
    mean: tuple[float, ...]
    std: tuple[float, ...]

    step = "normalize"


@dataclass(frozen=True)
class LinearTransformation(Always):
    matrix: tuple[tuple[float, ...], ...]
    mean: tuple[float, ...]

    step = "linear"


@dataclass(frozen=True)
class Identity(Op):
    """Nothing."""

    random = False

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        return []


@dataclass(frozen=True)
class Rgb(Op):
    """Three channels, repeated where there was one."""

    random = False

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        frame.channels = np.where(frame.channels == 1, 3, frame.channels)
        return [frame.step("rgb")]


@dataclass(frozen=True)
class OfBoxes(Op):
    """What touches boxes, points and masks only: clamping, their format, leaving out what is empty."""

    kind: str
    """torchvision's name for it, or "mask_dtype"."""
    settings: tuple[tuple[str, Any], ...] = ()

    random = False

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        return [frame.step("of_boxes", kind=self.kind, settings=dict(self.settings))]


# -- colour ------------------------------------------------------------------------------------------------------------

_JITTERED = ("brightness", "contrast", "saturation", "hue")


def _where(name: str, chosen: Any, frame: Frame, factor: Any) -> list[DrawnStep]:
    return [frame.take(chosen).step(name, {"factor": factor[chosen]})] if chosen.any() else []


def _permuted(stream: Stream, frame: Frame) -> list[DrawnStep]:
    steps = []
    for count in np.unique(frame.channels):
        chosen = frame.channels == count
        steps.append(frame.take(chosen).step("permute", {"permutation": stream.take(chosen).order(int(count))}))
    return steps


@dataclass(frozen=True)
class ColorJitter(Op):
    """Each sample has factors and an order of its own."""

    brightness: tuple[float, float] | None = None
    contrast: tuple[float, float] | None = None
    saturation: tuple[float, float] | None = None
    hue: tuple[float, float] | None = None

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        order = stream.fork(-1).order(len(_JITTERED))
        factors = {
            place: stream.fork(place).between(*limits)
            for place, name in enumerate(_JITTERED)
            if (limits := getattr(self, name)) is not None
        }
        steps: list[DrawnStep] = []
        for turn in range(len(_JITTERED)):
            for place, factor in factors.items():
                steps += _where(_JITTERED[place], order[:, turn] == place, frame, factor)
        return steps


@dataclass(frozen=True)
class PhotometricDistort(Op):
    brightness: tuple[float, float] = (0.875, 1.125)
    contrast: tuple[float, float] = (0.5, 1.5)
    saturation: tuple[float, float] = (0.5, 1.5)
    hue: tuple[float, float] = (-0.05, 0.05)
    p: float = 0.5

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        factor = {name: stream.fork(place).between(*getattr(self, name)) for place, name in enumerate(_JITTERED)}
        applied = {name: stream.fork(10 + place).uniform(1)[:, 0] < self.p for place, name in enumerate(_JITTERED)}
        early = stream.fork(20).uniform(1)[:, 0] < 0.5
        steps = _where("brightness", applied["brightness"], frame, factor["brightness"])
        steps += _where("contrast", applied["contrast"] & early, frame, factor["contrast"])
        steps += _where("saturation", applied["saturation"], frame, factor["saturation"])
        steps += _where("hue", applied["hue"], frame, factor["hue"])
        steps += _where("contrast", applied["contrast"] & ~early, frame, factor["contrast"])
        stream, part, _ = chance(self.p, stream.fork(21), frame)
        return steps + _permuted(stream, part)


@dataclass(frozen=True)
class Grayscale(Op):
    channels: int | None = 1
    """None: as many as before."""
    p: float = 1.0

    @property
    def is_random(self) -> bool:
        return self.p < 1

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        part, chosen = chance(self.p, stream, frame)[1:]
        if self.channels is not None:
            part.channels = np.full(len(part), self.channels)
            frame.put(chosen, part)
        return [part.step("grayscale", channels=self.channels)]


@dataclass(frozen=True)
class ChannelPermutation(Op):
    """The channels in another order."""

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        return _permuted(stream, frame)


@dataclass(frozen=True)
class Invert(Sometimes):
    step = "invert"


@dataclass(frozen=True)
class Autocontrast(Sometimes):
    step = "autocontrast"


@dataclass(frozen=True)
class Equalize(Sometimes):
    step = "equalize"


@dataclass(frozen=True)
class Posterize(Op):
    bits: int
    p: float = 0.5

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        return _at(self.p, stream, frame, "posterize", {"bits": self.bits})


@dataclass(frozen=True)
class Solarize(Op):
    threshold: float
    """In the units of the picture: 128 for bytes, 0.5 for floating point."""
    p: float = 0.5

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        return _at(self.p, stream, frame, "solarize", {"threshold": float(self.threshold)}, relative=False)


@dataclass(frozen=True)
class Sharpness(Op):
    factor: float
    p: float = 0.5

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        return _at(self.p, stream, frame, "sharpness", {"factor": float(self.factor)})


@dataclass(frozen=True)
class Gamma(Op):
    gamma: tuple[float, float]
    p: float = 0.5

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        stream, part, _ = chance(self.p, stream, frame)
        return [part.step("gamma", {"factor": stream.between(*self.gamma)})]


# -- blur, noise, compression ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GaussianBlur(Op):
    kernel_size: tuple[int, int]
    """Width and height, as torchvision has it."""
    sigma: tuple[float, float] = (0.1, 2.0)

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        return [frame.step("gaussian_blur", {"sigma": stream.between(*self.sigma)}, kernel_size=self.kernel_size)]


@dataclass(frozen=True)
class GaussianNoise(Op):
    mean: float = 0.0
    sigma: float = 0.1
    clip: bool = True

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        return [frame.step("gaussian_noise", {"key": stream.keys}, mean=self.mean, sigma=self.sigma, clip=self.clip)]


@dataclass(frozen=True)
class Jpeg(Op):
    quality: tuple[int, int]

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        return [frame.step("jpeg", {"quality": self.quality[0] + stream.below(self.quality[1] - self.quality[0] + 1)})]


def _at(p: float, stream: Stream, frame: Frame, step: str, value: dict[str, float], **fixed: Any) -> list[DrawnStep]:
    """A step at one value, for the samples that come up with probability ``p``."""
    part = chance(p, stream, frame)[1]
    return [part.step(step, {name: np.full(len(part), at) for name, at in value.items()}, **fixed)]
