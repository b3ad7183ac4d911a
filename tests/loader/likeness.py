"""Whether two batches are the same: types, values, strides, flags, all the way down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype and one.shape == other.shape and one.layout == other.layout
        assert one.requires_grad == other.requires_grad
        if one.layout is torch.strided:
            assert one.stride() == other.stride()
        assert torch.equal(one.to_dense(), other.to_dense())
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and one.flags.writeable == other.flags.writeable
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, Mapping):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    elif hasattr(one, "__dict__"):
        assert_same(vars(one), vars(other))
    else:
        assert one == other
