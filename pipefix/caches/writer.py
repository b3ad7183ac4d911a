"""Makes one part. A pure function of the part's number, the blueprint and the source: run twice, it writes the same bytes.

A part is three files: the data, its index (places and checksums), and its facts (what went in, what was damaged). The facts are
renamed into place last: a part without them was not finished, and is made anew.
"""

from __future__ import annotations

import os
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pipefix.caches import maker as makers
from pipefix.caches import rows
from pipefix.caches.blueprint import Blueprint
from pipefix.caches.cut import Hook
from pipefix.caches.fingerprint import Fingerprint
from pipefix.caches.index import Index
from pipefix.caches.manifest import SUFFIXES, Part, PartSizes, beside, part_name
from pipefix.caches.record import Unstorable
from pipefix.caches.streams import EndOfStream, stream
from pipefix.caches.witness import Witness, last_changed
from pipefix.hooks.objects import HEAD
from pipefix.vocabulary.errors import CacheDamaged, PipefixError, TargetError
from pipefix.vocabulary.files import drafted, read_regular, write_whole
from pipefix.vocabulary.terminal import shortened
from pipefix.vocabulary.urls import is_far

_HERE = str(Path(__file__).resolve().parent.parent)
_LONGEST = 16
_TELL_EVERY = 16
"""Samples between two words on how far it is."""

Tell = Callable[[int, int, int], None]
"""Called with the number of the sample that comes next, and the bytes read and written since the last call."""


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
    file_count: int = 0
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
        self.fingerprint = Fingerprint(dataset, blueprint.samples, [blueprint.root])
        self.text = blueprint.recipe.text if blueprint.recipe.tokenizer is not None else None
        source = blueprint.recipe.store == "source"
        self.maker: Any = (makers.SourceMaker if source else makers.TreeMaker)(blueprint, witness)
        self.columns = {one.name: rows.type_of(one.type) for one in blueprint.columns}
        self.get = stream(dataset, hook) if blueprint.samples is None else makers.getter(dataset, hook)

    def make(self, index: int) -> Any:
        if self.blueprint.recipe.store == "rows":
            return rows.row_of(self.maker.row(index, self.get), self.columns, self.text)
        return self.maker.make(index, self.get)


def make_part(number: int, opened: OpenedSource, folder: Path, tell: Tell, *, generation: int = 0) -> Facts:
    """Write the part's data into ``folder`` and the rest beside it; the facts appear last, when all is done."""
    blueprint = opened.blueprint
    start, stop = blueprint.range(number)
    data = folder / f"{part_name(number, generation)}{SUFFIXES[blueprint.recipe.container]}"
    with drafted(data) as draft:
        writer = _writer(draft, blueprint)
        try:
            made = _fill(writer, opened, start, stop, tell)
            blocks = writer.close()
        except BaseException:
            writer.abandon()
            raise
        index = Index.of(blocks, draft).to_bytes()
        facts = Facts(
            start=start, stop=made.stop, records=made.records, bytes=draft.stat().st_size, index_bytes=len(index),
            index_crc=zlib.crc32(index), source_bytes=made.source_bytes, bad=made.bad, files=_as_of_now(made.files, blueprint.root),
            file_count=len(made.files), ended=made.ended,
            lists=opened.fingerprint.part(start, made.stop, blueprint.volatile),
        )  # fmt: skip
        text = msgspec.msgpack.encode(facts)
    write_whole(beside(data, ".idx"), index, durable=False)
    write_whole(beside(data, ".facts"), text + zlib.crc32(text).to_bytes(4, "little"), durable=False)
    return facts


class _PartFigures:
    def __init__(self, start: int) -> None:
        self.stop = start
        self.records = 0
        self.source_bytes = 0
        self.bad: list[DamagedSample] = []
        self.files: dict[str, tuple[int, int]] = {}
        """Of each file that was read its size, and when it was last changed, as of the first read."""
        self.ended = False


