"""Pillow images decoded only when their pixels are looked at, and then only what was cropped and resized of them.

What `Image.open` gives has no pixels either until they are looked at. Here crops, one resize and flips are noted as well, and made
together with decoding in one native call. To the user's code these are pictures of Pillow's, to be asked for whatever those can be.
"""

from __future__ import annotations

import copy
import io
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from pipefix.kernels.errors import BadPicture
from pipefix.kernels.request import UINT8, Arithmetic, Box, Filter, Finish, Target
from pipefix.loader.fusing.errors import CannotFollow
from pipefix.loader.fusing.recipe import Layout

if TYPE_CHECKING:
    from pipefix.kernels.native import NativeKernel

RESAMPLING = {Image.Resampling.BILINEAR: Filter.BILINEAR, Image.Resampling.BICUBIC: Filter.BICUBIC}
MOST_SIDE = 1 << 16
"""Pixels of a side: more the kernel does not resize to."""
FLIPS = {Image.Transpose.FLIP_LEFT_RIGHT: True, Image.Transpose.FLIP_TOP_BOTTOM: False}
"""Whether left and right change places; else top and bottom."""


class PutOff:
    """What is put off while one sample is made, and what it is decoded by."""

    def __init__(self, kernel: NativeKernel, arithmetic: Arithmetic, views: int) -> None:
        """``views``: pictures that were made of one file in the sample before."""
        self.kernel, self.arithmetic, self.views = kernel, arithmetic, views
        self.most_views = 0
        """In this one, so far."""
        self.failed = False
        """A file could not be decoded where pixels were looked at, rather than where they would have been without us."""
        self.pictures: list[weakref.ref[DeferredPicture]] = []

    def read(self, picture: JpegImageFile) -> EncodedPicture | None:
        """The file's bytes, where the kernel decodes as Pillow does."""
        file = picture.fp
        if file is None or len(picture.tile) != 1 or picture.decoderconfig:
            return None
        file.seek(0)
        data = file.read()
        if picture._exclusive_fp:
            file.close()  # as Pillow does once it has decoded what it opened itself
        picture.fp = io.BytesIO(data)
        try:
            header = self.kernel.header(data)
        except BadPicture:
            return None
        same = (header.width, header.height) == picture.size and header.components == (3 if picture.mode == "RGB" else 1)
        return EncodedPicture(data, header.width, header.height, self) if same and header.plain else None


class EncodedPicture:
    """A JPEG in memory, of which pictures are made."""

    def __init__(self, data: bytes, width: int, height: int, put_off: PutOff) -> None:
        self.data, self.width, self.height, self.put_off = data, width, height, put_off
        self.made = 0
        """Pictures that were made of it."""
        self.pixels: np.ndarray[Any, Any] | None = None

    def into(self, layout: Layout, finish: Finish, target: Target, place: int) -> None:
        """A file that several pictures are made of (views of one photo) is decoded once."""
        kernel, cut = self.put_off.kernel, layout.cut(self.put_off.arithmetic)
        self.made += 1
        self.put_off.most_views = max(self.put_off.most_views, self.made)
        try:
            if self.made == 1 and self.put_off.views == 1:
                kernel.jpeg_into(self.data, cut, finish, target, place)
                return
            if self.pixels is None:
                self.pixels = kernel.jpeg_region(self.data, Box(0, 0, self.width, self.height))
        except BadPicture:
            self.pixels = self._by_pillow()
        kernel.pixels_into(self.pixels, cut, finish, target, place)

    def picture(self, layout: Layout) -> Image.Image:
        """With its pixels."""
        width, height = layout.size
        pixels = np.empty((1, height, width, 3), dtype=np.uint8)
        self.into(layout, UINT8, Target(pixels.transpose(0, 3, 1, 2)), 0)
        return Image.frombytes("RGB", (width, height), pixels)

    def _by_pillow(self) -> np.ndarray[Any, Any]:
        """What the kernel leaves to others. An error is not where it would be if decoding had not been put off: it is noted."""
        try:
            return np.asarray(JpegImageFile(io.BytesIO(self.data)).convert("RGB"))
        except Exception:
            self.put_off.failed = True
            raise


def _as_pillows(name: str) -> Any:
    """A method of Pillow's own picture, which this one becomes first."""

    def method(self: DeferredPicture | DeferredFile, *args: Any) -> Any:
        self.as_pillows()
        return getattr(self, name)(*args)

    return method


