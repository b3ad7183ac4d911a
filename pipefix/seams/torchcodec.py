"""TorchCodec: its decoders read and decode in one call, frames and samples that are values of their own."""

from __future__ import annotations

import sys

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut_each
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "torchcodec.decoders"
OPAQUE = {"torchcodec decoders": "FFmpeg reads and decodes in one call; all of it is charged to decode"}

_METHODS = ("__getitem__", "get_frame_at", "get_frames_at", "get_frames_in_range", "get_frame_played_at", "get_frames_played_at",
            "get_frames_played_in_range", "get_all_frames", "get_all_samples", "get_samples_played_in_range")  # fmt: skip


def install(tap: Tap, patches: Patches) -> None:
    decoders = sys.modules[LIBRARY]
    for name in ("VideoDecoder", "AudioDecoder", "WavDecoder"):
        kind = getattr(decoders, name, None)
        if kind is not None:
            label = f"torchcodec.{name}"
            cut_each(tap, patches, kind, ("__init__",), Stage.DECODE, label, replayable=False)
            cut_each(tap, patches, kind, _METHODS, Stage.DECODE, label)
