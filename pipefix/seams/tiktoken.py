"""tiktoken: text to token ids is decoding."""

from __future__ import annotations

import sys

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut_each
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "tiktoken"

_METHODS = ("encode", "encode_ordinary", "encode_to_numpy", "encode_batch", "encode_ordinary_batch", "encode_with_unstable")


def install(tap: Tap, patches: Patches) -> None:
    cut_each(tap, patches, sys.modules[LIBRARY].Encoding, _METHODS, Stage.DECODE, "tiktoken.Encoding")
