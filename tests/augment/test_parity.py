"""Each operation with its parameters fixed: torchvision on tensors on one side, the target on the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.transforms import v2

from pipefix.augment import kornia, parity, tensor
from pipefix.augment.translate import translate
from tests.augment.lists import ALL, EXACT, pictures

COUNT = 24


def through(transform: Any, images: Any, scale: float = 1.0, *, epoch: int = 0) -> list[parity.PixelError]:
    found = []
    for op in translate(transform).ops:
        error, images, scale = parity.compare(op, images, scale, kornia.augmentation, epoch=epoch)
        found += [] if error is None else [error]
    return found


@pytest.mark.parametrize("name", ALL)
def test_bytes(name: str) -> None:
    for error in through(ALL[name], pictures(COUNT)):
        assert error.within, error
        assert error.exact or name not in EXACT, error


@pytest.mark.parametrize("name", [name for name in ALL if "Augment" not in name and name not in ("RandomSolarize", "ToDtype")])
def test_floating_point(name: str) -> None:
    if name in ("RandomChoice", "RandomOrder", "RandomRotation bilinear", "RandomAffine bilinear"):
        pytest.skip("its parameters are in units of bytes")
    for error in through(ALL[name], pictures(COUNT, dtype=torch.float32), 255.0):
        assert error.within, error


@given(
    name=st.sampled_from(sorted(ALL)), count=st.integers(1, 65), height=st.integers(1, 39), width=st.integers(1, 39),
    epoch=st.integers(0, 1000),
)  # fmt: skip
def test_any_size_and_batch(name: str, count: int, height: int, width: int, epoch: int) -> None:
    """Odd, tiny, one pixel wide: where torchvision gives a result, so does the module, and the same one."""
    images = pictures(min(count, 65), height, width, seed=epoch)
    (*_, op) = translate(ALL[name]).ops
    reference = tensor.augmentation([op], seed=1)
    try:
        steps = reference.steps([tuple(images.shape[1:])] * len(images), np.arange(len(images)), epoch)
        expected = reference.run(images, steps)
    except (ValueError, RuntimeError):
        return
    found = kornia.augmentation([op], seed=1).run(images, steps)
    error = parity.measured(name, list(expected), list(found), 255.0 if expected[0].is_floating_point() else 1.0)
    # A single place rounded the other way weighs much in a picture of few pixels.
    assert error.mean <= (1.0 if min(height, width) > 12 else 3.0), error
    assert error.exact or name not in EXACT, error


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    listed = translate(v2.Compose([v2.RandomResizedCrop(32), v2.ColorJitter(0.2), v2.ToDtype(torch.float32, scale=True)])).ops
    images = pictures(8)
    half = kornia.augmentation(listed, dtype=dtype)(images, index=range(8))
    whole = kornia.augmentation(listed)(images, index=range(8))
    assert half.dtype == dtype
    assert (half.float() - whole).abs().max() <= (0.001 if dtype == torch.float16 else 0.004)


def test_gradients_flow_through_floating_point() -> None:
    listed = translate(v2.Compose([v2.RandomResizedCrop(16), v2.ColorJitter(0.2, 0.2, 0.2), v2.RandomHorizontalFlip()])).ops
    images = pictures(4, dtype=torch.float32).requires_grad_()
    kornia.augmentation(listed)(images).sum().backward()
    assert images.grad is not None
    assert images.grad.abs().sum() > 0


def test_channels_last() -> None:
    found = kornia.augmentation(translate(v2.RandomHorizontalFlip()).ops, channels_last=True)(pictures(4))
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_an_error_that_is_there_is_seen() -> None:
    """The measure itself: a swap that did nothing would not pass."""
    (op,) = translate(v2.RandomResizedCrop(32)).ops
    error, _, _ = parity.compare(op, pictures(8), 1.0, lambda listed, seed: kornia.augmentation(listed, seed=seed + 1))
    assert error is not None
    assert error.within  # the steps are given, so the seed does not matter
    shifted = parity.measured("x", [torch.zeros(3, 4, 4)], [torch.full((3, 4, 4), 2 / 255)], 255.0)
    assert shifted.mean == pytest.approx(2.0)
    assert not shifted.within