def _fill(writer: Any, opened: OpenedSource, start: int, stop: int | None, tell: Tell) -> _PartFigures:
    made = _PartFigures(start)
    seen: dict[str, int] = {}
    opened.maker.begin()
    read = written = 0
    index = start
    limit = opened.blueprint.recipe.limit
    while stop is None or index < stop:
        if limit is not None and index >= limit:
            made.ended = True
            break
        if (index - start) % _TELL_EVERY == 0 or written > (1 << 20):
            tell(index, read, written)
            read = written = 0
        else:
            tell(index, 0, 0)
        try:
            record = opened.make(index)
        except EndOfStream:
            made.ended = True
            break
        except Unstorable as error:
            raise _unstorable(error, index, opened.blueprint) from error
        except PipefixError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises on a damaged sample
            made.bad.append(_bad(error, index, opened))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise program_ended(error, f"Sample {index}") from error
        else:
            writer.add(index, record)
            made.records += 1
            written += len(record)
        for path, found in opened.maker.reads.files.items():
            if path.startswith(HEAD):
                continue
            if path not in seen:
                seen[path] = 0
                made.files[path] = (found.size, found.changed)
            # Of a shard only what these samples read of it, and nothing twice.
            fresh = min(sum(len(data) for _, data in found.pieces), found.size - seen[path])
            seen[path] += fresh
            read += fresh
            made.source_bytes += fresh
        index += 1
        if opened.blueprint.samples is None and index - start >= opened.blueprint.part_samples:
            break
    made.stop = index
    tell(index, read, written)
    return made


def _writer(path: Path, blueprint: Blueprint) -> Any:
    if blueprint.recipe.store == "rows":
        from pipefix.caches.parquet import RowsWriter

        return RowsWriter(path, blueprint)
    from pipefix.caches.lmdb import LmdbWriter

    return LmdbWriter(path)


def _as_of_now(files: dict[str, tuple[int, int]], root: str | None) -> list[tuple[str, int, int]]:
    """Names, sizes and times. A file that was changed while the part was made gets a time that no file has: it is made anew."""
    told = []
    for path, (size, changed) in files.items():
        same = is_far(path) or changed == last_changed(path)
        told.append((makers.name_of(path, root), size, changed if same else 0))
    return sorted(told)


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
    text, files = makers.told(error, opened.maker.reads)
    if opened.blueprint.recipe.on_bad == "raise":
        named = f" ({', '.join(files[:3])})" if files else ""
        raise BadSample(f"Sample {index}{named} cannot be read: {text}", user_traceback=frames(error)) from error
    return DamagedSample(index, text, [makers.name_of(path, opened.blueprint.root) for path in files[:_LONGEST]])


def is_users(error: BaseException) -> bool:
    """Whether it was raised in code that is not ours, and called by it."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return any(not frame.filename.startswith(_HERE) for frame in last)


def frames(error: BaseException) -> str:
    """The traceback without frames of ours."""
    told = traceback.TracebackException.from_exception(error)
    told.stack = traceback.StackSummary.from_list([frame for frame in told.stack if not frame.filename.startswith(_HERE)])
    told.__cause__ = told.__context__ = None
    return shortened("".join(told.format()))


def _unstorable(error: Unstorable, index: int, blueprint: Blueprint) -> TargetError:
    store = blueprint.recipe.store
    other = "sample" if store == "rows" else "source"
    return TargetError(
        f"Sample {index} cannot be stored as {store}: {error}.", advice=f"Keep what it reads instead: --store {other}"
    )


def read_facts(path: Path, crc: int | None = None) -> Facts:
    """Raises `CacheDamaged` where the file is not what was written, OSError where it is not there."""
    data = read_regular(path)
    text, found = data[:-4], int.from_bytes(data[-4:], "little")
    if len(data) < 5 or zlib.crc32(text) != found or (crc is not None and found != crc):
        raise CacheDamaged(f"{path} was changed after it was written: its checksum does not fit.")
    try:
        return msgspec.msgpack.decode(text, type=Facts)
    except msgspec.DecodeError as error:
        raise CacheDamaged(f"{path} does not say what facts say: {error}.") from error


def facts_crc(path: Path) -> int:
    with path.open("rb") as file:
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(4), "little")
