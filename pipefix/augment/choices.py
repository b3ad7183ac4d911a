"""Operations made of operations: choices and orders, the automatic policies of the papers, and mixing within a batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from pipefix.augment.operation import Op, chance, draw_list
from pipefix.augment.steps import DrawnStep, Frame
from pipefix.augment.stream import Stream


@dataclass(frozen=True)
class Apply(Op):
    """All of them, or none."""

    ops: tuple[Op, ...]
    p: float = 0.5

    @property
    def within(self) -> tuple[tuple[Op, ...], ...]:
        return (self.ops,)

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        stream, part, chosen = chance(self.p, stream, frame)
        steps = draw_list(self.ops, stream, part) if len(part) else []
        frame.put(chosen, part)
        return steps


@dataclass(frozen=True)
class _Lists(Op):
    lists: tuple[tuple[Op, ...], ...]

    @property
    def within(self) -> tuple[tuple[Op, ...], ...]:
        return self.lists

    def each(self, taken: Any, stream: Stream, frame: Frame) -> list[DrawnStep]:
        """For every list the samples that took it."""
        steps: list[DrawnStep] = []
        for place, listed in enumerate(self.lists):
            chosen = taken == place
            if chosen.any():
                part = frame.take(chosen)
                steps += draw_list(listed, stream.take(chosen).fork(place), part)
                frame.put(chosen, part)
        return steps


@dataclass(frozen=True)
class Choice(_Lists):
    """One of the lists."""

    p: tuple[float, ...]

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        taken = np.searchsorted(np.cumsum(self.p)[:-1], stream.fork(-1).uniform(1)[:, 0], side="right")
        return self.each(taken, stream, frame)


@dataclass(frozen=True)
class Order(_Lists):
    """All of the lists, in an order drawn for each sample."""

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        order = stream.fork(-1).order(len(self.lists))
        return [step for turn in range(len(self.lists)) for step in self.each(order[:, turn], stream, frame)]


# -- automatic policies ------------------------------------------------------------------------------------------------


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


@lru_cache(maxsize=4096)
def _strength(of: Magnitude, bins: int, size: int) -> tuple[float, ...]:
    """Every strength that the bins stand for; ``size`` is the side that it is a part of."""
    if of.first is None or of.last is None:
        return (0.0,) * bins
    scale = size if of.per else 1
    values = torch.linspace(of.first * scale, of.last * scale, bins)
    return tuple((values.round() if of.whole else values).tolist())


def _strengths(of: Magnitude, bins: int, which: Any, sign: Any, frame: Frame) -> Any:
    sides = frame.width if of.per == "width" else frame.height if of.per == "height" else np.zeros(len(frame), dtype=np.int64)
    strong = np.asarray([_strength(of, bins, int(side))[place] for side, place in zip(sides, which, strict=True)])
    return strong * sign if of.signed else strong


def named_step(name: str, strength: Any, frame: Frame, interpolation: str, fill: Any) -> list[DrawnStep]:
    """An operation of an automatic policy by its name in the papers."""
    around = {"interpolation": interpolation, "fill": fill}
    if name in ("ShearX", "ShearY", "TranslateX", "TranslateY"):
        moved = np.zeros((len(frame), 2))
        second = int(name.endswith("Y"))
        moved[:, second] = np.rad2deg(np.arctan(strength)) if name.startswith("Shear") else np.trunc(strength)
        shear, center = name.startswith("Shear"), (0.0, 0.0) if name.startswith("Shear") else None
        still = np.zeros((len(frame), 2))
        values = {"angle": np.zeros(len(frame)), "translate": still if shear else moved, "scale": np.ones(len(frame)),
                  "shear": moved if shear else still}  # fmt: skip
        return [frame.step("affine", values, center=center, **around)]
    if name == "Rotate":
        return [frame.step("rotate", {"angle": strength}, expand=False, center=None, **around)]
    if name in ("Brightness", "Color", "Contrast", "Sharpness"):
        step = {"Color": "saturation"}.get(name, name.lower())
        return [frame.step(step, {"factor": 1 + strength})]
    if name == "Posterize":
        return [frame.step("posterize", {"bits": strength.astype(np.int64)})]
    if name == "Solarize":
        return [frame.step("solarize", {"threshold": strength}, relative=True)]
    return [] if name == "Identity" else [frame.step(name.lower())]


def _one_of(op: RandAugment | AugMix, bins: int, which: Any, stream: Stream, frame: Frame) -> list[DrawnStep]:
    """An operation of the policy's space for each sample, as strong as the bin ``which``."""
    taken = stream.fork(0).below(len(op.space))
    sign = np.where(stream.fork(2).uniform(1)[:, 0] <= 0.5, -1.0, 1.0)
    steps: list[DrawnStep] = []
    for place, of in enumerate(op.space):
        chosen = taken == place
        if chosen.any():
            part = frame.take(chosen)
            strong = _strengths(of, bins, which[chosen], sign[chosen], part)
            steps += named_step(of.name, strong, part, op.interpolation, op.fill)
    return steps


