"""How far a fused call's pixels are from the list's own, in levels of 255: measured on drawn pictures before it is used."""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

SIZES = ((333, 250), (97, 131), (1000, 750))
"""Odd ones, one that is enlarged, and one large enough for a decoder that scales down."""
KEYS = (3, 4)

MEAN_BAR, P99_BAR = 1.0, 2.0
"""Levels of 255: more than that is not close."""


@dataclass(frozen=True)
class PixelDifference:
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


def difference(fused: Sequence[torch.Tensor], own: Sequence[torch.Tensor], level: torch.Tensor) -> PixelDifference:
    """Of samples, 3 x H x W each. ``level``: what one level of 255 is worth in each channel."""
    pairs = zip(fused, own, strict=True)
    apart = [((one.double() - other.double()).abs() / level[:, None, None]).flatten() for one, other in pairs]
    distance = torch.cat(apart).numpy()
    return PixelDifference(float(distance.mean()), float(np.percentile(distance, 99)), float(distance.max()))


def spread(length: int, count: int) -> list[int]:
    """So many numbers below ``length`` at most, in the middle of equal parts of it."""
    return sorted({(2 * at + 1) * length // (2 * count) for at in range(count)})


@functools.cache
def pictures() -> tuple[bytes, ...]:
    """JPEGs as full of detail as photographs are: amplitudes fall with frequency."""
    return tuple(_drawn(width, height, seed) for seed, (width, height) in enumerate(SIZES))


def _drawn(width: int, height: int, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None]).astype(np.float32)
    frequency[0, 0] = 1
    amplitude = frequency ** np.float32(-1.1)
    drawn = rng.standard_normal((4, *frequency.shape, 2), dtype=np.float32).view(np.complex64)[..., 0] * amplitude
    channels = np.fft.irfft2(0.92 * drawn[:1] + 0.39 * drawn[1:], s=(height, width))
    channels -= channels.mean(axis=(1, 2), keepdims=True)
    channels *= 55 / channels.std(axis=(1, 2), keepdims=True)
    file = io.BytesIO()
    Image.fromarray(np.clip(channels.transpose(1, 2, 0) + 120, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=92)
    return file.getvalue()
