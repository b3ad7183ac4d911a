"""torchvision's transforms, old (v1) and new (v2), as operations. A class of the user's own is not guessed at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import v2

from pipefix.augment import ops
from pipefix.augment.operation import NotTranslatable, Op, Untranslatable
from pipefix.augment.ops import Magnitude

Reader: TypeAlias = "Callable[[Any], tuple[Op, ...]]"

_MODES = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
"""Pillow's numbers."""
SAMPLED = ("nearest", "nearest-exact", "bilinear", "bicubic")
"""Interpolations that tensors can have."""


def is_compose(transform: Any) -> bool:
    return type(transform) in (v1.Compose, v2.Compose)


def read(transform: Any, inner: Reader) -> tuple[Op, ...]:
    name = type(transform).__name__
    if type(transform).__module__.startswith("torchvision.transforms._presets"):
        return (Untranslatable(name, "a preset of torchvision's models; write its parts as a list", may_be_random=False),)
    if name not in _CONTAINERS and name not in _READERS:
        return (Untranslatable(name, WHY_NOT.get(name, f"{name} is not known to pipefix"), may_be_random=name not in _STILL),)
    try:
        found = _CONTAINERS[name](transform, inner) if name in _CONTAINERS else _READERS[name](transform)
    except NotTranslatable as why:
        return (Untranslatable(name, str(why)),)
    return found if isinstance(found, tuple) else (found,)


WHY_NOT = {
    "Lambda": "a function cannot be looked into",
    "ToPILImage": "it makes pictures of PIL, which exist on the CPU only",
    "FiveCrop": "it makes several pictures of one, and what follows it is the user's own function",
    "TenCrop": "it makes several pictures of one, and what follows it is the user's own function",
    "RandomIoUCrop": "its crop depends on the boxes, and the size of its result on both",
    "UniformTemporalSubsample": "it is for videos",
    "_RandomApplyTransform": "it is a base class",
}
"""What is left to the CPU on purpose."""
_STILL = ("ToPILImage", "FiveCrop", "TenCrop", "UniformTemporalSubsample")


# -- parameters --------------------------------------------------------------------------------------------------------


def mode(transform: Any) -> str:
    value = transform.interpolation
    if isinstance(value, int):
        value = _MODES.get(value, str(value))
    name = str(getattr(value, "value", value))
    if name not in SAMPLED:
        raise NotTranslatable(f"{name} interpolation exists for pictures of PIL only")
    return name


def _pair(size: Any) -> tuple[int, int]:
    if isinstance(size, int):
        return (size, size)
    found = tuple(int(one) for one in size)
    return (found[0], found[-1])


def _limits(value: Any) -> tuple[float, float] | None:
    return None if value is None else (float(value[0]), float(value[1]))


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(float(one) for one in (value.tolist() if isinstance(value, torch.Tensor) else value))


def _fill(transform: Any) -> Any:
    value = transform.fill
    if isinstance(value, dict):
        if set(value) <= {tv_tensors.Image, torch.Tensor, "others"} and len({str(one) for one in value.values()}) == 1:
            value = next(iter(value.values()))
        else:
            raise NotTranslatable("it fills pictures and masks with different values")
    return tuple(value) if isinstance(value, Sequence) else value


def _padding(value: Any) -> tuple[int, int, int, int]:
    """Left, top, right, bottom from the ways in which people write it."""
    if isinstance(value, int):
        return (value,) * 4
    found = tuple(int(one) for one in value)
    if len(found) == 1:
        return found * 4
    return found + found if len(found) == 2 else (found[0], found[1], found[2], found[3])


def _antialias(transform: Any) -> bool:
    value = getattr(transform, "antialias", True)
    return True if value is None else bool(value)


def _dtype(value: torch.dtype) -> str:
    return str(value).removeprefix("torch.")


def _resampled(transform: Any) -> dict[str, Any]:
    return {"interpolation": mode(transform), "antialias": _antialias(transform)}


# -- one reader a transform --------------------------------------------------------------------------------------------


def _resize(t: Any) -> Op:
    size = (t.size,) if isinstance(t.size, int) else None if t.size is None else tuple(t.size)
    return ops.Resize(size, max_size=t.max_size, **_resampled(t))


def _random_crop(t: Any) -> Op:
    padding = None
    if t.padding is not None:
        if isinstance(t, v2.RandomCrop):
            left, right, top, bottom = t.padding
            padding = (left, top, right, bottom)
        else:
            padding = _padding(t.padding)
    return ops.RandomCrop(_pair(t.size), padding, bool(t.pad_if_needed), _fill(t), t.padding_mode)


def _resized_crop(t: Any) -> Op:
    return ops.RandomResizedCrop(_pair(t.size), _limits(t.scale), _limits(t.ratio), **_resampled(t))  # type: ignore[arg-type]


def _warped(t: Any) -> dict[str, Any]:
    name = mode(t)
    if name not in ("nearest", "bilinear"):
        raise NotTranslatable(f"tensors are not turned or bent with {name} interpolation")
    return {"interpolation": name, "fill": _fill(t)}


