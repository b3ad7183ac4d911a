"""What a list of transforms does, in words that belong to no library: frozen, with every parameter."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Op:
    """One operation on a sample."""

    def __str__(self) -> str:
        shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self))
        return f"{type(self).__name__}({shown})"


@dataclass(frozen=True)
class Untranslatable(Op):
    """An operation that stays where it is, and why."""

    op: str
    """Its name, as a person would recognise it."""
    why: str
    is_random: bool = True
    """Whether it may be: it cannot be looked into."""


# -- values ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToTensor(Op):
    """A picture becomes a tensor of bytes, channels first. A tensor stays as it is."""


@dataclass(frozen=True)
class ToDtype(Op):
    dtype: str = "float32"
    scale: bool = False
    """Whether 255 becomes 1."""


@dataclass(frozen=True)
class Normalize(Op):
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class LinearTransformation(Op):
    matrix: tuple[tuple[float, ...], ...]
    mean: tuple[float, ...]


@dataclass(frozen=True)
class Identity(Op):
    """Nothing."""


# -- shape -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Resize(Op):
    size: tuple[int, ...] | None
    """(height, width), or (shorter side,)."""
    interpolation: str = "bilinear"
    max_size: int | None = None
    antialias: bool = True


@dataclass(frozen=True)
class CenterCrop(Op):
    size: tuple[int, int]


@dataclass(frozen=True)
class RandomCrop(Op):
    size: tuple[int, int]
    padding: tuple[int, int, int, int] | None = None
    """Left, top, right, bottom."""
    pad_if_needed: bool = False
    fill: Any = 0
    padding_mode: str = "constant"


@dataclass(frozen=True)
class RandomResizedCrop(Op):
    size: tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: str = "bilinear"
    antialias: bool = True


@dataclass(frozen=True)
class Pad(Op):
    padding: tuple[int, int, int, int]
    fill: Any = 0
    padding_mode: str = "constant"


@dataclass(frozen=True)
class HorizontalFlip(Op):
    p: float = 0.5


@dataclass(frozen=True)
class VerticalFlip(Op):
    p: float = 0.5


@dataclass(frozen=True)
class Rotation(Op):
    degrees: tuple[float, float]
    interpolation: str = "nearest"
    expand: bool = False
    center: tuple[float, float] | None = None
    fill: Any = 0


@dataclass(frozen=True)
class Affine(Op):
    degrees: tuple[float, float]
    translate: tuple[float, float] | None = None
    scale: tuple[float, float] | None = None
    shear: tuple[float, ...] | None = None
    interpolation: str = "nearest"
    fill: Any = 0
    center: tuple[float, float] | None = None


@dataclass(frozen=True)
class Perspective(Op):
    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: str = "bilinear"
    fill: Any = 0


@dataclass(frozen=True)
class Elastic(Op):
    alpha: tuple[float, float] = (50.0, 50.0)
    sigma: tuple[float, float] = (5.0, 5.0)
    interpolation: str = "bilinear"
    fill: Any = 0


@dataclass(frozen=True)
class ScaleJitter(Op):
    target_size: tuple[int, int]
    scale_range: tuple[float, float] = (0.1, 2.0)
    interpolation: str = "bilinear"
    antialias: bool = True


@dataclass(frozen=True)
class RandomShortestSize(Op):
    min_size: tuple[int, ...]
    max_size: int | None = None
    interpolation: str = "bilinear"
    antialias: bool = True


@dataclass(frozen=True)
class RandomResize(Op):
    min_size: int
    max_size: int
    interpolation: str = "bilinear"
    antialias: bool = True


@dataclass(frozen=True)
class ZoomOut(Op):
    fill: Any = 0
    side_range: tuple[float, float] = (1.0, 4.0)
    p: float = 0.5


# -- colour ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColorJitter(Op):
    brightness: tuple[float, float] | None = None
    contrast: tuple[float, float] | None = None
    saturation: tuple[float, float] | None = None
    hue: tuple[float, float] | None = None


@dataclass(frozen=True)
class PhotometricDistort(Op):
    brightness: tuple[float, float] = (0.875, 1.125)
    contrast: tuple[float, float] = (0.5, 1.5)
    saturation: tuple[float, float] = (0.5, 1.5)
    hue: tuple[float, float] = (-0.05, 0.05)
    p: float = 0.5


@dataclass(frozen=True)
class Grayscale(Op):
    channels: int | None = 1
    """None: as many as before."""
    p: float = 1.0


@dataclass(frozen=True)
class Rgb(Op):
    """Three channels, repeated where there was one."""


@dataclass(frozen=True)
class ChannelPermutation(Op):
    """The channels in another order."""


@dataclass(frozen=True)
class Invert(Op):
    p: float = 0.5


@dataclass(frozen=True)
class Posterize(Op):
    bits: int
    p: float = 0.5


@dataclass(frozen=True)
class Solarize(Op):
    threshold: float
    """In the units of the picture: 128 for bytes, 0.5 for floating point."""
    p: float = 0.5


@dataclass(frozen=True)
class Sharpness(Op):
    factor: float
    p: float = 0.5


@dataclass(frozen=True)
class Autocontrast(Op):
    p: float = 0.5


@dataclass(frozen=True)
class Equalize(Op):
    p: float = 0.5


@dataclass(frozen=True)
class Gamma(Op):
    gamma: tuple[float, float]
    p: float = 0.5


# -- neighbourhoods, noise, holes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GaussianBlur(Op):
    kernel_size: tuple[int, int]
    """Width and height, as torchvision has it."""
    sigma: tuple[float, float] = (0.1, 2.0)


@dataclass(frozen=True)
class GaussianNoise(Op):
    mean: float = 0.0
    sigma: float = 0.1
    clip: bool = True


@dataclass(frozen=True)
class Jpeg(Op):
    quality: tuple[int, int]


@dataclass(frozen=True)
class Erasing(Op):
    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: tuple[float, ...] | None = (0.0,)
    """None: noise."""


# -- choices -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Apply(Op):
    """All of them, or none."""

    ops: tuple[Op, ...]
    p: float = 0.5


@dataclass(frozen=True)
class Choice(Op):
    """One of the lists."""

    lists: tuple[tuple[Op, ...], ...]
    p: tuple[float, ...]


@dataclass(frozen=True)
class Order(Op):
    """All of the lists, in an order drawn for each sample."""

    lists: tuple[tuple[Op, ...], ...]


@dataclass(frozen=True)
class Magnitude:
    """How strong an operation of an automatic policy may be: evenly spaced from the first to the last."""

    name: str
    first: float | None = None
    last: float | None = None
    per: str = ""
    """"width" or "height": a part of it."""
    signed: bool = False
    whole: bool = False


@dataclass(frozen=True)
class AutoAugment(Op):
    policies: tuple[tuple[tuple[str, float, int | None], ...], ...]
    space: tuple[Magnitude, ...]
    interpolation: str = "nearest"
    fill: Any = None


@dataclass(frozen=True)
class RandAugment(Op):
    space: tuple[Magnitude, ...]
    num_ops: int = 2
    magnitude: int | None = 9
    """None: any of the bins."""
    bins: int = 31
    interpolation: str = "nearest"
    fill: Any = None


@dataclass(frozen=True)
class AugMix(Op):
    space: tuple[Magnitude, ...]
    severity: int = 3
    width: int = 3
    depth: int = -1
    alpha: float = 1.0
    interpolation: str = "bilinear"
    fill: Any = None


# -- batches, boxes and points -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MixUp(Op):
    alpha: float = 1.0
    num_classes: int | None = None


@dataclass(frozen=True)
class CutMix(Op):
    alpha: float = 1.0
    num_classes: int | None = None


@dataclass(frozen=True)
class OfBoxes(Op):
    """What touches boxes, points and masks only: clamping, their format, leaving out what is empty."""

    kind: str
    """torchvision's name for it, or "mask_dtype"."""
    settings: tuple[tuple[str, Any], ...] = ()


BATCHED = (MixUp, CutMix)
"""These need the whole batch."""
FIXED = (
    ToTensor, ToDtype, Normalize, LinearTransformation, Identity, Resize, CenterCrop, Pad, Rgb, OfBoxes,
)  # fmt: skip
"""The same for the same sample every time."""
SIZING = (Resize, CenterCrop, RandomCrop, RandomResizedCrop)
"""After these every picture may have the same size."""


def within(op: Op) -> tuple[tuple[Op, ...], ...]:
    """The lists inside a choice."""
    if isinstance(op, Apply):
        return (op.ops,)
    return op.lists if isinstance(op, (Choice, Order)) else ()


def is_random(op: Op) -> bool:
    if isinstance(op, Untranslatable):
        return op.is_random
    if isinstance(op, Grayscale):
        return op.p < 1
    return not isinstance(op, FIXED)
