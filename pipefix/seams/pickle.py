"""pickle, from bytes and from files."""

from __future__ import annotations

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut, cut_stream
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = ""
OPAQUE = {"pickle.Unpickler": "an unpickler object is charged to the code that uses it"}


def install(tap: Tap, patches: Patches) -> None:
    import pickle

    cut(tap, patches, pickle, "loads", Stage.DECODE)
    cut_stream(tap, patches, pickle, "load")
