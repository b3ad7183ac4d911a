"""An unfinished cache: which of its parts are done, and the sealing, which makes it a cache.

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
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pipefix.caches import folder as folders
from pipefix.caches import layout
from pipefix.caches.index import DataFile, Index
from pipefix.caches.layout import beside
from pipefix.caches.manifest import Blueprint, Conversion, Manifest, read_blueprint, sealed_text
from pipefix.caches.writer import Facts, read_facts
from pipefix.vocabulary.errors import BadUsage, CacheDamaged
from pipefix.vocabulary.files import sync_folder, write_whole
from pipefix.vocabulary.quantity import counted

_SYNCING_AT_ONCE = 4

STAGES = {"source": "storage", "resized": "decode", "decoded": "decode", "sample": "augment", "rows": "decode"}
"""What of samples a cache stores: as it is after this stage."""


class Building:
    """The parts that are there, and what becomes of them. Only the process that holds the lock has one.

    Of an update, ``existing`` is the finished cache in ``folder``, and ``parts_kept`` those of its parts that stay as they are.
    """

    def __init__(
        self, folder: Path, blueprint: Blueprint, existing: Manifest | None = None, parts_kept: Mapping[int, Facts] | None = None
    ) -> None:
        self.folder = folder
        self.blueprint = blueprint
        self._existing, self._kept = existing, dict(parts_kept or {})
        self.done: dict[int, Facts] = dict(self._kept)
        self._syncing: dict[int, list[Future[None]]] = {}
        self._pool = ThreadPoolExecutor(_SYNCING_AT_ONCE, "pipefix-sync")

    def resume(self, is_current: Callable[[Facts], bool] = lambda _: True) -> None:
        """Take over what an interrupted run of the same work left, and clear away the rest. ``is_current``: whether a part would be
        made of the same files and labels today."""
        with contextlib.suppress(OSError, CacheDamaged):
            self._go_on(read_blueprint(self.folder / layout.PLAN), is_current)
        if self._existing is None:
            folders.sweep(self.folder, {layout.part_name(number) for number in self.done}, None)
        self.begin()

    def begin(self) -> None:
        """From here on the directory is known as that of an unfinished cache, whatever happens."""
        write_whole(self.folder / layout.PLAN, sealed_text(self.blueprint))
        for name in layout.FOLDERS:
            (self.folder / name).mkdir(exist_ok=True)

    def _go_on(self, before: Blueprint, is_current: Callable[[Facts], bool]) -> None:
        differing = before.differing(self.blueprint)
        parts_before = list(self._made_before())
        count = len(parts_before)
        if differing and count:
            if "recipe" in differing:
                raise BadUsage(
                    f"{self.folder} is an unfinished cache of another recipe: {before.recipe.beside(self.blueprint.recipe)}; "
                    f"{counted(count, 'finished part')}.",
                    advice="The command that began it goes on where it was. Give the new one a directory of its own: --out DIR",
                )
            other = f"another dataset ({', '.join(differing[:3])} differ)"
            told = f"{self.folder} was begun from {other}: the parts that it has, {count}, are removed, and made anew."
            warnings.warn(told, RuntimeWarning, stacklevel=3)
        elif not differing:
            self.blueprint = msgspec.structs.replace(self.blueprint, part_samples=before.part_samples)
            for number, path in parts_before:
                self._take_over(number, path, is_current, trusted=before.boot == self.blueprint.boot != "")

    def _made_before(self) -> Iterator[tuple[int, Path]]:
        """Facts of parts that an interrupted run made, by the number of the part."""
        for path in sorted((self.folder / "index").glob("[0-9]*.facts")):
            number = path.stem.partition("-")[0]
            if number.isdigit() and int(number) not in self._kept and path.stem == self.data(int(number)).stem:
                yield int(number), path

    def _take_over(self, number: int, path: Path, is_current: Callable[[Facts], bool], *, trusted: bool) -> None:
        """Count a part as done, where it is whole and would be made of the same today; otherwise it is made anew."""
        data = self.data(number)
        with contextlib.suppress(OSError, CacheDamaged):
            facts = read_facts(path)
            if (facts.start, facts.stop) == self.blueprint.range(number) or self.blueprint.samples is None:
                part = facts.part(0)
                index = Index.read(beside(data, ".idx"), part)
                file = DataFile(data, part, index)
                for block in range(0 if trusted else len(index.blocks)):
                    file.read(block)
                if is_current(facts):
                    self.done[number] = facts.brief()

    def _generation(self, number: int) -> int:
        """How often a part was made anew by an update."""
        if self._existing is None or number >= len(self._existing.parts):
            return 0
        return self._existing.parts[number].generation + (number not in self._kept)

    def data(self, number: int) -> Path:
        """The data file of a part."""
        return self.folder / layout.data_of(number, self._generation(number), self.blueprint.recipe.container)

    def missing(self) -> Iterator[int]:
        """Parts that are to be made; of a stream, until it ends."""
        count, number = self.blueprint.parts, 0
        while count is None or number < count:
            if number not in self.done:
                yield number
            if count is None and self.done[number].ended:
                return
            number += 1

    def finished(self, number: int, facts: Facts) -> None:
        """A part was made. It is written to the disk while others are being made."""
        self.done[number] = facts
        data = self.data(number)
        self._syncing[number] = [self._pool.submit(_sync, path) for path in (data, beside(data, ".idx"), beside(data, ".facts"))]

    def settle(self) -> None:
        """Everything that was made is on the disk."""
        for future in chain.from_iterable(self._syncing.values()):
            future.result()
        for name in layout.FOLDERS:
            sync_folder(self.folder / name)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def seal(self) -> Manifest:
        """The last step: from here on the cache exists, in the place of the one that was updated."""
        for number in self.done.keys() - self._syncing.keys():
            self.finished(number, self.done[number])
        self.settle()
        manifest = self.manifest()
        bad = [bad_sample for number in sorted(self.done) for bad_sample in self.done[number].bad]
        if self.blueprint.recipe.on_bad == "quarantine" and bad:
            lines = (json.dumps(msgspec.to_builtins(bad_sample), ensure_ascii=True) + "\n" for bad_sample in bad)
            write_whole(self.folder / layout.QUARANTINE, "".join(lines).encode())
        elif self.blueprint.recipe.on_bad == "quarantine":
            folders.forget(self.folder / layout.QUARANTINE)
        write_whole(self.folder / layout.MANIFEST, sealed_text(manifest))
        before = len(self._existing.parts) if self._existing is not None else 0
        folders.sweep(self.folder, manifest.names, max(len(self.done), before))
        return manifest

    def manifest(self) -> Manifest:
        """What the parts that are there make up."""
        plan = self.blueprint
        parts = [
            facts.part(int.from_bytes(beside(self.data(number), ".facts").read_bytes()[-4:], "little"), self._generation(number))
            for number, facts in sorted(self.done.items())
            if facts.records or facts.bad or plan.samples is not None  # a stream may end right before a part
        ]
        conversion = {name: getattr(plan, name) for name in Conversion.__struct_fields__ if name != "format"}
        sizes = self._sizes_of_files()
        read = sum(facts.source_bytes for facts in self.done.values())
        conversion["source"] = msgspec.structs.replace(plan.source, bytes=min(read, int(sizes.sum())), files=len(sizes))
        length, samples = sum(part.records for part in parts), parts[-1].stop if parts else 0
        return Manifest(**conversion, stage=STAGES[plan.recipe.store], length=length, samples=samples, parts=parts)

    def _sizes_of_files(self) -> np.ndarray[Any, Any]:
        """Of every file that was read: one that several parts were made from is one file."""
        known = [np.empty((0, 2), np.int64)]  # hash of the name, and size: names of millions of files would fill the memory
        for number in self.done:
            files = read_facts(beside(self.data(number), ".facts")).files
            known.append(np.array([(hash(name), size) for name, size, _ in files], np.int64).reshape(-1, 2))
        states = np.concatenate(known)
        sizes: np.ndarray[Any, Any] = states[np.unique(states[:, 0], return_index=True)[1], 1]
        return sizes


def _sync(path: Path) -> None:
    """Runs beside samples that are being made, and past the hooks: it is no read of theirs."""
    with io.FileIO(path) as file:
        os.fsync(file.fileno())
