"""Draws the parameters of operations for a whole batch at once, as torchvision draws them for one sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from pipefix.augment import ops
from pipefix.augment.steps import Frame, Step
from pipefix.augment.stream import Stream

Draw: TypeAlias = "Callable[[Any, Stream, Frame, Draws], list[Step]]"
Draws: TypeAlias = Mapping[type, Draw]
"""How each kind of operation is drawn."""

TRIES = 10
"""How often a crop is drawn anew when it does not fit."""


def draw_list(listed: Iterable[ops.Op], stream: Stream, frame: Frame, draws: Draws, *, first: int = 0) -> list[Step]:
    """The steps of a list of operations; the frame's sizes are those afterwards."""
    steps: list[Step] = []
    for place, op in enumerate(listed, first):
        steps += draws[type(op)](op, stream.fork(place), frame, draws)
    return steps


def some(p: float, stream: Stream, frame: Frame) -> tuple[Stream, Frame, Any]:
    """The samples that come up with probability ``p``, and which they are."""
    if p >= 1:
        return stream, frame, slice(None)
    chosen = stream.fork(-1).uniform(1)[:, 0] < p
    return stream.take(chosen), frame.take(chosen), chosen


# -- values ------------------------------------------------------------------------------------------------------------


def draw_nothing(op: Any, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    return []


def draw_of_boxes(op: ops.OfBoxes, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    return [frame.step("of_boxes", kind=op.kind, settings=dict(op.settings))]


def draw_to_tensor(op: ops.ToTensor, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    return [frame.step("to_tensor")]


def draw_to_dtype(op: ops.ToDtype, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    return [frame.step("to_dtype", dtype=op.dtype, scale=op.scale)]


def draw_normalize(op: ops.Normalize, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    return [frame.step("normalize", mean=op.mean, std=op.std)]


def draw_linear(op: ops.LinearTransformation, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    return [frame.step("linear", matrix=op.matrix, mean=op.mean)]


# -- shape -------------------------------------------------------------------------------------------------------------


def _resized(frame: Frame, height: Any, width: Any, interpolation: str, antialias: bool) -> list[Step]:
    frame.height, frame.width = np.broadcast_to(height, len(frame)).copy(), np.broadcast_to(width, len(frame)).copy()
    values = {"height": frame.height.copy(), "width": frame.width.copy()}
    return [frame.step("resize", values, interpolation=interpolation, antialias=antialias)]


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


def draw_resize(op: ops.Resize, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    if op.size is None:
        assert op.max_size is not None
        long = np.maximum(frame.height, frame.width)
        height, width = (
            np.where(side == long, op.max_size, (op.max_size * side / long).astype(np.int64))
            for side in (frame.height, frame.width)
        )
    elif len(op.size) == 2:
        height, width = np.asarray(op.size[0]), np.asarray(op.size[1])
    else:
        height, width = _shorter_side(frame, op.size[0], op.max_size)
    return _resized(frame, height, width, op.interpolation, op.antialias)


def draw_random_resize(op: ops.RandomResize, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    side = op.min_size + stream.below(op.max_size - op.min_size)
    return _resized(frame, *_shorter_side(frame, side, None), op.interpolation, op.antialias)


def draw_shortest_size(op: ops.RandomShortestSize, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    ratio = np.asarray(op.min_size)[stream.below(len(op.min_size))] / np.minimum(frame.height, frame.width)
    if op.max_size is not None:
        ratio = np.minimum(ratio, op.max_size / np.maximum(frame.height, frame.width))
    return _resized(frame, *_times(frame, ratio), op.interpolation, op.antialias)


def draw_scale_jitter(op: ops.ScaleJitter, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    ratio = np.minimum(op.target_size[1] / frame.height, op.target_size[0] / frame.width) * stream.between(*op.scale_range)
    return _resized(frame, *_times(frame, ratio), op.interpolation, op.antialias)


def _times(frame: Frame, ratio: Any) -> tuple[Any, Any]:
    return (frame.height * ratio).astype(np.int64), (frame.width * ratio).astype(np.int64)


def draw_center_crop(op: ops.CenterCrop, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    step = frame.step("center_crop", size=op.size)
    frame.height, frame.width = np.full(len(frame), op.size[0]), np.full(len(frame), op.size[1])
    return [step]


def draw_pad(op: ops.Pad, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    left, top, right, bottom = op.padding
    frame.height, frame.width = frame.height + top + bottom, frame.width + left + right
    padding = np.tile(np.asarray(op.padding), (len(frame), 1))
    return [frame.step("pad", {"padding": padding}, fill=op.fill, padding_mode=op.padding_mode)]


def draw_zoom_out(op: ops.ZoomOut, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    stream, part, chosen = some(op.p, stream, frame)
    ratio, across, down = (stream.fork(place).uniform(1)[:, 0] for place in range(3))
    height, width = _times(part, op.side_range[0] + ratio * (op.side_range[1] - op.side_range[0]))
    left, top = ((width - part.width) * across).astype(np.int64), ((height - part.height) * down).astype(np.int64)
    padding = np.stack([left, top, width - part.width - left, height - part.height - top], axis=1)
    part.height, part.width = height, width
    frame.put(chosen, part)
    return [part.step("pad", {"padding": padding}, fill=op.fill, padding_mode="constant")]


def draw_random_crop(op: ops.RandomCrop, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    height, width = op.size
    padding = np.tile(np.asarray(op.padding or (0, 0, 0, 0)), (len(frame), 1))
    if op.pad_if_needed:
        lacking_width = np.maximum(width - frame.width - padding[:, 0] - padding[:, 2], 0)
        lacking_height = np.maximum(height - frame.height - padding[:, 1] - padding[:, 3], 0)
        padding = padding + np.stack([lacking_width, lacking_height, lacking_width, lacking_height], axis=1)
    steps = [frame.step("pad", {"padding": padding}, fill=op.fill, padding_mode=op.padding_mode)] if padding.any() else []
    padded_height = frame.height + padding[:, 1] + padding[:, 3]
    padded_width = frame.width + padding[:, 0] + padding[:, 2]
    if (padded_height < height).any() or (padded_width < width).any():
        smallest = (int(padded_height.min()), int(padded_width.min()))
        raise ValueError(f"a crop of {op.size} does not fit into a picture of {smallest}")
    top = stream.fork(0).below(padded_height - height + 1)
    left = stream.fork(1).below(padded_width - width + 1)
    if (padded_height != height).any() or (padded_width != width).any():
        steps.append(frame.step("crop", {"top": top, "left": left}, height=height, width=width))
    frame.height, frame.width = np.full(len(frame), height), np.full(len(frame), width)
    return steps


def crop_boxes(op: ops.RandomResizedCrop, stream: Stream, frame: Frame) -> tuple[Any, Any, Any, Any]:
    """Top, left, height and width of a crop of random area and shape; the middle where none fits."""
    area = (frame.height * frame.width)[:, None] * (op.scale[0] + (op.scale[1] - op.scale[0]) * stream.fork(0).uniform(TRIES))
    low, high = np.log(op.ratio)
    aspect = np.exp(low + (high - low) * stream.fork(1).uniform(TRIES))
    width = np.rint(np.sqrt(area * aspect)).astype(np.int64)
    height = np.rint(np.sqrt(area / aspect)).astype(np.int64)
    fits = (width > 0) & (width <= frame.width[:, None]) & (height > 0) & (height <= frame.height[:, None])
    first, every = fits.argmax(axis=1), np.arange(len(frame))
    found, height, width = fits.any(axis=1), height[every, first], width[every, first]
    shape = frame.width / frame.height
    narrow, wide = shape < min(op.ratio), shape > max(op.ratio)
    middle_width = np.where(wide, np.rint(frame.height * max(op.ratio)), frame.width).astype(np.int64)
    middle_height = np.where(narrow, np.rint(frame.width / min(op.ratio)), frame.height).astype(np.int64)
    height, width = np.where(found, height, middle_height), np.where(found, width, middle_width)
    spare_height, spare_width = frame.height - height, frame.width - width
    top = np.where(found, stream.fork(2).below(spare_height + 1), spare_height // 2)
    left = np.where(found, stream.fork(3).below(spare_width + 1), spare_width // 2)
    return top, left, height, width


def draw_resized_crop(op: ops.RandomResizedCrop, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    top, left, height, width = crop_boxes(op, stream, frame)
    frame.height, frame.width = np.full(len(frame), op.size[0]), np.full(len(frame), op.size[1])
    values = {"top": top, "left": left, "height": height, "width": width}
    return [frame.step("resized_crop", values, size=op.size, interpolation=op.interpolation, antialias=op.antialias)]


def draw_horizontal_flip(op: ops.HorizontalFlip, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    return [some(op.p, stream, frame)[1].step("hflip")]


def draw_vertical_flip(op: ops.VerticalFlip, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    return [some(op.p, stream, frame)[1].step("vflip")]


def draw_rotation(op: ops.Rotation, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    angle = stream.between(*op.degrees)
    step = frame.step("rotate", {"angle": angle}, interpolation=op.interpolation, expand=op.expand, center=op.center, fill=op.fill)
    if op.expand:
        radians = np.deg2rad(angle)
        across, down = np.abs(np.cos(radians)), np.abs(np.sin(radians))
        height = np.ceil(frame.width * down + frame.height * across).astype(np.int64)
        frame.width, frame.height = np.ceil(frame.width * across + frame.height * down).astype(np.int64), height
    return [step]


def draw_affine(op: ops.Affine, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    nothing = np.zeros(len(frame))
    move = op.translate or (0.0, 0.0)
    shift = [np.rint((2 * stream.fork(1 + axis).uniform(1)[:, 0] - 1) * part * side) + 0.0
             for axis, (part, side) in enumerate(zip(move, (frame.width, frame.height), strict=True))]  # fmt: skip
    scale = stream.fork(3).between(*op.scale) if op.scale else nothing + 1
    shear = op.shear or ()
    shear_x = stream.fork(4).between(shear[0], shear[1]) if shear else nothing
    shear_y = stream.fork(5).between(shear[2], shear[3]) if len(shear) == 4 else nothing
    values = {
        "angle": stream.fork(0).between(*op.degrees),
        "translate": np.stack(shift, axis=1),
        "scale": scale,
        "shear": np.stack([shear_x, shear_y], axis=1),
    }
    return [frame.step("affine", values, interpolation=op.interpolation, fill=op.fill, center=op.center)]


def draw_perspective(op: ops.Perspective, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    stream, frame, _ = some(op.p, stream, frame)
    bound_height = (op.distortion_scale * (frame.height // 2)).astype(np.int64) + 1
    bound_width = (op.distortion_scale * (frame.width // 2)).astype(np.int64) + 1
    inward = np.stack([stream.fork(place).below((bound_width, bound_height)[place % 2]) for place in range(8)], axis=1).reshape(
        -1, 4, 2
    )
    right, bottom = frame.width - 1, frame.height - 1
    start = np.zeros((len(frame), 4, 2), dtype=np.int64)
    start[:, 1:3, 0], start[:, 2:4, 1] = right[:, None], bottom[:, None]
    end = inward
    end[:, 1:3, 0], end[:, 2:4, 1] = right[:, None] - end[:, 1:3, 0], bottom[:, None] - end[:, 2:4, 1]
    return [frame.step("perspective", {"start": start, "end": end}, interpolation=op.interpolation, fill=op.fill)]


def draw_elastic(op: ops.Elastic, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    fixed = {"alpha": op.alpha, "sigma": op.sigma, "interpolation": op.interpolation, "fill": op.fill}
    return [frame.step("elastic", {"key": stream.keys}, **fixed)]


# -- neighbourhoods, noise, holes --------------------------------------------------------------------------------------


def draw_blur(op: ops.GaussianBlur, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    return [frame.step("gaussian_blur", {"sigma": stream.between(*op.sigma)}, kernel_size=op.kernel_size)]


def draw_noise(op: ops.GaussianNoise, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    return [frame.step("gaussian_noise", {"key": stream.keys}, mean=op.mean, sigma=op.sigma, clip=op.clip)]


def draw_jpeg(op: ops.Jpeg, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    return [frame.step("jpeg", {"quality": op.quality[0] + stream.below(op.quality[1] - op.quality[0] + 1)})]


def draw_erasing(op: ops.Erasing, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    stream, frame, _ = some(op.p, stream, frame)
    area = (frame.height * frame.width)[:, None] * (op.scale[0] + (op.scale[1] - op.scale[0]) * stream.fork(0).uniform(TRIES))
    low, high = np.log(op.ratio)
    aspect = np.exp(low + (high - low) * stream.fork(1).uniform(TRIES))
    height = np.rint(np.sqrt(area * aspect)).astype(np.int64)
    width = np.rint(np.sqrt(area / aspect)).astype(np.int64)
    fits = (height < frame.height[:, None]) & (width < frame.width[:, None])
    every, first, found = np.arange(len(frame)), fits.argmax(axis=1), fits.any(axis=1)
    height, width = height[every, first], width[every, first]
    values = {
        "top": stream.fork(2).below(frame.height - height + 1), "left": stream.fork(3).below(frame.width - width + 1),
        "height": height, "width": width, "key": stream.keys,
    }  # fmt: skip
    kept = {key: value[found] for key, value in values.items()}
    return [frame.take(found).step("erase", kept, value=op.value)]


# -- choices -----------------------------------------------------------------------------------------------------------


def draw_apply(op: ops.Apply, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    stream, part, chosen = some(op.p, stream, frame)
    steps = draw_list(op.ops, stream, part, draws) if len(part) else []
    frame.put(chosen, part)
    return steps


def draw_choice(op: ops.Choice, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    taken = np.searchsorted(np.cumsum(op.p)[:-1], stream.fork(-1).uniform(1)[:, 0], side="right")
    return _each(op.lists, taken, stream, frame, draws)


def draw_order(op: ops.Order, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    order = stream.fork(-1).order(len(op.lists))
    return [step for turn in range(len(op.lists)) for step in _each(op.lists, order[:, turn], stream, frame, draws)]


def _each(lists: tuple[tuple[ops.Op, ...], ...], taken: Any, stream: Stream, frame: Frame, draws: Draws) -> list[Step]:
    """For every list the samples that took it."""
    steps: list[Step] = []
    for place, listed in enumerate(lists):
        chosen = taken == place
        if chosen.any():
            part = frame.take(chosen)
            steps += draw_list(listed, stream.take(chosen).fork(place), part, draws)
            frame.put(chosen, part)
    return steps


DRAWS: Draws = {
    ops.ToTensor: draw_to_tensor,
    ops.ToDtype: draw_to_dtype,
    ops.Normalize: draw_normalize,
    ops.LinearTransformation: draw_linear,
    ops.Identity: draw_nothing,
    ops.OfBoxes: draw_of_boxes,
    ops.Resize: draw_resize,
    ops.RandomResize: draw_random_resize,
    ops.RandomShortestSize: draw_shortest_size,
    ops.ScaleJitter: draw_scale_jitter,
    ops.CenterCrop: draw_center_crop,
    ops.Pad: draw_pad,
    ops.ZoomOut: draw_zoom_out,
    ops.RandomCrop: draw_random_crop,
    ops.RandomResizedCrop: draw_resized_crop,
    ops.HorizontalFlip: draw_horizontal_flip,
    ops.VerticalFlip: draw_vertical_flip,
    ops.Rotation: draw_rotation,
    ops.Affine: draw_affine,
    ops.Perspective: draw_perspective,
    ops.Elastic: draw_elastic,
    ops.GaussianBlur: draw_blur,
    ops.GaussianNoise: draw_noise,
    ops.Jpeg: draw_jpeg,
    ops.Erasing: draw_erasing,
    ops.Apply: draw_apply,
    ops.Choice: draw_choice,
    ops.Order: draw_order,
}
"""Those of shapes and containers; colours and automatic policies are in `draw_colour`."""
