"""Pillow. Opening an image parses its header; decoding happens when the pixels are first needed, wherever that is.

The load is therefore charged to decode even in the middle of a resize, and what is recorded for an opened image is the image after
that load. Answered from a recording, `Image.open` gives a decoded image of the plain class, with mode, format, info and exif.
"""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any

from pipefix.hooks.calls import AUGMENT, DECODE, STORAGE, Patches, SampleTimer, hook
from pipefix.hooks.result_store import MISSING

LIBRARY = "PIL.Image"

_OPEN, _LOAD, _CONVERT = "PIL.Image.open", "PIL.Image.load", "PIL.Image.convert"
_PLACE = "_pipefix_place"
"""Attribute of an image being recorded: (recording, label, ordinal, unit)."""
_ANSWERED = "_pipefix_answered"
"""Attribute of an image that came from a recording."""


def install(timer: SampleTimer, patches: Patches) -> None:
    from PIL import Image, ImageFile

    seen: set[type] = set()
    _replace_load(timer, patches, ImageFile.ImageFile, seen)
    open_original, convert_original = Image.open, Image.Image.convert

    @hook(timer, patches, Image, "open")
    def open_image(fp: Any, *args: Any, **kwargs: Any) -> Any:
        if not timer.tapes(DECODE):
            image: Any = timer.timed_call(DECODE, _OPEN, open_original, (fp, *args), kwargs, replayable=False)
            _replace_load(timer, patches, type(image), seen)
            return image
        taping = timer.owns and timer.stage is not DECODE
        label, ordinal = timer.place(_OPEN) if taping else (_OPEN, 0)
        if taping and DECODE in timer.replaced:
            known = timer.answer(DECODE, label, ordinal, reread=False)
            if known is not MISSING:
                if STORAGE not in timer.replaced:
                    _read_through(fp)
                known.__dict__[_ANSWERED] = True
                return known
        image = timer.timed_call(DECODE, _OPEN, open_original, (fp, *args), kwargs, replayable=False)
        _replace_load(timer, patches, type(image), seen)
        if taping and timer.open_recording is not None:
            image.__dict__[_PLACE] = (timer.open_recording, label, ordinal, timer.unit)
        return image

    @hook(timer, patches, Image.Image, "convert")
    def convert(self: Any, mode: str | None = None, *args: Any, **kwargs: Any) -> Any:
        """Of an image as it came from its file the conversion is the last part of decoding; of any other it augments."""
        if _is_lazy(self):
            self.load()
        if self.format is None:
            return timer.timed_call(AUGMENT, _CONVERT, convert_original, (self, mode, *args), kwargs)
        copies = mode == self.mode and not args and not kwargs
        if copies and DECODE in timer.replaced and _ANSWERED in self.__dict__:
            timer.pause()
            copy = convert_original(self, mode)
            timer.resume(DECODE)
            return copy
        # The copy itself is not kept: the opened image already is.
        return timer.timed_call(DECODE, _CONVERT, convert_original, (self, mode, *args), kwargs, replayable=not copies)


def _is_lazy(image: Any) -> bool:
    """Whether the pixels are still to be decoded."""
    state = image.__dict__
    return bool(state.get("tile")) or (state.get("_im") is None and state.get("im") is None)


def _replace_load(timer: SampleTimer, patches: Patches, kind: type, seen: set[type]) -> None:
    """Of a class of image files, and of those derived from it; again for each that a plugin defines later."""
    if kind in seen:
        return
    seen.add(kind)
    child: type
    for child in kind.__subclasses__():
        _replace_load(timer, patches, child, seen)
    original = kind.__dict__.get("load")
    if original is None:
        return

    @hook(timer, patches, kind, "load")
    def load(image: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_lazy(image):
            return original(image, *args, **kwargs)
        place = image.__dict__.pop(_PLACE, None) if timer.recording is not None else None
        pixels = timer.timed_call(DECODE, _LOAD, original, (image, *args), kwargs, replayable=False, deferred=True)
        if place is not None:
            recording, label, ordinal, unit = place
            timer.pause()
            if not getattr(image, "is_animated", False):
                recording.keep(unit, label, ordinal, DECODE, image)
            timer.resume()
        return pixels


def _read_through(fp: Any) -> None:
    """Read what decoding would have read: storage stays as dear as it is."""
    if not hasattr(fp, "read"):
        with open(fp, "rb", buffering=0) as file:
            file.read()
    elif not isinstance(fp, io.BytesIO):
        with suppress(AttributeError, io.UnsupportedOperation):
            fp.seek(0)
        fp.read()
