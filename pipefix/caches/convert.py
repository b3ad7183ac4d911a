"""`convert`: makes a sealed cache of a dataset. Surveys, goes on with what was begun, makes the missing parts, seals."""

from __future__ import annotations

import errno
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pipefix.audit.handle_scan import open_handles
from pipefix.caches import folder as folders
from pipefix.caches import manifest as manifests
from pipefix.caches import pool
from pipefix.caches.building import Building
from pipefix.caches.dataset import CachedDataset
from pipefix.caches.fingerprint import Fingerprint, changed
from pipefix.caches.layout import CONTAINERS, PLAN, STORES, beside, keeps
from pipefix.caches.maker import is_stream
from pipefix.caches.manifest import Blueprint, Manifest, Recipe, Source
from pipefix.caches.source_files import any_found, any_object_changed, changed_files
from pipefix.caches.survey import Surveyed, survey
from pipefix.caches.verify import PartCheck
from pipefix.caches.witness import Witness
from pipefix.caches.writer import Facts, Moved, OpenedSource, make_part, program_ended, read_facts
from pipefix.system.resources import cores
from pipefix.vocabulary.amounts import taken_share
from pipefix.vocabulary.errors import BadUsage, CacheDamaged, Interrupted, TargetError, UnreadableFile
from pipefix.vocabulary.folder_lock import unwritable
from pipefix.vocabulary.held_transforms import datasets_in
from pipefix.vocabulary.quantity import counted, percent

_LEAST_BAD = 10
DEFAULT_SIZE, QUALITY = 256, 90


@dataclass
class State:
    """How far a conversion is."""

    samples: int | None = None
    done: int = 0
    """Samples, those that an earlier run made included."""
    before: int = 0
    """Of these, samples that were there when it began."""
    written: int = 0
    read: int = 0
    phase: str = "looking at some samples"


@dataclass(frozen=True)
class Converted:
    """What came of it."""

    folder: Path
    manifest: Manifest
    seconds: float
    made: int
    """Parts that were made now."""
    found: int
    """Parts that were there already."""
    changed: tuple[int, ...] = ()
    """Parts whose source is not what it was, where nothing was asked to be done about it."""
    unseen_bytes: float = 0.0
    """Of a sample, what it reads in ways that a ``source`` cache cannot answer."""
    url: str | None = None
    """The store that it was brought to; then nothing is left in ``folder``."""
    compared: bool = True
    """Whether what was there already was held against its source."""
    finished: bool = False
    """Whether it was finished, or brought to its store, by this call; otherwise it was there, and nothing was done."""


Progress = Callable[[State], None]


def recipe_of(
    to: str = "lmdb", store: str | None = None, size: int | None = None, quality: int = QUALITY, on_bad: str = "raise",
    max_bad: float | str = 0.01, tokenizer: str | None = None, text: str | None = None, limit: int | None = None,
) -> Recipe:  # fmt: skip
    """Check what was asked for."""
    numbers: dict[str, Any] = {"size": size, "quality": quality, "limit": limit}
    for name, number in numbers.items():
        if number is not None and not isinstance(number, int):
            told = f"{name} should be an int, but got a {type(number).__name__}: {number}."
            raise BadUsage(told, advice=f"Write a whole number: {name}=256")
    if store is None:
        store = CONTAINERS[to].stores[0] if to in CONTAINERS else ""
    for choice, known in ((to, CONTAINERS), (store, STORES), (on_bad, ("raise", "skip", "quarantine"))):
        if choice not in known:
            raise BadUsage(f"There is no {choice!r} to choose.", advice=f"Choose one of {', '.join(known)}.")
    instead = f", or this as --to lmdb --store {store}" if store != "rows" else ""
    for is_wrong, message, advice in (
        (not keeps(to, store),
         f"{store} is not kept in {to}: Parquet is for rows, with their fields as columns, and LMDB for all else.",
         f"Store rows as --to parquet --store rows{instead}"),
        (size is not None and (store not in ("resized", "decoded") or size < 1), f"--size {size} does not fit --store {store}.",
         "It is the shorter side, in pixels, of resized or decoded images."),
        (not 1 <= quality <= 100, f"A quality of {quality} is not between 1 and 100.", "Leave it at 90: --quality 90"),
        (quality != QUALITY and store != "resized", f"--quality {quality} does not fit --store {store}, which encodes no pictures.",
         "It is that of JPEG and WebP in a cache of smaller pictures: --store resized"),
        ((tokenizer is None) != (text is None) or (tokenizer is not None and store != "rows"),
         "Tokenising takes a tokenizer, the field that it is used on, and --store rows.",
         "Give all three: --store rows --tokenizer tokenizer.json --text text"),
        (limit is not None and limit < 1, f"A limit of {limit} samples leaves none.", "Give at least one: --limit 100000"),
    ):  # fmt: skip
        if is_wrong:
            raise BadUsage(message, advice=advice)
    if tokenizer is not None and os.path.isfile(tokenizer):
        tokenizer = os.path.abspath(tokenizer)  # the target's code may change the working directory
    if store == "resized" and size is None:
        size = DEFAULT_SIZE
    return Recipe(
        store=store, container=to, size=size, quality=quality, on_bad=on_bad, max_bad=taken_share("max_bad", max_bad),
        tokenizer=tokenizer, text=text, limit=limit,
    )  # fmt: skip


