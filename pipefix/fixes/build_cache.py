"""Caches: built by the converter, which goes on where it was stopped, and read through the plan."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec

from pipefix.caches import convert as conversion
from pipefix.fixes.builder import Builder, Say
from pipefix.fixes.caches_made import FOLDER
from pipefix.fixes.fixer import FixContext, Fixer
from pipefix.plan.plan import Proposed
from pipefix.plan.planfile import CacheChange, PlanFile
from pipefix.vocabulary.quantity import size

LATER = ("source", "resized", "decoded", "sample")
"""What is stored, by how far a sample has come."""
SPARE = 1.1
"""Room that must be free, as a multiple of what the cache is predicted to take."""


class BuildCache(Fixer):
    """One cache a plan: another takes its place."""

    STORES: ClassVar[dict[str, tuple[str, int | None]]] = {
        "cache-source": ("source", None),
        "cache-resized-256": ("resized", 256),
        "cache-decoded": ("decoded", None),
        "cache-sample": ("sample", None),
    }
    """The store, and the shorter side of its pictures."""
    remedies = frozenset(STORES)

    def refuses(self, step: Proposed, context: FixContext) -> str | None:
        if context.subject.iterable:
            return "the dataset is a stream, which has no index that records could be looked up by"
        now = context.plan.cache
        if now is not None and now.store in LATER and LATER.index(self.STORES[step.id][0]) <= LATER.index(now.store):
            return f"the pipeline reads from {now.path} already, which holds what comes later on a sample's way"
        room = _free(context.folder)
        if step.disk_bytes is not None and room is not None and step.disk_bytes * SPARE > room:
            return f"it would take {size(step.disk_bytes)} of disk, and {size(room)} are free"
        return None

    def alters(self, step: Proposed) -> str | None:
        shorter = self.STORES[step.id][1]
        return None if shorter is None else f"pictures have {shorter} pixels on the shorter side, compressed once more"

    def plan(self, step: Proposed, context: FixContext) -> PlanFile:
        store = cast(Any, self.STORES[step.id][0])
        change = CacheChange(path=self.makes(step, context), store=store, format="lmdb")
        return msgspec.structs.replace(context.plan, cache=change)

    def makes(self, step: Proposed, context: FixContext) -> str:
        return f"{FOLDER}/{step.id.removeprefix('cache-')}"

    def make(self, step: Proposed, context: FixContext, say: Say) -> None:
        store, shorter = self.STORES[step.id]
        recipe = conversion.recipe_of("lmdb", store, shorter)
        folder = context.folder / self.makes(step, context)
        folder.parent.mkdir(exist_ok=True)
        (context.builder or Builder(context.subject)).build(recipe, folder, say)


def _free(folder: Path) -> int | None:
    where = folder
    while not where.exists() and where != where.parent:
        where = where.parent
    try:
        return shutil.disk_usage(where).free
    except OSError:
        return None


def bytes_of(folder: Path) -> int:
    """What a cache takes on the disk."""
    return sum(entry.stat().st_size for root, _, files in os.walk(folder) for entry in map(Path(root).joinpath, files))
