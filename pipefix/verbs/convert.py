"""convert: make a cache, or say what it would take and bring."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pipefix.caches import convert as conversion
from pipefix.caches import forecast as forecasting
from pipefix.caches.convert import Converted, State
from pipefix.caches.forecast import Forecast
from pipefix.report import conversion as telling
from pipefix.verbs.target import Progress, load_target, silent


def convert(
    target: Any,
    *,
    to: str = "lmdb",
    store: str = "source",
    out: str | Path | None = None,
    size: int | None = None,
    quality: int = 90,
    workers: int | None = None,
    on_bad: str = "raise",
    max_bad: float = 0.01,
    tokenizer: str | None = None,
    text: str | None = None,
    limit: int | None = None,
    update: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Store what ``target`` reads or makes in a cache, or go on with one that was begun."""
    recipe = conversion.recipe_of(to, store, size, quality, on_bad, max_bad, tokenizer, text, limit)
    say = progress or silent
    say("loading the target", 0.0)
    subject = load_target(target)
    folder = Path(out) if out is not None else Path(f"cache-{store}")
    return conversion.convert(
        subject.dataset, recipe, folder, target=subject.target, workers=workers, update=update, progress=_Pace(say)
    )


def forecast(
    target: Any,
    *,
    to: str = "lmdb",
    store: str = "source",
    out: str | Path | None = None,
    size: int | None = None,
    quality: int = 90,
    workers: int | None = None,
    on_bad: str = "raise",
    max_bad: float = 0.01,
    tokenizer: str | None = None,
    text: str | None = None,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Forecast:
    """What `convert` would take and bring, from a sample."""
    recipe = conversion.recipe_of(to, store, size, quality, on_bad, max_bad, tokenizer, text, limit)
    say = progress or silent
    say("loading the target", 0.0)
    subject = load_target(target)
    folder = Path(out) if out is not None else Path(f"cache-{store}")
    return forecasting.forecast(subject.dataset, recipe, folder, target=subject.target, workers=workers, progress=_Pace(say))


class _Pace:
    """A conversion's state as a sentence and the part done."""

    def __init__(self, say: Progress) -> None:
        self._say = say
        self._begun: float | None = None

    def __call__(self, state: State) -> None:
        now = time.perf_counter()
        new = state.done - state.before
        if new and self._begun is None:
            self._begun = now
        pace = new / (now - self._begun) if self._begun is not None and now > self._begun + 0.5 else 0.0
        words = telling.doing(
            state.phase, done=state.done, samples=state.samples, written=state.written, read=state.read, a_second=pace
        )
        self._say(words, state.done / state.samples if state.samples else 0.0)
