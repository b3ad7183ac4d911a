"""JPEGs for the fused path."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="module", autouse=True)
def short_waits() -> Iterator[None]:
    """Torch waits 5 s for each worker of an iterator that has raised before it ends the worker, once the iterator is collected."""
    from torch.utils.data import _utils

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_utils, "MP_STATUS_CHECK_INTERVAL", 1.0)
        yield


@pytest.fixture(scope="session")
def photo() -> Callable[..., bytes]:
    def encode(width: int = 120, height: int = 90, mode: str = "RGB", **options: Any) -> bytes:
        smooth, rough = np.random.default_rng((width, height)).normal(size=(2, height, width, 3))
        pixels = np.clip(smooth.cumsum(0).cumsum(1) * 0.36 + rough * 12 + 128, 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).convert(mode).save(file, options.pop("format", "JPEG"), **options)
        return file.getvalue()

    return encode
