"""zarr: a selection reads its chunks and unpacks them, by threads of its own.

As with HDF5, it is charged to storage where chunks lie as they are, and as a whole to decode where they are compressed.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from pipefix.seams.patches import Patches
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "zarr"
OPAQUE = {"zarr.Array[selection] with compression": "chunks are read and unpacked in one call; all of it is charged to decode"}

_SELECTIONS = ("__getitem__", "get_basic_selection", "get_orthogonal_selection", "get_mask_selection", "get_coordinate_selection")


def install(tap: Tap, patches: Patches) -> None:
    array = sys.modules[LIBRARY].Array
    for name in _SELECTIONS:
        patches.replace(array, name, _selecting(tap, getattr(array, name)))


def _selecting(tap: Tap, original: Any) -> Any:
    @functools.wraps(original)
    def select(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not tap.live:
            return original(self, *args, **kwargs)
        stage = Stage.DECODE if _packed(self) else Stage.STORAGE
        return tap.through(stage, "zarr.Array[selection]", original, (self, *args), kwargs, replayable=kwargs.get("out") is None)

    return select


def _packed(array: Any) -> bool:
    """Whether chunks are compressed: the third version of the format has several codecs, the second at most one."""
    try:
        return bool(array.compressors or array.filters)
    except AttributeError:  # a release that knows the second version only
        return bool(array.compressor or array.filters)
