"""The swap held against what it replaces: each operation with its parameters fixed, the random ones' draws, and the whole list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from pipefix.augment import distribution, ops, tensor
from pipefix.augment.augment import Augment
from pipefix.augment.distribution import Compared
from pipefix.augment.operation import Op
from pipefix.augment.split import Split
from pipefix.augment.steps import DrawnStep, programs_of
from pipefix.augment.translate import Read

MEAN_ALLOWED, TAIL_ALLOWED = 1.0, 4.0
"""In 1/255 of the range: the mean, and the 99th percentile."""

NOTES: dict[type, str] = {
    ops.RandomResizedCrop: "torchvision weighs bytes with 16-bit integers and rounds between two passes; here it is rounded once",
    ops.Resize: "torchvision weighs bytes with 16-bit integers and rounds between two passes; here it is rounded once",
    ops.Affine: "a place half-way between two pixels may be rounded to the other one",
    ops.Rotation: "a place half-way between two pixels may be rounded to the other one",
    ops.Perspective: "the coefficients are solved in double precision, torchvision's in its own",
}
"""How a legitimate difference comes about."""


@dataclass(frozen=True)
class PixelError:
    """One operation, the same pictures and parameters through both sides; in 1/255 of the pixels' range."""

    op: str
    pictures: int
    mean: float
    p99: float
    worst: float
    note: str = ""

    @property
    def exact(self) -> bool:
        return self.worst == 0

    @property
    def within(self) -> bool:
        return self.mean <= MEAN_ALLOWED and self.p99 <= TAIL_ALLOWED


@dataclass(frozen=True)
class Drawn:
    """Figures of many results of one random transform, by both sides."""

    op: str
    count: int
    parameters: tuple[Compared, ...]
    declined: str = ""

    @property
    def alike(self) -> bool:
        return all(one.alike(len(self.parameters)) for one in self.parameters)


@dataclass(frozen=True)
class Panel:
    """One sample of the contact sheet, as pictures of bytes (height, width, channels)."""

    original: Any
    cpu: Any
    swapped: Any
    difference: Any
    mean: float
    """Of the difference, in 1/255."""


@dataclass
class Parity:
    target: str
    device: str
    pixels: list[PixelError] = field(default_factory=list)
    drawn: list[Drawn] = field(default_factory=list)
    whole: PixelError | None = None
    """The list from end to end, against the user's own functions on the pictures as the dataset gives them."""
    sheet: list[Panel] = field(default_factory=list)
    declined: list[tuple[str, str]] = field(default_factory=list)
    """What was not checked, and why."""

    @property
    def holds(self) -> bool:
        whole = self.whole is None or self.whole.within
        return whole and all(one.within for one in self.pixels) and all(one.alike for one in self.drawn)


def check(
    split: Split,
    pictures: Sequence[Any],
    images: list[torch.Tensor],
    build: Callable[..., Augment],
    *,
    draws: int = 2000,
    seed: int = 0,
    device: str = "cpu",
    progress: Callable[[str, float], None],
) -> Parity:
    """Hold a split against torchvision.

    ``pictures`` are samples as the dataset hands them to its transforms, ``images`` the same after what stays (`front_of`).
    ``build`` makes the target's module for a list of operations.
    """
    found = Parity(split.target, device)
    same = {tuple(one.shape) for one in images}
    state = torch.stack(images) if len(same) == 1 else images
    scale: Any = 255.0 if images[0].is_floating_point() else 1.0
    for done, read in enumerate(split.moves):
        for op in read.ops:
            progress(f"checking {type(op).__name__}", done / (2 * max(len(split.moves), 1)))
            error, state, scale = compare(op, state, scale, build, seed=seed + done, device=device)
            if error is not None:
                found.pixels.append(error)
    for place, read in enumerate((*split.stays, *split.moves)):
        progress(f"comparing results of {read.name}", 0.5 + place / (2 * len((*split.stays, *split.moves))))
        drawn = draws_of(read, draws, seed)
        if drawn is not None:
            found.drawn.append(drawn)
    if any(type(read.source).__module__.startswith("albumentations.") for read in split.moves):
        found.declined.append(("albumentations' own functions", "the target is held against torchvision's, as they were read"))
    if split.moves:
        _whole(found, split, pictures, images, build, seed=seed, device=device)
    return found


