"""Makes one part of a cache, from its number, the blueprint and the source alone: run twice, it writes the same bytes.

A part is three files: the data, its index (places and checksums), and its facts (what went in, what was damaged). The facts are
renamed into place last: a part without them was not finished, and is made anew.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pipefix.caches import maker as makers
from pipefix.caches import rows
from pipefix.caches.cut import Hook
from pipefix.caches.fingerprint import Fingerprint
from pipefix.caches.index import Index
from pipefix.caches.layout import beside
from pipefix.caches.lmdb import LmdbWriter
from pipefix.caches.manifest import Blueprint, Part, PartSizes
from pipefix.caches.parquet import RowsWriter
from pipefix.caches.record import Unstorable
from pipefix.caches.witness import Witness, last_changed
from pipefix.hooks.object_answers import HEAD
from pipefix.vocabulary.errors import CacheDamaged, PipefixError, TargetError
from pipefix.vocabulary.files import drafted, read_regular, write_whole
from pipefix.vocabulary.tracebacks import frames, is_raised_by_code, summary
from pipefix.vocabulary.urls import is_remote

_LONGEST = 16
_WANTING = (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT)
_MAKE_ROOM = (
    "Such a sample is not left out, since that may be no fault of its own. Fewer --workers need less memory, and ulimit -n 65536 "
    "allows more open files; a file that asks for too much by itself is to be removed. The same command goes on where it was."
)


class Moved(NamedTuple):
    """How far a worker came."""

    samples: int
    read: int
    written: int


class SampleCounts:
    """How far the samples of a process are, in memory that its parent sees."""

    def __init__(self, cells: Any, parent: int | None = None) -> None:
        self.cells, self._parent = cells, parent
        """At which sample it is; samples that are done, bytes read and written."""
        self._seen = Moved(0, 0, 0)

    def __call__(self, index: int, read: int, written: int) -> None:
        """The sample before ``index`` is done: that took so many bytes."""
        cells = self.cells
        cells[1], cells[2], cells[3] = cells[1] + 1, cells[2] + read, cells[3] + written
        self.at(index)

    def at(self, index: int) -> None:
        """A sample begins. A process whose parent is gone ends."""
        self.cells[0] = index
        if self._parent is not None and os.getppid() != self._parent:
            os._exit(1)

    def moved(self) -> Moved:
        """Since the last time that this was asked."""
        now = Moved(*self.cells[1:])
        since = Moved(*(new - old for new, old in zip(now, self._seen, strict=True)))
        self._seen = now
        return since


class DamagedSample(msgspec.Struct, frozen=True):
    """A sample without a record."""

    index: int
    error: str
    files: list[str] = []


class Facts(PartSizes, frozen=True, kw_only=True):
    """What went into a part, and what was damaged."""

    bad: list[DamagedSample] = []
    files: list[tuple[str, int, int]] = []
    """Name, size and time of last change of every file that was read."""
    ended: bool = False
    """A stream ended within this part."""

    def brief(self) -> Facts:
        """Without the list of files: what is kept in memory must not grow with the dataset."""
        return msgspec.structs.replace(self, files=[])

    def part(self, crc: int, generation: int = 0) -> Part:
        sizes = {name: getattr(self, name) for name in PartSizes.__struct_fields__}
        return Part(**sizes, facts_crc=crc, generation=generation, bad=[sample.index for sample in self.bad])


class BadSample(TargetError):
    """A sample of the source is damaged, or the dataset's code raised on it."""

    exit_code = 3
    default_advice = "Mend or remove the file, or let conversion go on without such samples: --on-bad quarantine"


class OpenedSource:
    """A dataset, ready for its samples to be made into records, in this process."""

    def __init__(self, dataset: Any, blueprint: Blueprint, hook: Hook | None, witness: Witness) -> None:
        self.blueprint = blueprint
        self.witness = witness
        self.fingerprint = Fingerprint(dataset, blueprint.samples, [blueprint.source.root])
        self.kinds = rows.kinds_of(rows.with_text(blueprint.columns, blueprint.recipe))
        self.get = makers.getter(dataset, hook)
        cut = blueprint.cut
        if hook is not None and cut is not None and cut.call is not None and cut.live:
            instead = " Keep what samples read: --store source" if blueprint.samples is not None else ""  # of a stream it cannot be
            self.get = makers.as_cut(self.get, hook, cut.call, instead)

    def begin(self) -> None:
        """A part."""
        source = self.blueprint.recipe.store == "source"
        self.maker: Any = (makers.SourceMaker if source else makers.TreeMaker)(self.blueprint, self.witness)

    def make(self, index: int) -> Any:
        if self.blueprint.recipe.store == "rows":
            return rows.row_of(self.maker.row(index, self.get), self.kinds)
        return self.maker.make(index, self.get)


def make_part(number: int, opened: OpenedSource, data: Path, tell: SampleCounts) -> Facts:
    """Write the part's data file and the rest beside it; the facts appear last, when all is done."""
    opened.witness.install()
    start, stop = opened.blueprint.range(number)
    with drafted(data) as draft:
        # It takes records and their numbers (``add``, which gives their size), and says at the end where they lie (``close``).
        rowwise = opened.blueprint.recipe.container == "parquet"
        writer: Any = RowsWriter(draft, opened.blueprint) if rowwise else LmdbWriter(draft)
        try:
            facts = _fill(writer, opened, start, stop, tell)
            blocks = writer.close()
        except BaseException:
            writer.abandon()
            raise
        index = Index.of(blocks, draft).to_bytes()
        sizes = {"bytes": draft.stat().st_size, "index_bytes": len(index), "index_crc": zlib.crc32(index)}
    facts = msgspec.structs.replace(facts, **sizes)
    text = msgspec.msgpack.encode(facts)
    write_whole(beside(data, ".idx"), index, durable=False)
    write_whole(beside(data, ".facts"), text + zlib.crc32(text).to_bytes(4, "little"), durable=False)
    return facts


