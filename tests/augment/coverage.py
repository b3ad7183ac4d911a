"""Which of torchvision's v2 transforms each target has, found by reading an example of each. The documentation's table is this."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torchvision.transforms import v2

from pipefix.augment import ops, support
from pipefix.augment.translate import read

_GIVEN: dict[str, tuple[Any, ...]] = {
    "CenterCrop": (8,),
    "Compose": ([v2.RandomHorizontalFlip()],),
    "ConvertBoundingBoxFormat": ("XYXY",),
    "FiveCrop": (8,),
    "GaussianBlur": (3,),
    "JPEG": (80,),
    "Lambda": (abs,),
    "LinearTransformation": (torch.eye(3), torch.zeros(3)),
    "Normalize": ((0.5,) * 3, (0.5,) * 3),
    "Pad": (2,),
    "RandomAdjustSharpness": (2.0,),
    "RandomAffine": (10,),
    "RandomApply": ([v2.RandomHorizontalFlip()],),
    "RandomChoice": ([v2.RandomHorizontalFlip()],),
    "RandomCrop": (8,),
    "RandomOrder": ([v2.RandomHorizontalFlip()],),
    "RandomPosterize": (4,),
    "RandomResize": (8, 16),
    "RandomResizedCrop": (8,),
    "RandomRotation": (10,),
    "RandomShortestSize": (8,),
    "RandomSolarize": (128.0,),
    "Resize": ((8, 8),),
    "ScaleJitter": ((200, 200),),
    "SetClampingMode": ("soft",),
    "TenCrop": (8,),
    "ToDtype": (torch.float32,),
    "UniformTemporalSubsample": (2,),
}
"""Arguments of those that need some."""
_DALI: dict[str, dict[str, Any]] = {
    "RandomAffine": {"interpolation": v2.InterpolationMode.BILINEAR},
    "RandomRotation": {"interpolation": v2.InterpolationMode.BILINEAR},
    "ColorJitter": {"brightness": 0.2, "contrast": 0.2, "saturation": 0.2},
    "Grayscale": {"num_output_channels": 3},
    "ToDtype": {"scale": True},
}
"""With which DALI has it, where its defaults are not: told in the table."""
_LIMITS = {
    "RandomAffine": "bilinear only",
    "RandomRotation": "bilinear only, without expand",
    "ColorJitter": "without hue",
    "Grayscale": "three channels",
    "RandomCrop": "padded by a constant",
    "Pad": "by a constant",
    "RandomErasing": "by a value",
    "ToDtype": "to [0, 1]",
    "ConvertImageDtype": "to [0, 1]",
}
BASES = ("Transform", "AutoAugmentPolicy", "InterpolationMode")
"""Classes of the module that are no transforms."""


@dataclass(frozen=True)
class Row:
    """One transform: for each target nothing where it is supported, and else why not."""

    name: str
    reads: tuple[str, ...]
    """The operations that it is read as."""
    why_not: dict[str, str | None]
    limits: str = ""
    """Of DALI."""


def names() -> list[str]:
    """Every transform of torchvision's v2 module."""
    return sorted(
        name for name, value in vars(v2).items() if inspect.isclass(value) and name not in BASES and not name.startswith("_")
    )


def example(name: str, **more: Any) -> Any:
    return getattr(v2, name)(*_GIVEN.get(name, ()), **more)


def row(name: str) -> Row:
    listed = read(example(name))
    why: dict[str, str | None] = {target: support.why_not_any(listed, target) for target in ("tensor", "kornia")}
    why["dali"] = support.why_not_any(read(example(name, **_DALI.get(name, {}))), "dali")
    shown = tuple(type(op).__name__ for op in listed if not isinstance(op, ops.Untranslatable))
    return Row(name, shown, why, _LIMITS.get(name, "") if why["dali"] is None else "")


def rows() -> list[Row]:
    return [row(name) for name in names()]


def counts(table: list[Row]) -> dict[str, int]:
    return {target: sum(one.why_not[target] is None for one in table) for target in ("tensor", "kornia", "dali")}


def page() -> str:
    """The table as Markdown."""
    table = rows()
    found = counts(table)
    lines = [
        f"Of {len(table)} transforms of `torchvision.transforms.v2` {found['tensor']} go to `tensor`,",
        f"{found['kornia']} to `kornia`, {found['dali']} to `dali` natively.",
        "",
        "| transform | tensor | kornia | dali |",
        "| --- | --- | --- | --- |",
    ]
    for one in table:
        cells = []
        for target in ("tensor", "kornia", "dali"):
            why = one.why_not[target]
            limit = f" ({one.limits})" if target == "dali" and one.limits else ""
            cells.append(f"yes{limit}" if why is None else f"no: {why}")
        same = len(set(cells)) == 1 and cells[0] != "yes"
        lines.append(f"| `{one.name}` | {' | '.join([cells[0], 'no', 'no'] if same else cells)} |")
    return "\n".join(lines) + "\n"