class DeferredPicture(Image.Image):
    """What is cropped, resized or flipped of a file that is not decoded yet. One whose pixels were looked at is a plain `Image`."""

    _encoded: EncodedPicture
    _layout: Layout

    @classmethod
    def of(cls, encoded: EncodedPicture, layout: Layout, like: Image.Image) -> DeferredPicture:
        picture = cls()
        picture._encoded, picture._layout = encoded, layout
        picture._mode, picture._size = "RGB", layout.size
        picture.info = {key: value.copy() if isinstance(value, list) else value for key, value in like.info.items()}
        encoded.put_off.pictures.append(weakref.ref(picture))
        return picture

    @property
    def im(self) -> Any:
        self.as_pillows()
        return self.im

    @im.setter
    def im(self, im: Any) -> None:
        self.__class__ = Image.Image  # type: ignore[assignment]
        self.im = im

    def write(self, finish: Finish, target: Target, place: int) -> None:
        """Into a batch."""
        self._encoded.into(self._layout, finish, target, place)

    def as_pillows(self) -> None:
        """It is decoded, and a plain picture from here on."""
        self.im = self._encoded.picture(self._layout).im

    load, __reduce_ex__ = map(_as_pillows, ("load", "__reduce_ex__"))

    # -- what is noted -----------------------------------------------------------------------------------------------------

    def copy(self) -> Image.Image:
        return DeferredPicture.of(self._encoded, copy.copy(self._layout), self)

    def convert(self, mode: Any = None, *more: Any, **named: Any) -> Image.Image:
        return super().convert(mode, *more, **named) if mode not in (None, "RGB") or more or named else self.copy()

    def crop(self, box: Any = None) -> Image.Image:
        layout = copy.copy(self._layout)
        try:
            if box is not None:
                left, top, right, bottom = (round(side) for side in box)
                if right <= left or bottom <= top:
                    raise CannotFollow("a crop of nothing")
                layout.crop(top, left, bottom - top, right - left)
        except (CannotFollow, TypeError, ValueError):
            return super().crop(box)
        return DeferredPicture.of(self._encoded, layout, self)

    def resize(self, size: Any, resample: Any = None, box: Any = None, reducing_gap: Any = None) -> Image.Image:
        layout = copy.copy(self._layout)
        try:
            width, height = size
            if (box is not None and tuple(box) != (0, 0, *self.size)) or reducing_gap is not None:
                raise CannotFollow("a resize of a part")
            if (width, height) != self.size:
                filter = RESAMPLING.get(Image.Resampling.BICUBIC if resample is None else resample)
                sensible = all(isinstance(side, int) and 1 <= side <= MOST_SIDE for side in (width, height))
                if filter is None or not sensible:
                    raise CannotFollow("another way to resize")
                if layout.mirrored or layout.upside_down:
                    raise CannotFollow("resized after it was flipped")  # rounding would be turned round with it
                layout.resize(height, width, filter)
        except (CannotFollow, TypeError, ValueError):
            return super().resize(size, resample, box, reducing_gap)
        return DeferredPicture.of(self._encoded, layout, self)

    def transpose(self, method: Any) -> Image.Image:
        across = FLIPS.get(method)
        if across is None:
            return super().transpose(method)
        layout = copy.copy(self._layout)
        layout.flip(across=across)
        return DeferredPicture.of(self._encoded, layout, self)


def _of_the_whole(name: str) -> Any:
    """A file's method that is the whole picture's, as long as that is in RGB; else Pillow's."""

    def method(self: DeferredFile, *args: Any, **named: Any) -> Any:
        if self.mode != "RGB":
            self.as_pillows()
        whole = self._whole() if type(self) is DeferredFile else None
        return getattr(self if whole is None else whole, name)(*args, **named)

    return method


class DeferredFile(JpegImageFile):
    """What `Image.open` gave, with all that is known of the file; its pixels are put off further than Pillow would."""

    _put_off: PutOff
    _encoded: EncodedPicture | None

    def as_pillows(self) -> None:
        """As if nothing had been put off: Pillow decodes it, also where its file was closed meanwhile."""
        encoded = self.__dict__.get("_encoded")
        self.__class__ = JpegImageFile  # type: ignore[assignment]
        if encoded is not None:
            self.fp = io.BytesIO(encoded.data)

    def _whole(self) -> DeferredPicture | None:
        """All of it in RGB; None where Pillow is to decode it, which it is from here on."""
        if "_encoded" not in self.__dict__:
            self._encoded = self._put_off.read(self)
        if self._encoded is None:
            self.as_pillows()
            return None
        return DeferredPicture.of(self._encoded, Layout(*self.size), self)

    @property
    def im(self) -> Any:
        self.as_pillows()
        self.load()
        return self.im

    @im.setter
    def im(self, im: Any) -> None:
        self.as_pillows()
        self.im = im

    def load(self) -> Any:
        """The file is read, as Pillow would; it is not decoded."""
        if self._whole() is None:
            return self.load()
        return PixelsLater(self)

    draft, __reduce_ex__ = map(_as_pillows, ("draft", "__reduce_ex__"))

    def convert(self, mode: Any = None, *more: Any, **named: Any) -> Image.Image:
        if mode != "RGB" or more or named:
            return super().convert(mode, *more, **named)
        whole = self._whole()
        return self.convert(mode) if whole is None else whole

    copy, crop, resize, transpose = map(_of_the_whole, ("copy", "crop", "resize", "transpose"))


class PixelsLater:
    """What `load` gives: access to single pixels, for the few who want that."""

    def __init__(self, picture: DeferredFile) -> None:
        self._picture = picture

    def __getattr__(self, name: str) -> Any:
        picture = self._picture
        if type(picture) is DeferredFile:
            picture.as_pillows()
        return getattr(picture.load(), name)

    def __getitem__(self, place: Any) -> Any:
        return self.__getattr__("__getitem__")(place)

    def __setitem__(self, place: Any, value: Any) -> None:
        self.__getattr__("__setitem__")(place, value)
