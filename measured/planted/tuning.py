"""Turns the dials of a planted pipeline until each stage really costs what was planted, by the clocks of the ledger."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from measured.planted import batching, formats, ledger, quiet, sources
from measured.planted.pipelines import Pipeline, Planted, assemble, lay_out

SAMPLES = 16
"""Samples run for one reading of the dials."""
_ROUNDS, _CLOSE, _VERY_CLOSE = 4, 0.03, 0.015
"""The dials are turned this often at most, or until every stage is this near to what was planted (very near, to be balanced)."""
_ROUND_S = 20e-6
"""About what one round of augmenting work takes; the tuning finds the real figure."""
_MATRIX_S = 8e-6
"""The same for one matrix product of the step."""


def direct(pipeline: Pipeline, samples: int = SAMPLES) -> dict[str, float]:
    """Seconds a sample per stage, from samples fetched and collated in this process: CPU seconds of work, wall seconds of waiting.

    (The CPU clock does not count what other programs took away meanwhile.)
    """
    planted = pipeline.planted
    ledger.clear()
    batch: list[Any] = []
    stream = iter(pipeline.dataset) if planted.shape == "stream" else None
    wanted = -(-samples // planted.batch_size) * planted.batch_size
    for index in range(wanted):
        if planted.shape == "batched":
            if (index + 1) % planted.batch_size == 0:
                batch = pipeline.dataset.__getitems__(list(range(index + 1 - planted.batch_size, index + 1)))
        else:
            batch.append(next(stream) if stream is not None else pipeline.dataset[index % len(pipeline.dataset)])
        if len(batch) == planted.batch_size:
            pipeline.collate(batch)
            batch = []
    return {stage: found.wall_s if stage in planted.waits else found.cpu_s for stage, found in ledger.spent().items()}


def steady(pipeline: Pipeline, samples: int = SAMPLES, readings: int = 3) -> dict[str, float]:
    """The median of several readings: another program spoils one of them, not all."""
    found = [direct(pipeline, samples) for _ in range(readings)]
    return {stage: statistics.median(one[stage] for one in found) for stage in found[0]}


@dataclass(frozen=True)
class Dial:
    """One stage's knob: how to turn it, and where to begin."""

    turn: Callable[[float], None]
    guess: float
    """Amount for one second."""


def dials(pipeline: Pipeline) -> dict[str, Dial]:
    planted = pipeline.planted
    waits = planted.waits
    source: Any = pipeline.source

    def storage(amount: float) -> None:
        source.amount = amount

    def augment(amount: float) -> None:
        pipeline.rounds.amount = amount

    guess = sources.GUESS.get(planted.storage, 1e6)
    collate = 1e6 if "collate" in waits else batching.GUESS[planted.collate]
    return {
        "storage": Dial(storage, guess),
        "decode": Dial(pipeline.encode, 1 / formats.GUESS[planted.format]),
        "augment": Dial(augment, 1e6 if "augment" in waits else 1 / _ROUND_S),
        "collate": Dial(pipeline.collate.set, collate),
    }


def tune_samples(pipeline: Pipeline) -> None:
    """Storage, decode, augment and collate, all at once: each has a base cost and a slope, and two readings give both."""
    knobs = dials(pipeline)
    costs = pipeline.planted.costs
    direct(pipeline, 8)
    base = steady(pipeline, 8)
    amounts = {stage: knob.guess * max(0.0, costs.get(stage, 0.0) - base[stage]) for stage, knob in knobs.items()}
    close = _VERY_CLOSE if pipeline.planted.truth == "balanced" else _CLOSE
    for _ in range(_ROUNDS):
        for stage, amount in amounts.items():
            knobs[stage].turn(amount)
        found = steady(pipeline)
        if all(abs(found[stage] / costs[stage] - 1) < close for stage, amount in amounts.items() if amount > 0):
            return
        for stage, amount in amounts.items():
            planted, spent = costs.get(stage, 0.0) - base[stage], found[stage] - base[stage]
            if planted > 0 and spent > 0:
                amounts[stage] = amount * min(4.0, max(0.25, planted / spent))
    for stage, amount in amounts.items():
        knobs[stage].turn(amount)


def tune_step(pipeline: Pipeline) -> None:
    """The real consumer's dial; an emulated one needs none."""
    planted = pipeline.planted
    pipeline.step_s = planted.step_s
    if planted.consumer != "real":
        return
    step = pipeline.step
    wanted = planted.step_s * planted.batch_size
    step.amount = wanted * 1e6 if step.waits else wanted / _MATRIX_S
    batch = {"labels": [0] * planted.batch_size}
    step(batch)
    for _ in range(3):
        taken = []
        for _ in range(5):
            begun = time.perf_counter()
            step(batch)
            taken.append(time.perf_counter() - begun)
        step.amount *= wanted / statistics.median(taken)


