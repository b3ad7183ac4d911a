"""gzip, bz2, lzma and zlib: decompressing is decoding.

Whole buffers are recorded. Streams (``gzip.open`` and its kin) are timed under their read buffer, and stay live: a stand-in for a
stream would have to know the decompressor's state at every place a reader may stop.
"""

from __future__ import annotations

import functools
from typing import Any

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = ""
OPAQUE = {"gzip.open, bz2.open, lzma.open": "a compressed stream is timed, but its decompression cannot be replaced by a recording"}


def install(tap: Tap, patches: Patches) -> None:
    import bz2
    import gzip
    import lzma
    import zlib

    for module in (zlib, gzip, bz2, lzma):
        cut(tap, patches, module, "decompress", Stage.DECODE)
    labels = {bz2.BZ2Decompressor: "bz2 stream", lzma.LZMADecompressor: "lzma stream"}
    base: Any = gzip._GzipReader.__mro__[1]
    # ``readinto`` is what the read buffer calls; ``read`` and ``readall`` what it calls in turn.
    for kind in (gzip._GzipReader, base):
        for method in ("readinto", "read", "readall"):
            original = kind.__dict__.get(method)
            if original is not None:
                patches.replace(kind, method, _timed(tap, original, labels))


def _timed(tap: Tap, original: Any, labels: dict[Any, str]) -> Any:
    @functools.wraps(original)
    def wrapper(self: Any, *args: Any) -> Any:
        if not tap.live:
            return original(self, *args)
        label = labels.get(self._decomp_factory, "gzip stream")
        return tap.through(Stage.DECODE, label, original, (self, *args), replayable=False)

    return wrapper
