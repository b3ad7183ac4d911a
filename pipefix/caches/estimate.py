"""`forecast`: bytes, seconds and speed of a cache that is not made yet, from a few samples that are converted and read back."""

from __future__ import annotations

import itertools
import math
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pipefix.caches import convert as converting
from pipefix.caches import folder as folders
from pipefix.caches import pool, record
from pipefix.caches.building import Building
from pipefix.caches.convert import State
from pipefix.caches.dataset import CachedDataset
from pipefix.caches.maker import getter, is_stream
from pipefix.caches.manifest import Cut, Manifest, Recipe
from pipefix.caches.pictures import as_pixels
from pipefix.caches.survey import Surveyed, survey
from pipefix.system.resources import cores
from pipefix.vocabulary.errors import BadUsage, Interrupted, PipefixError

_ENOUGH_S = 2.0
"""A round that took this long tells the pace; a shorter one tells how many samples the next one takes."""
_BLOCKS = 24
_READ_AT_MOST = 128
_READ_TIMES = 5
MOST_BYTES = 64e6
"""Written for `read_back`: more than finds room in the caches of a processor, as the records of a real cache do not."""
MOST_RECORDS, LEAST_RECORDS = 2048, 8
"""Copies of the few samples."""
TIMES = 3


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
    dataset: Any, recipe: Recipe, folder: Path, *, target: str = "", workers: int | None = None,
    progress: Callable[[State], None] = lambda _: None,
) -> Forecast:  # fmt: skip
    """Convert a few seconds' worth beside ``folder``, and remove it again: also what an earlier one left that was killed."""
    begun = time.perf_counter()
    folder = Path(os.path.abspath(folder))
    converting.refuse_places_of_the_source(dataset, folder)
    workers = converting.workers_for(dataset, workers)
    source = survey(dataset, recipe, target, apart=workers != 0)
    surveyed_s = time.perf_counter() - begun
    samples = source.blueprint.samples or recipe.limit
    with suppress(TypeError, NotImplementedError, AttributeError):  # what a stream says of its own length
        samples = samples or len(dataset)
    if not samples:
        raise BadUsage(
            "How long a stream is cannot be told before it ends.",
            advice="Say how much of it is wanted, --limit N, or convert it without --dry-run.",
        )
    trial = folder.with_name(f".{folder.name}.pipefix-trial")
    if os.path.lexists(trial):
        raise BadUsage(
            f"{trial} exists, and a forecast is made beside it.", advice="Move it elsewhere, or name another directory: --out DIR"
        )
    with converting.told_by_the_disk(trial, kept=False):
        try:
            with folders.locked(trial) as work:
                wanted = 8 * max(1, workers if workers is not None else int(cores()))
                while True:
                    seconds, manifest = _converted(source, samples, work.path, wanted, workers, progress)
                    if source.blueprint.samples is None and _tried(manifest) < min(wanted, samples):
                        samples = _tried(manifest)  # the stream ends there, whatever the limit or it itself says
                    if wanted >= samples or seconds >= _ENOUGH_S:
                        break
                    wanted = max(2 * wanted, int(1.5 * _ENOUGH_S / seconds * _tried(manifest)))
                gain = _gain(source, manifest, work.path, apart=workers != 0)
                free = shutil.disk_usage(work.path).free
        except Interrupted:  # it tells of finished parts, and of a forecast none stay
            raise KeyboardInterrupt from None
        finally:
            folders.remove(trial)
    cut, tried = source.blueprint.cut or Cut(), _tried(manifest)
    share = samples / tried
    return Forecast(
        samples=samples, tried=tried, bytes=manifest.bytes * share, source_bytes=manifest.source.bytes * share,
        seconds=surveyed_s + seconds * share, gain=gain, free=free, kept=tuple(cut.kept), live=tuple(cut.live),
        unseen_bytes=source.unseen_bytes,
    )  # fmt: skip


def _tried(manifest: Manifest) -> int:
    return sum(part.stop - part.start for part in manifest.parts)