def _center(t: Any) -> tuple[float, float] | None:
    return _limits(getattr(t, "center", None))


def _affine(t: Any) -> Op:
    shear = None if t.shear is None else _numbers(t.shear)
    return ops.Affine(_limits(t.degrees), _limits(t.translate), _limits(t.scale), shear, center=_center(t), **_warped(t))  # type: ignore[arg-type]


def _rotation(t: Any) -> Op:
    return ops.Rotation(_limits(t.degrees), expand=bool(t.expand), center=_center(t), **_warped(t))  # type: ignore[arg-type]


def _elastic(t: Any) -> Op:
    return ops.Elastic(_limits(t.alpha), _limits(t.sigma), **_warped(t))  # type: ignore[arg-type]


def _erasing(t: Any) -> Op:
    value = t.value
    if value is None or value == "random":
        drawn = None
    else:
        drawn = (float(value),) if isinstance(value, (int, float)) else _numbers(value)
    return ops.Erasing(t.p, _limits(t.scale), _limits(t.ratio), drawn)  # type: ignore[arg-type]


def _jitter(t: Any) -> Op:
    return ops.ColorJitter(_limits(t.brightness), _limits(t.contrast), _limits(t.saturation), _limits(t.hue))


def _distort(t: Any) -> Op:
    limits: dict[str, Any] = {name: _limits(getattr(t, name)) for name in ("brightness", "contrast", "saturation", "hue")}
    return ops.PhotometricDistort(**limits, p=t.p)


def _to_dtype(t: Any) -> tuple[Op, ...]:
    wanted = t.dtype
    if not isinstance(wanted, dict):
        return (ops.ToDtype(_dtype(wanted), bool(t.scale)),)
    others = wanted.get("others")
    own = wanted.get(tv_tensors.Image, wanted.get(torch.Tensor, others))
    masks = wanted.get(tv_tensors.Mask, others)
    found: list[Op] = [] if own is None else [ops.ToDtype(_dtype(own), bool(t.scale))]
    if masks is not None:
        found.append(ops.OfBoxes("mask_dtype", (("dtype", _dtype(masks)),)))
    return tuple(found) or (ops.Identity(),)


def _linear(t: Any) -> Op:
    matrix = tuple(_numbers(row) for row in t.transformation_matrix)
    return ops.LinearTransformation(matrix, _numbers(t.mean_vector))


def _boxes(t: Any) -> Op:
    kept = {
        "ClampBoundingBoxes": ("clamping_mode",),
        "ConvertBoundingBoxFormat": ("format",),
        "SetClampingMode": ("clamping_mode",),
        "SanitizeBoundingBoxes": ("min_size", "min_area", "labels_getter"),
        "SanitizeKeyPoints": ("labels_getter",),
    }.get(type(t).__name__, ())
    return ops.OfBoxes(type(t).__name__, tuple((key, getattr(getattr(t, key), "value", getattr(t, key))) for key in kept))


# -- automatic policies ------------------------------------------------------------------------------------------------


def _colours(most: float) -> tuple[Magnitude, ...]:
    return tuple(Magnitude(name, 0.0, most, signed=True) for name in ("Brightness", "Color", "Contrast", "Sharpness"))


def _space(shear: float, moved: float, per: bool, turned: float, bits: tuple[float, float]) -> list[Magnitude]:
    return [
        Magnitude("ShearX", 0.0, shear, signed=True),
        Magnitude("ShearY", 0.0, shear, signed=True),
        Magnitude("TranslateX", 0.0, moved, per="width" if per else "", signed=True),
        Magnitude("TranslateY", 0.0, moved, per="height" if per else "", signed=True),
        Magnitude("Rotate", 0.0, turned, signed=True),
        Magnitude("Posterize", *bits, whole=True),
        Magnitude("Solarize", 1.0, 0.0),
        Magnitude("AutoContrast"),
        Magnitude("Equalize"),
    ]


def _auto_augment(t: Any) -> Op:
    policies = t._policies if hasattr(t, "_policies") else t.policies
    space = (*_space(0.3, 150 / 331, True, 30.0, (8.0, 4.0)), *_colours(0.9), Magnitude("Invert"))
    return ops.AutoAugment(tuple(tuple(tuple(one) for one in policy) for policy in policies), space, **_warped(t))


def _rand_augment(t: Any) -> Op:
    space = (Magnitude("Identity"), *_space(0.3, 150 / 331, True, 30.0, (8.0, 4.0)), *_colours(0.9))
    return ops.RandAugment(space, t.num_ops, t.magnitude, t.num_magnitude_bins, **_warped(t))


def _trivial(t: Any) -> Op:
    space = (Magnitude("Identity"), *_space(0.99, 32.0, False, 135.0, (8.0, 2.0)), *_colours(0.99))
    return ops.RandAugment(space, 1, None, t.num_magnitude_bins, **_warped(t))


