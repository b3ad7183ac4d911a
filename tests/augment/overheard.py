"""Whether parameters are drawn from the same distribution: by torchvision, whose calls are listened to, and by this library.

The product compares results (`pipefix.augment.distribution`), which needs no private name of torchvision. Here each parameter is
compared.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torchvision.transforms import v2

from pipefix.augment.choices import named_step
from pipefix.augment.distribution import Compared, compare
from pipefix.augment.operation import Op, draw_list
from pipefix.augment.steps import DrawnStep, Frame
from pipefix.augment.stream import Stream, keys_of

Columns = dict[str, list[float]]


def compared(
    transform: Any, listed: Sequence[Op], *, count: int, size: tuple[int, int, int] = (3, 24, 32), seed: int = 0
) -> list[Compared]:
    """The parameters of ``transform`` (torchvision's) and of the operations it was read as, ``count`` samples each."""
    theirs = columns(overheard(transform, count=count, size=size, seed=seed))
    stream = Stream(keys_of(seed, 0, np.arange(count)))
    ours = columns(_by_sample(draw_list(listed, stream, Frame.of([size] * count)), count))
    found = []
    for name in sorted({*ours, *theirs}):
        one, other = np.asarray(ours.get(name, [])), np.asarray(theirs.get(name, []))
        found.append(compare(name, one, other))
    return found


# -- steps as columns of numbers ---------------------------------------------------------------------------------------

Happened = tuple[str, dict[str, Any]]
"""A step that one sample met, and its parameters."""


def _by_sample(steps: list[DrawnStep], count: int) -> list[list[Happened]]:
    found: list[list[Happened]] = [[] for _ in range(count)]
    for step in steps:
        for position, row in enumerate(step.rows):
            values = {key: value[position] for key, value in step.values.items() if key != "key"}
            if step.fixed.get("relative"):
                values["threshold"] = values["threshold"] * 255
            if step.name in ("mix_up", "cut_mix"):
                values = {key: value for key, value in step.fixed.items() if key != "num_classes"}
            found[row].append((step.name, values))
    return found


def columns(samples: list[list[Happened]]) -> Columns:
    """How often each step comes, which is first, and every parameter as a column of numbers."""
    names = sorted({name for sample in samples for name, _ in sample} - _CERTAIN)
    found: Columns = {f"count of {name}": [sum(one == name for one, _ in sample) for sample in samples] for name in names}
    if len(names) > 1:
        found["first"] = [next((float(names.index(name)) for name, _ in sample if name in names), -1.0) for sample in samples]
        found["last"] = [next((float(names.index(name)) for name, _ in sample[::-1] if name in names), -1.0) for sample in samples]
    for sample in samples:
        for name, values in sample:
            if name in names:
                for key, value in _numbers(name, values).items():
                    found.setdefault(f"{name} {key}", []).append(value)
    return found


_CERTAIN = frozenset(("to_tensor", "to_dtype", "normalize", "rgb", "linear", "center_crop", "blend"))


def _numbers(name: str, values: dict[str, Any]) -> dict[str, float]:
    if name == "perspective":
        values = {"coefficients": _coefficients(values)} if "start" in values else values
    if name == "resize":
        values = {"shorter side": min(values["height"], values["width"])}
    flat: dict[str, float] = {}
    for key, value in values.items():
        numbers = np.asarray(value, dtype=np.float64).ravel()
        flat |= {key if len(numbers) == 1 else f"{key}[{place}]": float(one) for place, one in enumerate(numbers)}
    return flat


def _coefficients(values: dict[str, Any]) -> Any:
    rows, right = [], []
    for (x, y), (u, v) in zip(values["end"], values["start"], strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right += [u, v]
    return np.linalg.lstsq(np.asarray(rows, float), np.asarray(right, float), rcond=None)[0]


# -- torchvision, overheard --------------------------------------------------------------------------------------------


def overheard(transform: Any, *, count: int, size: tuple[int, int, int], seed: int = 0) -> list[list[Happened]]:
    """What torchvision does to ``count`` pictures of that size. Its generator is left as it was."""
    picture = torch.zeros(size, dtype=torch.uint8)
    picture[:, ::2] = 200
    heard: list[list[Happened]] = []
    with torch.random.fork_rng(devices=[]), _listening() as events:
        torch.manual_seed(seed + 1)
        for _ in range(count):
            events.clear()
            transform(picture.clone())
            heard.append(list(events))
    return heard


_RENAMED = {
    "horizontal_flip": "hflip", "vertical_flip": "vflip", "adjust_brightness": "brightness", "adjust_contrast": "contrast",
    "adjust_saturation": "saturation", "adjust_hue": "hue", "adjust_sharpness": "sharpness", "permute_channels": "permute",
    "rgb_to_grayscale": "grayscale", "to_grayscale": "grayscale", "pil_to_tensor": "to_tensor", "to_image": "to_tensor",
    "convert_image_dtype": "to_dtype", "elastic_transform": "elastic",
}  # fmt: skip
_KEPT: dict[str, dict[str, str]] = {
    "resized_crop": {key: key for key in ("top", "left", "height", "width")},
    "crop": {"top": "top", "left": "left"},
    "pad": {"padding": "padding"},
    "affine": {key: key for key in ("angle", "translate", "scale", "shear")},
    "rotate": {"angle": "angle"},
    "perspective": {"coefficients": "coefficients"},
    "brightness": {"brightness_factor": "factor"},
    "contrast": {"contrast_factor": "factor"},
    "saturation": {"saturation_factor": "factor"},
    "hue": {"hue_factor": "factor"},
    "sharpness": {"sharpness_factor": "factor"},
    "posterize": {"bits": "bits"},
    "solarize": {"threshold": "threshold"},
    "permute": {"permutation": "permutation"},
    "jpeg": {"quality": "quality"},
    "erase": {"i": "top", "j": "left", "h": "height", "w": "width"},
    "gaussian_blur": {"sigma": "sigma"},
    "resize": {"size": "size"},
}
"""Names of torchvision's parameters, and ours."""


def _happened(name: str, arguments: dict[str, Any]) -> Happened | None:
    name = _RENAMED.get(name, name)
    values = {ours: arguments[theirs] for theirs, ours in _KEPT.get(name, {}).items() if arguments.get(theirs) is not None}
    if name == "gaussian_blur":
        values["sigma"] = values["sigma"][0]
    if name == "resize":
        side = values.pop("size")
        values["height"], values["width"] = (side, side) if isinstance(side, int) else (side[0], side[-1])
    if name == "perspective" and not values:
        values = {"start": arguments["startpoints"], "end": arguments["endpoints"]}
    if name == "erase" and arguments.get("v") is None:
        return None
    return name, values


_signature = functools.cache(inspect.signature)


@contextlib.contextmanager
def _listening() -> Iterator[list[Happened]]:
    """Both generations of torchvision's transforms, their calls written down, put back as they were afterwards."""
    from torchvision.transforms import functional as old
    from torchvision.transforms.v2._auto_augment import _AutoAugmentBase

    events: list[Happened] = []
    depth = [0]

    def heard(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not depth[0]:
            bound = _signature(function).bind(*args, **kwargs).arguments
            found = _happened(function.__name__, bound)
            if found is not None:
                events.append(found)
        depth[0] += 1
        try:
            return function(*args, **kwargs)
        finally:
            depth[0] -= 1

    kernel, policy = v2.Transform._call_kernel, _AutoAugmentBase._apply_image_or_video_transform

    def call_kernel(self: Any, functional: Callable[..., Any], inpt: Any, *args: Any, **kwargs: Any) -> Any:
        drawing = functional.__name__ == "gaussian_blur" and isinstance(self, v2.ElasticTransform)
        if not depth[0] and not drawing:
            found = _happened(functional.__name__, _signature(functional).bind(inpt, *args, **kwargs).arguments)
            if found is not None:
                events.append(found)
        return kernel(self, functional, inpt, *args, **kwargs)

    def apply(self: Any, image: Any, transform_id: str, magnitude: float, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self, v2.AugMix):
            steps = named_step(transform_id, np.asarray([float(magnitude)]), Frame.of([tuple(image.shape[-3:])]), "nearest", None)
            events.extend(happened for happened in _by_sample(steps, 1)[0])
        depth[0] += 1
        try:
            return policy(self, image, transform_id, magnitude, *args, **kwargs)
        finally:
            depth[0] -= 1

    names = [
        name
        for name, value in vars(old).items()
        if inspect.isfunction(value) and (name in _KEPT or name in _RENAMED or name in _PLAIN)
    ]
    originals = {name: getattr(old, name) for name in names}
    v2.Transform._call_kernel, _AutoAugmentBase._apply_image_or_video_transform = call_kernel, apply
    for name, function in originals.items():
        setattr(old, name, functools.wraps(function)(functools.partial(heard, function)))
    try:
        yield events
    finally:
        v2.Transform._call_kernel, _AutoAugmentBase._apply_image_or_video_transform = kernel, policy
        for name, function in originals.items():
            setattr(old, name, function)


_PLAIN = ("hflip", "vflip", "invert", "autocontrast", "equalize", "normalize", "to_tensor", "elastic_transform", "center_crop")
