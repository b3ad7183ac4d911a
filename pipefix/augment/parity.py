"""Holds a swap against what it replaces, pixel by pixel: the same samples and seed through the list of transforms and the swap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision.io import encode_png
from torchvision.transforms.v2 import functional as tv

from pipefix.augment.batched import BY_NAME
from pipefix.augment.module import run
from pipefix.augment.record import RecordedCall, replayed, unpacked
from pipefix.augment.split import Split, as_tensor
from pipefix.augment.swap import DatasetTransform, dali_loader, with_calls
from pipefix.vocabulary.random_state import seeded

MEAN_ALLOWED, TAIL_ALLOWED = 1.0, 4.0
"""In 1/255 of the range: the mean, and the 99th percentile."""
WHOLE = "the whole list"
SHOWN = 8
"""Rows of the contact sheet."""


@dataclass(frozen=True)
class PixelError:
    """The same pictures and parameters through both sides; in 1/255 of the pixels' range."""

    op: str
    pictures: int
    mean: float
    p99: float
    worst: float
    note: str = ""

    @property
    def within(self) -> bool:
        return self.mean <= MEAN_ALLOWED and self.p99 <= TAIL_ALLOWED


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
    """Of each transform that moved: torchvision's functions on tensors beside the batch's."""
    whole: PixelError | None = None
    """The list from end to end: the user's own objects on pictures as the dataset gives them, beside the swap."""
    sheet: list[Panel] = field(default_factory=list)

    @property
    def checked(self) -> list[PixelError]:
        """Each transform, then the list from end to end."""
        return [*self.pixels, *([self.whole] if self.whole is not None else [])]

    @property
    def holds(self) -> bool:
        return all(each.within for each in self.checked)


def check(
    cut: Split, pictures: Sequence[Any], *, seed: int = 0, device: str = "cpu", progress: Callable[[str, float], None]
) -> Parity:
    """Hold a swap against the user's own list on ``pictures``, samples as the dataset hands them to its transforms."""
    result = Parity(cut.target, device)
    if cut.target == "dali":
        _check_dali(result, cut, pictures, seed, progress)
        return result
    front = DatasetTransform(cut)
    expected, crossing, programs = [], [], []
    for place, picture in enumerate(pictures):
        progress("running both ways", place / (2 * len(pictures)))
        with seeded(seed + place):
            expected.append(_own(cut, picture))
        with seeded(seed + place):
            image, calls = with_calls(front(picture))
        crossing.append(image)
        programs.append(unpacked(calls).calls)
    images = crossing
    for place, part in enumerate(cut.on_batch):
        progress(f"checking {part.name}", 0.5 + place / (2 * len(cut.on_batch)))
        images = _check_one(result, part.name, images, [[call for call in calls if call.place == place] for calls in programs])
    with torch.no_grad():
        swapped = [image.cpu() for image in run(_stacked(crossing, device), programs)]
    _whole(result, pictures, expected, swapped, programs)
    return result


def _own(cut: Split, picture: Any) -> torch.Tensor:
    """The user's own transforms, one after the other."""
    for part in (*cut.in_dataset, *cut.on_batch):
        picture = part.source(picture)
    return as_tensor(picture)


def _stacked(images: Sequence[torch.Tensor], device: str) -> Any:
    moved = [image.to(device) for image in images]
    return torch.stack(moved) if len({(image.shape, image.dtype) for image in moved}) == 1 else moved


def _check_one(result: Parity, name: str, images: list[torch.Tensor], programs: list[list[RecordedCall]]) -> list[torch.Tensor]:
    """One transform on tensors, sample by sample and as a batch; then the pictures as torchvision makes them."""
    expected = [replayed(calls, image) for calls, image in zip(programs, images, strict=True)]
    if any(programs):
        with torch.no_grad():
            swapped = run(_stacked(images, result.device), programs)
        notes = {BY_NAME[call.name].note: None for calls in programs for call in calls if BY_NAME[call.name].tolerance == "close"}
        scale = _scale([call for calls in programs for call in calls], expected[0])[0]
        result.pixels.append(measured(name, expected, swapped, scale, "; ".join(filter(None, notes))))
    return expected


