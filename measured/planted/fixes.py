"""Fixes that are really applied to planted pipelines, to hold predicted speed-ups against measured ones.

Which prediction is taken:

- another number of workers: the remedy ``workers-N`` of the run file;
- files in memory: the storage stage's marginal gain;
- samples stored decoded: ``cache-decoded`` where the run file has it, else none;
- pixels decoded beforehand (bytes still read), augmentation removed, collate replaced: the stage's marginal gain.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from measured.planted import sources, tuning
from measured.planted.pipelines import Pipeline, Planted, assemble
from measured.planted.truth import truth_of
from pipefix.vocabulary.quantity import usable


@dataclass(frozen=True)
class Fix:
    """One pipeline and what is changed in it."""

    planted: Planted
    workers: int | None = None
    without: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        if self.workers is not None:
            return f"workers {self.planted.workers} -> {self.workers}"
        names = {
            ("storage",): "files moved to memory",
            ("decode",): "pixels decoded beforehand",
            ("storage", "decode"): "samples stored decoded",
            ("augment",): "augmentation removed",
            ("collate",): "collate replaced",
        }
        return names[self.without]

    @property
    def trials(self) -> tuple[int, ...]:
        """Worker counts that the probe tries; the planted change is among those it would choose itself."""
        return () if self.workers is None else (self.workers,)

    def predicted(self, run: Any) -> tuple[str, Any]:
        """Which figure is taken, and its interval; none where the run has no such figure."""
        remedies = {remedy.id: remedy.speedup for remedy in run.remedies if usable(remedy.speedup)}
        gains = {figure.stage: figure.marginal_gain for figure in run.stages if usable(figure.marginal_gain)}
        if self.workers is not None:
            return f"remedy workers-{self.workers}", remedies.get(f"workers-{self.workers}")
        if self.without == ("storage", "decode"):
            return "remedy cache-decoded", remedies.get("cache-decoded")
        return f"marginal gain of {self.without[0]}", gains.get(self.without[0])


def changed(pipeline: Pipeline, fix: Fix) -> Pipeline:
    """The same pipeline with the fix in place; it shares the files of the first."""
    planted = dataclasses.replace(
        pipeline.planted,
        workers=pipeline.planted.workers if fix.workers is None else fix.workers,
        without=fix.without,
    )
    after = dataclasses.replace(pipeline, planted=planted, folder=pipeline.folder)
    after.step_s = pipeline.step_s
    if "collate" in fix.without:
        from measured.planted.batching import FastCollate

        after.collate = FastCollate(pipeline.collate.style, pipeline.collate.payload)
        after.collate.set(pipeline.collate.amount)
    assemble(after)
    return after


def consumer_of(pipeline: Pipeline) -> Callable[[Any], object] | None:
    if pipeline.planted.consumer == "none":
        return None
    if pipeline.planted.consumer == "real":
        return pipeline.step
    seconds = pipeline.step_s * pipeline.planted.batch_size
    return lambda _: time.sleep(seconds)


def measured(before: Pipeline, after: Pipeline, *, repeats: int, seconds: float) -> list[float]:
    """Speed-ups of interleaved pairs: plain loaders, nothing timed inside them."""
    ratios = []
    for number in range(repeats):
        pair = [before, after] if number % 2 == 0 else [after, before]
        paces = {id(one): tuning.pace(one.loader, seconds, consumer_of(one))[0] for one in pair}
        ratios.append(paces[id(before)] / paces[id(after)])
    return ratios


STEADY = 0.05
"""By how much the speed-up measured after the probe may differ from that before it."""
ATTEMPTS = 3


def apply(fix: Fix, *, budget: float, repeats: int, seconds: float) -> dict[str, Any]:
    """Probe, and really change the pipeline: what comes of it is measured before the probe and after it.

    Where the two differ, the machine changed meanwhile, and no prediction can be held against such a figure: all is done again.
    What the probe said plays no part in that.
    """
    from measured.planted import judge
    from pipefix import probe

    planted, half = fix.planted, (repeats + 1) // 2
    with tuning.build(planted) as pipeline:
        target, options = judge.target_of(pipeline)
        after = changed(pipeline, fix)
        attempts, moved = 0, math.inf
        while abs(moved) > STEADY and attempts < ATTEMPTS:
            attempts += 1
            earlier = measured(pipeline, after, repeats=half, seconds=seconds)
            run = probe(target, budget=budget, trial_workers=fix.trials, **options)
            later = measured(pipeline, after, repeats=half, seconds=seconds)
            moved = statistics.median(later) / statistics.median(earlier) - 1
    figure, predicted = fix.predicted(run)
    real = statistics.median(earlier + later)
    return {
        "name": planted.name,
        "fix": fix.what,
        "figure": figure,
        "predicted": [predicted.value, predicted.low, predicted.high] if predicted is not None else None,
        "measured": real,
        "ratios": earlier + later,
        "moved": moved,
        "attempts": attempts,
        "error": predicted.value / real - 1 if predicted is not None else None,
        "verdict": run.verdict.sentence if run.verdict else "",
        "planted": dataclasses.asdict(planted),
    }


_USUAL = {"storage": 0.3e-3, "decode": 1.0e-3, "augment": 0.6e-3, "collate": 0.2e-3}
_MS = 1e-3


def plant(name: str, workers: int = 0, step: float = 0.0, source: str = "open", **options: Any) -> Planted:
    """Costs in milliseconds; what is not said is the usual."""
    costs = {stage: options.pop(stage) * _MS if stage in options else usual for stage, usual in _USUAL.items()}
    if "ipc" in options:
        costs["ipc"] = options.pop("ipc") * _MS
    if step:
        costs["step"] = step * _MS
        options.setdefault("consumer", "emulated")
    if source in sources.WAITING_SOURCES:
        options["waits"] = ("storage", *options.get("waits", ()))
    style = options.pop("batcher", "pad")
    limiting = options.pop("truth", None) or truth_of(costs, workers).label
    return Planted(name=name, truth=limiting, costs=costs, workers=workers, storage=source, collate=style, **options)


FIXES = (
    Fix(plant("a worker for slow decoding", decode=3), workers=1),
    Fix(plant("a worker beside a step", decode=2, step=2.5), workers=1),
    Fix(plant("two workers for PNG", decode=3, augment=1.5, format="png"), workers=2),
    Fix(plant("two workers until the step limits", decode=2.5, step=2, format="cv2"), workers=2),
    Fix(plant("two workers for batched fetching", decode=2.5, shape="batched"), workers=2),
    Fix(plant("a worker for a source that waits", storage=4, source="socket"), workers=1),
    Fix(plant("a second worker", workers=1, decode=3, augment=1.2), workers=2),
    Fix(plant("a second worker until the step limits", workers=1, decode=2.5, step=2.2), workers=2),
    Fix(plant("a second worker for a stream", workers=1, decode=2.5, shape="stream", format="npz"), workers=2),
    Fix(plant("one worker fewer", workers=2, decode=2.5), workers=1),
    Fix(plant("one worker fewer under a slow step", workers=2, decode=1.5, step=5), workers=1),
    Fix(plant("four workers that wait", workers=2, storage=6, decode=0.5, augment=0.3, source="socket"), workers=4),
    Fix(plant("four workers that wait over HTTP", workers=2, storage=8, decode=0.4, augment=0.3, source="urllib"), workers=4),
    Fix(plant("many small reads from memory", storage=2.5, source="open"), without=("storage",)),
    Fix(plant("ranges from memory", storage=2, source="pread", step=1), without=("storage",)),
    Fix(plant("a waiting source from memory", storage=4, source="socket", format="npz"), without=("storage",)),
    Fix(plant("a worker's reads from memory", workers=1, storage=2.5, source="pathlib"), without=("storage",)),
    Fix(plant("two workers' waiting from memory", workers=2, storage=5, source="socket"), without=("storage",)),
    Fix(plant("JPEG decoded beforehand", decode=3), without=("decode",)),
    Fix(plant("PNG decoded beforehand in a worker", workers=1, decode=3, format="png", shape="methods"), without=("decode",)),
    Fix(plant("inline decoding done beforehand", decode=2.5, shape="inline", format="cv2", step=1), without=("decode",)),
    Fix(plant("samples stored decoded", storage=1, decode=2.5), without=("storage", "decode")),
    Fix(plant("samples stored decoded, two workers", workers=2, storage=1, decode=3, step=0.8), without=("storage", "decode")),
    Fix(plant("no augmentation", augment=3, shape="folder"), without=("augment",)),
    Fix(plant("no augmentation in a worker", workers=1, augment=3, transforms="library"), without=("augment",)),
    Fix(plant("no augmentation, two workers", workers=2, augment=3, format="torchvision", step=0.8), without=("augment",)),
    Fix(plant("collate replaced", collate=2.5), without=("collate",)),
    Fix(plant("collate replaced in a worker", workers=1, collate=2.5, format="json", batcher="merge"), without=("collate",)),
    Fix(plant("collate replaced, two workers", workers=2, collate=3, step=0.8), without=("collate",)),
    Fix(plant("two workers for inline decoding", decode=2, shape="inline", format="cv2"), workers=2),
    Fix(plant("two workers for a folder", augment=2, decode=2, shape="folder"), workers=2),
    Fix(plant("two workers beside a fast step", decode=2, augment=1, step=0.5), workers=2),
    Fix(plant("a second worker for batched fetching", workers=1, decode=2.5, shape="batched"), workers=2),
    Fix(plant("one worker fewer for a stream", workers=2, decode=2, shape="stream", format="npz"), workers=1),
    Fix(plant("HTTP from memory, one worker", workers=1, storage=6, source="urllib"), without=("storage",)),
    Fix(plant("ranges from memory, two workers", workers=2, storage=2.5, source="pread"), without=("storage",)),
    Fix(plant("arrays unpacked beforehand", decode=2.5, format="npz"), without=("decode",)),
    Fix(plant("pixels decoded beforehand, two workers", workers=2, decode=3, format="cv2", step=0.8), without=("decode",)),
    Fix(plant("samples stored decoded, one worker", workers=1, storage=1, decode=2.5), without=("storage", "decode")),
    Fix(plant("no augmentation of a library", augment=2.5, transforms="library"), without=("augment",)),
    Fix(plant("collate replaced beside a step", collate=2.5, step=1), without=("collate",)),
    Fix(plant("two workers' reads from memory", workers=2, storage=3, source="open", step=0.8), without=("storage",)),
    Fix(plant("no augmentation beside a step", augment=2.5, step=1), without=("augment",)),
    Fix(plant("PNG decoded beforehand, two workers", workers=2, decode=3, format="png"), without=("decode",)),
)
