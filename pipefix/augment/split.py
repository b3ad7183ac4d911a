"""Finds where a list of transforms is cut for a swap: what stays in the dataset, and what moves to the batch.

Nothing is read off the transforms: each is called with pictures without pixels, and what can be recorded can move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as tv

from pipefix.augment.dali_front import front_of
from pipefix.augment.record import NotRecordable, RecordedImage, replayed
from pipefix.augment.transforms import SIZES, TO_TENSOR, TRIALS, ListedTransform, parts_of, possible_calls
from pipefix.vocabulary.random_state import RandomState, seeded

Kind = Literal["pil", "image", "tensor", "array"]
"""``image``: a tensor that torchvision has marked as one (`tv_tensors.Image`)."""
COMPARED = 6
"""Seeds that a converted transform is held against its old self with."""


@dataclass(frozen=True)
class SampleFormat:
    """What one sample is when it crosses to the training process."""

    shape: tuple[int, ...] | None
    """Channels, height, width; None where pictures differ in size or it is not known."""
    dtype: str

    @property
    def nbytes(self) -> int | None:
        return None if self.shape is None else int(np.prod(self.shape)) * getattr(torch, self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.dtype} {'x'.join(map(str, self.shape))}" if self.shape else f"{self.dtype}, of any size"


@dataclass(frozen=True)
class Split:
    """A list cut in two."""

    target: str
    in_dataset: tuple[ListedTransform, ...]
    on_batch: tuple[ListedTransform, ...]
    reasons: tuple[tuple[str, str], ...]
    """Why a transform stays: its name, and the reason."""
    format_before: SampleFormat
    format_after: SampleFormat

    @property
    def names(self) -> list[str]:
        """Of what moves."""
        return [part.name for part in self.on_batch]


def split(
    transform: Any, target: str = "kornia", *, size: tuple[int, int, int] | None = None, same_size: bool = False,
    kind: Kind = "pil", dtype: torch.dtype = torch.uint8,
) -> Split:  # fmt: skip
    """Cut at the earliest place.

    Args:
        transform: The user's: one, a list, a composition.
        target: "kornia", or "dali", which takes the whole list or nothing.
        size: Channels, height and width of a picture as it is read, where that is known.
        same_size: Whether all pictures have it.
        kind: What the dataset hands to its transforms.
        dtype: Of the values in it.
    """
    parts = parts_of(transform)
    tried, formats = _tried(parts, size, same_size, kind, dtype)
    if target == "dali":
        return _whole(parts, tried, formats[-1])
    reasons: list[tuple[str, str]] = []
    cut = 0
    for place, (part, why) in enumerate(zip(parts, tried, strict=True)):
        if why:
            reasons += [(earlier.name, f"{part.name} follows, which stays") for earlier in parts[cut:place]]
            reasons.append((part.name, why))
            cut = place + 1
    one_size = range(cut, len(parts) if formats[-1].shape else 0)
    uniform = next((place for place in one_size if formats[place].shape), len(parts))
    reasons += [(part.name, "pictures differ in size until they are cropped or resized to one") for part in parts[cut:uniform]]
    return Split(target, tuple(parts[:uniform]), tuple(parts[uniform:]), tuple(reasons), formats[-1], formats[uniform])


def _whole(parts: Sequence[ListedTransform], tried: Sequence[str], before: SampleFormat) -> Split:
    """DALI begins with encoded bytes, so it takes the whole list or none of it."""
    own = [(part.name, why) for part, why in zip(parts, tried, strict=True) if why]
    if not own and parts and isinstance(front := front_of(parts), str):
        own = [(parts[0].name, front)]
    if not own:
        return Split("dali", (), tuple(parts), (), before, before)
    rest = [(part.name, f"{own[0][0]} stays, and DALI begins with the file") for part in parts if part.name not in dict(own)]
    return Split("dali", tuple(parts), (), (*own, *rest), before, before)


def _tried(
    parts: Sequence[ListedTransform], size: tuple[int, int, int] | None, same_size: bool, kind: Kind, dtype: torch.dtype
) -> tuple[list[str], list[SampleFormat]]:
    """What becomes of pictures without pixels: why each transform cannot be recorded ("": it can), and the format of samples before
    each and after the last."""
    channels, sizes = 3, list(SIZES)
    if size is not None:
        channels, height, width = size
        sizes = [(height, width)] if same_size else [(height, width), (height + 64, width + 32), (width + 64, height + 32)]
    from_pil = kind in ("pil", "array")
    images = [RecordedImage.of((channels, *sizes[trial % len(sizes)]), dtype, from_pil=from_pil) for trial in range(TRIALS)]
    reasons: list[str] = []
    formats = [_format(images)]
    for place, part in enumerate(parts):
        why, after = _recorded(part, images, place, kind)
        images = after if not why else _as_it_makes_them(part, images, place, kind)
        if kind == "array" and part.name not in TO_TENSOR:
            why = "the dataset gives arrays, which torchvision's transforms pass over until they are tensors"
        kind = "image" if part.name == "ToImage" else "tensor" if part.name in TO_TENSOR else kind
        reasons.append(why)
        formats.append(_format(images))
    return reasons, formats


def _format(images: Sequence[RecordedImage]) -> SampleFormat:
    shapes = {tuple(image.shape) for image in images}
    return SampleFormat(shapes.pop() if len(shapes) == 1 else None, str(images[0].dtype).removeprefix("torch."))


def _recorded(part: ListedTransform, images: list[RecordedImage], place: int, kind: Kind) -> tuple[str, list[RecordedImage]]:
    """Why the transform cannot be moved, and the pictures after it; as they were where it cannot."""
    if part.recorded is None:
        return part.why_not, images
    after = []
    for trial, image in enumerate(images):
        try:
            with seeded(trial + 101 * place):
                after.append(part.recorded(image))
        except NotRecordable as why:
            return str(why), images
        except Exception as error:  # noqa: BLE001 - the user's own class may raise anything
            first = str(error).partition("\n")[0][:100]
            return f"called with a picture alone it raises {type(error).__name__}: {first}", images
    try:
        list(possible_calls(part.recorded, images[0]))
    except NotRecordable as why:
        return str(why), images
    if not all(isinstance(image, RecordedImage) for image in after):
        return "it makes something else of a picture than one picture", images
    if part.compared and not _does_the_same(part, images[0], kind):
        return f"what torchvision's new {part.name} would do is not quite what it does to a picture, or it draws otherwise", images
    return "", after


def _as_it_makes_them(part: ListedTransform, images: list[RecordedImage], place: int, kind: Kind) -> list[RecordedImage]:
    """The pictures after a transform that stays, by what it makes of real ones; as they were where that cannot be known."""
    after = []
    for trial, image in enumerate(images):
        try:
            with seeded(trial + 101 * place):
                made = part.source(_example(tuple(image.shape), image.dtype, kind))
            pixels, from_pil = as_tensor(made), image.from_pil and not isinstance(made, torch.Tensor)
            after.append(RecordedImage.of(tuple(pixels.shape), pixels.dtype, from_pil=from_pil))
        except Exception:  # noqa: BLE001 - the user's own class may raise anything
            return images
    return after if all(image.ndim == 3 for image in after) else images


def _does_the_same(part: ListedTransform, like: RecordedImage, kind: Kind) -> bool:
    """Whether the recorded calls, done to a picture, give what the user's own transform gives, and draw the same numbers."""
    picture = _example(tuple(like.shape), like.dtype, kind)
    for seed in range(COMPARED):
        with seeded(seed):
            try:
                expected = part.source(picture)
            except Exception:  # noqa: BLE001 - as above
                return False
            drawn = RandomState()
        with seeded(seed):
            image = RecordedImage.of(tuple(like.shape), like.dtype, from_pil=kind in ("pil", "array"))
            part.recorded(image)  # type: ignore[misc]
            if drawn.changed():
                return False
        first, second = as_tensor(expected), as_tensor(replayed(image.calls, picture))
        # A blur of the old kind rounds a pixel in a million to its neighbour.
        allowed = 1 / 255 if first.is_floating_point() else 1
        alike = first.shape == second.shape and first.dtype == second.dtype
        if not alike or float((first.double() - second.double()).abs().max()) > allowed:
            return False
    return True


def _example(shape: tuple[int, ...], dtype: torch.dtype, kind: Kind) -> Any:
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(0, 256, (shape[0], shape[1] // 8 + 1, shape[2] // 8 + 1), generator=generator, dtype=torch.uint8)
    image = tv.resize(image, list(shape[1:]), antialias=True)
    if kind == "pil" and dtype == torch.uint8 and shape[0] in (1, 3, 4):
        return tv.to_pil_image(image)
    image = tv.to_dtype(image, dtype, scale=dtype.is_floating_point)
    return tv.to_image(image) if kind == "image" else image


def as_tensor(picture: Any) -> torch.Tensor:
    """A tensor, an array or PIL's picture, without the type that torchvision gives it."""
    if isinstance(picture, torch.Tensor):
        return picture.as_subclass(torch.Tensor)
    return tv.pil_to_tensor(picture) if isinstance(picture, Image.Image) else tv.to_image(picture).as_subclass(torch.Tensor)
