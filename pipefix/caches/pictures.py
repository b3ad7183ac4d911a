"""Images on their way into a cache and out of it: made smaller, encoded, or as raw pixels; refuses files that are cut short.

What may be scaled smoothly and what may not: a photo is resampled. Palette images, bit masks, and, beside other images, those that
are grey or have few colours and come from no lossy file, are maps of labels, whose values must stay values: they are picked from
(nearest) and stored without loss.
"""

from __future__ import annotations

import contextlib
import io
import operator
import sys
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from pipefix.caches.record import Picture, Pixels, RecordDecoder, Unstorable, encode
from pipefix.kernels.errors import BadPicture
from pipefix.kernels.header import is_cut_short, read_header
from pipefix.vocabulary.errors import CacheDamaged
from pipefix.vocabulary.nested import map_leaves
from pipefix.vocabulary.quantity import counted

_ORIENTATION = 0x0112
_PHOTOS = frozenset(("RGB", "CMYK", "RGBA"))
_FEW, _MOST_COLORS = 64, 128
"""Beside another picture, one that has no more greys, or no more colours and not only greys, is a mask."""
_MAPS = ("P", "1", "I", "I;16", "I;16B", "I;16L", "F", "PA")
_IN = {"jpeg": ("RGB", "L", "CMYK"), "webp": ("RGB", "RGBA"), "png": ("RGB", "RGBA", "L", "LA", "P", "1", "I;16")}
"""Modes that each kind of file holds as they are."""
_MOST_PIXELS = 1 << 28
_MAGIC = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png", b"GIF8": "gif", b"BM": "bmp", b"II*\0": "tiff", b"MM\0*": "tiff"}


class Torn(ValueError):
    """An image file that ends before its picture does."""


def kind_of(head: bytes) -> str | None:
    """What an image file is, by its first bytes; None for anything else."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def check_whole(data: bytes, kind: str) -> None:
    """Raise `Torn` where a picture is cut short: some decoders fill up what is missing with grey, and say nothing."""
    if kind == "jpeg":
        if is_cut_short(data):
            raise Torn("the JPEG is cut short: it has no end-of-image mark")
    elif kind == "png" and data.rfind(b"IEND") < 0:
        raise Torn("the PNG is cut short: it has no IEND chunk")
    elif kind == "webp" and len(data) < int.from_bytes(data[4:8], "little"):
        raise Torn(f"the WebP is cut short: {len(data)} of {int.from_bytes(data[4:8], 'little') + 8} bytes")


# -- what is an image ------------------------------------------------------------------------------------------------------


def is_pil(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "PIL" and hasattr(value, "getbands")


def is_image(value: Any) -> bool:
    """PIL images, and arrays and tensors of bytes laid out as images."""
    module = type(value).__module__.partition(".")[0]
    if module == "numpy":
        dtype, channels = "uint8", 2
    elif (module == "torch" or type(value).__name__ == "Image") and hasattr(value, "detach"):  # no mask or boxes of torchvision's
        dtype, channels = "torch.uint8", 0
    else:
        return is_pil(value)
    is_3d = getattr(value, "ndim", 0) == 3 and 0 not in value.shape
    return is_3d and str(value.dtype) == dtype and value.shape[channels] in (1, 3, 4)


def as_pil(value: Any) -> tuple[Any, str]:
    """The image as PIL's, and what it was."""
    from PIL import Image

    if is_pil(value):
        return value, "image"
    if hasattr(value, "detach"):
        array, like = value.detach().cpu().permute(1, 2, 0).contiguous().numpy(), "tensor"
    else:
        array, like = np.ascontiguousarray(value), "array"
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array), like


def orientation_of(image: Any) -> int:
    """How it is still to be turned: 1 where it is upright, or nothing says that it is not."""
    orientation = image.getexif().get(_ORIENTATION, 1) if image.info else 1
    return orientation if type(orientation) is int and orientation in range(2, 9) else 1


@lru_cache(maxsize=8)
def _mark(orientation: int) -> bytes:
    """EXIF that says this alone."""
    from PIL import Image

    if orientation not in range(1, 9):
        raise ValueError(f"an orientation of {orientation}")
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    return exif.tobytes()


