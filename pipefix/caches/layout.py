"""The container formats of a cache (LMDB, Parquet), names of its files, and the first bytes by which they are known as ours.

A further container is a row of `CONTAINERS`, a file with its writer, which `writer.make_part` opens, and its name among the
choices of `api/convert.py`, `cli/convert.py` and `plan/planfile.py`. Records are read by their places in the index, whatever
contains them; only row groups, of which an index knows no more than where they lie, need a reader of their own.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipefix.vocabulary.files import read_regular


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
MANIFEST, PLAN, QUARANTINE = "manifest.json", "plan.json", "quarantine.jsonl"
GONE = Path("index", "manifest.gone")
"""The manifest of a cache whose removal was begun."""
FOLDERS = ("parts", "index")
PART = {
    "parts": re.compile(rf"(\d{{5,}})(?:-\d+)?(?:{'|'.join(re.escape(each.suffix) for each in CONTAINERS.values())})\Z"),
    "index": re.compile(r"(\d{5,})(?:-\d+)?\.(?:idx|facts)\Z"),
}
MARK = b'{\n "format": "pipefix.cache'
_BEGINNINGS = {
    ".idx": (0, b"PFIXIDX"),
    ".facts": (1, b"\xa5start"),
    **{container.suffix: container.mark for container in CONTAINERS.values()},
}
"""At which byte of a part's file what stands."""


def keeps(container: str, store: str) -> bool:
    return container in CONTAINERS and store in CONTAINERS[container].stores


def building_of(folder: Path) -> Path:
    """Where the cache ``folder`` is made: beside it, on the same disk."""
    whole = folder if folder.name not in ("", "..") else Path(os.path.abspath(folder))
    return whole.parent / f"{whole.name}.building"


def part_name(number: int, generation: int = 0) -> str:
    """What a part's files are called, without suffix."""
    return f"{number:05d}-{generation}" if generation else f"{number:05d}"


def data_of(number: int, generation: int, container: str) -> Path:
    """The data file of a part, below the cache's directory."""
    return Path("parts", f"{part_name(number, generation)}{CONTAINERS[container].suffix}")


def beside(data: Path, suffix: str) -> Path:
    """A data file's index or facts: in a directory of their own, so that ``parts`` holds nothing but data."""
    return data.parent.parent / "index" / f"{data.stem}{suffix}"


def is_cache(folder: Path) -> bool:
    """Whether a finished cache is there, whole or damaged."""
    return marked(folder / MANIFEST)


def is_being_removed(folder: Path) -> bool:
    return is_folder(folder / GONE.parent) and marked(folder / GONE)


def marked(path: Path) -> bool:
    """Whether a manifest or plan begins as ours do; links are not followed."""
    return is_plain(path) and head(path).startswith(MARK + (b"-plan/" if path.name == PLAN else b"/"))


def is_of_cache(name: str) -> bool:
    """Whether a path within a cache is that of a part, of what lies beside one, or of the list of damaged samples."""
    folder, _, file = name.partition("/")
    return name == QUARANTINE or (folder in PART and bool(PART[folder].match(file)))


def begins_as_ours(path: Path) -> bool:
    """Whether a file that is called as one of ours begins as those do, or holds nothing: somebody may have put their own there."""
    start = head(path)
    at, mark = _BEGINNINGS[path.suffix]
    return not start.strip(b"\0") or start[at:].startswith(mark)


def is_quarantine(path: Path) -> bool:
    """Whether this is a list of damaged samples that we wrote."""
    return is_plain(path) and head(path).startswith(b'{"index": ')


def is_plain(path: Path) -> bool:
    """A regular file, not a link to one."""
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    return stat.S_ISDIR(_mode(path))


def entries(folder: Path) -> list[Path]:
    """Everything in a directory and in those two of it that hold a cache's files, which are left out themselves."""
    paths: list[Path] = []
    for path in sorted(folder.iterdir()):
        paths += sorted(path.iterdir()) if path.name in FOLDERS and is_folder(path) else [path]
    return paths


def head(path: Path) -> bytes:
    with suppress(OSError):
        return read_regular(path, 100)
    return b""


def _mode(path: Path) -> int:
    with suppress(OSError):
        return os.lstat(path).st_mode
    return 0
