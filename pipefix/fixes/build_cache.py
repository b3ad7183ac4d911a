"""The fixer of cache remedies: builds the cache by the converter, and has the plan read from it."""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path

from pipefix.caches import convert as conversion
from pipefix.caches.estimate import Forecast, forecast
from pipefix.fixes.builder import Say
from pipefix.fixes.steps import FixContext, Fixer
from pipefix.loader.fusing.child_process import in_child_process
from pipefix.loader.fusing.errors import NotFused
from pipefix.plan.plan import Proposed
from pipefix.plan.planfile import CacheChange
from pipefix.vocabulary.quantity import size

LATER = ("source", "resized", "decoded", "sample")
"""What is stored, by how far a sample has come."""
SPARE = 1.1
"""Room that must be free, as a multiple of what the cache is predicted to take."""


class BuildCache(Fixer):
    def refuses(self, step: Proposed, context: FixContext) -> str | None:
        if context.subject.iterable:
            return "the dataset is a stream, which has no index that records could be looked up by"
        now, change = context.plan.cache, _change(step)
        if now is not None and now.store in LATER and LATER.index(change.store) <= LATER.index(now.store):
            return f"the pipeline reads from {now.path} already, which holds what comes later on a sample's way"
        room, taken = _free(context.folder), step.disk_bytes
        if room is not None and taken is not None and taken * SPARE > room:
            taken = min(taken, _forecast_bytes(change, context) or taken)
            if taken * SPARE > room:
                return f"it would take {size(taken)} of disk, and {size(room)} are free"
        return None

    def alters(self, step: Proposed) -> str | None:
        if _change(step).store != "resized":
            return None
        return f"pictures have {conversion.DEFAULT_SIZE} pixels on the shorter side, compressed once more"

    def make(self, step: Proposed, context: FixContext, say: Say) -> None:
        change, folder = _change(step), context.folder / _change(step).path
        folder.parent.mkdir(exist_ok=True)
        context.builder.build(conversion.recipe_of(change.format, change.store), folder, say)


def _change(step: Proposed) -> CacheChange:
    assert isinstance(step.change, CacheChange)
    return step.change


def _forecast_bytes(change: CacheChange, context: FixContext) -> float | None:
    """What it would take, told from some of its records: a plan may know no more than a bound. None where none can be made."""
    recipe = conversion.recipe_of(change.format, change.store)
    with tempfile.TemporaryDirectory(prefix="pipefix-forecast-") as scratch:
        trial = partial(forecast, context.subject.dataset, recipe, Path(scratch) / change.store, workers=0)
        try:
            predicted: Forecast = in_child_process(trial)
        except NotFused:
            return None
    return predicted.bytes


def _free(folder: Path) -> int | None:
    where = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    try:
        return shutil.disk_usage(where).free
    except OSError:
        return None
