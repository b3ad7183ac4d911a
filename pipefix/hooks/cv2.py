"""OpenCV's ``imread``, split into reading the file and ``imdecode``, which give the same pixels."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from pipefix.hooks.calls import DECODE, Patches, SampleTimer, hook

LIBRARY = "cv2"


def install(timer: SampleTimer, patches: Patches) -> None:
    import cv2

    original: Any = cv2.imread
    imdecode = cv2.imdecode

    def decode(data: bytes, filename: Any, flags: tuple[int, ...]) -> Any:
        pixels = imdecode(np.frombuffer(data, np.uint8), *(flags or (1,))) if data else None
        return original(filename, *flags) if pixels is None else pixels

    @hook(timer, patches, cv2, "imread")
    def imread(filename: Any, *flags: Any, **kwargs: Any) -> Any:
        if "flags" in kwargs and len(kwargs) == 1 and not flags:
            flags, kwargs = (kwargs["flags"],), {}
        if kwargs or len(flags) > 1 or not isinstance(filename, (str, os.PathLike)) or (flags and not isinstance(flags[0], int)):
            return timer.timed_call(DECODE, "cv2.imread", original, (filename, *flags), kwargs)
        try:
            with open(filename, "rb", buffering=0) as file:
                data = file.read()
        except OSError:  # the original answers None, and says so in its own way
            return original(filename, *flags)
        return timer.timed_call(DECODE, "cv2.imread", decode, (data, filename, flags))
