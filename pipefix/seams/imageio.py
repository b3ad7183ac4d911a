"""imageio: one call reads and decodes, by Pillow or another plugin; what it reads through Python files is charged to storage."""

from __future__ import annotations

import sys

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "imageio"
OPAQUE = {"imageio.get_reader, imageio.imiter": "frames come one by one and are charged to the code that asks for them"}


def install(tap: Tap, patches: Patches) -> None:
    for module in ("imageio", "imageio.v2", "imageio.v3"):
        loaded = sys.modules.get(module)
        for name in ("imread", "mimread", "volread", "improps", "immeta"):
            if loaded is not None and callable(vars(loaded).get(name)):
                cut(tap, patches, loaded, name, Stage.DECODE, f"imageio.{name}")
