"""Where the pixels of one sample come from: crops, a resize and flips, followed from the whole picture to what is wanted of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipefix.kernels.picture import Arithmetic, Box, Cut, Filter


class CannotFollow(Exception):
    """This picture takes a turn that one call cannot make (padding, say): the user's own transforms make the sample."""


@dataclass(frozen=True)
class Layout:
    """What a list of transforms has made of a picture so far, with nothing computed yet."""

    box: Box
    full: tuple[int, int] | None = None
    """The size that the box is resized to; None: not resized."""
    window: Box | None = None
    mirrored: bool = False
    upside_down: bool = False
    filter: Filter = Filter.BILINEAR

    @classmethod
    def of(cls, width: int, height: int) -> Layout:
        return cls(Box(0, 0, width, height))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height as the next transform sees them."""
        seen = self.box if self.window is None else self.window
        return seen.width, seen.height

    def cropped(self, top: int, left: int, height: int, width: int) -> Layout:
        seen = self.box if self.window is None else self.window
        if top < 0 or left < 0 or top + height > seen.height or left + width > seen.width:
            raise CannotFollow(f"a crop of {width} x {height} reaches beyond {seen.width} x {seen.height}")
        # Counted from the picture's own left and top, whichever way round it is seen.
        across = seen.width - left - width if self.mirrored else left
        down = seen.height - top - height if self.upside_down else top
        part = Box(seen.x + across, seen.y + down, width, height)
        return replace(self, box=part) if self.window is None else replace(self, window=part)

    def resized(self, height: int, width: int, filter: Filter) -> Layout:
        if self.full is not None:
            raise CannotFollow("a second resize")
        return replace(self, full=(width, height), window=Box(0, 0, width, height), filter=filter)

    def flipped(self, *, across: bool = False, down: bool = False) -> Layout:
        return replace(self, mirrored=self.mirrored ^ across, upside_down=self.upside_down ^ down)

    def cut(self, arithmetic: Arithmetic, coarsest: int = 1) -> Cut:
        whole = self.full or (self.box.width, self.box.height)
        window = self.window or Box(0, 0, *whole)
        return Cut(self.box, whole, window, self.mirrored, self.upside_down, self.filter, arithmetic, coarsest)
