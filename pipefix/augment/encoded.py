"""Pictures that are decoded no further than the transforms ask: where a list begins with a crop, nothing else is decoded."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from torchvision import io as tvio
from torchvision.datasets import folder
from torchvision.transforms.v2 import functional as tv

from pipefix.kernels.errors import BadPicture
from pipefix.kernels.kernel import Absent, Kernel, native
from pipefix.kernels.picture import UINT8, Arithmetic, Box, Filter, PictureCut, Target
from pipefix.kernels.torchvision_resize import resizes_bytes

_FILTERS = {"bilinear": Filter.BILINEAR, "bicubic": Filter.BICUBIC}


def decoded(path: str | Path) -> torch.Tensor:
    """A picture as a tensor of bytes, three channels; what torchvision's decoders do not know goes through PIL."""
    data = tvio.read_file(str(path))
    if data[:2].tolist() == [0xFF, 0xD8]:
        try:
            return tvio.decode_jpeg(data, mode=tvio.ImageReadMode.RGB)
        except RuntimeError:
            pass  # PIL reads some files that libjpeg refuses, and says so of the rest
    return tv.pil_to_tensor(folder.pil_loader(str(path)))


class Encoded:
    """A JPEG's bytes, its size known."""

    __slots__ = ("data", "height", "path", "width")

    def __init__(self, path: str, data: bytes, width: int, height: int) -> None:
        self.path, self.data, self.width, self.height = path, data, width, height

    def whole(self) -> torch.Tensor:
        return decoded(self.path)

    def begun(self, name: str, values: dict[str, Any]) -> torch.Tensor | None:
        """What the first step of a list makes of it, to the bit as torchvision does; None: it is to be decoded first."""
        cut = self._cut(name, values)
        kernel = _kernel()
        if cut is None or kernel is None:
            return None
        made = torch.empty((1, 3, cut.window.height, cut.window.width), dtype=torch.uint8)
        try:
            kernel.jpeg_into(self.data, cut, UINT8, Target(made), 0)
        except BadPicture:
            return None  # torchvision, or PIL after it, says what is wrong with it
        return made[0]

    def _cut(self, name: str, values: dict[str, Any]) -> PictureCut | None:
        if name == "resized_crop":
            box = Box(values["left"], values["top"], values["width"], values["height"])
            height, width = values["size"]
        elif name == "resize":
            box = Box(0, 0, self.width, self.height)
            height, width = values["height"], values["width"]
        else:
            return None
        inside = box.x >= 0 and box.y >= 0 and box.x + box.width <= self.width and box.y + box.height <= self.height
        filter = _FILTERS.get(values["interpolation"])
        if not inside or not values["antialias"] or filter is None or not resizes_bytes(filter):
            return None
        return PictureCut(box, (width, height), Box(0, 0, width, height), filter=filter, arithmetic=Arithmetic.TORCH)


def opened(path: str | Path) -> Encoded | torch.Tensor:
    """A file's picture: encoded still where the native kernel can go on from there, else decoded."""
    kernel = _kernel()
    if kernel is not None:
        data = Path(path).read_bytes()
        try:
            header = kernel.header(data)
        except BadPicture:
            return decoded(path)
        if header.plain:
            return Encoded(str(path), data, header.width, header.height)
    return decoded(path)


@functools.cache
def _kernel() -> Kernel | None:
    kernel = native()
    return None if isinstance(kernel, Absent) else kernel
