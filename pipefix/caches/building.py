"""A cache on its way into being: its directory, who works on it, what is done, and the sealing.

Order of writing: a part's data, its index, then its facts, each by a rename. When all parts are there, everything is brought to the
disk, and only then the manifest appears. So whatever moment the power goes, there is either a whole cache or a directory without a
manifest, on which the same command goes on. Parts from before a restart of the machine may not have reached the disk whole: they
are checked against their checksums before they are counted as done.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from pipefix.caches import blueprint as blueprints
from pipefix.caches import ownership
from pipefix.caches.blueprint import Blueprint
from pipefix.caches.format import DataFile, Index
from pipefix.caches.manifest import STAGES, SUFFIXES, Manifest, Source, beside, sealed_text
from pipefix.caches.writer import Facts, facts_crc, read_facts
from pipefix.vocabulary.errors import CacheDamaged
from pipefix.vocabulary.files import sync_folder, write_whole

_SYNCING_AT_ONCE = 4


class Building:
    """The parts that are there, and what becomes of them. Only the process that holds the lock has one."""

    def __init__(self, folder: Path, blueprint: Blueprint) -> None:
        self.folder = folder
        self.parts_folder = folder / "parts"
        self.blueprint = blueprint
        self.done: dict[int, Facts] = {}
        self._syncing: list[Future[None]] = []
        self._synced: set[int] = set()
        self._pool = ThreadPoolExecutor(_SYNCING_AT_ONCE, "pipefix-sync")

    def resume(self) -> None:
        """Take over what an interrupted run of the same work left, and clear away the rest."""
        path = self.folder / ownership.PLAN
        before: Blueprint | None = None
        with contextlib.suppress(OSError, CacheDamaged):
            before = blueprints.read(path)
        if before is not None and before.same_work(self.blueprint):
            self._adopt(trusted=before.boot == self.blueprint.boot != "")
        self._sweep({f"{number:05d}" for number in self.done}, _most(before, self.blueprint))
        write_whole(path, sealed_text(self.blueprint))
        for name in ownership.FOLDERS:
            (self.folder / name).mkdir(exist_ok=True)

    def _adopt(self, *, trusted: bool) -> None:
        for path in sorted((self.folder / "index").glob("[0-9]*.facts")):
            try:
                number = int(path.stem)
                facts = read_facts(path)
                if (facts.start, facts.stop) == self.blueprint.range(number) or self.blueprint.samples is None:
                    self._check(self._data(path.stem), facts, thorough=not trusted)
                    self.done[number] = facts.brief()
            except (OSError, ValueError, CacheDamaged):
                continue  # made anew

    def _data(self, name: str) -> Path:
        return self.parts_folder / f"{name}{SUFFIXES[self.blueprint.recipe.container]}"

    def _check(self, data: Path, facts: Facts, *, thorough: bool) -> None:
        part = facts.part(0)
        index = Index.read(beside(data, ".idx"), part)
        mapped = DataFile(data, part, index)
        if thorough:
            for number in range(len(mapped)):
                mapped.block(number)

    def _sweep(self, keep: set[str], parts: int | None) -> None:
        """Remove drafts, and of the first ``parts`` parts the files of those that are not kept."""
        for path in [*ownership.part_files(self.folder, parts), *ownership.drafts(self.folder)]:
            if path.stem not in keep or path.name.startswith("."):
                path.unlink(missing_ok=True)

    def finished(self, number: int, facts: Facts, *, generation: int = 0) -> None:
        """A part was made. It is written to the disk while others are being made."""
        self.done[number] = facts
        self._synced.add(number)
        data = self._data(facts.part(0, generation).name(number))
        for path in (data, beside(data, ".idx"), beside(data, ".facts")):
            self._syncing.append(self._pool.submit(_sync, path))

    def bytes(self) -> int:
        return sum(facts.bytes + facts.index_bytes for facts in self.done.values())

    def settle(self) -> None:
        """Everything that was made is on the disk."""
        for future in self._syncing:
            future.result()
        self._syncing.clear()
        sync_folder(self.parts_folder)
        sync_folder(self.folder / "index")

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def seal(self, *, generations: dict[int, int] | None = None, before: Manifest | None = None) -> Manifest:
        """The last step: from here on the cache exists, in the place of the one ``before``."""
        generations = generations or {}
        for number in self.done.keys() - self._synced:
            self.finished(number, self.done[number], generation=generations.get(number, 0))
        self.settle()
        manifest = self._manifest(generations)
        self._write_quarantine()
        text = sealed_text(manifest)
        write_whole(self.folder / ownership.COPY, text)
        write_whole(self.folder / ownership.MANIFEST, text)
        if ownership.marked(self.folder / ownership.PLAN):
            (self.folder / ownership.PLAN).unlink()
        names = {part.name(number) for number, part in enumerate(manifest.parts)}
        self._sweep({ownership.COPY.stem, *names}, max(len(names), len(before.parts) if before is not None else 0, len(self.done)))
        return manifest

    def _manifest(self, generations: dict[int, int]) -> Manifest:
        plan = self.blueprint
        parts = []
        for number in sorted(self.done):
            facts, generation = self.done[number], generations.get(number, 0)
            if facts.records == 0 and not facts.bad and plan.samples is None:
                continue  # the stream ended right before it
            path = beside(self._data(facts.part(0, generation).name(number)), ".facts")
            parts.append(facts.part(facts_crc(path), generation))
        return Manifest(
            target=plan.target,
            stage=STAGES[plan.recipe.store],
            length=sum(part.records for part in parts),
            samples=parts[-1].stop if parts else 0,
            recipe=plan.recipe,
            cut=plan.cut,
            columns=plan.columns,
            shape=plan.shape,
            source=Source(
                root=plan.root,
                state=plan.state,
                bytes=sum(facts.source_bytes for facts in self.done.values()),
                files=sum(facts.file_count for facts in self.done.values()),
            ),
            classes=plan.classes,
            part_samples=plan.part_samples,
            parts=parts,
        )

    def _write_quarantine(self) -> None:
        if self.blueprint.recipe.on_bad != "quarantine":
            return
        path = self.folder / ownership.QUARANTINE
        bad = [one for number in sorted(self.done) for one in self.done[number].bad]
        if bad:
            lines = (json.dumps(msgspec.to_builtins(one), ensure_ascii=True) + "\n" for one in bad)
            write_whole(path, "".join(lines).encode())
        elif ownership.is_quarantine(path):
            path.unlink()


def _most(before: Blueprint | None, now: Blueprint) -> int | None:
    """How many parts these plans name; None where one of them is of a stream."""
    counts = [now.parts, *([before.parts] if before is not None else [])]
    return None if None in counts else max(count for count in counts if count is not None)


def _sync(path: Path) -> None:
    """Runs beside samples that are being made, and past the seams: it is no read of theirs."""
    with io.FileIO(path) as file:
        os.fsync(file.fileno())


def of_manifest(manifest: Manifest, survey: Blueprint) -> Blueprint:
    """The blueprint that a finished cache was made from; how its samples are run comes from a survey of today."""
    return Blueprint(
        target=manifest.target, recipe=manifest.recipe, samples=manifest.samples, part_samples=manifest.part_samples,
        seeded=survey.seeded, stop_at=survey.stop_at, by_path=survey.by_path, maps=survey.maps,
        root=manifest.source.root, cut=manifest.cut, columns=manifest.columns, shape=manifest.shape, classes=manifest.classes,
        state=manifest.source.state,
    )  # fmt: skip
