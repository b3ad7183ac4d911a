"""pandas readers: parsing is decoding; what they read through Python's file objects is charged to storage, inside."""

from __future__ import annotations

from typing import Any

from pipefix.seams import fresh
from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "pandas"
OPAQUE = {"pandas.read_hdf": "the HDF5 library reads by itself; all of it is charged to decode"}

_READERS = ("read_csv", "read_table", "read_fwf", "read_json", "read_parquet", "read_feather", "read_orc", "read_pickle",
            "read_hdf", "read_excel", "read_xml", "read_stata", "read_sas", "read_spss")  # fmt: skip


def install(tap: Tap, patches: Patches) -> None:
    import pandas as pd

    def copy(value: Any) -> Any:
        return value.copy(deep=True)

    fresh.register(pd.DataFrame, copy, lambda frame: int(frame.memory_usage(deep=True).sum()))
    fresh.register(pd.Series, copy, lambda series: int(series.memory_usage(deep=True)))
    for name in _READERS:
        cut(tap, patches, pd, name, Stage.DECODE)
