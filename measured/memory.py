"""Memory that long use must not eat."""

from __future__ import annotations

import io
from collections.abc import Iterator

from measured.row import Row, at_most


def rows() -> Iterator[Row]:
    from pipefix.kernels.kernel import native

    kernel = native()
    if kernel is not None:
        yield native_rounds(kernel)


def native_rounds(kernel: object) -> Row:
    """Good pictures and torn ones, decoded over and over."""
    import numpy as np
    import psutil
    import torch
    from PIL import Image

    from pipefix.kernels.errors import BadPicture
    from pipefix.kernels.request import UINT8, Box, PictureCut, Target

    torch.set_num_threads(1)
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)).save(file, "JPEG", quality=88)
    good, bad = file.getvalue(), file.getvalue()[:2000]
    cut = PictureCut(Box(5, 5, 180, 140), (64, 64), Box(0, 0, 64, 64))
    target = Target(torch.zeros((1, 3, 64, 64), dtype=torch.uint8))

    def after(rounds: int) -> int:
        for _ in range(rounds):
            kernel.jpeg_into(good, cut, UINT8, target, 0)  # type: ignore[attr-defined]
            try:
                kernel.jpeg_into(bad, cut, UINT8, target, 0)  # type: ignore[attr-defined]
            except BadPicture:
                pass
        return int(psutil.Process().memory_info().rss)

    before = after(200)
    grown = after(1000) - before
    return at_most("memory: 1,000 native rounds, whole and torn", grown / 1e6, "MB", 4, source="an allocator's room")
