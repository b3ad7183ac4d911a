"""pipefix.convert and forecast: store samples in a cache, or predict its size, the time it takes and its speed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Literal

from pipefix.api.target import Progress, loaded, silent
from pipefix.caches import convert as conversion
from pipefix.caches import estimate
from pipefix.caches import publish as publishing
from pipefix.report import cache_report
from pipefix.report.cache_report import ShownConversion, ShownForecast
from pipefix.report.shown import shown_as
from pipefix.stores.store import is_store
from pipefix.vocabulary.errors import BadUsage

Converted = ShownConversion
Forecast = ShownForecast
"""As users name them."""


def convert(
    target: Any,
    *,
    to: Literal["lmdb", "parquet"] = "lmdb",
    store: Literal["source", "resized", "decoded", "sample", "rows"] | None = None,
    out: str | Path | None = None,
    size: int | None = None,
    quality: int = 90,
    workers: int | None = None,
    on_bad: Literal["raise", "skip", "quarantine"] = "raise",
    max_bad: float | str = 0.01,
    tokenizer: str | None = None,
    text: str | None = None,
    limit: int | None = None,
    update: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Store what ``target`` reads or makes in a cache, or go on with one that was begun.

    Args:
        target: what `pipefix.probe` takes.
        to: format of the cache: Parquet for rows, LMDB for all else.
        store: what is kept of a sample: the bytes it read ("source", the default of LMDB), a smaller picture, decoded arrays, the
            finished sample, or a table row ("rows").
        out: directory of the cache (default: ``cache-STORE``), or a place in a store, such as ``s3://bucket/cache``.
        size: shorter side in pixels, for ``store="resized"``.
        quality: of JPEG and WebP, 1 to 100.
        workers: processes (default: one a core).
        on_bad: what a sample that raises does: end the conversion, or be left out ("quarantine" lists it in a file).
        max_bad: part of the samples that may be left out before the conversion ends: 0.01, or ``"1%"``.
        tokenizer: tokenise rows with this ``tokenizer.json``, without padding.
        text: the field that is tokenised.
        limit: take the first so many samples of a stream.
        update: make anew what is damaged, or has changed in the source since.
        progress: called with a phase and the part that is done, 0 to 1.

    Returns:
        The cache's folder and manifest, and what was made, kept and left out.
    """
    recipe = conversion.recipe_of(to, store, size, quality, on_bad, max_bad, tokenizer, text, limit)
    say = progress or silent
    if is_store(out) and update:
        problem = f"{out} is in a store: what is there is not changed."
        raise BadUsage(problem, advice="Make the new one elsewhere: --out s3://BUCKET/OTHER")
    folder = _made_in(out, recipe.store)
    subject = loaded(target, say)
    how: dict[str, Any] = {"target": subject.target, "workers": workers, "progress": _Pace(say)}
    if is_store(out):
        result = publishing.convert_to_store(subject.dataset, recipe, str(out), folder, **how)
    else:
        result = conversion.convert(subject.dataset, recipe, folder, update=update, **how)
    return shown_as(Converted, result)


def forecast(
    target: Any,
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    **recipe: Any,
) -> Forecast:
    """What `convert` would take and bring, told from a few samples that are converted and removed again.

    Args:
        target: what `pipefix.probe` takes.
        out: as `convert` takes it, and so are the next two.
        workers: processes.
        progress: called with a phase and the part that is done, 0 to 1.
        recipe: the other arguments of `convert`, but ``update``.

    Returns:
        Seconds, bytes and the reading rate of the cache that `convert` would make.
    """
    wanted, say = conversion.recipe_of(**recipe), progress or silent
    folder = _made_in(out, wanted.store)
    subject = loaded(target, say)
    result = estimate.forecast(subject.dataset, wanted, folder, target=subject.target, workers=workers, progress=_Pace(say))
    return shown_as(Forecast, result)


def _made_in(out: str | Path | None, store: str) -> Path:
    """The directory that a cache is made in: told before the target's code runs, which may change the working directory."""
    place = publishing.staging_of(str(out)) if is_store(out) else out
    return Path(os.path.abspath(place if place is not None else f"cache-{store}"))


class _Pace:
    """A conversion's state as a sentence and the part done."""

    def __init__(self, say: Progress) -> None:
        self._say = say
        self._begun: float | None = None

    def __call__(self, state: conversion.State) -> None:
        now = time.perf_counter()
        new = state.done - state.before
        if new and self._begun is None:
            self._begun = now
        pace = new / (now - self._begun) if self._begun is not None and now > self._begun + 0.5 else 0.0
        self._say(cache_report.doing(state, pace), state.done / state.samples if state.samples else 0.0)
