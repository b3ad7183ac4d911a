"""json. ``load`` is a read and ``loads``, and is seen as such."""

from __future__ import annotations

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = ""
OPAQUE = {"csv.reader": "a row costs about as much as reading the clock, so rows are charged to the code that asks for them"}


def install(tap: Tap, patches: Patches) -> None:
    import json

    cut(tap, patches, json, "loads", Stage.DECODE)
