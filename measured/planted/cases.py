"""Draws planted pipelines: every limiting stage in turn, dominance 1.2 to 10, with and without workers, working and waiting."""

from __future__ import annotations

import math
import random

from measured.planted import batching, formats, sources
from measured.planted.pipelines import Planted
from measured.planted.truth import POOL, supply_s

TRUTHS = ("storage", "decode", "augment", "collate", "ipc", "step", "balanced")
FLOOR = {"storage": 0.06e-3, "decode": 0.15e-3, "augment": 0.25e-3, "collate": 0.04e-3, "step": 0.1e-3}
"""What a stage costs at least: opening one small file, decoding one tiny picture, cropping it, stacking it."""
LIBRARY_AUGMENT = 0.5e-3
"""Colour jitter alone takes this."""
BATCH_S = 0.060
"""Batches much longer than this would leave a short probe too few of them."""


def draw(count: int, seed: int = 0) -> list[Planted]:
    """``count`` pipelines; the n-th is the same whatever the count."""
    return [_draw(number, random.Random(f"{seed}/{number}")) for number in range(count)]


def _draw(number: int, rng: random.Random) -> Planted:
    truth = TRUTHS[number % len(TRUTHS)]
    low, high = (1.2, 2.0) if rng.random() < 0.4 else (1.2, 10.0)
    dominance = math.exp(rng.uniform(math.log(low), math.log(high)))
    workers = rng.choice((1, 1, 2)) if truth == "ipc" else rng.choice((0, 0, 0, 1, 1, 2, 2))
    consumer = rng.choice(("none", "emulated", "emulated", "real"))
    if truth in ("step", "ipc") and consumer == "none":
        consumer = "emulated"
    waits = _waits(rng, truth)
    if "storage" in waits and truth == "storage" and workers and rng.random() < 0.5:
        workers = 4
    if consumer == "real" and workers > 1:
        waits.add("step")
    costs = _costs(rng, truth, dominance, workers, consumer)
    shape = rng.choice(("map", "map", "methods", "inline", "batched", "stream", "folder"))
    kind = rng.choice(("cv2", "zlib")) if shape == "inline" else rng.choice(tuple(formats.ENCODERS))
    total = supply_s(costs, workers) + costs.get("step", 0.0)
    sizes = [size for size in (4, 8, 16) if size * total <= BATCH_S] or [4]
    uneven = (0.0, 0.0, 0.1) if truth == "balanced" else (0.0, 0.0, 0.15, 0.35)
    return Planted(
        name=f"{number:03d}-{truth}-{dominance:.2f}-w{workers}" if truth != "balanced" else f"{number:03d}-balanced-w{workers}",
        truth=truth,
        costs=costs,
        workers=workers,
        batch_size=rng.choice(sizes),
        waits=tuple(sorted(waits)),
        storage=_source(rng, costs["storage"]) if "storage" in waits else rng.choice(tuple(sources.CPU_SOURCES)),
        format=kind,
        pieces=rng.choice((1, 1, 2, 3)),
        transforms="library" if costs["augment"] > LIBRARY_AUGMENT and rng.random() < 0.5 else "own",
        collate=rng.choice(("pad", "merge")),
        payload=rng.choice(tuple(batching.PAYLOADS)),
        shape=shape,
        consumer=consumer,
        sampler=rng.choice(("shuffle", "sequential", "own", "replacement")),
        persistent=rng.random() < 0.3,
        unevenness=rng.choice(uneven),
        seed=number,
    )


def _source(rng: random.Random, cost: float) -> str:
    """Clients that cost CPU of their own are planted only where the waiting outweighs it."""
    fitting = [name for name, least in (("socket", 0.0), ("urllib", 2.5e-3), ("requests", 3.5e-3)) if cost >= least]
    return rng.choice(fitting)


def _waits(rng: random.Random, truth: str) -> set[str]:
    found = {
        stage for stage, chance in (("storage", 0.45), ("augment", 0.12), ("collate", 0.12), ("step", 0.6)) if rng.random() < chance
    }
    if truth in ("decode", "ipc"):
        found -= {"augment"}
    return found


def _costs(rng: random.Random, truth: str, dominance: float, workers: int, consumer: str) -> dict[str, float]:
    if truth == "balanced":
        return _balanced(rng, workers, consumer)
    top = max(math.exp(rng.uniform(math.log(1.5e-3), math.log(5e-3))), 0.3e-3 * dominance)
    if truth == "ipc":
        top = min(top, 3e-3)
        return _ipc(rng, top, top / dominance)
    next_to = top / dominance
    has_step = consumer != "none"
    others = [stage for stage in POOL if stage != truth]
    if workers == 0:
        others += ["step"] if has_step and truth != "step" else []
        second = rng.choice(others)
        costs = {stage: _below(rng, stage, next_to) for stage in others}
        return costs | {second: max(next_to, FLOOR[second]), truth: top}
    if truth == "step":
        weights = {stage: rng.uniform(0.2, 1.0) for stage in POOL}
        scale = next_to * workers / sum(weights.values())
        costs = {stage: max(FLOOR[stage], weight * scale) for stage, weight in weights.items()}
        return costs | {"step": dominance * supply_s(costs, workers)}
    second = rng.choice([*others, "step"] if has_step else others)
    costs = {stage: _below(rng, stage, next_to) for stage in others} | {truth: top}
    if second != "step":
        costs[second] = max(next_to, FLOOR[second])
    if has_step:
        limit = supply_s(costs, workers) / dominance
        costs["step"] = limit if second == "step" else limit * rng.uniform(0.2, 0.95)
    return costs


def _below(rng: random.Random, stage: str, limit: float) -> float:
    return max(FLOOR[stage], limit * rng.uniform(0.1, 0.9))


def _ipc(rng: random.Random, top: float, limit: float) -> dict[str, float]:
    """The hand-over against all that the workers do besides, and against the step; one of the two comes next to it."""
    pool = {stage: max(FLOOR[stage], rng.uniform(0.2, 1.0)) for stage in POOL}
    step_is_next = rng.random() < 0.5
    wanted = limit * (rng.uniform(0.3, 0.9) if step_is_next else 1.0)
    scale = wanted / sum(pool.values())
    costs = {stage: max(FLOOR[stage], value * scale) for stage, value in pool.items()}
    return costs | {"ipc": top, "step": limit if step_is_next else limit * rng.uniform(0.2, 0.9)}


def _balanced(rng: random.Random, workers: int, consumer: str) -> dict[str, float]:
    """Without workers two stages cost the same; with workers the step takes as long as the supply, or two stages of the pool do."""
    top = math.exp(rng.uniform(math.log(1.5e-3), math.log(4e-3)))
    has_step = consumer != "none"
    costs = {stage: max(FLOOR[stage], top * rng.uniform(0.1, 0.6)) for stage in POOL}
    if workers and has_step:
        costs[rng.choice(POOL)] = top
        return costs | {"step": supply_s(costs, workers)}
    stages = [*POOL, "step"] if has_step and not workers else list(POOL)
    if has_step and not workers:
        costs["step"] = max(FLOOR["step"], top * rng.uniform(0.1, 0.6))
    # Two stages whose cost stays put: what a file read takes wanders by more than balance allows.
    return costs | dict.fromkeys(rng.sample([stage for stage in stages if stage != "storage"], 2), top)
