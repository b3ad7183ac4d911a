"""What a conversion would take and bring, from a sample of it: blocks of samples spread over the source are really converted."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipefix.caches import convert as converting
from pipefix.caches.blueprint import Blueprint
from pipefix.caches.building import Building
from pipefix.caches.convert import State
from pipefix.caches.dataset import CachedDataset
from pipefix.caches.maker import getter
from pipefix.caches.manifest import STAGES, Manifest, Recipe, Source
from pipefix.caches.survey import Surveyed, survey
from pipefix.caches.survey_apart import survey_apart
from pipefix.caches.writer import stream
from pipefix.vocabulary.errors import BadUsage

_ROUNDS_S = (0.0, 1.0, 3.0, 3.0)
"""About how long each round of trial takes; the first is the least that gives a pace."""
_ENOUGH_S = 2.0
"""A round this long is the last."""
_BLOCKS = 24
_READ_AT_MOST = 128
_READ_TIMES = 5


class Blocks(Blueprint, frozen=True, kw_only=True):
    """A blueprint whose parts are some blocks of the source."""

    starts: list[int] = []

    def range(self, number: int) -> tuple[int, int | None]:
        return self.starts[number], self.starts[number] + self.part_samples


@dataclass(frozen=True)
class ConversionPace:
    """Seconds that converting takes: once, whatever the length (to start processes, to reach the disk), and for each sample."""

    once: float
    each: float

    def of(self, samples: int) -> float:
        return self.once + self.each * samples


def pace_of(rounds: list[tuple[int, float]]) -> ConversionPace:
    """From rounds of ever more samples, and what each took. The last tells; the one before it tells what of that is spent once."""
    many, long = rounds[-1]
    each = long / many
    if len(rounds) > 1 and rounds[-2][0] < many:
        few, short = rounds[-2]
        # Files that were read for the first time then and not now, or noise, may not turn it upside down.
        each = min(each, max(each / 2, (long - short) / (many - few)))
    return ConversionPace(long - each * many, each)


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
    """Convert about four seconds' worth beside ``folder``, and remove it again."""
    begun = time.perf_counter()
    source = survey(dataset, recipe, target) if workers == 0 else survey_apart(dataset, recipe, target)
    surveyed_s = time.perf_counter() - begun
    samples = source.blueprint.samples or recipe.limit or _told_length(dataset)
    if samples is None:
        raise BadUsage(
            "How long a stream is cannot be told before it ends.",
            advice="Say how much of it is wanted, --limit N, or convert it without --dry-run.",
        )
    place = _nearest(Path(os.path.abspath(folder)))
    with converting.told_by_the_disk(place), tempfile.TemporaryDirectory(prefix=".pipefix-forecast-", dir=place) as scratch:
        return _tried(source, samples, Path(scratch), workers, progress or converting.silent, surveyed_s)


def _nearest(folder: Path) -> Path:
    """The first directory above that exists."""
    while not folder.is_dir():
        folder = folder.parent
    return folder


def _told_length(dataset: Any) -> int | None:
    """What a stream says of its own length."""
    try:
        return len(dataset) or None
    except (TypeError, NotImplementedError, AttributeError):
        return None


def _tried(
    source: Surveyed, samples: int, scratch: Path, workers: int | None, say: Callable[[State], None], surveyed_s: float
) -> Forecast:
    plan = source.blueprint
    for name in ("parts", "index"):
        (scratch / name).mkdir()
    count = workers if workers is not None else converting.cores()
    rounds: list[tuple[int, float]] = []
    wanted = 8 * max(1, count)
    for lasting in _ROUNDS_S:
        if rounds:
            pace = pace_of(rounds)
            wanted = max(32, 2 * rounds[-1][0], int((lasting - pace.once) / max(pace.each, 1e-6)))
        seconds, manifest = _round(source, samples, scratch, min(wanted, samples), workers, say)
        rounds.append((sum(part.stop - part.start for part in manifest.parts), seconds))
        if wanted >= samples or seconds >= _ENOUGH_S:
            break
    tried = sum(part.stop - part.start for part in manifest.parts)
    return Forecast(
        samples=samples,
        tried=tried,
        bytes=manifest.bytes / tried * samples,
        source_bytes=manifest.source.bytes / tried * samples,
        seconds=surveyed_s + pace_of(rounds).of(samples),
        gain=_gain(source, manifest, scratch),
        free=shutil.disk_usage(scratch).free,
        kept=tuple(plan.cut.kept) if plan.cut is not None else (),
        live=tuple(plan.cut.live) if plan.cut is not None else (),
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
    fields = {name: getattr(plan, name) for name in plan.__struct_fields__}
    trial = Blocks(**{**fields, "part_samples": min(each, samples), "starts": starts})
    building = Building(scratch, trial)
    begun = time.perf_counter()
    try:
        numbers = list(range(len(starts)))
        trying = Surveyed(source.dataset, trial, source.holders)
        converting.make_parts(trying, building, numbers, workers, State(), say)
        building.settle()
        seconds = time.perf_counter() - begun
        manifest = _manifest(building, trial)
    finally:
        building.close()
    return seconds, manifest


def _manifest(building: Building, plan: Blueprint) -> Manifest:
    parts = [building.done[number].part(0) for number in sorted(building.done)]
    return Manifest(
        length=sum(part.records for part in parts), samples=plan.samples or parts[-1].stop, stage=STAGES[plan.recipe.store],
        recipe=plan.recipe, cut=plan.cut, columns=plan.columns, shape=plan.shape, part_samples=plan.part_samples, parts=parts,
        source=Source(root=plan.root, bytes=sum(facts.source_bytes for facts in building.done.values())),
    )  # fmt: skip


def _gain(source: Surveyed, manifest: Manifest, scratch: Path) -> float | None:
    """The dataset and the cache, in turns, over the same samples in random order."""
    cached = CachedDataset.over(manifest, scratch, dataset=source.dataset)
    positions = random.Random(0).sample(range(len(cached)), min(len(cached), _READ_AT_MOST))
    if not positions:
        return None
    if source.blueprint.samples is None:
        positions = list(range(len(positions)))  # a stream is read from its beginning, without gaps
    numbers = [cached.sample_number(position) for position in positions]
    ratios = []
    for attempt in range(_READ_TIMES + 1):
        own = _seconds(_without(source), numbers)
        ours = _seconds(cached.__getitem__, positions)
        if attempt:
            ratios.append(own / ours)
    return statistics.median(ratios)


def _without(source: Surveyed) -> Callable[[int], Any]:
    """Samples without the cache."""
    if source.blueprint.samples is None:
        return stream(source.dataset, None)
    return getter(source.dataset, None)


def _seconds(get: Callable[[int], Any], indices: list[int]) -> float:
    begun = time.perf_counter()
    for index in indices:
        get(index)
    return time.perf_counter() - begun
