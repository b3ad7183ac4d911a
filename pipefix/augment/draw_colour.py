"""Draws the parameters of colour operations, of automatic policies and of mixing within a batch."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch

from pipefix.augment import ops
from pipefix.augment.draw import DRAWS, Draws, some
from pipefix.augment.steps import Frame, Step
from pipefix.augment.stream import Stream

JITTERED = ("brightness", "contrast", "saturation", "hue")


def _where(name: str, chosen: Any, frame: Frame, factor: Any) -> list[Step]:
    return [frame.take(chosen).step(name, {"factor": factor[chosen]})] if chosen.any() else []


def draw_jitter(op: ops.ColorJitter, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    """Each sample has factors and an order of its own."""
    order = stream.fork(-1).order(len(JITTERED))
    steps: list[Step] = []
    factors = {
        place: stream.fork(place).between(*limits)
        for place, name in enumerate(JITTERED)
        if (limits := getattr(op, name)) is not None
    }
    for turn in range(len(JITTERED)):
        for place, factor in factors.items():
            steps += _where(JITTERED[place], order[:, turn] == place, frame, factor)
    return steps


def draw_distort(op: ops.PhotometricDistort, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    factor = {name: stream.fork(place).between(*getattr(op, name)) for place, name in enumerate(JITTERED)}
    applied = {name: stream.fork(10 + place).uniform(1)[:, 0] < op.p for place, name in enumerate(JITTERED)}
    early = stream.fork(20).uniform(1)[:, 0] < 0.5
    steps = _where("brightness", applied["brightness"], frame, factor["brightness"])
    steps += _where("contrast", applied["contrast"] & early, frame, factor["contrast"])
    steps += _where("saturation", applied["saturation"], frame, factor["saturation"])
    steps += _where("hue", applied["hue"], frame, factor["hue"])
    steps += _where("contrast", applied["contrast"] & ~early, frame, factor["contrast"])
    stream, part, _ = some(op.p, stream.fork(21), frame)
    return steps + _permuted(stream, part)


def draw_permutation(op: ops.ChannelPermutation, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    return _permuted(stream, frame)


def _permuted(stream: Stream, frame: Frame) -> list[Step]:
    steps = []
    for count in np.unique(frame.channels):
        chosen = frame.channels == count
        steps.append(frame.take(chosen).step("permute", {"permutation": stream.take(chosen).order(int(count))}))
    return steps


def draw_grayscale(op: ops.Grayscale, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    part, chosen = some(op.p, stream, frame)[1:]
    if op.channels is not None:
        part.channels = np.full(len(part), op.channels)
        frame.put(chosen, part)
    return [part.step("grayscale", channels=op.channels)]


def draw_rgb(op: ops.Rgb, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    frame.channels = np.where(frame.channels == 1, 3, frame.channels)
    return [frame.step("rgb")]


def draw_invert(op: ops.Invert, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    return [some(op.p, stream, frame)[1].step("invert")]


def draw_posterize(op: ops.Posterize, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    part = some(op.p, stream, frame)[1]
    return [part.step("posterize", {"bits": np.full(len(part), op.bits)})]


def draw_solarize(op: ops.Solarize, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    part = some(op.p, stream, frame)[1]
    return [part.step("solarize", {"threshold": np.full(len(part), float(op.threshold))}, relative=False)]


def draw_sharpness(op: ops.Sharpness, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    part = some(op.p, stream, frame)[1]
    return [part.step("sharpness", {"factor": np.full(len(part), float(op.factor))})]


def draw_autocontrast(op: ops.Autocontrast, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    return [some(op.p, stream, frame)[1].step("autocontrast")]


def draw_equalize(op: ops.Equalize, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    return [some(op.p, stream, frame)[1].step("equalize")]


def draw_gamma(op: ops.Gamma, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    stream, part, _ = some(op.p, stream, frame)
    return [part.step("gamma", {"factor": stream.between(*op.gamma)})]


# -- automatic policies ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def strength(of: ops.Magnitude, bins: int, size: int) -> tuple[float, ...]:
    """Every strength that the bins stand for; ``size`` is the side that it is a part of."""
    if of.first is None or of.last is None:
        return (0.0,) * bins
    scale = size if of.per else 1
    values = torch.linspace(of.first * scale, of.last * scale, bins)
    return tuple((values.round() if of.whole else values).tolist())


def _strengths(of: ops.Magnitude, bins: int, which: Any, frame: Frame) -> Any:
    sides = frame.width if of.per == "width" else frame.height if of.per == "height" else np.zeros(len(frame), dtype=np.int64)
    return np.asarray([strength(of, bins, int(side))[place] for side, place in zip(sides, which, strict=True)])


def named_step(name: str, strength: Any, frame: Frame, interpolation: str, fill: Any) -> list[Step]:
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


def _one_of(space: tuple[ops.Magnitude, ...], bins: int, most: int | None, stream: Stream, frame: Frame, op: Any) -> list[Step]:
    """An operation of the space for each sample; ``most`` bounds the bins that may come up."""
    taken = stream.fork(0).below(len(space))
    which = stream.fork(1).below(most) if most is not None else np.full(len(frame), op.magnitude)
    sign = np.where(stream.fork(2).uniform(1)[:, 0] <= 0.5, -1.0, 1.0)
    steps: list[Step] = []
    for place, of in enumerate(space):
        chosen = taken == place
        if chosen.any():
            part = frame.take(chosen)
            strong = _strengths(of, bins, which[chosen], part)
            strong = strong * sign[chosen] if of.signed else strong
            steps += named_step(of.name, strong, part, op.interpolation, op.fill)
    return steps


def draw_rand_augment(op: ops.RandAugment, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    most = op.bins if op.magnitude is None else None
    return [step for turn in range(op.num_ops) for step in _one_of(op.space, op.bins, most, stream.fork(turn), frame, op)]


def draw_auto_augment(op: ops.AutoAugment, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    taken = stream.fork(0).below(len(op.policies))
    known = {of.name: of for of in op.space}
    steps: list[Step] = []
    for turn in range(2):
        applied = stream.fork(1 + turn).uniform(1)[:, 0]
        sign = np.where(stream.fork(3 + turn).uniform(1)[:, 0] < 0.5, -1.0, 1.0)
        for name, p, which in sorted({policy[turn] for policy in op.policies}, key=str):
            listed = np.asarray([policy[turn] == (name, p, which) for policy in op.policies])
            chosen = listed[taken] & (applied <= p)
            if chosen.any():
                part = frame.take(chosen)
                strong = _strengths(known[name], 10, np.full(len(part), which or 0), part)
                strong = strong * sign[chosen] if known[name].signed else strong
                steps += named_step(name, strong, part, op.interpolation, op.fill)
    return steps


def draw_aug_mix(op: ops.AugMix, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    """Chains of operations on copies of the picture, blended with it."""
    halves = stream.fork(0).gamma(op.alpha, 2)
    shares = stream.fork(1).gamma(op.alpha, op.width)
    halves, shares = halves / halves.sum(axis=1, keepdims=True), shares / shares.sum(axis=1, keepdims=True)
    chains = []
    for chain in range(op.width):
        own = stream.fork(2 + chain)
        depth = np.full(len(frame), op.depth) if op.depth > 0 else 1 + own.fork(0).below(3)
        steps: list[Step] = []
        for turn in range(int(depth.max(initial=0))):
            chosen = depth > turn
            steps += _one_of(op.space, 10, op.severity, own.fork(1 + turn).take(chosen), frame.take(chosen), op)
        chains.append(tuple(steps))
    weights = np.concatenate([halves[:, :1], shares * halves[:, 1:]], axis=1)
    return [frame.step("blend", {"weights": weights}, chains=tuple(chains))]


# -- within a batch ----------------------------------------------------------------------------------------------------


def draw_mix_up(op: ops.MixUp, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    return [frame.step("mix_up", share=_beta(op.alpha, stream), num_classes=op.num_classes)]


def draw_cut_mix(op: ops.CutMix, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    once, height, width = stream.together(), int(frame.height[0]), int(frame.width[0])
    share = _beta(op.alpha, stream)
    x, y = int(once.fork(2).below(width)[0]), int(once.fork(3).below(height)[0])
    half = 0.5 * (1 - share) ** 0.5
    left, right = max(x - int(half * width), 0), min(x + int(half * width), width)
    top, bottom = max(y - int(half * height), 0), min(y + int(half * height), height)
    kept = 1 - (right - left) * (bottom - top) / (width * height)
    return [frame.step("cut_mix", box=(left, top, right, bottom), share=kept, num_classes=op.num_classes)]


def _beta(alpha: float, stream: Stream) -> float:
    first, second = stream.together().gamma(alpha, 2)[0]
    return float(first / (first + second))


ALL_DRAWS: Draws = {
    **DRAWS,
    ops.ColorJitter: draw_jitter,
    ops.PhotometricDistort: draw_distort,
    ops.ChannelPermutation: draw_permutation,
    ops.Grayscale: draw_grayscale,
    ops.Rgb: draw_rgb,
    ops.Invert: draw_invert,
    ops.Posterize: draw_posterize,
    ops.Solarize: draw_solarize,
    ops.Sharpness: draw_sharpness,
    ops.Autocontrast: draw_autocontrast,
    ops.Equalize: draw_equalize,
    ops.Gamma: draw_gamma,
    ops.RandAugment: draw_rand_augment,
    ops.AutoAugment: draw_auto_augment,
    ops.AugMix: draw_aug_mix,
    ops.MixUp: draw_mix_up,
    ops.CutMix: draw_cut_mix,
}
"""How every operation is drawn."""