def _check_dali(result: Parity, cut: Split, pictures: Sequence[Any], seed: int, progress: Callable[[str, float], None]) -> None:
    """The whole list through DALI's graph, by way of encoded pictures; beside the list with the generators seeded alike."""
    from pipefix.augment.dali import recorded, sample_seed

    progress(f"checking {WHOLE}", 0.2)
    pil_pictures = [picture if isinstance(picture, Image.Image) else tv.to_pil_image(as_tensor(picture)) for picture in pictures]
    rgb_pictures = [picture.convert("RGB") for picture in pil_pictures]
    encoded = [encode_png(tv.pil_to_tensor(picture)).numpy().tobytes() for picture in rgb_pictures]
    sources = [part.source for part in cut.on_batch]
    batches = dali_loader(
        encoded.__getitem__, sources, length=len(encoded), batch_size=min(len(encoded), 16), seed=seed, device=result.device,
        world_size=1,
    )  # fmt: skip
    swapped = [image.cpu().clone() for images, _ in batches for image in images]
    expected, programs = [], []
    for place, (picture, kind) in enumerate(zip(rgb_pictures, pictures, strict=True)):
        own = sample_seed(seed, 0, place)
        with seeded(own):
            expected.append(_own(cut, picture if isinstance(kind, Image.Image) else tv.pil_to_tensor(picture)))
        with seeded(own):
            programs.append(recorded(cut.on_batch, (picture.height, picture.width), own))
    _whole(result, pictures, expected, swapped, programs)


# -- figures -------------------------------------------------------------------------------------------------------------------


def _whole(
    result: Parity, pictures: Sequence[Any], expected: Any, swapped: Any, programs: Sequence[Sequence[RecordedCall]]
) -> None:
    scale, mean, std = _scale(programs[0], expected[0])
    note = "yours on pictures as the dataset reads them, the swap on tensors"
    result.whole = measured(WHOLE, expected, swapped, scale, note)
    result.sheet = [panel(*three, scale, mean, std) for three in list(zip(pictures, expected, swapped, strict=True))[:SHOWN]]


def measured(name: str, expected: Any, swapped: Any, scale: Any, note: str = "") -> PixelError:
    """How far two sets of pictures lie apart."""
    gaps = []
    for first, second in zip(expected, swapped, strict=True):
        if first.shape != second.shape or first.dtype != second.dtype:
            raise ValueError(f"{name}: {tuple(first.shape)} of {first.dtype} became {tuple(second.shape)} of {second.dtype}")
        gaps.append(((first.double() - second.cpu().double()).abs() * scale).flatten())
    every = torch.cat(gaps) if gaps else torch.zeros(1)
    tail = every.kthvalue(max(1, int(np.ceil(0.99 * len(every))))).values
    return PixelError(name, len(gaps), float(every.mean()), float(tail), float(every.max()), note if float(every.max()) else "")


def _scale(calls: Sequence[RecordedCall], result: torch.Tensor) -> tuple[Any, Any, Any]:
    """Of the results in 1/255, and the mean and deviation to undo to look at them."""
    scale: Any = 255.0 if result.is_floating_point() else 1.0
    mean, std = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    normal = next((call.arguments for call in calls if call.name == "normalize"), None)
    if normal is not None:
        mean, std = (torch.tensor(normal[name]).view(-1, 1, 1) for name in ("mean", "std"))
        scale = 255.0 * std.double()
    return scale, mean, std


def panel(original: Any, expected: torch.Tensor, swapped: torch.Tensor, scale: Any, mean: Any, std: Any) -> Panel:
    """A row of the contact sheet; the difference is shown sixteen times as large as it is."""
    gap = (expected.double() - swapped.double()).abs() * scale
    widened = (gap * 16).clamp(0, 255).to(torch.uint8)
    return Panel(
        _shown(as_tensor(original), 0, 1), _shown(expected, mean, std), _shown(swapped, mean, std), _hwc(widened), float(gap.mean())
    )


def _shown(image: torch.Tensor, mean: Any, std: Any) -> Any:
    if image.is_floating_point():
        image = ((image.float() * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)
    return _hwc(image)


def _hwc(image: torch.Tensor) -> Any:
    image = image.expand(3, -1, -1) if image.shape[0] == 1 else image[:3]
    return image.permute(1, 2, 0).contiguous().numpy()
