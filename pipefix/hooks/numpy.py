"""NumPy's readers: ``load`` of .npy and .npz, ``fromfile``, text files, and mapped arrays.

Mapping a file reads nothing; pages arrive when they are touched. Indexing a mapped array therefore touches the pages of its result
under the storage clock, and the result is what a recording keeps. Of a large result that is cropped later the crop is.
"""

from __future__ import annotations

import functools
import mmap
import os
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.lib import _datasource

from pipefix.hooks.calls import DECODE, STORAGE, Patches, SampleTimer, hook
from pipefix.hooks.files import ORIGINAL_OPEN, TimedFileIO
from pipefix.hooks.mmap import is_memory
from pipefix.hooks.recorded_files import is_recorded

LIBRARY = "numpy"

_TOUCH_AT_MOST = 256 * 1024 * 1024
"""A larger view is a part of the data set, not a sample: its pages are left to whoever uses them."""

_LARGE = 1024 * 1024


def install(timer: SampleTimer, patches: Patches) -> None:
    load_original, from_file = np.load, np.fromfile

    @hook(timer, patches, np, "load")
    def load(file: Any, mmap_mode: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Whole arrays are decoded (the bytes under them read by the file hook); archives and maps are only opened."""
        whole = mmap_mode is None and isinstance(file, (str, os.PathLike)) and os.fspath(file).endswith(".npy")
        return timer.timed_call(DECODE, "numpy.load", load_original, (file, mmap_mode, *args), kwargs, replayable=whole)

    @hook(timer, patches, np, "fromfile")
    def fromfile(file: Any, dtype: Any = float, count: int = -1, sep: str = "", offset: int = 0, **kwargs: Any) -> Any:
        """Reads past Python's file objects; while recording or answered from a recording it reads through them instead."""
        plain = not sep and not kwargs and timer.owns and not np.dtype(dtype).hasobject
        if plain and timer.tapes(STORAGE):
            if isinstance(file, (str, bytes, os.PathLike)):
                with open(file, "rb") as opened:
                    return _through(opened, np.dtype(dtype), count, offset)
            if _is_timed(file) or is_recorded(file):
                return _through(file, np.dtype(dtype), count, offset)
        stage = STORAGE if plain else DECODE
        array = timer.timed_call(stage, "numpy.fromfile", from_file, (file, dtype, count, sep, offset), kwargs, replayable=False)
        timer.bytes_read += array.nbytes if plain else 0
        return array

    _mapped_arrays(timer, patches)
    _hide_descriptors(patches)
    # The text readers keep their own reference to ``open``, in a table of openers by file ending.
    openers = _datasource._file_openers._file_openers  # type: ignore[attr-defined]
    openers[None] = lambda *args, **kwargs: open(*args, **kwargs)  # noqa: SIM115 - the reader closes it
    patches.on_undo(lambda: openers.update({None: ORIGINAL_OPEN}))


def _through(file: Any, dtype: np.dtype[Any], count: int, offset: int) -> Any:
    """What `numpy.fromfile` reads, by the file's own reads."""
    file.seek(offset, os.SEEK_CUR)
    data = bytearray(file.read(count * dtype.itemsize if count >= 0 else -1))
    return np.frombuffer(data, dtype, len(data) // dtype.itemsize)


def _is_timed(file: Any) -> bool:
    return isinstance(getattr(file, "raw", file), TimedFileIO)


def _hide_descriptors(patches: Patches) -> None:
    """`numpy.load` asks for a descriptor to read past the file object; a recorded file has none worth having."""
    try:
        from numpy.lib import _format_impl as format_module
    except ImportError:
        from numpy.lib import format as format_module  # type: ignore[no-redef]
    original = format_module.isfileobj

    @functools.wraps(original)
    def isfileobj(file: Any) -> bool:
        return _is_timed(file) or (not is_recorded(file) and bool(original(file)))

    patches.replace(format_module, "isfileobj", isfileobj, everywhere=True)


# -- mapped arrays --------------------------------------------------------------------------------------------------


def _mapped_arrays(timer: SampleTimer, patches: Patches) -> None:
    original = np.memmap.__getitem__
    cropped: set[tuple[Any, ...]] = set()
    """Kinds of large views of which a small part is taken afterwards: only that is read."""

    def touched(array: Any, index: Any) -> Any:
        result = original(array, index)
        if isinstance(result, np.ndarray):
            if result.nbytes <= _TOUCH_AT_MOST and not result.flags.owndata:
                touch(result)
            timer.bytes_read += result.nbytes
        return result

    @hook(timer, patches, np.memmap, "__getitem__")
    def getitem(self: Any, index: Any) -> Any:
        base, op = self.base, "numpy.memmap[index]"
        if isinstance(base, np.memmap):
            if base.dtype == self.dtype and _kind(self) not in cropped:
                part = original(self, index)
                if isinstance(part, np.ndarray) and _LARGE < self.nbytes >= 4 * part.nbytes:
                    cropped.add(_kind(self))
                return part
            op += "[index]" if base.dtype == self.dtype else ""  # else a field of records that are mapped
            base = base.base
        if isinstance(index, str) or not isinstance(base, mmap.mmap) or is_memory(base):  # a field of all records reads none
            return original(self, index)
        if cropped and _names_a_part(index) and _kind(view := original(self, index)) in cropped - {_kind(self)}:
            return view
        return timer.timed_call(STORAGE, op, touched, (self, index))


def _names_a_part(index: Any) -> bool:
    """Not by a list of places or a mask, of which a copy is made."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(isinstance(part, (int, np.integer, slice, EllipsisType)) for part in parts)


def _kind(view: Any) -> tuple[Any, ...]:
    return view.dtype, view.ndim, getattr(view.base, "ndim", 0), view.nbytes.bit_length()


def touch(array: np.ndarray[Any, Any]) -> None:
    """Make the pages of an array resident by reading a byte of each."""
    if array.size and array.flags.c_contiguous and array.ndim and not array.dtype.hasobject:
        flat = array.data.cast("B") if array.dtype.kind in "biufc?" else array.view(np.uint8).data.cast("B")
        bytes(flat[:: mmap.PAGESIZE])
        flat[-1]
    else:
        array.tobytes()