def convert(
    dataset: Any, recipe: Recipe, folder: Path, *, target: str = "", workers: int | None = None, update: bool = False,
    progress: Progress = lambda _: None,
) -> Converted:  # fmt: skip
    """Make a cache of ``dataset`` in ``folder``, or go on where an earlier run was.

    ``update`` makes anew what of a finished cache is damaged, or not what the dataset gives today; of a stream, all.
    """
    begun = time.perf_counter()
    state = State()
    progress(state)
    folder = Path(os.path.abspath(folder))
    if os.path.islink(folder):
        folder = Path(os.path.realpath(folder))
    refuse_places_of_the_source(dataset, folder)
    workers = workers_for(dataset, workers)
    if recipe.store != "source" and any(hasattr(type(part), "set_epoch") for _, part in datasets_in(dataset)):
        instead = "" if is_stream(dataset) else " To have its code run in each of them, keep what samples read: --store source"
        warnings.warn(f"What the dataset's set_epoch changes is stored as it is now, for all epochs.{instead}", RuntimeWarning, 2)
    with folders.locked(folder, quarantine=recipe.on_bad == "quarantine") as work:
        with told_by_the_disk(folder):
            existing = None if work.is_new else _existing(folder, recipe)
            if existing is not None and is_stream(dataset) and not update:
                return Converted(folder, existing, time.perf_counter() - begun, 0, len(existing.parts), compared=False)
        source = survey(dataset, recipe, target, apart=workers != 0)
        with told_by_the_disk(folder):
            parts_kept: dict[int, Facts] = {}
            if existing is not None and not is_stream(dataset):  # what of a stream has changed cannot be told
                parts_kept, stale = _kept(source, existing, folder, update=update, say=progress)
                if not stale:
                    _end_update(folder, existing)
                if not update or not stale:
                    return Converted(folder, existing, time.perf_counter() - begun, 0, len(parts_kept), stale)
            with closing(Building(work.path, source.blueprint, existing, parts_kept)) as building:
                building.resume(_current(source, source.blueprint.source))
                parts_found = len(building.done)
                make_parts(source, building, workers, state, progress)
                parts_made = len(building.done) - parts_found
                state.phase = "bringing it to the disk"
                progress(state)
                manifest = building.seal()
            work.publish()
            folders.forget(folder / PLAN)
    seconds, unseen = time.perf_counter() - begun, source.unseen_bytes
    return Converted(folder, manifest, seconds, parts_made, parts_found, unseen_bytes=unseen, finished=True)


