"""HDF5. Reading and decompressing happen in one call of the HDF5 library, which also keeps its own cache of unpacked chunks.

A slice of a plain data set is therefore charged to storage, and one of a data set with filters (gzip, lzf, shuffle, …) as a whole
to decode: that is where the remedy for it lies. Splitting the two would mean unpacking the chunks ourselves.

HDF5 opens files by itself. A recording that asks for it is given a file whole when a sample opens it, and answers with a file in
memory.
"""

from __future__ import annotations

import io
import os
from typing import Any

from pipefix.hooks.calls import Patches, SampleTimer, Stage, hook
from pipefix.hooks.files import ORIGINAL_OPEN
from pipefix.hooks.recorded_files import keep_whole, key_of, remembered, replayed

LIBRARY = "h5py"

_IN_MEMORY = b"<_io.BytesIO"
"""How HDF5 calls a file that is a file object in memory."""


def install(timer: SampleTimer, patches: Patches) -> None:
    import h5py

    get, open_file = h5py.Dataset.__getitem__, h5py.File.__init__

    @hook(timer, patches, h5py.Dataset, "__getitem__")
    def getitem(self: Any, args: Any, new_dtype: Any = None) -> Any:
        if remembered(timer) is not None and h5py.h5f.get_name(self.id).startswith(_IN_MEMORY):
            return get(self, args, new_dtype)
        stage = Stage.DECODE if self._dcpl.get_nfilters() else Stage.STORAGE
        if stage is Stage.DECODE and Stage.DECODE not in timer.replaced:
            timer.misses += remembered(timer) is not None  # what it unpacks it reads
        value = timer.timed_call(stage, "h5py.Dataset[index]", get, (self, args, new_dtype))
        if stage is Stage.DECODE and timer.counts_chunks:
            timer.pause()
            if self.chunks and hasattr(value, "nbytes"):
                keeps = self.id.get_access_plist().get_chunk_cache()[1]
                reads = timer.chunk_reads[f"{self.name} in {os.path.basename(self.file.filename)}"]
                reads.select(args, self.shape, self.chunks, self.dtype.itemsize, value.nbytes, keeps=keeps)
            timer.resume()
        timer.bytes_read += getattr(value, "nbytes", 0) if stage not in timer.replaced else 0
        return value

    @hook(timer, patches, h5py.File, "__init__")
    def init(self: Any, name: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
        if not isinstance(name, (str, bytes, os.PathLike)):  # a group names the file that it is in, too
            return open_file(self, name, mode, *args, **kwargs)
        plain = mode == "r" and not args and kwargs.get("driver") is None
        key = key_of(name) if plain and timer.tapes(Stage.STORAGE) else None
        held = replayed(timer, key) if key is not None else None
        if held is not None:
            return open_file(self, io.BytesIO(held), "r", **kwargs)
        timer.misses += key is None and remembered(timer) is not None
        timer.timed_call(Stage.STORAGE, "h5py.File", open_file, (self, name, mode, *args), kwargs, replayable=False)
        if key is not None and timer.recording is not None:
            with ORIGINAL_OPEN(key, "rb", buffering=0) as file:
                keep_whole(timer, key, file.fileno())
        return None