def pace(
    loader: DataLoader[Any], seconds: float, step: Callable[[Any], object] | None = None, skip: int | None = None
) -> tuple[float, float]:
    """Run a plain loop over the loader: seconds a batch, and the part of them spent waiting for batches.

    The first batches are left out: they were made before anybody waited.
    """
    if skip is None:
        skip = 1 + 3 * loader.num_workers
    batches, waited, begun, total = 0, 0.0, 0.0, 0.0
    deadline = time.perf_counter() + seconds
    while total < seconds:
        left = skip
        iterator = iter(loader)
        begun, counted = 0.0, 0
        while True:
            asked = time.perf_counter()
            batch = next(iterator, None)
            got = time.perf_counter()
            if batch is None:
                break
            if left == 0:
                waited += got - asked
                counted += 1
            if step is not None:
                step(batch)
            if left > 0:
                left -= 1
                if left == 0:
                    begun = time.perf_counter()
                    deadline = begun + seconds - total
            elif time.perf_counter() >= deadline:
                break
        if counted:
            total += time.perf_counter() - begun
            batches += counted
        del iterator
        if not counted and skip == 0:
            break
        skip = min(skip, max(0, skip - 1)) if not counted else skip
    return total / max(1, batches), waited / max(total, 1e-9)


def handover(pipeline: Pipeline, seconds: float = 0.35) -> float:
    """Seconds a sample that the loader needs to hand batches over when making them costs next to nothing."""
    collate, amount = pipeline.collate, pipeline.collate.amount
    ready: Any = Ready(pipeline)
    loader: DataLoader[Any] = DataLoader(ready, batch_size=None, num_workers=pipeline.planted.workers, collate_fn=as_it_is)
    try:
        return pace(loader, seconds)[0] / pipeline.planted.batch_size
    finally:
        collate.amount = amount


def as_it_is(batch: Any) -> Any:
    """Instead of the default, which would make tensors of arrays."""
    return batch


class Ready:
    """Whole batches, collated anew from samples made beforehand, so that only the hand-over costs."""

    def __init__(self, pipeline: Pipeline) -> None:
        planted = pipeline.planted
        samples = (
            iter(pipeline.dataset)
            if planted.shape == "stream"
            else (pipeline.dataset[index] for index in range(planted.batch_size))
        )
        self.samples = [next(samples) for _ in range(planted.batch_size)]
        self.collate = type(pipeline.collate)(pipeline.collate.style, pipeline.collate.payload)

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> Any:
        return self.collate(self.samples)


def tune_handover(pipeline: Pipeline) -> None:
    """The payload's size, so that handing it over takes what was planted."""
    planted = pipeline.planted
    wanted = planted.costs.get("ipc", 0.0)
    if not planted.workers or not wanted:
        return
    base = handover(pipeline)
    if wanted <= base * 1.1:
        return
    size = (wanted - base) / batching.PAYLOADS[pipeline.payload.kind]
    for _ in range(3):
        pipeline.payload.resize(size)
        found = handover(pipeline)
        if abs(found / wanted - 1) < 0.1:
            return
        size *= min(4.0, max(0.25, (wanted - base) / max(1e-6, found - base)))
    pipeline.payload.resize(size)


def tune_supply(pipeline: Pipeline, seconds: float = 0.6) -> None:
    """With workers, the step is set against what the workers were found to supply."""
    planted = pipeline.planted
    if not planted.workers or not planted.step_s or planted.consumer == "none":
        return
    from measured.planted.truth import supply_s

    found = quiet_pace(pipeline, seconds) / planted.batch_size
    ratio = found / supply_s(planted.costs, planted.workers)
    pipeline.step_s = planted.step_s * ratio
    pipeline.step.amount *= ratio


def quiet_pace(pipeline: Pipeline, seconds: float) -> float:
    """Seconds a batch of the loader alone, at a moment when other programs leave the processor alone (the calmest of a few)."""
    calmest, found = float("inf"), 0.0
    for _ in range(4):
        others = quiet.Others()
        batch = pace(pipeline.loader, seconds)[0]
        share = others.share()
        if share < calmest:
            calmest, found = share, batch
        if calmest < quiet.BUSY:
            break
        time.sleep(0.3)
    return found


def build(planted: Planted) -> Pipeline:
    """The pipeline, tuned: it spends what ``planted`` says."""
    pipeline = lay_out(planted)
    try:
        assemble(pipeline)
        tune_samples(pipeline)
        tune_handover(pipeline)
        tune_step(pipeline)
        assemble(pipeline)
        tune_supply(pipeline)
    except BaseException:
        pipeline.close()
        raise
    ledger.clear()
    return pipeline
