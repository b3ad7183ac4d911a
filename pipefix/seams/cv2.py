"""OpenCV. ``imread`` is split into reading the file and ``imdecode``, which give the same pixels; what works on pixels augments."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut, cut_each, cut_making
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "cv2"
OPAQUE = {
    "cv2.VideoCapture": "FFmpeg reads and decodes in one call; all of it is charged to decode",
    "cv2.imreadmulti": "reading and decoding the pages of a file cannot be told apart; all of it is charged to decode",
}

_DECODE, _AUGMENT = Stage.DECODE, Stage.AUGMENT
_PIXELS = {
    "resize": 2, "flip": 2, "rotate": 2, "transpose": 1, "cvtColor": 2, "warpAffine": 3, "warpPerspective": 3, "warpPolar": 5,
    "remap": 4, "GaussianBlur": 3, "blur": 2, "boxFilter": 3, "medianBlur": 2, "bilateralFilter": 4, "filter2D": 3,
    "sepFilter2D": 4,
    "LUT": 2, "normalize": 1, "copyMakeBorder": 6, "addWeighted": 5, "add": 2, "subtract": 2, "multiply": 2, "absdiff": 2,
    "bitwise_and": 2, "bitwise_or": 2, "bitwise_xor": 2, "bitwise_not": 1, "equalizeHist": 1, "convertScaleAbs": 1, "threshold": 4,
    "adaptiveThreshold": 6, "split": 1, "merge": 1, "erode": 2, "dilate": 2, "morphologyEx": 3, "Canny": 3, "Sobel": 4, "Scharr": 4,
    "Laplacian": 2, "pyrDown": 1, "pyrUp": 1, "undistort": 3, "inRange": 3, "getRectSubPix": 3, "hconcat": 1, "vconcat": 1,
    "applyColorMap": 2, "fastNlMeansDenoising": 1, "fastNlMeansDenoisingColored": 1, "distanceTransform": 3,
}  # fmt: skip
"""Functions that augment, and the position of the array they may be told to write into."""
_IN_PLACE = ("rectangle", "line", "circle", "ellipse", "polylines", "fillPoly", "putText", "drawContours")


def install(tap: Tap, patches: Patches) -> None:
    import cv2

    patches.replace(cv2, "imread", _reader(tap, cv2), everywhere=True)
    for name in ("imdecode", "imreadmulti"):
        cut(tap, patches, cv2, name, _DECODE)
    for name, destination in _PIXELS.items():
        original = getattr(cv2, name, None)
        if original is not None:
            patches.replace(cv2, name, _augmenter(tap, original, f"cv2.{name}", destination), everywhere=True)
    for name in _IN_PLACE:
        cut(tap, patches, cv2, name, _AUGMENT, replayable=False)
    video = cv2.VideoCapture
    cut_each(tap, patches, video, ("grab", "set"), _DECODE, "cv2.VideoCapture")
    cut_each(tap, patches, video, ("open",), _DECODE, "cv2.VideoCapture", replayable=False)
    for name in ("read", "retrieve"):
        _cut_frame(tap, patches, video, name)
    cut_making(tap, patches, cv2, "VideoCapture", _DECODE)


def _reader(tap: Tap, cv2: Any) -> Callable[..., Any]:
    original, imdecode = cv2.imread, cv2.imdecode
    names = (str, bytes, os.PathLike) if _takes_paths(cv2) else (str,)

    def decode(data: bytes, filename: Any, flags: tuple[int, ...]) -> Any:
        pixels = imdecode(np.frombuffer(data, np.uint8), *(flags or (1,))) if data else None
        return original(filename, *flags) if pixels is None else pixels

    @functools.wraps(original)
    def imread(filename: Any, *flags: Any, **kwargs: Any) -> Any:
        if not tap.live:
            return original(filename, *flags, **kwargs)
        if "flags" in kwargs and len(kwargs) == 1 and not flags:
            flags, kwargs = (kwargs["flags"],), {}
        if kwargs or len(flags) > 1 or not isinstance(filename, names) or (flags and not isinstance(flags[0], int)):
            return tap.through(_DECODE, "cv2.imread", original, (filename, *flags), kwargs)
        try:
            with open(filename, "rb", buffering=0) as file:
                data = file.read()
        except OSError:  # the original answers None, and says so in its own way
            return original(filename, *flags)
        return tap.through(_DECODE, "cv2.imread", decode, (data, filename, flags))

    return imread


def _cut_frame(tap: Tap, patches: Patches, video: Any, name: str) -> None:
    """A frame that is written into the caller's array is no result that could stand for the call."""
    original = getattr(video, name)

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        written = isinstance(args[0] if args else kwargs.get("image"), np.ndarray)
        return tap.through(_DECODE, f"cv2.VideoCapture.{name}", original, (self, *args), kwargs, replayable=not written)

    with contextlib.suppress(TypeError):  # an immutable class
        patches.replace(video, name, wrapper)


def _takes_paths(cv2: Any) -> bool:
    """Whether this release opens path objects (older ones refuse, and go on refusing)."""
    try:
        cv2.haveImageReader(pathlib.Path(os.devnull))
    except (TypeError, cv2.error):
        return False
    return True


def _augmenter(tap: Tap, original: Callable[..., Any], label: str, destination: int) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not tap.live:
            return original(*args, **kwargs)
        written = kwargs.get("dst") is not None or (len(args) > destination and args[destination] is not None)
        return tap.through(_AUGMENT, label, original, args, kwargs, replayable=not written)

    return wrapper
