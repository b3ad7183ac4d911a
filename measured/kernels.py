"""What calls of the native kernel leave behind."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import psutil
import torch
from PIL import Image

from measured.row import Row, at_most
from pipefix.kernels.errors import BadPicture
from pipefix.kernels.kernel import native
from pipefix.kernels.request import UINT8, Box, PictureCut, Target

CUT = PictureCut(Box(5, 5, 180, 140), (64, 64), Box(0, 0, 64, 64))


def rows() -> Iterator[Row]:
    kernel = native()
    if kernel is None:
        return
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 400, 3), dtype=np.uint8)).save(file, "JPEG")
    good, bad = file.getvalue(), file.getvalue()[:2000]
    target = Target(torch.zeros((1, 3, 64, 64), dtype=torch.uint8))

    def rounds(count: int) -> int:
        for _ in range(count):
            kernel.jpeg_into(good, CUT, UINT8, target, 0)
            try:
                kernel.jpeg_into(bad, CUT, UINT8, target, 0)
            except BadPicture:
                pass
        return int(psutil.Process().memory_info().rss)

    before = rounds(200)
    yield at_most("kernels: memory after 1,000 good and bad pictures", (rounds(1000) - before) / 1e6, "MB", 4)