def is_map(image: Any, kind: str | None, modes: Sequence[str]) -> bool:
    """Whether its values are labels or depths rather than colours. ``modes``: of the sample's images, where it has several."""
    if image.mode in _MAPS or len(modes) < 2 or kind in ("jpeg", "webp"):
        return image.mode in _MAPS
    if image.mode == "L":
        return not _PHOTOS.isdisjoint(modes) or image.getcolors(_FEW) is not None
    colors = (image.getcolors(_MOST_COLORS) if image.mode in ("RGB", "RGBA") else None) or []
    return 0 < len(colors) <= _FEW or any(len({*color[:3]}) > 1 for _, color in colors)


def needs_pixels(image: Any) -> bool:
    """Whether it is a map whose mode no file keeps: PNG gives numbers of 32 bits back as a picture of 16."""
    return image.mode in _MAPS and image.mode not in (*_IN["png"], "PA")


def smaller(image: Any, size: int | None, *, labels: bool) -> Any:
    """With ``size`` pixels on the shorter side; images that are small already stay as they are."""
    from PIL import Image

    short = min(image.size)
    if size is None or short <= size:
        return image
    width, height = (max(1, round(side * size / short)) for side in image.size)
    if labels:
        return image.resize((width, height), Image.Resampling.NEAREST)
    return image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)


def encoded(image: Any, kind: str | None, quality: int, like: str, *, labels: bool, orientation: int = 1) -> Picture:
    """As a file of the kind it came from, where that holds its mode; otherwise, and for labels, as PNG without loss.

    ``orientation`` is what EXIF is to say in the file.
    """
    wanted = kind if kind in _IN and not labels else "png" if kind is not None or labels else "jpeg"
    if image.mode not in _IN[wanted]:
        wanted = "jpeg" if image.mode == "CMYK" and not labels else "png"
    if image.mode not in _IN[wanted]:
        raise Unstorable(f"a picture of mode {image.mode}: PNG has no such pixels")
    if image.mode == "P" and len(palette := image.getpalette() or []) <= 3 * image.getextrema()[1]:
        image = image.copy()  # PIL writes as many bits as colours need, and some values have none
        image.putpalette(palette + [0] * (768 - len(palette)))
    out = io.BytesIO()
    settings: dict[str, Any] = {"compress_level": 4} if wanted == "png" else {"quality": quality}
    image.save(out, wanted.upper(), **settings, **({"exif": _mark(orientation)} if orientation != 1 else {}))
    return Picture(out.getvalue(), wanted, image.width, image.height, like)


def lossless(image: Any, files: Sequence[bytes]) -> Picture:
    """As one of the files that it may have been decoded from, where that gives the very same pixels; otherwise as PNG."""
    from PIL import Image

    if image.mode.startswith("I") and image.mode != "I;16":
        raise Unstorable(f"a picture of mode {image.mode}: PNG gives it back as one of mode I;16")

    for data in files:
        kind = kind_of(data[:16])
        if kind in _IN:
            with Image.open(io.BytesIO(data)) as held:
                same = held.size == image.size and held.mode == image.mode and orientation_of(held) == orientation_of(image)
                if same and held.tobytes() == image.tobytes() and held.getpalette() == image.getpalette():
                    return Picture(data, kind, image.width, image.height, "image")
    return encoded(image, "png", 0, "image", labels=True, orientation=orientation_of(image))


def raw(image: Any, like: str) -> Pixels | Picture:
    """The pixels themselves; as PNG where colours of the palette are transparent, for which pixels have no place."""
    orientation, transparent = orientation_of(image), image.info.get("transparency")
    if image.mode == "PA" or (image.mode == "P" and (transparent is not None or image.palette.mode.endswith("A"))):
        return encoded(image, "png", 0, like, labels=True, orientation=orientation)
    palette = image.getpalette() if image.mode == "P" else None
    marks: dict[str, Any] = {"orientation": orientation} if orientation != 1 else {}
    if isinstance(transparent, (int, tuple)):  # the colour that is
        marks["transparency"] = transparent
    return Pixels(np.asarray(image), image.mode, bytes(palette) if palette else None, like, marks)


def as_pixels(value: Any) -> Any:
    """A sample with the pixels of its PIL images in their place."""
    return map_leaves(lambda leaf: raw(*as_pil(leaf)) if is_pil(leaf) else leaf, value)


def record_of(value: Any) -> bytes | None:
    """A sample as ``--store sample`` keeps it; None for what no record can hold, which is told when it is to be stored."""
    with contextlib.suppress(Unstorable):
        return encode(as_pixels(value))
    return None


# -- and back --------------------------------------------------------------------------------------------------------------

FORMS = ("as-was", "image", "tensor", "array", "none")


