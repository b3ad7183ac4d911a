"""Hugging Face datasets: rows are fetched from a table that is mapped, and then given the format that was asked for.

A transform that the data set was given is the user's own code inside the formatting, and is cut as such.
"""

from __future__ import annotations

import sys

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "datasets.formatting.formatting"
OPAQUE = {"datasets.query_table": "pages of the mapped table that are not in memory come in while rows are formatted"}


def install(tap: Tap, patches: Patches) -> None:
    formatting = sys.modules[LIBRARY]
    cut(tap, patches, formatting, "query_table", Stage.STORAGE, "datasets.query_table", counts=lambda table: int(table.nbytes))
    cut(tap, patches, formatting, "format_table", Stage.DECODE, "datasets.format_table")
    features = sys.modules.get("datasets.features.features")
    if features is not None:
        cut(tap, patches, features.Features, "decode_example", Stage.DECODE, "datasets.decode_example")