def _converted(
    source: Surveyed, samples: int, scratch: Path, wanted: int, workers: int | None, say: Callable[[State], None]
) -> tuple[float, Manifest]:
    """Seconds, and what was made: blocks from all over the source, or the beginning of a stream."""
    plan = source.blueprint
    wanted = min(wanted, samples)
    beginning = plan.samples is None
    blocks = 1 if beginning else max(1, min(_BLOCKS, wanted // 4))
    each = max(1, wanted // blocks)
    starts = sorted({(2 * at + 1) * samples // (2 * blocks) // each * each for at in range(blocks)})
    starts = [0] if beginning else [start for start in starts if start + each <= samples] or [0]
    trial = msgspec.structs.replace(plan, part_samples=each, starts=starts)
    with closing(Building(scratch, trial)) as building:
        folders.sweep(scratch, set(), None)  # a larger round, or one that was killed, made parts that this one does not
        building.begin()
        begun = time.perf_counter()
        converting.make_parts(Surveyed(source.dataset, trial), building, workers, State(), say)
        building.settle()
        seconds, manifest = time.perf_counter() - begun, building.manifest()
    # It is read with the very dataset that it was made from a part of.
    source_now = msgspec.structs.replace(manifest.source, attributes={})
    return seconds, msgspec.structs.replace(manifest, samples=plan.samples or manifest.samples, source=source_now)


def _gain(source: Surveyed, manifest: Manifest, scratch: Path, *, apart: bool) -> float | None:
    """The dataset and the cache, in turns, over the same samples in random order. Where ``apart``, in a process of its own, so that
    later workers do not inherit what samples open there."""

    def read(_: Any = None) -> float | None:
        cached = CachedDataset.over(manifest, scratch, dataset=source.dataset)
        positions = random.Random(0).sample(range(len(cached)), min(len(cached), _READ_AT_MOST))
        if not positions:
            return None
        if source.blueprint.samples is None:
            positions = list(range(len(positions)))  # a stream is read from its beginning, without gaps
        get, numbers = getter(source.dataset, None), [cached.sample_number(position) for position in positions]
        ratios = [_seconds(get, numbers) / _seconds(cached.__getitem__, positions) for _ in range(_READ_TIMES + 1)]
        return statistics.median(ratios[1:])

    gain: float | None = pool.apart(read) if apart and not is_stream(source.dataset) else read()
    return gain


def _seconds(get: Callable[[int], Any], indices: list[int]) -> float:
    begun = time.perf_counter()
    for index in indices:
        get(index)
    return time.perf_counter() - begun


# -- of finished samples, beside a probe -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadBack:
    """How long records took, in memory already and their checksums known."""

    seconds: tuple[float, ...] = ()
    """Of each record, each time; none where records are so large that only copying counts."""
    bytes: float = 0.0
    """Of a record, on average."""
    cache: Path | None = None
    """The records, for who wants to run a loader over them."""
    why_not: str = ""
    """Such samples cannot be stored."""


def read_back(dataset: Any, indices: Sequence[int], folder: Path, seconds: float = math.inf) -> ReadBack:
    """Store these samples as they are in ``folder``, some of them many times over, and read them in random order.

    ``seconds``: about how long storing may take, and reading: records that take long to make or to take apart are fewer.
    """
    originals = list(map(getter(dataset, None), indices))
    try:
        begun = time.perf_counter()
        each = sum(len(record.encode(as_pixels(sample))) for sample in originals) / len(originals)
        encode_s = (time.perf_counter() - begun) / len(originals)
        copies = int(min(MOST_RECORDS, MOST_BYTES / each, max(LEAST_RECORDS, seconds / max(encode_s, 1e-9))))
        if copies < LEAST_RECORDS:
            return ReadBack()
        samples = list(itertools.islice(itertools.cycle(originals), copies))
        converting.convert(samples, converting.recipe_of("lmdb", "sample"), folder / "records", workers=0)
    except (PipefixError, record.Unstorable) as error:
        return ReadBack(why_not=str(error))
    cached = CachedDataset(folder / "records")
    order = list(range(len(cached)))
    spent = []
    until = time.perf_counter() + seconds
    for turn in range(TIMES + 1):
        if turn > 1 and time.perf_counter() > until:
            break
        random.Random(turn).shuffle(order)
        for position in order:
            begun = time.perf_counter()
            cached[position]
            ended = time.perf_counter()
            if turn:  # the first time each record's checksum is compared
                spent.append(ended - begun)
    return ReadBack(tuple(spent), each, folder / "records")
