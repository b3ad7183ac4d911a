"""What a conversion would take and bring, from a sample of it: blocks of samples spread over the source are really converted."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pipefix.caches import convert as converting
from pipefix.caches import folder as folders
from pipefix.caches import layout, pool
from pipefix.caches.building import Building
from pipefix.caches.convert import State
from pipefix.caches.dataset import CachedDataset
from pipefix.caches.maker import getter
from pipefix.caches.manifest import Manifest, Recipe, sealed_text
from pipefix.caches.streams import is_stream, stream, told_length
from pipefix.caches.survey import Surveyed, survey, survey_apart
from pipefix.system.resources import cores
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.files import write_whole

_ENOUGH_S = 2.0
"""A round that took this long tells the pace; a shorter one tells how many samples the next one takes."""
_BLOCKS = 24
_READ_AT_MOST = 128
_READ_TIMES = 5


@dataclass(frozen=True)
class Forecast:
    samples: int
    """In the source."""
    tried: int
    """Converted for this forecast."""
    bytes: float
    source_bytes: float
    seconds: float
    gain: float | None
    """Samples a second over the cache, over those of the dataset; one process, files in memory. None for damaged samples only."""
    free: int
    """Bytes free on the disk that it would go to."""
    kept: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    unseen_bytes: float = 0.0
    """Of a sample, what it reads in ways that a ``source`` cache cannot answer."""


def forecast(
    dataset: Any,
    recipe: Recipe,
    folder: Path,
    *,
    target: str = "",
    workers: int | None = None,
    progress: Callable[[State], None] | None = None,
) -> Forecast:
    """Convert a few seconds' worth beside ``folder``, and remove it again: also what an earlier one left that was killed."""
    begun = time.perf_counter()
    source = survey(dataset, recipe, target) if workers == 0 else survey_apart(dataset, recipe, target)
    surveyed_s = time.perf_counter() - begun
    samples = source.blueprint.samples or recipe.limit or told_length(dataset)
    if samples is None:
        raise BadUsage(
            "How long a stream is cannot be told before it ends.",
            advice="Say how much of it is wanted, --limit N, or convert it without --dry-run.",
        )
    folder = Path(os.path.abspath(folder))
    trial = folder.with_name(f"{folder.name}.trial")
    with converting.told_by_the_disk(trial):
        try:
            with folders.locked(trial) as work:
                return _tried(source, samples, work.path, workers, progress or converting.silent, surveyed_s)
        finally:
            folders.remove(trial)


def _tried(
    source: Surveyed, samples: int, scratch: Path, workers: int | None, say: Callable[[State], None], surveyed_s: float
) -> Forecast:
    cut = source.blueprint.cut
    for name in layout.FOLDERS:
        (scratch / name).mkdir(exist_ok=True)
    wanted = 8 * max(1, workers if workers is not None else int(cores()))
    while True:
        seconds, manifest = _round(source, samples, scratch, min(wanted, samples), workers, say)
        tried = sum(part.stop - part.start for part in manifest.parts)
        if wanted >= samples or seconds >= _ENOUGH_S:
            break
        wanted = max(2 * wanted, int(1.5 * _ENOUGH_S / seconds * tried))
    return Forecast(
        samples=samples,
        tried=tried,
        bytes=manifest.bytes / tried * samples,
        source_bytes=manifest.source.bytes / tried * samples,
        seconds=surveyed_s + seconds / tried * samples,
        gain=_gain(source, manifest, scratch, apart=workers != 0),
        free=shutil.disk_usage(scratch).free,
        kept=tuple(cut.kept) if cut is not None else (),
        live=tuple(cut.live) if cut is not None else (),
        unseen_bytes=source.unseen_bytes,
    )


def _round(
    source: Surveyed, samples: int, scratch: Path, wanted: int, workers: int | None, say: Callable[[State], None]
) -> tuple[float, Manifest]:
    """Seconds, and what was made: blocks from all over the source, or the beginning of a stream."""
    plan = source.blueprint
    beginning = plan.samples is None
    blocks = 1 if beginning else max(1, min(_BLOCKS, wanted // 4))
    each = max(1, wanted // blocks)
    starts = sorted({(2 * at + 1) * samples // (2 * blocks) // each * each for at in range(blocks)})
    starts = [0] if beginning else [start for start in starts if start + each <= samples] or [0]
    trial = msgspec.structs.replace(plan, part_samples=min(each, samples), starts=starts)
    write_whole(scratch / layout.PLAN, sealed_text(trial))  # by which it is known as ours, whatever happens now
    building = Building(scratch, trial)
    begun = time.perf_counter()
    try:
        trying = Surveyed(source.dataset, trial, source.holders)
        converting.make_parts(trying, building, list(range(len(starts))), workers, State(), say)
        building.settle()
        seconds, manifest = time.perf_counter() - begun, building.manifest({})
    finally:
        building.close()
    # It is read with the very dataset that it was made from a part of.
    source_now = msgspec.structs.replace(manifest.source, attributes={})
    return seconds, msgspec.structs.replace(manifest, samples=plan.samples or manifest.samples, source=source_now)


def _gain(source: Surveyed, manifest: Manifest, scratch: Path, *, apart: bool) -> float | None:
    """Where ``apart``, in a process of its own, so that later workers do not inherit what samples open there."""

    def read(_: Any) -> bytes:
        return msgspec.msgpack.encode(_gain_here(source, manifest, scratch))

    if not apart or is_stream(source.dataset) or not pool.can_fork():
        return _gain_here(source, manifest, scratch)
    gain: float | None = msgspec.msgpack.decode(pool.apart(read))
    return gain


def _gain_here(source: Surveyed, manifest: Manifest, scratch: Path) -> float | None:
    """The dataset and the cache, in turns, over the same samples in random order."""
    cached = CachedDataset.over(manifest, scratch, dataset=source.dataset)
    positions = random.Random(0).sample(range(len(cached)), min(len(cached), _READ_AT_MOST))
    if not positions:
        return None
    get = getter(source.dataset, None)
    if source.blueprint.samples is None:
        positions = list(range(len(positions)))  # a stream is read from its beginning, without gaps
        get = stream(source.dataset, None)
    numbers = [cached.sample_number(position) for position in positions]
    ratios = []
    for attempt in range(_READ_TIMES + 1):
        own, ours = _seconds(get, numbers), _seconds(cached.__getitem__, positions)
        if attempt:
            ratios.append(own / ours)
    return statistics.median(ratios)


def _seconds(get: Callable[[int], Any], indices: list[int]) -> float:
    begun = time.perf_counter()
    for index in indices:
        get(index)
    return time.perf_counter() - begun
