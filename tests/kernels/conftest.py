"""Pictures and kernels. A test that takes `kernel` runs with each of them: they give one answer."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from PIL import Image

from pipefix.kernels.kernel import Kernel, native
from pipefix.kernels.request import Finish, Ramp
from pipefix.kernels.twin import TwinKernel


@pytest.fixture(params=["native", "twin"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return TwinKernel() if request.param == "twin" else request.getfixturevalue("native_kernel")


@pytest.fixture
def native_kernel() -> Any:
    found = native()
    if found is None:
        pytest.skip("there is no native kernel here")
    return found


Draw = Callable[..., np.ndarray[Any, Any]]
Encode = Callable[..., bytes]
patient = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
"""Fixtures are kernels and functions without a state."""


def normalised(mean: tuple[float, float, float], deviation: tuple[float, float, float], *, divides: bool = True) -> Finish:
    """To [0, 1], minus mean, over deviation. ``divides``: by 255 rather than times 1/255, which rounds a little differently."""
    ramp = Ramp(255.0 if divides else 1 / 255, divides, mean, deviation)
    return Finish(ramp.table(), ramp)


@pytest.fixture(scope="session")
def drawn() -> Draw:
    """Pixels with detail at every scale, and edges."""

    def draw(width: int, height: int, seed: int = 0) -> np.ndarray[Any, Any]:
        rng = np.random.default_rng((seed, width, height))
        walk = (
            np.cumsum(np.cumsum(rng.normal(size=(height, width, 3)), 0) * 0.6, 1) * 0.6 + rng.normal(size=(height, width, 3)) * 12
        )
        return np.clip(walk + 128, 0, 255).astype(np.uint8)

    return draw


@pytest.fixture(scope="session")
def encoded(drawn: Draw) -> Encode:
    """A JPEG of drawn pixels; options go to Pillow's writer."""

    def encode(width: int = 90, height: int = 70, mode: str = "RGB", seed: int = 0, **options: Any) -> bytes:
        file = io.BytesIO()
        Image.fromarray(drawn(width, height, seed)).convert(mode).save(file, "JPEG", **{"quality": 88, **options})
        return file.getvalue()

    return encode