@dataclass(frozen=True)
class AutoAugment(Op):
    policies: tuple[tuple[tuple[str, float, int | None], ...], ...]
    space: tuple[Magnitude, ...]
    interpolation: str = "nearest"
    fill: Any = None

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        taken = stream.fork(0).below(len(self.policies))
        by_name = {of.name: of for of in self.space}
        steps: list[DrawnStep] = []
        for turn in range(2):
            applied = stream.fork(1 + turn).uniform(1)[:, 0]
            sign = np.where(stream.fork(3 + turn).uniform(1)[:, 0] < 0.5, -1.0, 1.0)
            for name, p, which in sorted({policy[turn] for policy in self.policies}, key=str):
                listed = np.asarray([policy[turn] == (name, p, which) for policy in self.policies])
                chosen = listed[taken] & (applied <= p)
                if chosen.any():
                    part = frame.take(chosen)
                    strong = _strengths(by_name[name], 10, np.full(len(part), which or 0), sign[chosen], part)
                    steps += named_step(name, strong, part, self.interpolation, self.fill)
        return steps


@dataclass(frozen=True)
class RandAugment(Op):
    space: tuple[Magnitude, ...]
    num_ops: int = 2
    magnitude: int | None = 9
    """None: any of the bins."""
    bins: int = 31
    interpolation: str = "nearest"
    fill: Any = None

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        steps: list[DrawnStep] = []
        for turn in range(self.num_ops):
            own = stream.fork(turn)
            which = own.fork(1).below(self.bins) if self.magnitude is None else np.full(len(frame), self.magnitude)
            steps += _one_of(self, self.bins, which, own, frame)
        return steps


@dataclass(frozen=True)
class AugMix(Op):
    """Chains of operations on copies of the picture, blended with it."""

    space: tuple[Magnitude, ...]
    severity: int = 3
    width: int = 3
    depth: int = -1
    alpha: float = 1.0
    interpolation: str = "bilinear"
    fill: Any = None

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        halves = stream.fork(0).gamma(self.alpha, 2)
        shares = stream.fork(1).gamma(self.alpha, self.width)
        halves, shares = halves / halves.sum(axis=1, keepdims=True), shares / shares.sum(axis=1, keepdims=True)
        chains = []
        for chain in range(self.width):
            own = stream.fork(2 + chain)
            depth = np.full(len(frame), self.depth) if self.depth > 0 else 1 + own.fork(0).below(3)
            steps: list[DrawnStep] = []
            for turn in range(int(depth.max(initial=0))):
                chosen = depth > turn
                part = own.fork(1 + turn).take(chosen)
                steps += _one_of(self, 10, part.fork(1).below(self.severity), part, frame.take(chosen))
            chains.append(tuple(steps))
        weights = np.concatenate([halves[:, :1], shares * halves[:, 1:]], axis=1)
        return [frame.step("blend", {"weights": weights}, chains=tuple(chains))]


# -- within a batch ----------------------------------------------------------------------------------------------------


def _beta(alpha: float, stream: Stream) -> float:
    first, second = stream.together().gamma(alpha, 2)[0]
    return float(first / (first + second))


@dataclass(frozen=True)
class MixUp(Op):
    alpha: float = 1.0
    num_classes: int | None = None

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        return [frame.step("mix_up", share=_beta(self.alpha, stream), num_classes=self.num_classes)]


@dataclass(frozen=True)
class CutMix(Op):
    alpha: float = 1.0
    num_classes: int | None = None

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        once, height, width = stream.together(), int(frame.height[0]), int(frame.width[0])
        share = _beta(self.alpha, stream)
        x, y = int(once.fork(2).below(width)[0]), int(once.fork(3).below(height)[0])
        half = 0.5 * (1 - share) ** 0.5
        left, right = max(x - int(half * width), 0), min(x + int(half * width), width)
        top, bottom = max(y - int(half * height), 0), min(y + int(half * height), height)
        kept = 1 - (right - left) * (bottom - top) / (width * height)
        return [frame.step("cut_mix", box=(left, top, right, bottom), share=kept, num_classes=self.num_classes)]


BATCHED = (MixUp, CutMix)
"""These need the whole batch."""
