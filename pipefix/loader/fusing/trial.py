"""How far the fused call is from the list's own pixels, measured on drawn pictures before it is used."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

SIZES = ((333, 250), (97, 131), (1200, 900))
"""Odd ones, one that is enlarged, and one large enough for a decoder that scales down."""
KEYS = (3, 4)
LARGE = 800

MEAN_BAR, P99_BAR = 1.0, 2.0
"""Levels of 255: more than that is not close."""


@dataclass(frozen=True)
class Difference:
    """In levels of 255, over all pixels and channels of the pictures that were tried."""

    mean: float
    p99: float
    max: float

    @property
    def close(self) -> bool:
        return self.mean <= MEAN_BAR and self.p99 <= P99_BAR

    def sentence(self) -> str:
        if self.max == 0:
            return "pixels equal the list's own"
        mean, p99, most = f"{self.mean:.3f}", f"{self.p99:.2f}", f"{self.max:.1f}"
        return f"pixels differ from the list's own by {mean} levels of 255 on average, {p99} at the 99th percentile, {most} at most"


Make = Callable[[bytes, int], torch.Tensor]


def difference(made: list[torch.Tensor], own: list[torch.Tensor], level: torch.Tensor) -> Difference:
    """Of samples, 3 x H x W each. ``level``: what one level of 255 is worth in each channel."""
    apart = [(one.double() - other.double()).abs() / level[:, None, None] for one, other in zip(made, own, strict=True)]
    all_of = torch.cat([each.flatten() for each in apart]).numpy()
    return Difference(float(all_of.mean()), float(np.percentile(all_of, 99)), float(all_of.max()))


def tried(fused: Make, own: Make, level: torch.Tensor, with_: Sequence[bytes]) -> Difference:
    made, wanted = [], []
    for picture in with_:
        for key in KEYS:
            made.append(fused(picture, key))
            wanted.append(own(picture, key))
    return difference(made, wanted, level)


@functools.cache
def pictures() -> tuple[bytes, ...]:
    """JPEGs as full of detail as photographs are: amplitudes fall with frequency."""
    return tuple(_encoded(_drawn(width, height, seed)) for seed, (width, height) in enumerate(SIZES))


def _drawn(width: int, height: int, seed: int) -> np.ndarray[Any, Any]:
    if width > LARGE:
        # Mirrored: as full of detail, and drawn in a quarter of the time.
        part = _drawn(width // 2, height // 2, seed)
        return np.concatenate([np.concatenate([rows, rows[:, ::-1]], axis=1) for rows in (part, part[::-1])])
    rng = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    frequency[0, 0] = 1
    grey, *colours = (rng.normal(size=frequency.shape) + 1j * rng.normal(size=frequency.shape) for _ in range(4))
    channels = [np.fft.irfft2((0.92 * grey + 0.39 * colour) / frequency**1.1, s=(height, width)) for colour in colours]
    values = np.stack([(one - one.mean()) / one.std() for one in channels], axis=-1)
    return np.clip(values * 55 + 120, 0, 255).astype(np.uint8)


def _encoded(pixels: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=92)
    return file.getvalue()
