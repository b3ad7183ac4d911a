"""The table of container formats (LMDB, Parquet): their file's ending and first bytes, and which stores they keep.

A further one is a row here, and a file with its writer, which `writer.make_part` opens. Records are read by their places in the
index, whatever contains them; only row groups, of which an index knows no more than where they lie, need a reader of their own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Container:
    suffix: str
    """Of a part's data file."""
    mark: tuple[int, bytes]
    """At which byte of the file what stands."""
    stores: tuple[str, ...]
    """What it keeps of samples; the first where nothing else is asked for."""
    has_row_groups: bool = False
    """A block holds many records, and is taken apart by what its index says of it."""


CONTAINERS = {
    "lmdb": Container(".mdb", (16, (0xBEEFC0DE).to_bytes(4, sys.byteorder)), ("source", "resized", "decoded", "sample")),
    "parquet": Container(".parquet", (0, b"PAR1"), ("rows",), has_row_groups=True),
}
STORES = tuple(store for container in CONTAINERS.values() for store in container.stores)


def keeps(container: str, store: str) -> bool:
    return container in CONTAINERS and store in CONTAINERS[container].stores
