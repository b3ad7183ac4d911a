"""Whether torchvision resizes bytes as bytes, which is what `Arithmetic.TORCH` follows to the bit."""

from __future__ import annotations

import functools

import numpy as np
import torch

from pipefix.kernels.picture import Filter


@functools.cache
def resizes_bytes(filter: Filter) -> bool:
    """Found by asking torchvision's v2: on a processor without AVX2, and in older versions on some others, it turns bytes into
    floats to resize them bilinearly, and rounds once at the end."""
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional

    name = filter.name.lower()
    pixels = torch.from_numpy(np.random.default_rng(5).integers(0, 256, (3, 40, 61), dtype=np.uint8))
    own = functional.resize(pixels, [30, 41], interpolation=InterpolationMode(name), antialias=True)
    return torch.equal(own, torch.nn.functional.interpolate(pixels[None], size=(30, 41), mode=name, antialias=True)[0])
