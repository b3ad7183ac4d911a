"""Finds how a dataset turns a file into the picture that its transforms get: by a loader, or opened in its `__getitem__`.

What a loader makes of a file is found by giving it small pictures of every kind, not by its name. A `__getitem__` that opens
pictures itself is run with stand-ins under the names that it opens them by.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, Generic

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image, ImageOps
from torchvision import io as tvio
from torchvision.datasets import folder

from pipefix.kernels.request import Data
from pipefix.loader.fusing.errors import NotFused
from pipefix.loader.fusing.stand_in import PictureStandIn, Touched, loaded
from pipefix.loader.overlaid import Overlaid


@dataclass(frozen=True)
class PictureLoading:
    """How pictures enter the transforms."""

    source: str
    """``pil`` or ``tensor``."""
    upright: bool = False
    """Turned as their EXIF says."""
    every_kind: bool = True
    """Whatever it is, Pillow's ``convert("RGB")`` or ``decode_image`` gives the same; else only of plain JPEGs."""
    grey: bool = True
    """Grey pictures enter in RGB as well; else as they are."""


BY_PILLOW, BY_TORCHVISION = PictureLoading("pil"), PictureLoading("tensor")


def loading_of(loader: Callable[[str], Any]) -> PictureLoading:
    """Raises `NotFused`."""
    if _is_pillows(loader):
        return BY_PILLOW
    name = getattr(loader, "__qualname__", type(loader).__qualname__)
    with tempfile.TemporaryDirectory(prefix="pipefix-") as place:
        loaded_by_kind: dict[str, Any] = {}
        for kind, data in probes().items():
            path = Path(place, f"{kind}.{'png' if kind.startswith('png') else 'jpg'}")
            path.write_bytes(data)
            loaded_by_kind[kind] = _attempted(loader, str(path))
    for source, how in (("pil", by_pillow), ("tensor", by_torchvision)):
        for upright in (False, True):
            agrees = {kind: _same(loaded_by_kind[kind], _attempted(how, data, upright)) for kind, data in probes().items()}
            if agrees["jpeg"] and agrees["turned"] and agrees["grey"]:
                return PictureLoading(source, upright, all(agrees.values()))
    behaviour = _told(loaded_by_kind["jpeg"])
    raise NotFused(f"its loader {name} {behaviour}, neither Pillow's picture in RGB nor torchvision's tensor of it")


def _is_pillows(loader: Any) -> bool:
    """Whether it is the loader of torchvision's folders that opens pictures by Pillow."""
    return loader is folder.pil_loader or (loader is folder.default_loader and torchvision.get_image_backend() == "PIL")


def _told(picture: Any) -> str:
    if isinstance(picture, Exception):
        return f"raises {type(picture).__name__} on a JPEG elsewhere"
    mode = f" in {picture.mode}" if isinstance(picture, Image.Image) else ""
    return f"gives a {type(picture).__module__.split('.')[0]} {type(picture).__name__}{mode} with pixels of its own"


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
    return torch.as_tensor(torch.ops.image.decode_image(encoded, 3, upright), device="cpu")  # 3: ImageReadMode.RGB


def _attempted(load: Callable[..., Any], *args: Any) -> Any:
    try:
        return load(*args)
    except Exception as error:  # noqa: BLE001 - it may be the user's; what it cannot open shows what it is not
        return error


def _same(picture: Any, expected: Any) -> bool:
    if isinstance(picture, Image.Image) and isinstance(expected, Image.Image):
        return picture.mode == expected.mode and np.array_equal(np.asarray(picture), np.asarray(expected))
    if isinstance(picture, torch.Tensor) and isinstance(expected, torch.Tensor):
        return picture.dtype == expected.dtype and torch.equal(picture, expected)
    return False


# -- pictures that a dataset's `__getitem__` opens itself -------------------------------------------------------------------
#
# The user's class and module stay as they are: a copy of the dataset gets a class of its own, whose function looks names up in a
# copy of the module's.


class OpenedStandIn(PictureStandIn):
    """What `Image.open` gives: to be converted to RGB, and nothing else."""

    __slots__ = ()

    def convert(self, mode: Any = None, *more: Any) -> PictureStandIn:
        if mode != "RGB" or more:
            raise Touched(f"converts pictures to {mode!r}")
        return PictureStandIn(self.what)

    def __enter__(self) -> OpenedStandIn:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def _open(path: Any, *more: Any) -> OpenedStandIn:
    if more or not (isinstance(path, str) or hasattr(path, "__fspath__")):
        raise Touched("opens pictures from something else than a path")
    return OpenedStandIn(path)


def _read(path: Any, mode: Any = tvio.ImageReadMode.UNCHANGED, *more: Any) -> PictureStandIn:
    if more or mode not in (tvio.ImageReadMode.RGB, "RGB"):
        raise Touched("reads pictures as they are, not as RGB")
    return loaded(path)


def _known(value: Any) -> tuple[Any, PictureLoading] | None:
    """What stands in the place of a name's value."""
    if _is_pillows(value):
        return loaded, BY_PILLOW
    pillow, reading = Overlaid(Image, open=_open), Overlaid(tvio, read_image=_read, decode_image=_read)
    known = (
        (Image.open, _open, BY_PILLOW),
        (Image, pillow, BY_PILLOW),
        (PIL, Overlaid(PIL, Image=pillow), BY_PILLOW),
        (tvio.read_image, _read, BY_TORCHVISION),
        (tvio.decode_image, _read, BY_TORCHVISION),
        (tvio, reading, BY_TORCHVISION),
        (torchvision, Overlaid(torchvision, io=reading), BY_TORCHVISION),
    )
    return next(((stand_in, loading) for own, stand_in, loading in known if value is own), None)


def with_stand_ins(owner: Any) -> PictureLoading | None:
    """Give ``owner`` (a copy) a `__getitem__` that opens nothing; None where it is not seen what it opens pictures with."""
    kind: type = type(owner)
    function = getattr(kind, "__getitem__", None)
    # A class that is told of its subclasses may keep a register of them, or ask for arguments.
    told = any("__init_subclass__" in vars(ancestor) for ancestor in kind.__mro__ if ancestor not in (object, Generic))
    if told or not isinstance(function, FunctionType):
        return None
    names = {name: known for name in function.__code__.co_names if (known := _known(function.__globals__.get(name))) is not None}
    openings = {loading for _, loading in names.values()}
    if len(openings) != 1:
        return None
    scope = {**function.__globals__, **{name: value for name, (value, _) in names.items()}}
    again = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    again.__kwdefaults__ = function.__kwdefaults__
    try:
        owner.__class__ = type(kind)(kind.__name__, (kind,), {"__getitem__": again, "__module__": kind.__module__})
    except TypeError:  # memory of another layout
        return None
    return openings.pop()
