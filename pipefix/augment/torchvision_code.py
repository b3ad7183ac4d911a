"""Operations as calls of torchvision's v2 transforms, as a person would write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pipefix.augment import ops
from pipefix.augment.ops import Op


def _call(name: str, **given: Any) -> str:
    return f"v2.{name}({', '.join(f'{key}={_shown(key, value)}' for key, value in given.items())})"


def _shown(key: str, value: Any) -> str:
    if key == "interpolation":
        return f"InterpolationMode.{value.upper().replace('-', '_')}"
    return f"torch.{value}" if key == "dtype" else repr(value)


def _several(listed: Iterable[Op]) -> str:
    return ", ".join(text for op in listed if (text := constructor(op))) or "v2.Identity()"


def constructor(op: Op) -> str:
    """The call; empty where nothing is left to do on a tensor."""
    if isinstance(op, ops.Apply):
        return f"v2.RandomApply([{_several(op.ops)}], p={op.p})"
    if isinstance(op, (ops.Choice, ops.Order)):
        lists = ", ".join(f"v2.Compose([{_several(listed)}])" for listed in op.lists)
        return f"v2.RandomChoice([{lists}], p={list(op.p)})" if isinstance(op, ops.Choice) else f"v2.RandomOrder([{lists}])"
    if isinstance(op, (ops.ToTensor, ops.Identity)):
        return ""
    return _simple(op)


def _simple(op: Op) -> str:
    kind = type(op)
    if kind in _SAME:
        return _call(_SAME[kind], **{name: getattr(op, name) for name in op.__dataclass_fields__})
    if isinstance(op, ops.Resize):
        size = None if op.size is None else op.size[0] if len(op.size) == 1 else list(op.size)
        return _call("Resize", size=size, interpolation=op.interpolation, max_size=op.max_size, antialias=op.antialias)
    if isinstance(op, ops.RandomCrop):
        given: dict[str, Any] = {"size": op.size, "padding": list(op.padding) if op.padding else None}
        return _call("RandomCrop", **given, pad_if_needed=op.pad_if_needed, fill=op.fill, padding_mode=op.padding_mode)
    if isinstance(op, ops.Pad):
        return _call("Pad", padding=list(op.padding), fill=op.fill, padding_mode=op.padding_mode)
    if isinstance(op, ops.Grayscale):
        return _call("Grayscale", num_output_channels=op.channels or 3) if op.p >= 1 else _call("RandomGrayscale", p=op.p)
    if isinstance(op, ops.Sharpness):
        return _call("RandomAdjustSharpness", sharpness_factor=op.factor, p=op.p)
    if isinstance(op, ops.Erasing):
        value = "random" if op.value is None else op.value[0] if len(op.value) == 1 else list(op.value)
        return _call("RandomErasing", p=op.p, scale=op.scale, ratio=op.ratio, value=value)
    if isinstance(op, ops.LinearTransformation):
        matrix, mean = [list(row) for row in op.matrix], list(op.mean)
        return f"v2.LinearTransformation(torch.tensor({matrix!r}), torch.tensor({mean!r}))"
    if isinstance(op, (ops.RandAugment, ops.AutoAugment, ops.AugMix)):
        return _policy(op)
    if isinstance(op, ops.OfBoxes) and op.kind != "mask_dtype":
        return _call(op.kind, **{key: getattr(value, "value", value) for key, value in op.settings})
    raise ValueError(f"{type(op).__name__} has no torchvision transform of its own, so it cannot be written as one.")


def _policy(op: Any) -> str:
    around = {"interpolation": op.interpolation, "fill": op.fill}
    if isinstance(op, ops.AugMix):
        given = {"severity": op.severity, "mixture_width": op.width, "chain_depth": op.depth, "alpha": op.alpha}
        return _call("AugMix", **given, all_ops=any(one.name == "Brightness" for one in op.space), **around)
    if isinstance(op, ops.AutoAugment):
        return _call("AutoAugment", **around).replace("(", f"(v2.AutoAugmentPolicy.{_named(op)}, ", 1)
    if op.magnitude is None:
        return _call("TrivialAugmentWide", num_magnitude_bins=op.bins, **around)
    return _call("RandAugment", num_ops=op.num_ops, magnitude=op.magnitude, num_magnitude_bins=op.bins, **around)


def _named(op: ops.AutoAugment) -> str:
    from torchvision.transforms import v2

    for policy in v2.AutoAugmentPolicy:
        if tuple(tuple(tuple(one) for one in pair) for pair in v2.AutoAugment(policy)._policies) == op.policies:
            return str(policy.name)
    raise ValueError("The AutoAugment policy is none of torchvision's.")


_SAME: dict[type[Op], str] = {
    ops.ToDtype: "ToDtype",
    ops.Normalize: "Normalize",
    ops.CenterCrop: "CenterCrop",
    ops.RandomResizedCrop: "RandomResizedCrop",
    ops.RandomResize: "RandomResize",
    ops.RandomShortestSize: "RandomShortestSize",
    ops.ScaleJitter: "ScaleJitter",
    ops.ZoomOut: "RandomZoomOut",
    ops.HorizontalFlip: "RandomHorizontalFlip",
    ops.VerticalFlip: "RandomVerticalFlip",
    ops.Rotation: "RandomRotation",
    ops.Affine: "RandomAffine",
    ops.Perspective: "RandomPerspective",
    ops.Elastic: "ElasticTransform",
    ops.ColorJitter: "ColorJitter",
    ops.PhotometricDistort: "RandomPhotometricDistort",
    ops.ChannelPermutation: "RandomChannelPermutation",
    ops.Rgb: "RGB",
    ops.Invert: "RandomInvert",
    ops.Posterize: "RandomPosterize",
    ops.Solarize: "RandomSolarize",
    ops.Autocontrast: "RandomAutocontrast",
    ops.Equalize: "RandomEqualize",
    ops.GaussianBlur: "GaussianBlur",
    ops.GaussianNoise: "GaussianNoise",
    ops.Jpeg: "JPEG",
}
"""Operations whose parameters have torchvision's names."""