def front_of(split: Split, pictures: Sequence[Any], seed: int) -> list[torch.Tensor]:
    """The samples as they cross to the module."""
    from pipefix.augment.swap import _INDEX, Front

    front = Front(split.stays, to_tensor=True, seed=seed)
    front.epoch.fill_(0)
    images = []
    for index, picture in enumerate(pictures):
        token = _INDEX.set(index)
        try:
            images.append(_tensor(front(image=picture)["image"] if isinstance(picture, np.ndarray) else front(picture)))
        finally:
            _INDEX.reset(token)
    return images


def _tensor(sample: Any) -> torch.Tensor:
    if isinstance(sample, torch.Tensor):
        return sample.as_subclass(torch.Tensor)
    raise TypeError(f"after what stays, a sample is a {type(sample).__name__}, not a tensor")


def compare(
    op: Op, images: Any, scale: Any, build: Callable[..., Augment], *, seed: int = 0, device: str = "cpu", epoch: int = 0
) -> tuple[PixelError | None, Any, Any]:
    """One operation on the same pictures through both sides; then the pictures as torchvision makes them, and their scale."""
    reference, ours = tensor.augmentation([op], seed=seed), build([op], seed=seed)
    count = len(images)
    sizes = [tuple(one.shape) for one in images]
    steps = reference.steps(sizes, np.arange(count), epoch)
    expected = reference.run(images, steps)
    with torch.no_grad():
        found = ours.run(_on(images, _where(steps, device)), steps)
    if isinstance(op, ops.ToDtype) and op.scale and scale == 1.0:
        scale = 255.0
    if isinstance(op, ops.Normalize):
        scale = torch.as_tensor(op.std).view(-1, 1, 1) * scale
    if not steps or isinstance(op, (ops.ToTensor, ops.Identity, ops.OfBoxes)):
        return None, expected, scale
    return measured(type(op).__name__, expected, found, scale, NOTES.get(type(op), "")), expected, scale


def _where(steps: Sequence[DrawnStep], device: str) -> str:
    """Noise comes from the generator of its device, so what makes noise is compared on the CPU on both sides."""
    noisy = any(
        step.name in ("gaussian_noise", "elastic") or (step.name == "erase" and step.fixed["value"] is None) for step in steps
    )
    return "cpu" if noisy else device


def _on(images: Any, device: str) -> Any:
    return images.to(device) if isinstance(images, torch.Tensor) else [one.to(device) for one in images]