def _aug_mix(t: Any) -> Op:
    space = _space(0.3, 1 / 3, True, 30.0, (4.0, 0.0))
    if t.all_ops:
        space += _colours(0.9)
    return ops.AugMix(tuple(space), t.severity, t.mixture_width, t.chain_depth, t.alpha, **_warped(t))


def _mixing(kind: type[Op]) -> Callable[[Any], Op]:
    return lambda t: kind(float(t.alpha), t.num_classes)  # type: ignore[call-arg]


# -- the table ---------------------------------------------------------------------------------------------------------

_READERS: dict[str, Callable[[Any], Op | tuple[Op, ...]]] = {
    "Identity": lambda t: ops.Identity(),
    "ToPureTensor": lambda t: ops.Identity(),
    "ToTensor": lambda t: (ops.ToTensor(), ops.ToDtype("float32", True)),
    "ToImage": lambda t: ops.ToTensor(),
    "PILToTensor": lambda t: ops.ToTensor(),
    "ToDtype": _to_dtype,
    "ConvertImageDtype": lambda t: ops.ToDtype(_dtype(t.dtype), True),
    "Normalize": lambda t: ops.Normalize(_numbers(t.mean), _numbers(t.std)),
    "LinearTransformation": _linear,
    "Resize": _resize,
    "CenterCrop": lambda t: ops.CenterCrop(_pair(t.size)),
    "RandomCrop": _random_crop,
    "RandomResizedCrop": _resized_crop,
    "RandomResize": lambda t: ops.RandomResize(t.min_size, t.max_size, **_resampled(t)),
    "RandomShortestSize": lambda t: ops.RandomShortestSize(tuple(t.min_size), t.max_size, **_resampled(t)),
    "ScaleJitter": lambda t: ops.ScaleJitter(_pair(t.target_size), _limits(t.scale_range), **_resampled(t)),  # type: ignore[arg-type]
    "Pad": lambda t: ops.Pad(_padding(t.padding), _fill(t), t.padding_mode),
    "RandomZoomOut": lambda t: ops.ZoomOut(_fill(t), _limits(t.side_range), t.p),  # type: ignore[arg-type]
    "RandomHorizontalFlip": lambda t: ops.HorizontalFlip(t.p),
    "RandomVerticalFlip": lambda t: ops.VerticalFlip(t.p),
    "RandomRotation": _rotation,
    "RandomAffine": _affine,
    "RandomPerspective": lambda t: ops.Perspective(t.distortion_scale, t.p, **_warped(t)),
    "ElasticTransform": _elastic,
    "ColorJitter": _jitter,
    "RandomPhotometricDistort": _distort,
    "RandomChannelPermutation": lambda t: ops.ChannelPermutation(),
    "Grayscale": lambda t: ops.Grayscale(t.num_output_channels),
    "RandomGrayscale": lambda t: ops.Grayscale(None, t.p),
    "RGB": lambda t: ops.Rgb(),
    "RandomInvert": lambda t: ops.Invert(t.p),
    "RandomPosterize": lambda t: ops.Posterize(t.bits, t.p),
    "RandomSolarize": lambda t: ops.Solarize(t.threshold, t.p),
    "RandomAdjustSharpness": lambda t: ops.Sharpness(t.sharpness_factor, t.p),
    "RandomAutocontrast": lambda t: ops.Autocontrast(t.p),
    "RandomEqualize": lambda t: ops.Equalize(t.p),
    "GaussianBlur": lambda t: ops.GaussianBlur(_pair(t.kernel_size), _limits(t.sigma)),  # type: ignore[arg-type]
    "GaussianNoise": lambda t: ops.GaussianNoise(float(t.mean), float(t.sigma), bool(t.clip)),
    "JPEG": lambda t: ops.Jpeg(_pair(t.quality)),
    "RandomErasing": _erasing,
    "AutoAugment": _auto_augment,
    "RandAugment": _rand_augment,
    "TrivialAugmentWide": _trivial,
    "AugMix": _aug_mix,
    "MixUp": _mixing(ops.MixUp),
    "CutMix": _mixing(ops.CutMix),
    "ClampBoundingBoxes": _boxes,
    "ClampKeyPoints": _boxes,
    "ConvertBoundingBoxFormat": _boxes,
    "SetClampingMode": _boxes,
    "SanitizeBoundingBoxes": _boxes,
    "SanitizeKeyPoints": _boxes,
}


def _apply(t: Any, inner: Reader) -> Op:
    return ops.Apply(tuple(op for one in t.transforms for op in inner(one)), float(t.p))


def _choice(t: Any, inner: Reader) -> Op:
    share = t.p if t.p is not None else [1.0] * len(t.transforms)
    return ops.Choice(tuple(inner(one) for one in t.transforms), tuple(float(one) / sum(share) for one in share))


def _order(t: Any, inner: Reader) -> Op:
    return ops.Order(tuple(inner(one) for one in t.transforms))


_CONTAINERS: dict[str, Callable[[Any, Reader], Op]] = {"RandomApply": _apply, "RandomChoice": _choice, "RandomOrder": _order}

NAMES = ("Compose", *_CONTAINERS, *_READERS)
"""Transforms of torchvision that are read."""
