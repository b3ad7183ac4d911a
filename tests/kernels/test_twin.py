"""The twin's own choices: which library decodes for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from pipefix.kernels import twin


def test_pillow_decodes_to_the_same_pixels_where_torchvision_decodes_no_more(encoded: Callable[..., bytes]) -> None:
    for mode in ("RGB", "L"):
        jpeg = np.frombuffer(encoded(61, 47, mode), dtype=np.uint8)
        assert torch.equal(twin._by_pillow_alone(jpeg), twin._decoder()(jpeg))


def test_it_works_without_torchvisions_decoder(encoded: Callable[..., bytes], monkeypatch: object) -> None:
    from pipefix.kernels.picture import Box

    kernel = twin.TwinKernel()
    jpeg = encoded()
    expected = kernel.jpeg_region(jpeg, Box(3, 4, 40, 30))
    decoder = twin._decoder
    try:
        twin._decoder = lambda: twin._by_pillow_alone  # type: ignore[assignment]
        assert np.array_equal(kernel.jpeg_region(jpeg, Box(3, 4, 40, 30)), expected)
    finally:
        twin._decoder = decoder
