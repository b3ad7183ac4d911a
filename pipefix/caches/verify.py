"""Verifies a cache: every checksum and record, and whether its source is what it was. Writes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipefix.caches import manifest as manifests
from pipefix.caches import pictures, remote, replay
from pipefix.caches.index import DataFile, Index
from pipefix.caches.layout import beside
from pipefix.caches.manifest import Manifest, Part
from pipefix.caches.parquet import Rows
from pipefix.caches.record import RecordDecoder
from pipefix.caches.source_files import changed_files
from pipefix.caches.writer import Facts, read_facts
from pipefix.stores.opening import open_store
from pipefix.stores.store import is_store
from pipefix.vocabulary.errors import CacheDamaged, UnreadableFile
from pipefix.vocabulary.urls import is_remote

_NAMED = 20
"""Changed files that are named, of each kind."""


@dataclass
class Checked:
    """What was found."""

    folder: Path
    manifest: Manifest
    records: int = 0
    """Records looked at."""
    damage: dict[int, list[str]] = field(default_factory=dict)
    """By part, what is wrong with it."""
    changed: list[str] = field(default_factory=list)
    """Source files that are not what they were; at most twenty are named."""
    changed_count: int = 0
    missing_count: int = 0
    """Source files that are not there."""
    far_count: int = 0
    """Objects of stores: a cache may come from a stranger, so no URL in it is asked."""
    url: str | None = None
    """Of a cache in a store."""

    @property
    def sound(self) -> bool:
        return not self.damage


def verify(cache: str | Path, *, progress: Callable[[int, int], None] | None = None) -> Checked:
    """Check a whole cache; raises only where there is no manifest to go by. Of one in a store each part is fetched whole, and
    removed again."""
    store = open_store(str(cache)) if is_store(cache) else None
    place = Path(os.path.abspath(cache)) if store is None else Path(store.url)
    manifest = manifests.read(place) if store is None else remote.read_manifest(store)
    checked = Checked(place, manifest, url=store.url if store is not None else None)
    for number, part in enumerate(manifest.parts):
        if progress is not None:
            progress(number, len(manifest.parts))
        with nullcontext(place) if store is None else remote.brought(store, manifest, number) as folder:
            check = PartCheck(folder, manifest, number, part)
            problems = [text.replace(f"{folder}/", f"{checked.url or folder}/") for text in check.problems()]
        checked.records += check.looked_at
        if problems:
            checked.damage[number] = problems
        if check.facts is not None:  # files that went into the part: still there, and unchanged by size and time
            checked.far_count += sum(is_remote(name) for name, _, _ in check.facts.files)
            different = list(changed_files(check.facts, manifest.source.root))
            there = [path for path, is_there in different if is_there]
            checked.missing_count += len(different) - len(there)
            checked.changed_count += len(there)
            checked.changed = [*checked.changed, *there][:_NAMED]
    return checked


class PartCheck:
    """One part, from its files' sizes to what its records hold."""

    def __init__(self, folder: Path, manifest: Manifest, number: int, part: Part) -> None:
        self.manifest, self.number, self.part = manifest, number, part
        self.path = folder / part.data(number, manifest.recipe.container)
        self.looked_at = 0
        self.facts: Facts | None = None

    def problems(self) -> Iterator[str]:
        try:
            self.facts = read_facts(beside(self.path, ".facts"), self.part.facts_crc)
        except CacheDamaged as error:
            yield str(error)
        except OSError as error:
            yield f"{beside(self.path, '.facts')} cannot be read: {error.strerror or error}."
        try:
            index = Index.read(beside(self.path, ".idx"), self.part)
            file = DataFile(self.path, self.part, index)
            file.index = index
            look = self._look(file)
        except UnreadableFile as error:
            yield str(error)
            return
        for number, records in enumerate(index.blocks["records"].tolist()):
            self.looked_at += records
            try:
                look(number)
            except CacheDamaged as error:
                yield str(error)
        if index.rest_of(file.file) != index.rest:
            yield f"{self.path} is damaged between its records: other programs may not be able to read it."

    def _look(self, file: DataFile) -> Callable[[int], Any]:
        """What takes apart a block of the file, which is compared with its checksum when it is read."""
        if self.manifest.recipe.store == "rows":
            rows = Rows(self.manifest, {self.number: file}, [], pictures.check_size)
            blocks = len(rows.part(self.number).firsts) - 1
            return lambda number: rows.read(self.number, number, pictures.check_size) if number < blocks else file.read(number)
        if self.manifest.recipe.store == "source":
            return lambda number: replay.check(file.read(number), file.read)
        decode = RecordDecoder(pictures.check_size, len)
        return lambda number: decode(file.read(number))
