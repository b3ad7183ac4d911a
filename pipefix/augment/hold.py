"""Holds a split's target against torchvision: modules directly, DALI's graph by way of encoded pictures."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as tv

from pipefix.augment import ops, parity, tensor
from pipefix.augment.operation import Op
from pipefix.augment.parity import Parity
from pipefix.augment.split import Split, makes_one_size
from pipefix.augment.swap import build, dali_loader
from pipefix.vocabulary.errors import TargetError


def hold(
    cut: Split, pictures: Sequence[Any], images: list[torch.Tensor], target: str, *, seed: int = 0, device: str = "cpu",
    progress: Callable[[str, float], None], draws: int = 2000,
) -> Parity:  # fmt: skip
    """``images`` are the pictures after what stays: `parity.front_of`, which runs the user's code."""
    if target != "dali":
        return parity.check(
            cut, pictures, images, lambda listed, **settings: build(target, listed, **settings), draws=draws, seed=seed,
            device=device, progress=progress,
        )  # fmt: skip
    return _dali(cut, pictures, seed=seed, device=device, progress=progress, draws=draws)


def _dali(
    cut: Split, pictures: Sequence[Any], *, seed: int, device: str, progress: Callable[[str, float], None], draws: int
) -> Parity:
    """Every prefix of the list through the graph, so that an error is seen where it comes in; then the whole of it."""
    found = Parity("dali", device)
    if not cut.moves:
        found.declined.append(("the list", "nothing of it can be moved to DALI"))
        return found
    images = [tv.pil_to_tensor(one.convert("RGB")) if isinstance(one, Image.Image) else _tensor(one) for one in pictures]
    encoded = [_png(one) for one in images]
    listed = list(cut.ops)
    for place, upto in enumerate(_prefixes(listed)):
        progress(f"checking {type(listed[upto - 1]).__name__}", place / (2 * len(listed)))
        one = through(listed[:upto], images, encoded, seed=seed, device=device)
        if one is not None:
            found.pixels.append(one[0])
            found.whole, last = one
        elif upto == len(listed):
            raise TargetError(
                "DALI's batches of the whole list are of another type than torchvision's.",
                advice="Move to Kornia instead (--to kornia), or end the list with ToDtype(torch.float32, scale=True).",
            )
    if found.whole is None:
        found.declined.append(("the list", "pictures keep different sizes to its end, so they make no batch"))
    for place, read in enumerate(cut.moves):
        progress(f"comparing results of {read.name}", 0.5 + place / (2 * len(cut.moves)))
        drawn = parity.draws_of(read, draws, seed)
        if drawn is not None:
            found.drawn.append(drawn)
    if found.whole is not None:
        scale, mean, std = parity.undone(listed)
        found.whole = parity.measured("the whole list", *last, scale, found.whole.note)
        found.sheet = [parity.panel(*three, scale, mean, std) for three in list(zip(pictures, *last, strict=True))[:8]]
    return found


def _prefixes(listed: Sequence[Op]) -> list[int]:
    """Lengths of prefixes whose results can be looked at: those that end in pictures of one size."""
    found, one_size = [], False
    for place, op in enumerate(listed):
        one_size = one_size or makes_one_size(op)
        if one_size and not isinstance(op, (ops.ToTensor, ops.Identity)):
            found.append(place + 1)
    return found


def through(
    listed: Sequence[Op], images: Sequence[torch.Tensor], encoded: Sequence[bytes], *, seed: int = 0, device: str = "cpu"
) -> tuple[parity.PixelError, tuple[list[torch.Tensor], list[torch.Tensor]]] | None:
    """The list through DALI and through torchvision, with the same numbers."""
    batches = dali_loader(
        encoded.__getitem__, listed, length=len(encoded), batch_size=min(len(encoded), 16), seed=seed, device=device, world_size=1
    )
    batches.set_epoch(0)
    ours = [one.cpu().clone() for found, _ in batches for one in found]
    reference = tensor.augmentation(listed, seed=seed)
    theirs = [reference([one], index=np.asarray([place]), epoch=0)[0] for place, one in enumerate(images)]
    if any(one.dtype != other.dtype for one, other in zip(theirs, ours, strict=True)):
        return None
    name, note = type(listed[-1]).__name__, "DALI weighs in floating point and rounds once, torchvision with 16-bit integers"
    return parity.measured(name, theirs, ours, parity.undone(listed)[0], note), (theirs, ours)


def _tensor(picture: Any) -> torch.Tensor:
    if isinstance(picture, torch.Tensor):
        return picture.as_subclass(torch.Tensor)
    return torch.from_numpy(np.ascontiguousarray(picture)).permute(2, 0, 1)


def _png(image: torch.Tensor) -> bytes:
    file = io.BytesIO()
    tv.to_pil_image(image).save(file, "PNG")
    return file.getvalue()
