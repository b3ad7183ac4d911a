"""Uploads a finished cache to a store: parts first, the manifest last, nothing overwritten. Stopped anywhere, it goes on.

A part's facts go after its data and index. So where a store holds a part's facts, the same as here, it holds the part.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pipefix.caches import convert as conversion
from pipefix.caches import folder as folders
from pipefix.caches import manifest as manifests
from pipefix.caches.convert import Converted, Progress, State
from pipefix.caches.layout import MANIFEST, QUARANTINE, beside, is_of_cache
from pipefix.caches.manifest import Manifest, Recipe
from pipefix.stores.opening import open_store
from pipefix.stores.store import NoSuchObject, Span, Store
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.files import read_regular

_COMPARED = 1 << 16
"""Bytes of an object by which it is known as one that an interrupted conversion put: of its length, with the same beginning."""
_ELSEWHERE = "Give the new one a place of its own: --out s3://BUCKET/OTHER"
home = Path()
"""Where caches are made that go to stores: in the working directory, or in that of the command whose work is done in a program."""


def publish(folder: Path, manifest: Manifest, store: Store, say: Callable[[int, int], None]) -> None:
    """Bring the cache in ``folder`` to the store; parts that are there are not put again."""
    there = store.list()
    _require_ours(folder, store, there)
    for number, part in enumerate(manifest.parts):
        say(number, len(manifest.parts))
        data = part.data(number, manifest.recipe.container)
        *names, facts = [path.as_posix() for path in (data, beside(data, ".idx"), beside(data, ".facts"))]
        whole = facts in there and [there.get(name) for name in names] == [part.bytes, part.index_bytes]
        if whole and store.get(facts) == (folder / facts).read_bytes():
            continue
        for name in (*names, facts):
            store.put(name, folder / name)
    if (folder / QUARANTINE).exists():
        store.put(QUARANTINE, folder / QUARANTINE)
    text = (folder / MANIFEST).read_bytes()
    if not store.put(MANIFEST, text, if_absent=True):
        same = False
        with contextlib.suppress(NoSuchObject):
            same = store.get(MANIFEST) == text
        if not same:
            raise BadUsage(f"{store.url} holds another finished cache by now: its manifest was left as it is.", advice=_ELSEWHERE)


def convert_to_store(
    dataset: Any, recipe: Recipe, url: str, staging: Path, *, target: str = "", workers: int | None = None,
    progress: Progress = lambda _: None,
) -> Converted:  # fmt: skip
    """Make a cache in the directory ``staging``, bring it to the store, and remove it here."""
    store = open_store(url)
    with contextlib.suppress(NoSuchObject):
        there = manifests.of_text(store.get(MANIFEST), f"{store.url}/{MANIFEST}")
        if not recipe.is_same_work(there.recipe):
            problem = f"{store.url} is a finished cache already, of another recipe: {there.recipe.beside(recipe)}."
            raise BadUsage(problem, advice=_ELSEWHERE)
        folders.remove(staging)
        return Converted(staging, there, 0.0, 0, len(there.parts), url=store.url, compared=False)
    if others := [name for name in store.list() if not is_of_cache(name)]:
        raise _others(store, others[0])
    make = partial(conversion.convert, dataset, recipe, staging, target=target, workers=workers, progress=progress)
    converted = make()
    if converted.changed:  # it was finished before, and is not in the store yet
        converted = make(update=True)
    state = State(samples=converted.manifest.samples, done=converted.manifest.samples, before=converted.manifest.samples)
    begun = time.perf_counter()

    def say(number: int, count: int) -> None:
        state.phase = f"bringing part {number + 1} of {count} to the store"
        progress(state)

    publish(staging, converted.manifest, store, say)
    folders.remove(staging)
    return replace(converted, seconds=converted.seconds + time.perf_counter() - begun, url=store.url, finished=True)


def _require_ours(folder: Path, store: Store, there: Mapping[str, int]) -> None:
    """Whatever lies in the store has been put there by this same conversion, or is somebody's, and nothing is put over it."""
    for name, size in there.items():
        if name == MANIFEST:
            continue  # of another who was quicker, which `publish` tells
        path, length = folder / name, min(size, _COMPARED)
        same_size = is_of_cache(name) and path.is_file() and path.stat().st_size == size
        if not same_size or store.ranges([Span(name, 0, length)])[0] != read_regular(path, length):
            raise _others(store, name)


def _others(store: Store, name: str) -> BadUsage:
    return BadUsage(f"{store.url} holds other things, such as {name!r}: nothing is written there.", advice=_ELSEWHERE)


def staging_of(url: str) -> Path:
    """Where a cache is made that goes to this store: the same place for the same URL, so that the same command goes on."""
    return Path(home, f"pipefix-staging-{hashlib.sha256(open_store(url).url.encode()).hexdigest()[:12]}").absolute()
