"""Whether two batches are the same: types, values, strides, flags, all the way down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def assert_same(value: Any, expected: Any) -> None:
    assert type(value) is type(expected)
    if isinstance(value, torch.Tensor):
        assert value.dtype == expected.dtype and value.shape == expected.shape and value.layout == expected.layout
        assert value.requires_grad == expected.requires_grad
        if value.layout is torch.strided:
            assert value.stride() == expected.stride()
        assert torch.equal(value.to_dense(), expected.to_dense())
    elif isinstance(value, np.ndarray):
        assert value.dtype == expected.dtype and value.flags.writeable == expected.flags.writeable
        np.testing.assert_array_equal(value, expected)
    elif isinstance(value, Mapping):
        assert list(value) == list(expected)
        for key in value:
            assert_same(value[key], expected[key])
    elif isinstance(value, (list, tuple)):
        assert len(value) == len(expected)
        for left, right in zip(value, expected, strict=True):
            assert_same(left, right)
    elif hasattr(value, "__dict__"):
        assert_same(vars(value), vars(expected))
    else:
        assert value == expected
