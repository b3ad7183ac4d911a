"""JPEGs for the fused path."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
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


KINDS: dict[int, dict[str, Any]] = {3: {"mode": "L"}, 5: {"mode": "CMYK"}, 7: {"format": "PNG"}, 8: {"progressive": True}}


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory, photo: Callable[..., bytes]) -> Callable[[int], Path]:
    """Makes a folder of so many pictures of two classes: in colour, grey, CMYK, a PNG, progressive."""

    def make(count: int) -> Path:
        root = tmp_path_factory.mktemp("pictures")
        for number in range(count):
            place = root / ("cat" if number % 2 else "dog")
            place.mkdir(exist_ok=True)
            name = f"{number:02d}.{'png' if number == 7 else 'jpg'}"
            (place / name).write_bytes(photo(60 + number, 50 + 3 * (number % 5), **KINDS.get(number, {})))
        return root

    return make