def measured(name: str, expected: Any, found: Any, scale: Any, note: str = "") -> PixelError:
    """How far two sets of pictures lie apart."""
    gaps = []
    for one, other in zip(expected, found, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            raise ValueError(f"{name}: {tuple(one.shape)} of {one.dtype} became {tuple(other.shape)} of {other.dtype}")
        gaps.append(((one.double() - other.cpu().double()).abs() * scale).flatten())
    every = torch.cat(gaps) if gaps else torch.zeros(1)
    tail = every.kthvalue(max(1, int(np.ceil(0.99 * len(every))))).values
    return PixelError(name, len(gaps), float(every.mean()), float(tail), float(every.max()), note if float(every.max()) else "")


def draws_of(read: Read, count: int, seed: int = 0) -> Drawn | None:
    """Results of one transform beside torchvision's own; None where nothing is random."""
    if read.untranslatable is not None or not any(op.is_random for op in read.ops):
        return None
    if not type(read.source).__module__.startswith("torchvision."):
        return Drawn(read.name, 0, (), "results are compared with torchvision's transforms only")
    if any(isinstance(op, ops.BATCHED) for op in read.ops):
        return Drawn(read.name, 0, (), "it mixes samples with each other")
    return Drawn(
        read.name, count, tuple(distribution.compared(read.source, read.ops, count=count, size=_small(read.ops), seed=seed))
    )


def _small(listed: Sequence[Op]) -> tuple[int, int, int]:
    """A picture just large enough for the crop."""
    crops = [op.size for op in listed if isinstance(op, (ops.RandomCrop, ops.CenterCrop))]
    return (3, max([24, *(size[0] + 8 for size in crops)]), max([32, *(size[1] + 16 for size in crops)]))


def _whole(
    found: Parity, split: Split, pictures: Sequence[Any], images: list[torch.Tensor], build: Callable[..., Augment], *, seed: int,
    device: str,
) -> None:  # fmt: skip
    """From end to end: their functions on their pictures, and the module on the batch, with the same numbers."""
    kept = sum(len(read.ops) for read in split.stays)
    reference = tensor.augmentation(split.ops, seed=seed, first=kept)
    swapped = build(split.ops, seed=seed, first=kept)
    if any(isinstance(op, ops.BATCHED) for op in split.ops):
        found.declined.append(("the whole list", "it mixes samples with each other"))
        return
    index = np.arange(len(images))
    steps = reference.steps([tuple(one.shape) for one in images], index)
    state: Any = torch.stack(images) if len({one.shape for one in images}) == 1 else images
    with torch.no_grad():
        ours = [one.cpu() for one in swapped.run(_on(state, _where(steps, device)), steps)]
    theirs = _own(split, images, steps, reference)
    scale, mean, std = undone(split.ops)
    found.whole = measured("the whole list", theirs, ours, scale, "their functions on pictures of PIL, ours on tensors")
    for original, one, other in list(zip(pictures, theirs, ours, strict=True))[:8]:
        found.sheet.append(panel(original, one, other, scale, mean, std))


def panel(original: Any, theirs: torch.Tensor, ours: torch.Tensor, scale: Any, mean: Any, std: Any) -> Panel:
    """A row of the contact sheet; the difference is shown sixteen times as large as it is."""
    gap = (theirs.double() - ours.double()).abs() * scale
    widened = (gap * 16).clamp(0, 255).to(torch.uint8)
    return Panel(_picture(original), _shown(theirs, mean, std), _shown(ours, mean, std), _hwc(widened), float(gap.mean()))


def _own(split: Split, images: list[torch.Tensor], steps: list[DrawnStep], reference: Any) -> list[torch.Tensor]:
    """The part that moves, as the user's list runs it: on pictures of PIL until they become tensors."""
    from torchvision.transforms.v2 import functional as tv

    as_pictures = any(isinstance(op, ops.ToTensor) for op in split.ops) and all(one.dtype == torch.uint8 for one in images)
    programs = programs_of(steps, len(images))
    results = []
    for one, program in zip(images, programs, strict=True):
        drawn_on_tensors = any(step.name in ("blend", "gaussian_noise") for step, _ in program)
        start = tv.to_pil_image(one) if as_pictures and not drawn_on_tensors else one
        results.append(_tensor(reference.one(start, program)))
    return results


def undone(listed: Sequence[Op]) -> tuple[Any, Any, Any]:
    """The scale of the results in 1/255, and what to undo to look at them."""
    scale: Any = 1.0
    mean, std = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    for op in listed:
        if isinstance(op, ops.ToDtype) and op.scale:
            scale = 255.0
        if isinstance(op, ops.Normalize):
            mean, std = torch.as_tensor(op.mean).view(-1, 1, 1), torch.as_tensor(op.std).view(-1, 1, 1)
            scale = std.double() * scale
    return scale, mean, std


def _shown(image: torch.Tensor, mean: Any, std: Any) -> Any:
    if image.is_floating_point():
        image = ((image.float() * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)
    return _hwc(image)


def _hwc(image: torch.Tensor) -> Any:
    return (
        image.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy()
        if image.shape[0] == 1
        else image.permute(1, 2, 0).contiguous().numpy()
    )


def _picture(original: Any) -> Any:
    if isinstance(original, torch.Tensor):
        return _hwc(original)
    return np.asarray(original.convert("RGB") if hasattr(original, "convert") else original)
