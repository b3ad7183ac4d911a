"""What a dataset's loader makes of a file: found by giving it small pictures of every kind, not by its name."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision.datasets import folder

from pipefix.kernels.picture import Data
from pipefix.loader.fusing.recipe import NotFused


@dataclass(frozen=True)
class PictureLoading:
    """How pictures enter the transforms."""

    source: str
    """``pil`` or ``tensor``."""
    upright: bool = False
    """Turned as their EXIF says."""
    every_kind: bool = True
    """Whatever it is, Pillow's ``convert("RGB")`` or ``decode_image`` gives the same; else only of plain JPEGs."""


def loading_of(loader: Callable[[str], Any]) -> PictureLoading | NotFused:
    if loader is folder.pil_loader or (loader is folder.default_loader and folder_backend() == "PIL"):
        return PictureLoading("pil")
    name = getattr(loader, "__qualname__", type(loader).__qualname__)
    with tempfile.TemporaryDirectory(prefix="pipefix-") as place:
        found: dict[str, Any] = {}
        for kind, data in probes().items():
            path = os.path.join(place, f"{kind}.{'png' if kind.startswith('png') else 'jpg'}")
            with open(path, "wb") as file:
                file.write(data)
            try:
                found[kind] = loader(path)
            except Exception as error:  # noqa: BLE001 - it is the user's; what it cannot open shows what it is not
                found[kind] = error
    for source, how in (("pil", by_pillow), ("tensor", by_torchvision)):
        for upright in (False, True):
            agrees = {kind: _same(found[kind], _made_by(how, data, upright)) for kind, data in probes().items()}
            if agrees["jpeg"] and agrees["turned"] and agrees["grey"]:
                return PictureLoading(source, upright, all(agrees.values()))
    what = found["jpeg"]
    said = f"raises {type(what).__name__} on a JPEG elsewhere" if isinstance(what, Exception) else _told(what)
    return NotFused(f"its loader {name} {said}, neither Pillow's picture in RGB nor torchvision's tensor of it")


def folder_backend() -> str:
    from torchvision import get_image_backend

    return str(get_image_backend())


def _told(what: Any) -> str:
    mode = f" in {what.mode}" if isinstance(what, Image.Image) else ""
    return f"gives a {type(what).__module__.split('.')[0]} {type(what).__name__}{mode} with pixels of its own"


def probes() -> dict[str, bytes]:
    """Small files: a picture in colour, one that EXIF turns, a grey one, and kinds that decoders differ over."""
    rng = np.random.default_rng(7)
    rough = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)).resize((28, 20), Image.Resampling.BILINEAR)
    exif = Image.Exif()
    exif[0x112] = 6
    return {
        "jpeg": _file(rough, quality=90),
        "turned": _file(rough, quality=90, exif=exif),
        "grey": _file(rough.convert("L"), quality=90),
        "cmyk": _file(rough.convert("CMYK"), quality=90),
        "png": _file(rough, "PNG"),
        "png-clear": _file(rough.convert("RGBA"), "PNG"),
        "png-palette": _file(rough.quantize(16), "PNG"),
    }


def _file(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def by_pillow(data: Data, upright: bool) -> Image.Image:
    """As ``Image.open(...).convert("RGB")`` makes it, turned as its EXIF says if that is asked for."""
    with Image.open(io.BytesIO(bytes(data))) as opened:
        return (ImageOps.exif_transpose(opened) if upright else opened).convert("RGB")


def by_torchvision(data: Data, upright: bool) -> torch.Tensor:
    """As ``decode_image(..., RGB)`` makes it."""
    encoded = torch.from_numpy(np.frombuffer(data, dtype=np.uint8).copy())
    return torch.as_tensor(torch.ops.image.decode_image(encoded, 3, upright))  # 3: ImageReadMode.RGB


def _made_by(how: Callable[[bytes, bool], Any], data: bytes, upright: bool) -> Any:
    try:
        return how(data, upright)
    except (AttributeError, RuntimeError) as error:
        return error


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Image.Image) and isinstance(other, Image.Image):
        return one.mode == other.mode and np.array_equal(np.asarray(one), np.asarray(other))
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return False
