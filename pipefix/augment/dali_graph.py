"""What DALI computes natively, and how: every slot of the graph is one step with its parameters fed in for each sample.

Parameters are drawn outside the graph, keyed by the sample, because DALI's own random numbers depend on the batch and the thread.
DALI's torchvision-like API (`nvidia.dali.experimental.torchvision`) is not used: it takes decoded pictures only, draws by itself,
applies the parts of a colour jitter in one fixed order, and has a contrast around the middle of the range.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from nvidia.dali import fn, types
from nvidia.dali.pipeline import do_not_convert

from pipefix.augment import ops
from pipefix.augment.geometry import inverse_affine
from pipefix.augment.operation import Op
from pipefix.augment.steps import DrawnStep

GREY = np.array([0.2989, 0.587, 0.114], dtype=np.float32)
INTERPOLATIONS = {"nearest": "INTERP_NN", "bilinear": "INTERP_LINEAR", "bicubic": "INTERP_CUBIC"}

NAMES: dict[type, tuple[str, ...]] = {
    ops.ToTensor: (),
    ops.Identity: (),
    ops.Rgb: (),
    ops.Resize: ("resize",),
    ops.RandomResize: ("resize",),
    ops.RandomShortestSize: ("resize",),
    ops.ScaleJitter: ("resize",),
    ops.RandomResizedCrop: ("resized_crop",),
    ops.CenterCrop: ("center_crop",),
    ops.RandomCrop: ("pad", "crop"),
    ops.Pad: ("pad",),
    ops.ZoomOut: ("pad",),
    ops.HorizontalFlip: ("hflip",),
    ops.VerticalFlip: ("vflip",),
    ops.Rotation: ("rotate",),
    ops.Affine: ("affine",),
    ops.Grayscale: ("grayscale",),
    ops.ChannelPermutation: ("permute",),
    ops.Invert: ("invert",),
    ops.Posterize: ("posterize",),
    ops.Solarize: ("solarize",),
    ops.Autocontrast: ("autocontrast",),
    ops.GaussianBlur: ("gaussian_blur",),
    ops.Jpeg: ("jpeg",),
    ops.Erasing: ("erase",),
}
"""Steps that each operation may be drawn as, in their order."""


@dataclass(frozen=True)
class Slot:
    """A place of the graph where one step may happen."""

    name: str
    op: Op
    always: bool
    """Whether it happens to every sample."""
    size: tuple[int, int] | None = None
    """Of the pictures at that place, where it is the same for all."""
    fixed: dict[str, Any] = field(default_factory=dict)


def slots_of(listed: Iterable[Op], always: bool = True, size: tuple[int, int] | None = None) -> list[Slot]:
    found: list[Slot] = []
    for op in listed:
        found += _slots(op, always, size)
        size = size_after(op, size)
    return found


def size_after(op: Op, size: tuple[int, int] | None) -> tuple[int, int] | None:
    if isinstance(op, (ops.RandomResizedCrop, ops.CenterCrop, ops.RandomCrop)):
        return op.size
    if isinstance(op, ops.Resize) and op.size is not None and len(op.size) == 2:
        return (op.size[0], op.size[1])
    changing = (ops.Resize, ops.RandomResize, ops.RandomShortestSize, ops.ScaleJitter, ops.Pad, ops.ZoomOut)
    return None if isinstance(op, changing) or op.within else size


def _slots(op: Op, always: bool, size: tuple[int, int] | None) -> list[Slot]:
    if isinstance(op, ops.Apply):
        return slots_of(op.ops, False, size)
    if isinstance(op, ops.Choice):
        return [slot for listed in op.lists for slot in slots_of(listed, False, size)]
    if isinstance(op, ops.Order):
        return [slot for _ in op.lists for listed in op.lists for slot in slots_of(listed, False, size)]
    if isinstance(op, ops.ColorJitter):
        names = [name for name in ("brightness", "contrast", "saturation") if getattr(op, name) is not None]
        return [Slot(name, op, False, size) for _ in range(4) for name in names]
    always = always and getattr(op, "p", 1.0) >= 1
    return [Slot(name, op, always, size) for name in NAMES[type(op)]]


def why_not(op: Op, size: tuple[int, int] | None = None) -> str | None:
    """Why DALI does not compute it, or not as torchvision does."""
    inner = [why for listed in op.within for one in listed if (why := why_not(one, size))]
    if inner:
        return inner[0]
    if op.within:
        sized = any(isinstance(one, ops.SIZING) for listed in op.within for one in listed)
        return "a crop or a resize that only some samples have" if sized else None
    if isinstance(op, ops.Untranslatable):
        return op.why
    if isinstance(op, ops.ColorJitter):
        return "DALI turns hue in YIQ instead of HSV: up to 24 degrees away" if op.hue is not None else None
    if isinstance(op, (ops.ToDtype, ops.Normalize)):
        return None
    if type(op) not in NAMES:
        return _WHY_NOT.get(type(op), f"DALI has nothing that computes as torchvision's {type(op).__name__} does")
    interpolation = getattr(op, "interpolation", "bilinear")
    if interpolation not in INTERPOLATIONS or (interpolation == "nearest" and isinstance(op, (ops.Rotation, ops.Affine))):
        return f"DALI rounds places differently with {interpolation} interpolation"
    if isinstance(op, (ops.Rotation, ops.Affine)) and size is None:
        return "the size of the pictures must be fixed before: the middle is what they turn around"
    if isinstance(op, ops.Rotation) and op.expand:
        return "DALI's canvas grows by another rule"
    if isinstance(op, ops.Affine | ops.Rotation) and isinstance(op.fill, tuple) and len(set(op.fill)) > 1:
        return "DALI fills with one value for all channels"
    if getattr(op, "padding_mode", "constant") != "constant" and getattr(op, "padding", None):
        return f"DALI does not pad by {getattr(op, 'padding_mode')}"  # noqa: B009 - not every operation has it
    if isinstance(op, ops.Grayscale) and op.channels == 1:
        return "pictures stay at three channels in this graph"
    if isinstance(op, ops.Erasing) and op.value is None:
        return "DALI's erase has no noise"
    return None


_WHY_NOT: dict[type, str] = {
    ops.PhotometricDistort: "DALI turns hue in YIQ instead of HSV: up to 24 degrees away",
    ops.GaussianNoise: "DALI's noise cannot be keyed by the sample",
    ops.Elastic: "the module after the graph does it: its field is noise keyed by the sample",
    ops.Perspective: "the module after the graph does it: DALI's has not been held against torchvision's",
    ops.Equalize: "the module after the graph does it: DALI's has not been held against torchvision's",
    ops.Sharpness: "DALI's filter does not leave the border as it is",
    ops.RandAugment: "any of 14 operations for each sample: the module after the graph does it on whole batches",
    ops.AutoAugment: "any of 14 operations for each sample: the module after the graph does it on whole batches",
    ops.AugMix: "chains of any operations: the module after the graph does it on whole batches",
    ops.Gamma: "DALI has no power by sample on the CPU",
    ops.MixUp: "it mixes whole batches: the module after the graph does it",
    ops.CutMix: "it mixes whole batches: the module after the graph does it",
    ops.OfBoxes: "the graph carries pictures and labels only",
    ops.LinearTransformation: "a matrix over all pixels: the module after the graph does it",
}


# -- parameters fed to a slot ------------------------------------------------------------------------------------------


def neutral(slot: Slot) -> dict[str, Any]:
    """What a slot is fed for a sample that it leaves alone: anything of the right shape."""
    zero, pair = np.float32(0), np.zeros(2, np.int32)
    matrix, offset = np.eye(3, dtype=np.float32), np.zeros(3, np.float32)
    table: dict[str, dict[str, Any]] = {
        "resize": {"size": np.ones(2, np.float32)},
        "resized_crop": {"start": pair, "shape": np.ones(2, np.int32)},
        "center_crop": {"start": pair, "shape": np.ones(2, np.int32)},
        "crop": {"start": pair, "shape": np.ones(2, np.int32)},
        "pad": {"start": pair, "grow": pair},
        "rotate": {"matrix": np.eye(2, 3, dtype=np.float32)},
        "affine": {"matrix": np.eye(2, 3, dtype=np.float32)},
        "brightness": {"matrix": matrix},
        "saturation": {"matrix": matrix},
        "contrast": {"factor": zero},
        "grayscale": {},
        "permute": {"matrix": matrix},
        "invert": {},
        "posterize": {"mask": np.uint8(255)},
        "solarize": {"threshold": zero},
        "autocontrast": {},
        "gaussian_blur": {"sigma": np.float32(1)},
        "jpeg": {"quality": np.int32(90)},
        "erase": {"start": pair.astype(np.float32), "shape": pair.astype(np.float32)},
        "hflip": {},
        "vflip": {},
        "offset": {"offset": offset},
    }
    return table[slot.name]


def values_of(slot: Slot, step: DrawnStep, sizes: Any) -> dict[str, Any]:
    """The same from a drawn step; ``sizes`` are heights and widths of its pictures before it."""
    v, n = step.values, len(step.rows)
    if slot.name == "resize":
        return {"size": np.stack([v["height"], v["width"]], axis=1).astype(np.float32)}
    if slot.name == "resized_crop":
        return {"start": _int(v["top"], v["left"]), "shape": _int(v["height"], v["width"])}
    if slot.name == "crop":
        shape = np.tile(np.asarray([step.fixed["height"], step.fixed["width"]], np.int32), (n, 1))
        return {"start": _int(v["top"], v["left"]), "shape": shape}
    if slot.name == "center_crop":
        wanted = np.asarray(step.fixed["size"])
        # A crop larger than the picture is padded first, the smaller half before it.
        start = np.where(wanted > sizes, -((wanted - sizes) // 2), np.rint((sizes - wanted) / 2)).astype(np.int32)
        return {"start": start, "shape": np.tile(wanted.astype(np.int32), (n, 1))}
    if slot.name == "pad":
        left, top, right, bottom = v["padding"].T
        return {"start": _int(-top, -left), "grow": _int(top + bottom, left + right)}
    if slot.name in ("rotate", "affine"):
        assert slot.size is not None
        return {"matrix": _from_corner(step, slot.size)}
    if slot.name in ("brightness", "saturation"):
        factor = v["factor"].astype(np.float32)[:, None, None]
        towards = np.tile(GREY, (3, 1)) if slot.name == "saturation" else np.zeros((3, 3), np.float32)
        return {"matrix": factor * np.eye(3, dtype=np.float32) + (1 - factor) * towards}
    if slot.name == "permute":
        return {"matrix": np.eye(3, dtype=np.float32)[v["permutation"]]}
    if slot.name == "posterize":
        return {"mask": ((255 << (8 - v["bits"])) & 255).astype(np.uint8)}
    if slot.name == "erase":
        return {"start": np.stack([v["top"], v["left"]], 1).astype(np.float32),
                "shape": np.stack([v["height"], v["width"]], 1).astype(np.float32)}  # fmt: skip
    simple = {"contrast": "factor", "solarize": "threshold", "gaussian_blur": "sigma", "jpeg": "quality"}.get(slot.name)
    if simple is None:
        return {}
    return {simple: v[simple].astype(np.int32 if simple == "quality" else np.float32)}


def _int(down: Any, across: Any) -> Any:
    return np.stack([down, across], axis=1).astype(np.int32)


def _from_corner(step: DrawnStep, size: tuple[int, int]) -> Any:
    """DALI counts from the corner of the first pixel, torchvision from the middle of the picture."""
    height, width = size
    v, n = step.values, len(step.rows)
    angle = torch.from_numpy(np.asarray(v["angle"], np.float64))
    center = step.fixed["center"]
    middle = (0.0, 0.0) if center is None else (center[0] - width * 0.5, center[1] - height * 0.5)
    if step.name == "rotate":
        still = torch.zeros(n, 2)
        theta = inverse_affine(-(angle % 360), still, torch.ones(n), still, middle)
    else:
        translate, scale, shear = (torch.from_numpy(v[key]) for key in ("translate", "scale", "shear"))
        theta = inverse_affine(angle, translate, scale, shear, middle)
    half = torch.tensor([[width * 0.5], [height * 0.5]])
    offset = theta[:, :, 2:] + half - theta[:, :, :2] @ half
    return torch.cat([theta[:, :, :2], offset], dim=2).numpy().astype(np.float32)


# -- the nodes ---------------------------------------------------------------------------------------------------------


@do_not_convert
def apply_slot(slot: Slot, images: Any, fed: dict[str, Any]) -> Any:
    """The node of one slot, on pictures (height, width, channel) of bytes, or of floating point after the conversion."""
    op, name = slot.op, slot.name
    if name in ("resize", "resized_crop"):
        if name == "resized_crop":
            images = fn.slice(images, start=fed["start"], shape=fed["shape"], axis_names="HW")
        return resized(op, images, fed["size"] if name == "resize" else list(op.size))  # type: ignore[attr-defined]
    if name in ("crop", "center_crop"):
        return fn.slice(images, start=fed["start"], shape=fed["shape"], axis_names="HW", out_of_bounds_policy="pad", fill_values=0)
    if name == "pad":
        whole = fn.slice(images.shape(), start=[0], shape=[2], axes=[0])
        fill = getattr(op, "fill", 0) or 0
        return fn.slice(
            images, start=fed["start"], shape=fn.cast(whole, dtype=types.INT32) + fed["grow"], axis_names="HW",
            out_of_bounds_policy="pad", fill_values=list(fill) if isinstance(fill, tuple) else fill,
        )  # fmt: skip
    if name == "hflip":
        return fn.flip(images, horizontal=1, vertical=0)
    if name == "vflip":
        return fn.flip(images, horizontal=0, vertical=1)
    if name in ("rotate", "affine"):
        fill = op.fill  # type: ignore[attr-defined]
        return _warped(images, fed["matrix"], fill[0] if isinstance(fill, tuple) else fill)
    if name == "erase":
        value = list(op.value)  # type: ignore[attr-defined]
        return fn.erase(images, anchor=fed["start"], shape=fed["shape"], axis_names="HW", fill_value=value)
    if name == "gaussian_blur":
        across, down = op.kernel_size  # type: ignore[attr-defined]
        return fn.gaussian_blur(images, sigma=fed["sigma"], window_size=[down, across])
    if name == "jpeg":
        return fn.jpeg_compression_distortion(images, quality=fed["quality"])
    return _coloured(name, images, fed)


def _warped(images: Any, matrix: Any, fill: float | None) -> Any:
    """Half-covered pixels are blended with the fill twice, as torchvision blends them; DALI itself would do it once."""
    settings = {"matrix": matrix, "fill_value": 0.0, "interp_type": types.INTERP_LINEAR, "inverse_map": True}
    moved = fn.warp_affine(images, dtype=types.FLOAT, **settings)
    if fill is None:
        return fn.cast(moved, dtype=types.UINT8)
    covered = fn.warp_affine(fn.cast(images >= 0, dtype=types.FLOAT), **settings)
    return fn.cast((moved - float(fill)) * covered + float(fill), dtype=types.UINT8)


def resized(op: Any, images: Any, size: Any) -> Any:
    kind = getattr(types, INTERPOLATIONS[op.interpolation])
    return fn.resize(images, size=size, interp_type=kind, antialias=op.antialias)


def _coloured(name: str, images: Any, fed: dict[str, Any]) -> Any:
    if name in ("brightness", "saturation", "permute"):
        return _bytes(fn.coord_transform(images, M=fed["matrix"], dtype=types.FLOAT), cut=name != "permute")
    if name == "grayscale":
        return _bytes(fn.coord_transform(images, M=np.tile(GREY, (3, 1)).flatten().tolist(), dtype=types.FLOAT), cut=True)
    if name == "contrast":
        grey = fn.coord_transform(images, M=GREY.tolist(), dtype=types.FLOAT)
        middle = fn.reductions.mean(_floor(grey), axes=[0, 1], keep_dims=True)
        return _bytes(images * fed["factor"] + middle * (1 - fed["factor"]), cut=True)
    if name == "invert":
        return images ^ types.Constant(255).uint8()
    if name == "posterize":
        return images & fed["mask"]
    if name == "solarize":
        over = fn.cast(images >= fed["threshold"], dtype=types.UINT8)
        return images ^ (over * types.Constant(255).uint8())
    assert name == "autocontrast"
    least = fn.cast(fn.reductions.min(images, axes=[0, 1], keep_dims=True), dtype=types.FLOAT)
    most = fn.cast(fn.reductions.max(images, axes=[0, 1], keep_dims=True), dtype=types.FLOAT)
    even = fn.cast(most == least, dtype=types.FLOAT)
    return _bytes((images - least * (1.0 - even)) / ((most - least) * (1.0 / 255) * (1.0 - even) + even), cut=True)


def _floor(floats: Any) -> Any:
    return fn.cast(fn.cast(floats - 0.4998, dtype=types.UINT8), dtype=types.FLOAT)


def _bytes(floats: Any, *, cut: bool) -> Any:
    """As bytes. DALI rounds where torchvision cuts off."""
    return fn.cast(floats - 0.4998 if cut else floats, dtype=types.UINT8)
