"""PyAV: FFmpeg reads and decodes by itself. Frames come one by one, and are recorded one by one; so are their pixels as an array.

A frame is shared by whoever holds it: nobody writes into decoded frames, and its buffers are FFmpeg's own.
"""

from __future__ import annotations

import sys
from typing import Any

from pipefix.seams import fresh
from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut, cut_each, cut_iterator
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "av"
OPAQUE = {"av.open, InputContainer.decode": "FFmpeg reads and decodes in one call; all of it is charged to decode"}

_DECODE = Stage.DECODE
_PIXELS = ("to_ndarray", "to_image", "to_rgb", "reformat")


def install(tap: Tap, patches: Patches) -> None:
    av = sys.modules[LIBRARY]
    for kind in (av.VideoFrame, av.AudioFrame):
        fresh.register(kind, lambda frame: frame, _bytes)
        cut_each(tap, patches, kind, _PIXELS, _DECODE, f"av.{kind.__name__}")
    cut(tap, patches, av, "open", _DECODE, replayable=False)
    container = av.container.InputContainer
    cut_iterator(tap, patches, container, "decode", _DECODE, "av.decode")
    cut_iterator(tap, patches, container, "demux", _DECODE, "av.demux")
    cut(tap, patches, container, "seek", _DECODE, "av.seek")
    cut(tap, patches, av.Packet, "decode", _DECODE, "av.Packet.decode")
    cut(tap, patches, av.AudioResampler, "resample", Stage.AUGMENT, "av.AudioResampler.resample")


def _bytes(frame: Any) -> int:
    return sum(int(plane.buffer_size) for plane in frame.planes)
