"""decord: its readers read and decode in one call; frames come as arrays of its own, or of the framework that it was told."""

from __future__ import annotations

import sys

from pipefix.seams import fresh
from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut_each
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "decord"
OPAQUE = {"decord readers": "FFmpeg reads and decodes in one call; all of it is charged to decode"}


def install(tap: Tap, patches: Patches) -> None:
    decord = sys.modules[LIBRARY]
    array = decord.nd.NDArray
    fresh.register(array, lambda value: decord.nd.array(value.asnumpy()), lambda value: int(value.asnumpy().nbytes))
    for name in ("VideoReader", "AudioReader", "AVReader"):
        kind = getattr(decord, name, None)
        if kind is not None:
            cut_each(tap, patches, kind, ("__init__", "seek", "seek_accurate"), Stage.DECODE, f"decord.{name}", replayable=False)
            cut_each(tap, patches, kind, ("__getitem__", "get_batch", "next"), Stage.DECODE, f"decord.{name}")
    cut_each(tap, patches, array, ("asnumpy",), Stage.DECODE, "decord.NDArray")
