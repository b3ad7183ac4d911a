"""JPEGs for the fused path."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="session")
def photo() -> Callable[..., bytes]:
    def encode(width: int = 120, height: int = 90, mode: str = "RGB", **options: Any) -> bytes:
        smooth, rough = np.random.default_rng((width, height)).normal(size=(2, height, width, 3))
        pixels = np.clip(smooth.cumsum(0).cumsum(1) * 0.36 + rough * 12 + 128, 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).convert(mode).save(file, options.pop("format", "JPEG"), **options)
        return file.getvalue()

    return encode
