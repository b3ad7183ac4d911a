"""fsspec. Asynchronous file systems (s3, gcs, http, …) do their work in another thread: waiting for it is the storage cost.

Buffered remote files fetch blocks; each fetch is one operation, so what the block cache can answer costs nothing. Local files go
through ``open`` and are seen there.
"""

from __future__ import annotations

import functools
from typing import Any

from pipefix.seams.seam import Patches, cut
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "fsspec"

_STORAGE = Stage.STORAGE
_ASKING = frozenset({"_cat_file", "_cat", "_cat_ranges", "_info", "_ls", "_exists", "_isfile", "_isdir", "_size", "_sizes", "_glob",
                     "_find", "_du", "async_fetch_range"})  # fmt: skip
"""Coroutines that only ask: their results can stand for them."""


def install(tap: Tap, patches: Patches) -> None:
    import fsspec.asyn
    import fsspec.spec

    original = fsspec.asyn.sync

    def counted(*args: Any, **kwargs: Any) -> Any:
        value = original(*args, **kwargs)
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
        tap.bytes_read += sum(len(part) for part in parts if isinstance(part, bytes))
        return value

    @functools.wraps(original)
    def sync(loop: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        if not tap.live:
            return original(loop, func, *args, **kwargs)
        name = getattr(func, "__name__", "")
        replayable = name in _ASKING
        return tap.through(_STORAGE, f"fsspec.{name.lstrip('_')}", counted, (loop, func, *args), kwargs, replayable=replayable)

    patches.replace(fsspec.asyn, "sync", sync, everywhere=True)
    _family(tap, patches, fsspec.spec.AbstractBufferedFile, "_fetch_range", "fsspec.fetch_range")
    _family(tap, patches, fsspec.spec.AbstractFileSystem, "cat_file", "fsspec.cat_file")


def _family(tap: Tap, patches: Patches, kind: type, name: str, label: str) -> None:
    """Cut a method on every class that defines it."""
    if name in vars(kind):
        cut(tap, patches, kind, name, _STORAGE, label)
    child: type
    for child in kind.__subclasses__():
        _family(tap, patches, child, name, label)