def refuse_places_of_the_source(dataset: Any, folder: Path) -> None:
    """Raise where ``folder`` is a cache that the dataset reads, or would be taken for one of its class folders from then on."""
    place = os.path.realpath(folder)
    for _, part in datasets_in(dataset):
        if isinstance(part, CachedDataset) and os.path.realpath(part.path) == place:
            raise BadUsage(
                f"{folder} is what the dataset itself reads its samples from.",
                advice="Give the new one a directory of its own: --out DIR. To mend this one, name what it was made of.",
            )
        root, classes = getattr(part, "root", None), getattr(part, "class_to_idx", None)
        if not isinstance(root, (str, os.PathLike)) or not isinstance(classes, dict):
            continue
        first = os.path.relpath(place, os.path.realpath(os.fspath(root))).split(os.sep)[0]
        if first not in (os.curdir, os.pardir, *classes):
            raise BadUsage(
                f"{folder} would lie among the dataset's class folders, and {first!r} would be taken for one more class.",
                advice=f"Name a directory outside {os.path.abspath(root)}: --out DIR",
            )


def workers_for(dataset: Any, workers: int | None) -> int | None:
    """0, for this process alone, where the dataset holds files open: forked ones would move each other's position in them."""
    if workers is not None and workers < 0:
        raise BadUsage(f"There cannot be {workers} workers.", advice="Give none or more: --workers 0.")
    handles = open_handles(dataset) if workers != 0 and pool.can_fork() and not is_stream(dataset) else {}
    if not handles:
        return workers
    held = ", ".join(f"{where} ({kind})" for where, kind in handles.items())
    told = f"One process reads the samples, since others would share what the dataset holds open, and its position: {held}."
    warnings.warn(f"{told} To use all cores, open it at the first __getitem__.", RuntimeWarning, stacklevel=3)
    return 0


def _existing(folder: Path, recipe: Recipe) -> Manifest:
    manifest = manifests.read(folder)
    if not recipe.is_same_work(manifest.recipe):
        was = manifest.recipe.beside(recipe)
        told = f"{folder} is a finished cache already, of another recipe: {was}; {counted(manifest.length, 'record')}."
        raise BadUsage(told, advice="Give the new one a directory of its own: --out DIR")
    return manifest


def _end_update(folder: Path, existing: Manifest) -> None:
    """Nothing is to be made anew: what an update left that was interrupted goes."""
    with suppress(OSError, CacheDamaged):
        begun = manifests.read_blueprint(folder / PLAN)
        folders.sweep(folder, existing.names, max(len(existing.parts), begun.parts or 0))
    folders.forget(folder / PLAN)


def make_parts(source: Surveyed, building: Building, workers: int | None, state: State, say: Progress) -> None:
    """Make the parts that are missing."""
    plan = building.blueprint
    state.samples = plan.samples or plan.recipe.limit
    done = building.done.values()
    state.before = state.done = sum(facts.stop - facts.start for facts in done)
    state.written, state.read = sum(facts.bytes + facts.index_bytes for facts in done), sum(facts.source_bytes for facts in done)
    state.phase = "converting"

    @contextmanager
    def process() -> Iterator[pool.Make]:
        with Witness(alone=plan.recipe.store == "source") as witness, source.hooked() as hook:
            opened = OpenedSource(source.dataset, plan, hook, witness)
            yield lambda number, tell: make_part(number, opened, building.data(number), tell)

    count = workers if workers is not None else max(1, int(cores()))
    if plan.samples is None:
        count = 0  # a stream has one reader, which goes on where the last part ended
    _check_bad(building, plan)
    try:
        for event in pool.run(building.missing(), process, count):
            if isinstance(event, Moved):
                state.done += event.samples
                state.read += event.read
                state.written += event.written
            else:
                building.finished(event.number, event.facts)
                _check_bad(building, plan)
            say(state)
    except KeyboardInterrupt:
        building.settle()
        of = f" of {plan.parts}" if plan.parts is not None else ""
        raise Interrupted(
            f"Interrupted: {building.folder} keeps {counted(len(building.done), 'finished part')}{of}.",
            advice="The same command goes on where it was.",
        ) from None


