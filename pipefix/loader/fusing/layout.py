"""Where the pixels of one sample come from: crops, a resize and flips, followed from the whole picture to what is wanted of it."""

from __future__ import annotations

import copy

from PIL import Image

from pipefix.kernels.picture import Arithmetic, Box, Filter, PictureCut


class CannotFollow(Exception):
    """This picture takes a turn that one call cannot make (padding, say): the user's own transforms make the sample."""


class Layout:
    """What a list of transforms has made of a picture so far, with nothing computed yet. Steps change it in place."""

    __slots__ = ("box", "filter", "full", "mirrored", "upside_down", "window")

    def __init__(self, width: int, height: int) -> None:
        self.box = Box(0, 0, width, height)
        self.full: tuple[int, int] | None = None
        """The size that the box is resized to; None: not resized."""
        self.window: Box | None = None
        self.mirrored = self.upside_down = False
        self.filter = Filter.BILINEAR

    def copy(self) -> Layout:
        return copy.copy(self)

    @property
    def flipped(self) -> bool:
        return self.mirrored or self.upside_down

    @property
    def size(self) -> tuple[int, int]:
        """Width and height as the next transform sees them."""
        return (self.window or self.box)[2:]

    def crop(self, top: int, left: int, height: int, width: int) -> None:
        seen = self.window or self.box
        if top < 0 or left < 0 or top + height > seen.height or left + width > seen.width:
            raise CannotFollow(f"a crop of {width} x {height} reaches beyond {seen.width} x {seen.height}")
        # Counted from the picture's own left and top, whichever way round it is seen.
        across = seen.width - left - width if self.mirrored else left
        down = seen.height - top - height if self.upside_down else top
        part = Box(seen.x + across, seen.y + down, width, height)
        if self.window is None:
            self.box = part
        else:
            self.window = part

    def resize(self, height: int, width: int, filter: Filter) -> None:
        if self.full is not None:
            raise CannotFollow("a second resize")
        self.full, self.window, self.filter = (width, height), Box(0, 0, width, height), filter

    def flip(self, *, across: bool) -> None:
        if across:
            self.mirrored = not self.mirrored
        else:
            self.upside_down = not self.upside_down

    def cut(self, arithmetic: Arithmetic, coarsest: int = 1) -> PictureCut:
        whole = self.full or (self.box.width, self.box.height)
        window = self.window or Box(0, 0, *whole)
        return PictureCut(self.box, whole, window, self.mirrored, self.upside_down, self.filter, arithmetic, coarsest)

    def applied(self, picture: Image.Image) -> Image.Image:
        """The same by Pillow, of the whole picture."""
        x, y, width, height = self.box
        picture = picture.crop((x, y, x + width, y + height))
        if self.full is not None:
            by = Image.Resampling.BILINEAR if self.filter is Filter.BILINEAR else Image.Resampling.BICUBIC
            picture = picture.resize(self.full, by)
        if self.window is not None:
            x, y, width, height = self.window
            picture = picture.crop((x, y, x + width, y + height))
        if self.mirrored:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return picture.transpose(Image.Transpose.FLIP_TOP_BOTTOM) if self.upside_down else picture