def decoder_to(form: str) -> RecordDecoder:
    """Makes samples whose pictures are what the user wants; ``none`` is for who wants the labels alone."""

    def of_picture(picture: Picture) -> Any:
        wanted = picture.like if form == "as-was" else form
        if wanted == "tensor":
            return _tensor_of(picture)
        return _image_of(picture) if wanted == "image" else _channels(_image_of(picture))

    def of_pixels(pixels: Pixels) -> Any:
        wanted = pixels.like if form == "as-was" else form
        if pixels.array.ndim not in (2, 3):
            raise ValueError(f"an image of {counted(pixels.array.ndim, 'dimension')}")
        if wanted == "image":
            return _from_pixels(pixels)
        values = pixels.array * np.uint8(255) if pixels.mode == "1" else pixels.array
        array = _channels(values if values.flags.writeable else values.copy())
        return array if wanted == "array" else _as_tensor(array)

    return RecordDecoder(of_picture, of_pixels) if form != "none" else RecordDecoder(lambda _: None, lambda _: None)


def _from_pixels(pixels: Pixels) -> Any:
    from PIL import Image

    image = Image.fromarray(pixels.array)
    if pixels.palette is not None and pixels.mode == "P" and image.mode == "L":
        image.putpalette(pixels.palette)
    elif image.mode != pixels.mode and len(image.getbands()) == Image.getmodebands(pixels.mode) and pixels.array.dtype.str == "|u1":
        image = Image.frombytes(pixels.mode, image.size, pixels.array.tobytes())  # CMYK looks like RGBA to an array
    marks = pixels.marks or {}
    if "orientation" in marks:
        image.info["exif"] = _mark(operator.index(marks["orientation"]))
    if "transparency" in marks:
        transparent = marks["transparency"]
        image.info["transparency"] = tuple(map(operator.index, transparent)) if isinstance(transparent, list) else transparent
    return image


def _image_of(picture: Picture, *, load: bool = True) -> Any:
    from PIL import Image

    if picture.kind not in _IN:
        raise ValueError(f"a picture of kind {picture.kind!r}")
    try:
        image = Image.open(io.BytesIO(picture.data), formats=[picture.kind.upper()])
        _check_size(image.size, picture)
        if load:
            image.load()
    except (OSError, SyntaxError, Image.DecompressionBombError, EOFError) as error:
        raise CacheDamaged(f"A picture in the cache cannot be decoded: {error}.") from error
    return image


def _channels(image: Any) -> Any:
    """Height x width x channels."""
    array = image if isinstance(image, np.ndarray) else np.array(image)
    return array if array.ndim == 3 else array[:, :, None]


def _as_tensor(array: Any) -> Any:
    import torch

    native = array.astype(array.dtype.newbyteorder("="), copy=False)  # torch has no others
    return torch.from_numpy(native).permute(2, 0, 1)


def _tensor_of(picture: Picture) -> Any:
    header = None
    if picture.kind == "jpeg":
        with contextlib.suppress(BadPicture):  # what our reader does not know is left to PIL, which checks for itself
            header = read_header(picture.data)
    if header is None:
        image = _image_of(picture)
        if image.mode in ("P", "PA"):
            image = image.convert("RGBA" if "transparency" in image.info or image.mode == "PA" else "RGB")
        return _as_tensor(_channels(image))
    _check_size((header.width, header.height), picture)
    import torch
    from torchvision.io import decode_jpeg

    try:
        return decode_jpeg(torch.frombuffer(bytearray(picture.data), dtype=torch.uint8))
    except RuntimeError as error:
        raise CacheDamaged(f"A picture in the cache cannot be decoded: {error}.") from error


def _check_size(size: tuple[int, int], picture: Picture) -> None:
    """A few bytes can claim to be a picture that fills the memory."""
    recorded_size = (picture.width, picture.height)
    if (recorded_size != (0, 0) and size != recorded_size) or size[0] * size[1] > _MOST_PIXELS:
        raise CacheDamaged(f"A picture says it is {size[0]}x{size[1]}, and its record says {picture.width}x{picture.height}.")


check_size = partial(_image_of, load=False)
"""Raises where a picture's file does not begin as one of its kind and size does; it is not decoded."""


def forget_threads() -> None:
    """Libraries that keep a pool of threads use one a process: the pool of processes uses the cores already."""
    cv2 = sys.modules.get("cv2")
    if cv2 is not None:
        cv2.setNumThreads(0)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
