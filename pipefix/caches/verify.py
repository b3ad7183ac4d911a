"""Is a cache what was written, and is its source what it was then? Every checksum, every index, every number; and mending it."""

from __future__ import annotations

import os
import random
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipefix.caches import far, layout, record, replay
from pipefix.caches import manifest as manifests
from pipefix.caches.format import DataFile, Index
from pipefix.caches.maker import path_of
from pipefix.caches.manifest import SUFFIXES, Manifest, Part, beside
from pipefix.caches.parts import reader_of
from pipefix.caches.writer import Facts, read_facts
from pipefix.stores.opening import open_store
from pipefix.vocabulary.errors import CacheDamaged, UnreadableFile
from pipefix.vocabulary.urls import is_far

Progress = Callable[[int, int], None]
_UPDATE = "Bring the cache up to date instead: pipefix convert TARGET --update, and the other arguments as before"
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
    """Objects of far stores: a cache may come from a stranger, so no URL in it is asked."""
    url: str | None = None
    """Of a cache in a store."""
    copy_damaged: bool = False
    """The manifest's copy is not what was written."""

    @property
    def sound(self) -> bool:
        return not self.damage and not self.copy_damaged


def verify(folder: Path, *, sample: int | None = None, seed: int = 0, progress: Progress | None = None) -> Checked:
    """Check a whole cache, or ``sample`` of its records; raises only where there is no manifest to go by."""
    folder = Path(os.path.abspath(folder))
    manifest = manifests.read(folder)
    found = Checked(folder, manifest)
    found.copy_damaged = (folder / layout.COPY).exists() and manifests.copied(folder) is None
    chosen = _chosen(manifest, sample, seed)
    for number, part in enumerate(manifest.parts):
        if progress is not None:
            progress(number, len(manifest.parts))
        if chosen is None or number in chosen:
            _look_into(PartCheck(folder, manifest, number, part), chosen, found)
    return found


def verify_in_store(url: str, *, sample: int | None = None, seed: int = 0, progress: Progress | None = None) -> Checked:
    """The same of a cache in a store: each part that is looked at is fetched whole, and removed again."""
    store = open_store(url)
    manifest = far.read_manifest(store)
    found = Checked(Path(store.url), manifest, url=store.url)
    chosen = _chosen(manifest, sample, seed)
    for number, part in enumerate(manifest.parts):
        if progress is not None:
            progress(number, len(manifest.parts))
        if chosen is None or number in chosen:
            with tempfile.TemporaryDirectory(prefix="pipefix-verify-") as place:
                found.folder = Path(place)
                for name in layout.FOLDERS:
                    (found.folder / name).mkdir()
                far.bring(store, manifest, number, found.folder)
                _look_into(PartCheck(found.folder, manifest, number, part), chosen, found)
    return found


def _look_into(check: PartCheck, chosen: dict[int, list[int]] | None, found: Checked) -> None:
    problems = list(check.problems(chosen.get(check.number) if chosen is not None else None))
    found.records += check.looked_at
    if problems:
        where = f"{found.folder}/"
        found.damage[check.number] = [one.replace(where, f"{found.url}/") for one in problems] if found.url else problems
    _against_source(check, found)


def _chosen(manifest: Manifest, sample: int | None, seed: int) -> dict[int, list[int]] | None:
    """Positions to look at, by part; None for all."""
    if sample is None or sample >= manifest.length:
        return None
    drawn = sorted(random.Random(seed).sample(range(manifest.length), sample))
    found: dict[int, list[int]] = {}
    first = 0
    numbers = iter(drawn)
    index = next(numbers, None)
    for number, part in enumerate(manifest.parts):
        while index is not None and index < first + part.records:
            found.setdefault(number, []).append(index - first)
            index = next(numbers, None)
        first += part.records
    return found


class PartCheck:
    """One part, from its files' sizes to its records' trees."""

    def __init__(self, folder: Path, manifest: Manifest, number: int, part: Part) -> None:
        self.manifest, self.number, self.part = manifest, number, part
        self.file = folder / "parts" / (part.name(number) + SUFFIXES[manifest.recipe.container])
        self.looked_at = 0
        self.facts: Facts | None = None
        self.reader: Any = None

    def problems(self, positions: list[int] | None) -> Iterator[str]:
        try:
            self.facts = read_facts(beside(self.file, ".facts"), self.part.facts_crc)
        except CacheDamaged as error:
            yield str(error)
        except OSError as error:
            yield f"{self.file.with_suffix('.facts')} cannot be read: {error.strerror or error}."
        try:
            index = Index.read(beside(self.file, ".idx"), self.part)
            mapped = DataFile(self.file, self.part, index)
        except UnreadableFile as error:
            yield str(error)
            return
        self.reader = reader_of(self.manifest.recipe.container)(mapped, index)
        if positions is None:
            yield from self._everything(mapped, index)
        else:
            yield from self._some(positions)

    def _everything(self, mapped: DataFile, index: Index) -> Iterator[str]:
        whole = True
        for block in range(len(mapped)):
            try:
                mapped.block(block)
            except CacheDamaged as error:
                whole = False
                yield str(error)
        if index.rest_of(mapped.view) != index.rest:
            whole = False
            yield f"{self.file} is damaged between its records: other programs may not be able to read it."
        if whole:
            yield from self._numbers()
            yield from self._some(range(self.part.records))

    def _numbers(self) -> Iterator[str]:
        bad = set(self.part.bad)
        expected = [number for number in range(self.part.start, self.part.stop) if number not in bad]
        try:
            if self.reader.samples() != expected:
                yield f"{self.file} does not hold the samples that the manifest says, in their order."
        except CacheDamaged as error:
            yield str(error)

    def _some(self, positions: Any) -> Iterator[str]:
        rows = self.manifest.recipe.store == "rows"
        for position in positions:
            self.looked_at += 1
            try:
                if rows:
                    self.reader.group(self.reader.group_of(position)[0])
                elif self.manifest.recipe.store == "source":
                    replay.entries(self.reader.get(position))
                else:
                    record.description(self.reader.get(position))
            except CacheDamaged as error:
                yield f"record {position}: {error}"


def _against_source(check: PartCheck, found: Checked) -> None:
    """Files that went into the part: still there, and unchanged by size and time."""
    if check.facts is None:
        return
    for name, length, changed in check.facts.files:
        if is_far(name):
            found.far_count += 1
            continue
        try:
            path = path_of(name, found.manifest.source.root)
            status = os.stat(path)
        except (OSError, ValueError, CacheDamaged):
            found.missing_count += 1
            continue
        if not stat.S_ISREG(status.st_mode) or (status.st_size, status.st_mtime_ns) == (length, changed):
            continue
        found.changed_count += 1
        if len(found.changed) < _NAMED:
            found.changed.append(path)
