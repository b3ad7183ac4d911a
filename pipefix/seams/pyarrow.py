"""Arrow and Parquet. Arrow reads local files by itself, many columns at once, so a read is split by getting the pages first.

Before a local file is decoded, the parts that will be needed are brought in (`whole_files`). Files handed over as Python objects
are read through them, beside the sample's own thread. Batches of an IPC file or stream are read: what is mapped is not copied, and
what is compressed is unpacked in the same call.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from pipefix.seams import fresh
from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut, cut_each
from pipefix.seams.tap import Tap
from pipefix.seams.whole_files import fetch, whole
from pipefix.vocabulary.stage import Stage

LIBRARY = "pyarrow"
OPAQUE = {
    "ParquetFile.iter_batches": "batches come one by one from Arrow's own threads and are charged to the code that asks for them",
    "pyarrow.ipc batches": "a mapped batch is not read before its values are asked for; that is charged to the code that does so",
    "pyarrow.dataset": "a data set is scanned by Arrow's own threads; all of it is charged to the code that asks for it",
}

_STORAGE, _DECODE = Stage.STORAGE, Stage.DECODE
_PARTS = ("columns", "filters")
_paths: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""Where each open ParquetFile lies."""


def install(tap: Tap, patches: Patches) -> None:
    import pyarrow as pa

    for kind in (pa.Table, pa.RecordBatch):
        fresh.register(kind, lambda table: table, lambda table: int(table.nbytes))
    _install_parquet(tap, patches)
    _install_ipc(tap, patches)
    for module, names in (("csv", ("read_csv",)), ("json", ("read_json",)), ("feather", ("read_table", "read_feather"))):
        try:
            owner = __import__(f"pyarrow.{module}", fromlist=[module])
        except ImportError:  # built without it
            continue
        for name in names:
            patches.replace(owner, name, whole(tap, getattr(owner, name), f"pyarrow.{module}.{name}", _PARTS), everywhere=True)


def _install_ipc(tap: Tap, patches: Patches) -> None:
    from pyarrow import ipc

    fetching = ("get_batch", "get_record_batch", "read_all", "read_pandas")
    cut_each(tap, patches, ipc.RecordBatchFileReader, fetching, _STORAGE, "pyarrow.ipc")
    streaming = ("read_next_batch", "read_all", "read_pandas")
    cut_each(tap, patches, ipc.RecordBatchStreamReader, streaming, _STORAGE, "pyarrow.ipc")
    cut_each(tap, patches, ipc, ("open_file", "open_stream"), _STORAGE, "pyarrow.ipc", replayable=False)


def _install_parquet(tap: Tap, patches: Patches) -> None:
    try:
        from pyarrow import parquet
        from pyarrow.parquet import core
    except ImportError:  # built without it
        return
    read_table = whole(tap, core.read_table, "pyarrow.parquet.read_table", _PARTS)
    for module in (core, parquet):
        patches.replace(module, "read_table", read_table, everywhere=True)
    for name in ("read", "read_row_group", "read_row_groups"):
        original = getattr(core.ParquetFile, name)
        patches.replace(core.ParquetFile, name, _groups(tap, original, f"pyarrow.ParquetFile.{name}"))
    opened = core.ParquetFile.__init__

    @functools.wraps(opened)
    def init(self: Any, source: Any, *args: Any, **kwargs: Any) -> None:
        tap.through(_DECODE, "pyarrow.ParquetFile", opened, (self, source, *args), kwargs, replayable=False)
        if isinstance(source, (str, os.PathLike)):
            _paths[self] = os.fspath(source)

    patches.replace(core.ParquetFile, "__init__", init)
    cut(tap, patches, core, "read_metadata", _DECODE)


def _groups(tap: Tap, original: Callable[..., Any], label: str) -> Callable[..., Any]:
    """A reader of some row groups of an open file."""

    @functools.wraps(original)
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not tap.live:
            return original(self, *args, **kwargs)
        path = _paths.get(self)
        if path is not None and _STORAGE not in tap.replaced:
            asked = args[0] if args and label != "pyarrow.ParquetFile.read" else kwargs.get("i", kwargs.get("row_groups"))
            groups = range(self.metadata.num_row_groups) if asked is None else [asked] if isinstance(asked, int) else asked
            fetch(tap, path, _ranges(self.metadata, groups, kwargs.get("columns")), "pyarrow read")
        return tap.through(_DECODE, label, original, (self, *args), kwargs)

    return read


def _ranges(metadata: Any, groups: Iterable[int], columns: Any) -> list[tuple[int, int]]:
    """Where the asked-for column chunks lie."""
    wanted = None if columns is None else set(columns)
    found = []
    for group in groups:
        described = metadata.row_group(group)
        for at in range(described.num_columns):
            column = described.column(at)
            if wanted is None or column.path_in_schema.partition(".")[0] in wanted:
                begin = column.dictionary_page_offset or column.data_page_offset
                found.append((begin, column.total_compressed_size))
    return found