def _check_bad(building: Building, plan: Blueprint) -> None:
    """Many damaged samples are a mistake elsewhere: a wrong path, a share that was not mounted."""
    samples_read = sum(facts.stop - facts.start for facts in building.done.values())
    bad = [bad_sample for facts in building.done.values() for bad_sample in facts.bad]
    if len(bad) >= _LEAST_BAD and len(bad) > plan.recipe.max_bad * samples_read:
        first, enough = min(bad, key=lambda sample: sample.index), min(10, 10 * len(bad) // samples_read + 1)
        raise TargetError(
            f"{len(bad)} of {samples_read} samples cannot be read, more than {percent(plan.recipe.max_bad)}. The first is sample "
            f"{first.index} ({', '.join(first.files[:2]) or 'no file'}): {first.error}",
            advice=f"Mend them, or allow more: --max-bad {enough}0%",
        )


@contextmanager
def told_by_the_disk(folder: Path, *, kept: bool = True) -> Iterator[None]:
    """A disk that is full or cannot be written is told in words. ``kept``: whether parts that are finished stay."""
    try:
        yield
    except SystemExit as error:
        raise program_ended(error, "The dataset") from error
    except Exception as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or ("No space left on device" in str(error) and not isinstance(error, TargetError)):
            raise UnreadableFile(
                f"The disk that holds {folder} is full.{' Finished parts are kept.' if kept else ''}",
                advice=f"Make room and run the same command again{': it goes on where it was' if kept else ''}.",
            ) from error
        if isinstance(error, OSError):  # what the user's code raises became a damaged sample
            raise unwritable(folder, error) from error
        raise


# -- caches that are there already -------------------------------------------------------------------------------------------


def _kept(
    source: Surveyed, existing: Manifest, folder: Path, *, update: bool, say: Progress
) -> tuple[dict[int, Facts], tuple[int, ...]]:
    """Of a finished cache of the same recipe the parts whose samples come from the same lists and files, unchanged since, and the
    numbers of the others. For an update these are also parts of which not every byte is what was written."""
    plan = source.blueprint = msgspec.structs.replace(source.blueprint, part_samples=existing.part_samples)
    then, state = existing.source.attributes, State(samples=existing.samples)
    # Names are relative to the directory that the files shared then; where all of these moved, or were copied, to the new one.
    old, new = existing.source.root, plan.source.root
    moved = old is not None and new is not None and os.path.commonpath([old, new]) not in (old, new)
    comparable = plan.cut == existing.cut and plan.columns == existing.columns and bool(then)
    comparable = comparable and not (moved and plan.recipe.store == "source")  # its records are found by the names of files
    parts = existing.parts if comparable and not changed(then, plan.source.attributes) else []
    is_current = _current(source, msgspec.structs.replace(existing.source, root=new if moved else old))
    parts_kept: dict[int, Facts] = {}
    for number, part in enumerate(parts):
        if (part.start, part.stop) != plan.range(number):
            continue
        with suppress(OSError, CacheDamaged):
            facts = read_facts(beside(folder / part.data(number, existing.recipe.container), ".facts"), part.facts_crc)
            if is_current(facts):
                parts_kept[number] = facts.brief()
        if update and number in parts_kept:
            state.phase = f"checking what is there: part {number + 1} of {len(existing.parts)}"
            say(state)
            if any(PartCheck(folder, existing, number, part).problems()):
                del parts_kept[number]
    if parts_kept and old is not None and not moved:
        source.blueprint = msgspec.structs.replace(plan, source=msgspec.structs.replace(plan.source, root=old))
    count = plan.parts or 0
    stale = tuple(number for number in range(count) if number not in parts_kept)
    return parts_kept, stale or ((count,) if len(existing.parts) > count else ())


def _current(source: Surveyed, of: Source) -> Callable[[Facts], bool]:
    """Whether a part that was made ``of`` this source, as it was then, would be made of the same files and labels today."""
    plan = source.blueprint
    fingerprint = Fingerprint(source.dataset, plan.samples, [plan.source.root])

    def is_current(facts: Facts) -> bool:
        same_lists = facts.lists == fingerprint.part(facts.start, facts.stop, of.volatile)
        same_files = not any(changed_files(facts, of.root)) and not any_found(facts, of.root)
        return same_lists and same_files and not any_object_changed(facts)

    return is_current
