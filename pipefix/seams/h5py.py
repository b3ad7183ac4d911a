"""HDF5. Reading and decompressing happen in one call of the HDF5 library, which also keeps its own cache of unpacked chunks.

A slice of a plain data set is therefore charged to storage, and one of a data set with filters (gzip, lzf, shuffle, …) as a whole
to decode: that is where the remedy for it lies. Splitting the two would mean unpacking the chunks ourselves.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

from pipefix.seams.from_memory import remembered
from pipefix.seams.seam import Patches, cut
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "h5py"
OPAQUE = {"h5py.Dataset[index] with filters": "HDF5 reads and unpacks in one call; all of it is charged to decode"}

_stages: dict[int, tuple[weakref.ref[Any], Stage]] = {}


def install(tap: Tap, patches: Patches) -> None:
    import h5py

    original = h5py.Dataset.__getitem__

    @functools.wraps(original)
    def getitem(self: Any, args: Any, new_dtype: Any = None) -> Any:
        if not tap.live:
            return original(self, args, new_dtype)
        known = _stages.get(id(self))
        stage = known[1] if known is not None and known[0]() is self else _stage_of(self)
        if stage is Stage.DECODE and Stage.DECODE not in tap.replaced:
            tap.misses += remembered(tap) is not None  # what it unpacks it reads
        value = tap.through(stage, "h5py.Dataset[index]", original, (self, args, new_dtype))
        if not tap.replaced or stage not in tap.replaced:
            tap.bytes_read += value.nbytes if hasattr(value, "nbytes") else 0
        return value

    patches.replace(h5py.Dataset, "__getitem__", getitem)
    patches.on_undo(_stages.clear)
    cut(tap, patches, h5py.Dataset, "read_direct", Stage.STORAGE, "h5py.Dataset.read_direct", replayable=False)
    cut(tap, patches, h5py.Group, "__getitem__", Stage.STORAGE, "h5py.Group[name]", replayable=False)
    cut(tap, patches, h5py.File, "__init__", Stage.STORAGE, "h5py.File", replayable=False)


def _stage_of(dataset: Any) -> Stage:
    stage = Stage.DECODE if dataset._dcpl.get_nfilters() else Stage.STORAGE
    if len(_stages) > 4096:
        _stages.clear()
    _stages[id(dataset)] = (weakref.ref(dataset), stage)
    return stage
