"""Hue and blur, to the bit as Pillow and torch have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import functional as v1
from torchvision.transforms._functional_tensor import _get_gaussian_kernel2d

from pipefix.kernels.errors import BadRequest
from tests.kernels.conftest import patient

Pixels = np.ndarray[Any, Any]
KINDS = ("noise", "smooth", "even", "nearly grey", "two levels")


def drawn(kind: str, width: int, height: int) -> Pixels:
    rng = np.random.default_rng((width, height))
    noise = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    smooth = np.clip(rng.normal(size=(height, width, 3)).cumsum(0).cumsum(1) * 0.5 + 128, 0, 255).astype(np.uint8)
    levels = np.where(noise > 127, 255, 0).astype(np.uint8)
    return {
        "noise": noise,
        "smooth": smooth,
        "even": np.full_like(noise, noise[0, 0]),
        "nearly grey": noise // 85,
        "two levels": levels,
    }[kind]


def weights(columns: int, rows: int, *sigmas: float) -> Pixels:
    return _get_gaussian_kernel2d([columns, rows], list(sigmas), dtype=torch.float32, device=torch.device("cpu")).numpy()


sizes = st.integers(1, 40)


@patient
@given(kind=st.sampled_from(KINDS), width=sizes, height=sizes, part=st.integers(0, 127))
def test_hue_is_pillows(native_kernel: Any, kind: str, width: int, height: int, part: int) -> None:
    pixels, factor = drawn(kind, width, height), part / 254
    for sign in (1, -1):
        own = np.asarray(v1.adjust_hue(Image.fromarray(pixels), sign * factor))
        assert np.array_equal(native_kernel.hue_turned(pixels, int(np.int32(sign * factor * 255).astype(np.uint8))), own)


@patient
@given(kind=st.sampled_from(KINDS), width=sizes, height=sizes, data=st.data())
def test_a_blur_is_torchs(native_kernel: Any, kind: str, width: int, height: int, data: st.DataObject) -> None:
    columns, rows = (2 * data.draw(st.integers(0, min(11, side - 1))) + 1 for side in (width, height))
    sigmas = [data.draw(st.floats(0.1, 5.0)) for _ in range(2)]
    pixels = drawn(kind, width, height)
    made = native_kernel.blurred(pixels, weights(columns, rows, *sigmas))
    if made is None:
        pytest.skip("this processor does not multiply and add in one rounding")
    own = np.asarray(v1.gaussian_blur(Image.fromarray(pixels), [columns, rows], sigmas))
    # torch may take another way for some sizes (`native_operations` finds out): a level then, in few places.
    different = np.abs(made.astype(int) - own)
    assert different.max() <= 1 and np.count_nonzero(different) <= 0.001 * own.size + 1


def test_usual_blurs_are_equal_to_the_bit(native_kernel: Any) -> None:
    for kind in KINDS:
        for taps, sigma in ((3, 0.5), (9, 0.1), (9, 1.0), (23, 2.0)):
            pixels = drawn(kind, 96, 96)
            own = np.asarray(v1.gaussian_blur(Image.fromarray(pixels), taps, sigma))
            made = native_kernel.blurred(pixels, weights(taps, taps, sigma, sigma))
            assert made is None or np.array_equal(made, own)


def test_rows_may_lie_in_any_order(native_kernel: Any) -> None:
    turned = drawn("smooth", 50, 40)[::-1]
    assert np.array_equal(native_kernel.hue_turned(turned, 77), native_kernel.hue_turned(turned.copy(), 77))


@pytest.mark.parametrize(("shape", "weight"), [((9, 9, 3), (2, 3)), ((9, 9, 3), (3, 21)), ((1, 9, 3), (3, 3))])
def test_what_does_not_fit_is_refused(native_kernel: Any, shape: tuple[int, ...], weight: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="a buffer is not of the size that the call is about"):
        native_kernel.blurred(np.zeros(shape, np.uint8), np.ones(weight, np.float32))
    with pytest.raises(BadRequest, match="Pixels are height x width x 3"):
        native_kernel.hue_turned(np.zeros((4, 4, 4), np.uint8), 3)
