"""polars: its readers parse whole files, and a lazy frame is read and computed when it is collected, by threads of its own."""

from __future__ import annotations

import sys

from pipefix.seams import fresh
from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut, cut_each
from pipefix.seams.tap import Tap
from pipefix.seams.whole_files import whole
from pipefix.vocabulary.stage import Stage

LIBRARY = "polars"
OPAQUE = {"polars.LazyFrame.collect": "reading and computing are one call; all of it is charged to decode"}

_READERS = ("read_csv", "read_parquet", "read_ipc", "read_json", "read_ndjson", "read_avro")
_PARTS = ("columns", "n_rows")
_VALUES = ("to_numpy", "to_torch", "to_pandas", "to_dicts", "rows")


def install(tap: Tap, patches: Patches) -> None:
    polars = sys.modules[LIBRARY]
    for kind in (polars.DataFrame, polars.Series):
        fresh.register(kind, lambda frame: frame.clone(), lambda frame: int(frame.estimated_size()))
    for name in _READERS:
        patches.replace(polars, name, whole(tap, getattr(polars, name), f"polars.{name}", _PARTS), everywhere=True)
    cut(tap, patches, polars.LazyFrame, "collect", Stage.DECODE, "polars.LazyFrame.collect")
    cut_each(tap, patches, polars.DataFrame, _VALUES, Stage.DECODE, "polars.DataFrame")