def _fill(writer: Any, opened: OpenedSource, start: int, stop: int, tell: SampleCounts) -> Facts:
    """Make the records; what went into them, without the sizes of what comes of it."""
    blueprint, records, source_bytes, index = opened.blueprint, 0, 0, start
    bad: list[DamagedSample] = []
    files: dict[str, tuple[int, int]] = {}
    """Of each file that was read its size, and when it was last changed, as of the first read."""
    bytes_counted: Counter[str] = Counter()
    opened.begin()
    limit = blueprint.recipe.limit
    is_at_end = limit is not None and limit < stop
    stop = stop if limit is None else min(stop, limit)
    tell.at(index)
    while index < stop:
        read = written = 0
        try:
            record = opened.make(index)
        except makers.EndOfStream:
            is_at_end = True
            break
        except Unstorable as error:
            raise not_stored(error, index, blueprint) from error
        except PipefixError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises on a damaged sample
            bad.append(_bad(error, index, opened))
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise program_ended(error, f"Sample {index}") from error
        else:
            written = writer.add(index, record)
            records += 1
        for path, file_read in opened.witness.files.files.items():
            if path.startswith(HEAD):
                continue
            files.setdefault(path, (file_read.size, file_read.changed))
            # Of a shard only what these samples read of it, and nothing twice.
            fresh = min(sum(map(len, file_read.chunks)), file_read.size - bytes_counted[path])
            bytes_counted[path] += fresh
            read += fresh
        source_bytes += read
        index += 1
        tell(index, read, written)
    # A file that was changed while the part was made gets a time that no file has: it is made anew.
    states = [
        (makers.name_of(path, blueprint.source.root), size, changed if is_remote(path) or changed == last_changed(path) else 0)
        for path, (size, changed) in files.items()
    ]
    return Facts(
        start=start, stop=index, records=records, bytes=0, index_bytes=0, index_crc=0, source_bytes=source_bytes, bad=bad,
        files=sorted(states), ended=is_at_end,
        lists=opened.fingerprint.part(start, index, blueprint.source.volatile),
    )  # fmt: skip


def is_interrupt(error: BaseException) -> bool:
    """Ctrl-C, or a signal that is treated so; no sample's own ``raise KeyboardInterrupt``."""
    return isinstance(error, KeyboardInterrupt) and not is_raised_by_code(error)


def program_ended(error: BaseException, where: str) -> TargetError:
    """Its code raised what is no Exception, and meant to pass all handlers of errors."""
    did = f"raised {type(error).__name__}"
    if isinstance(error, SystemExit):
        did = f"called sys.exit({error.code if error.code is not None else ''})"
    return TargetError(
        f"{where} ended the program: its code {did}.",
        advice="Let it raise an exception instead: convert can then leave such samples out, --on-bad quarantine",
        user_traceback=frames(error),
    )


def _bad(error: Exception, index: int, opened: OpenedSource) -> DamagedSample:
    named, files = getattr(error, "filename", None), list(opened.witness.files.files)
    if isinstance(named, (str, bytes, os.PathLike)) and (isinstance(error, FileNotFoundError) or not files):
        missing = os.fsdecode(named)
        files.insert(0, missing if is_remote(missing) else os.path.abspath(missing))
    text, wants = summary(error), _is_want(error)
    if opened.blueprint.recipe.on_bad == "raise" or wants:
        where = f" ({', '.join(files[:3])})" if files else ""
        advice = _MAKE_ROOM if wants else None
        raise BadSample(f"Sample {index}{where} cannot be read: {text}", advice=advice, user_traceback=frames(error)) from error
    return DamagedSample(index, text, [makers.name_of(path, opened.blueprint.source.root) for path in files[:_LONGEST]])


def _is_want(error: BaseException | None) -> bool:
    """Whether memory, open files or room on a disk ran out, which is no damage of the sample."""
    for _ in range(_LONGEST):
        if error is None:
            return False
        wants = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _WANTING)
        if wants or "can't allocate memory" in summary(error):  # as torch has it
            return True
        error = error.__cause__ or error.__context__
    return False


def not_stored(error: Unstorable, index: int, plan: Blueprint) -> TargetError:
    advice = "Keep it otherwise: --store source"
    if plan.recipe.store == "rows":
        advice = "Keep it otherwise: --to lmdb --store sample"
    elif plan.samples is None:  # of a stream, what samples read cannot be kept
        advice = "Let the stream give what can be: numbers, text, bytes, arrays, tensors and images."
    return TargetError(f"Sample {index} cannot be stored as {plan.recipe.store}: {error}.", advice=advice)


def read_facts(path: Path, crc: int | None = None) -> Facts:
    """Raises `CacheDamaged` where the file is not what was written, OSError where it is not there."""
    data = read_regular(path)
    text, recorded_crc = data[:-4], int.from_bytes(data[-4:], "little")
    if len(data) < 5 or zlib.crc32(text) != recorded_crc or (crc is not None and recorded_crc != crc):
        raise CacheDamaged(f"{path} was changed after it was written: its checksum does not fit.")
    try:
        return msgspec.msgpack.decode(text, type=Facts)
    except msgspec.DecodeError as error:
        raise CacheDamaged(f"{path} does not say what facts say: {error}.") from error
