"""Records the bytes of files that a sample reads, by hooks, while the dataset's own code runs unchanged.

Running a sample whole decodes it, and of that the ``source`` store needs nothing. So the code is stopped at the decode after which
it opens no further file: which one that is, is learned from samples that ran whole, and holds only if it reproduced every one of
their reads. Where it did not, samples run to their end.
"""

from __future__ import annotations

import json
import os
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipefix.hooks.byte_ranges import Bytes, FileRanges
from pipefix.hooks.install import install_all
from pipefix.hooks.object_answers import HEAD, Answer, ObjectStore
from pipefix.hooks.patches import Patches
from pipefix.hooks.result_store import ResultStore
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.vocabulary.files import read_regular
from pipefix.vocabulary.stage import Stage
from pipefix.vocabulary.urls import is_remote

_STORAGE = Stage.STORAGE
NOT_DATA = ("inode:", *{os.path.join(sysconfig.get_path(key), "") for key in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Read by a bare descriptor, with no name to find it by again; or a library's own file, which it reads when it is first used."""

REPLAYING: list[Patches] = []
"""The functions that this process has replaced to answer reads from ``source`` caches."""
_SLACK = 8192
"""Bytes that a sample may read besides its data, such as a library's own files, before that is worth a word."""


def last_changed(path: str, status: Callable[[str], os.stat_result] = os.stat) -> int:
    """In nanoseconds; 0 where the file is gone. Asks the system itself: it is no doing of a sample's."""
    with suppress(OSError):
        return status(path).st_mtime_ns
    return 0


class FileRead(FileRanges):
    """What was read of one file."""

    __slots__ = ("after", "changed", "read")

    def __init__(self, size: int, changed: int, after: int = 0) -> None:
        super().__init__(size)
        self.after = after
        """How many decodes of the sample were begun when it was opened."""
        self.changed = changed
        """When it was last changed, in nanoseconds, as of the first read; of an object of a store its `Answer.mark`."""
        self.read = 0
        """Bytes, those that were read twice counted twice."""

    def put(self, offset: int, data: Bytes) -> int:
        self.read += len(data)
        return super().put(offset, data)

    def fill(self, data: bytes) -> None:
        """All of it was read after all."""
        self.starts, self.chunks, self.size, self.read = [0], [data], len(data), len(data)

    def runs(self) -> list[tuple[int, bytes]]:
        """Ranges with their bytes, sorted by place."""
        return list(zip(self.starts, map(bytes, self.chunks), strict=True))

    @property
    def head(self) -> bytes:
        return bytes(self.chunks[0][:16]) if self.starts[:1] == [0] else b""


class Reads(ObjectStore):
    """The files of one sample, in the order in which they were opened."""

    def __init__(self, *, maps: bool = True) -> None:
        self.files: dict[str, FileRead] = {}
        self.maps = maps
        self.decodes = 0
        """How many were begun."""
        self.given: set[str] = set()
        """Files that were mapped into memory, or whose descriptor was asked for."""
        self.rewritten: str | None = None
        """A file that held other bytes when it was read again."""

    def put(self, path: str, offset: int, data: Any, size: int) -> None:
        if path.startswith(NOT_DATA):
            return
        file_read = self.files.get(path)
        if file_read is None:
            file_read = self.files[path] = FileRead(size, last_changed(path), self.decodes)
        if len(data):
            held = file_read.get(offset, len(data)) if file_read.size else None  # what the system makes up (/proc) has no size
            if held and held != bytes(data[: len(held)]):
                self.rewritten = path
            file_read.put(offset, data)

    def put_object(self, answer: Answer) -> None:
        """Objects are files too, with what was told of them in a second one."""
        head = self.files.setdefault(HEAD + answer.url, FileRead(0, 0))
        description = json.loads(head.chunks[0]) if head.chunks else {}
        if "status" in answer.told and description:
            return  # another library followed the redirection by itself: what it got stands for the object
        description.pop("status", None)
        file_read = self.files.setdefault(answer.url, FileRead(answer.size, 1, self.decodes))
        sized, is_sized = bool(description) and "size_unknown" not in description, "size_unknown" not in answer.told
        if is_sized and (answer.data is not None or not sized):
            file_read.size = answer.size
        elif not is_sized and not sized:
            file_read.size = max(file_read.size, answer.size)
        if answer.mark != 1:
            file_read.changed = answer.mark if file_read.changed in (1, answer.mark) else 0
        description = {"headers": {}, **description, **answer.told}
        if sized or is_sized:
            description.pop("size_unknown", None)
        head.fill(json.dumps(description, sort_keys=True).encode())
        if answer.data:
            file_read.put(answer.begin, answer.data)

    def whole(self, path: str) -> bytes | None:
        file_read = self.files.get(path)
        return file_read.whole() if file_read is not None else None

    def wants_whole(self, path: str) -> bool:
        self.given.add(path)
        return self.maps

    def size(self, path: str) -> int:
        return self.files[path].size


class _Enough(BaseException):
    """Ends a sample whose files are all known, with what was to be decoded. Not an Exception: what the user's code catches, this is
    not."""


class _Watch(SampleTimer):
    """A timer that counts what is decoded, and can end a sample there."""

    def __init__(self) -> None:
        super().__init__()
        self.stop_at: int | None = None
        self.reads = Reads()

    def timed_call(
        self, stage: Stage, op: str, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] = {}, **how: Any
    ) -> Any:
        if stage is not _STORAGE and self.live and self.owns:
            if self.reads.decodes == self.stop_at:
                raise _Enough(args[0] if args else None)
            self.reads.decodes += 1
        return super().timed_call(stage, op, fn, args, kwargs, **how)


class Witness(ResultStore):
    """Runs samples in this process with the hooks in place. Use it as a context; afterwards everything is as it was."""

    at: Callable[[int], None] | None = None
    """In a process whose end is to be told: told which sample is made."""

    def __init__(self, *, alone: bool = False) -> None:
        """``alone``: put functions that caches have replaced back meanwhile: under those no read of a file would be seen."""
        self.timer = _Watch()
        self.files: Reads = self.timer.reads
        self._patches = Patches()
        self._aside = list(REPLAYING) if alone else []
        self.stop_at: int | None = None
        self.by_path = False
        """The decode that samples are stopped at is handed a path, and would read that file."""
        self.maps = True
        """Whether what a sample maps into memory is kept whole."""

    def __enter__(self) -> Witness:
        for patches in self._aside:
            patches.pause()
        self.install()
        self.timer.active = True
        return self

    def __exit__(self, *why: object) -> None:
        self.timer.active = False
        self._patches.undo()
        for patches in self._aside:
            patches.resume()

    def install(self) -> None:
        """Also for libraries that were imported since."""
        install_all(self.timer, self._patches)

    def _watched(self, make: Callable[[int], Any], index: int) -> Any:
        timer = self.timer
        if self.at is not None:
            self.at(index)
        timer.reads = self.files = Reads(maps=self.maps)
        timer.recording = self
        timer.begin(index)
        try:
            return make(index)
        finally:
            timer.end()
            timer.recording = None

    def whole(self, make: Callable[[int], Any], index: int) -> tuple[Any, Reads]:
        """The sample, and what it read."""
        return self._watched(make, index), self.timer.reads

    def again(self, make: Callable[[int], Any], index: int) -> tuple[Reads, int]:
        """What a sample that ran before reads now, and what it reads unseen.

        That is bytes past the hooks: of libraries that open files by themselves, of maps and data bases that were opened before
        it. As far as the system tells; 0 where it is too little to matter.
        """
        timer = self.timer
        by_system, by_hooks = _read_by_system(), timer.bytes_read
        _, reads = self.whole(make, index)
        past = max(_read_by_system() - by_system, timer.bytes_read - by_hooks)
        past -= sum(read.read for read in reads.files.values())
        return reads, past if past > _SLACK else 0

    def read_only(self, make: Callable[[int], Any], index: int) -> Reads:
        """What the sample reads; it is run as far as that takes."""
        timer = self.timer
        timer.stop_at = self.stop_at
        try:
            self._watched(make, index)
        except _Enough as enough:
            _complete(timer.reads, enough.args[0] if self.by_path else None)
        finally:
            timer.stop_at = None
        return timer.reads

    def learn(self, make: Callable[[int], Any], indices: Sequence[int], runs: Sequence[Reads]) -> bool:
        """Find out where these samples, which ran whole, can be stopped; True where there is such a place and it gave the very same
        bytes."""
        # Opening by path inside a decoder counts that decode as begun.
        places = {max((read.after for read in reads.files.values()), default=0) for reads in runs}
        if len(places) != 1 or not all(reads.files for reads in runs):
            return False
        if any(read.whole() is None for reads in runs for read in reads.files.values()):
            return False  # of a shard only its own part: what the decoder would have read of it cannot be told
        last = places.pop()
        for place, self.by_path in ((last - 1, True), (last - 1, False), (last, False), (last, True)):
            self.stop_at = place
            if place >= 0 and all(self._same(make, index, reads) for index, reads in zip(indices, runs, strict=True)):
                return True
        self.stop_at, self.by_path = None, False
        return False

    def _same(self, make: Callable[[int], Any], index: int, whole: Reads) -> bool:
        with suppress(Exception):  # the user's code, stopped at a wrong place; it then runs to its end
            short = self.read_only(make, index).files
            return short.keys() == whole.files.keys() and all(short[path].runs() == whole.files[path].runs() for path in short)
        return False


def _read_by_system() -> int:
    """Bytes that this process has asked the system for; 0 where that is not counted."""
    with suppress(OSError, IndexError, ValueError), open("/proc/self/io", "rb", buffering=0) as file:
        return int(file.read(64).split()[1])
    return 0


def _complete(reads: Reads, first: Any) -> None:
    """Read what the decoder would have: the file it was handed, or what was opened for it, to the end."""
    if isinstance(first, (str, bytes, os.PathLike)):
        path = os.path.abspath(os.fsdecode(first))
        if path not in reads.files:
            changed, data = last_changed(path), read_regular(Path(path))
            reads.files[path] = FileRead(len(data), changed)
            reads.files[path].fill(data)
    for path, file_read in reads.files.items():
        if not is_remote(path) and sum(map(len, file_read.chunks)) < file_read.size:
            file_read.fill(read_regular(Path(path)))
