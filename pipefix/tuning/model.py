"""How throughput grows, bends and falls with the number of workers: what a few measured counts say about all others. Pure.

No single law holds. The Universal Scalability Law knows contention and coherence, but no core count; a roofline knows cores and
storage, but nothing that falls again; some pipelines are fastest without any worker. So a few thousand curves are drawn from what
is known of pipelines beforehand (a making time, the part of it that computes, the cores, hand-over in the worker and in the
training process, the USL's two coefficients, a storage ceiling, edges beyond which it falls). Each is weighted by how well it
explains what was measured, and a smooth residual lets the truth lie beside all of them. What comes out is a cloud of curves: its
middle is the forecast, its width the doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CURVES = 6000
DRAWS = 400
RESIDUAL = 0.06
"""Standard deviation, in logarithms, by which a pipeline may lie beside the best curve."""
REACH = 0.35
"""How far along log(1 + workers) a residual reaches."""
UNKNOWN_SCALE = 400.0
"""Variance of the logarithm of the scale: nothing is known of it."""


@dataclass(frozen=True)
class Point:
    """One measured count."""

    workers: int
    rate: float
    """What the loader supplies."""
    doubt: float
    """Standard deviation of its logarithm."""


@dataclass(frozen=True)
class Cloud:
    """Curves that explain the points, each as likely as the others: supply by number of workers."""

    counts: Floats
    draws: Floats
    """(curve, count): logarithm of the supply."""

    def at(self, workers: int) -> Floats:
        """Draws of log supply with so many workers."""
        return self.draws[:, int(np.searchsorted(self.counts, workers))]

    def forecast(self, workers: int) -> float:
        return float(np.exp(np.median(self.at(workers))))


@lru_cache(maxsize=16)
def _prior(places: tuple[float, ...], cores: float, seed: int) -> Floats:
    """(curve, count): log supply of pipelines as they are, before anything was measured."""
    counts = np.asarray(places)
    draw = np.random.default_rng(seed)

    def column(values: Floats) -> Floats:
        return np.asarray(values, dtype=float)[:, None]

    def between(low: float, high: float) -> Floats:
        return column(np.exp(draw.uniform(np.log(low), np.log(high), CURVES)))

    def some(share: float, values: Floats, otherwise: float) -> Floats:
        return np.where(column(draw.random(CURVES)) < share, values, otherwise)

    computing = np.where(column(draw.random(CURVES)) < 0.6, column(draw.uniform(0.85, 1.0, CURVES)), between(0.01, 0.85))
    crowd = np.exp(0.12 * column(draw.standard_normal(CURVES)))
    physical = some(0.35, column(np.full(CURVES, 0.5)), 1.0)
    second_thread = column(draw.uniform(0.05, 0.45, CURVES))
    sending = some(0.8, between(0.002, 0.2), 0.5) * some(0.85, column(np.ones(CURVES)), 3.0)
    taking = between(0.0005, 0.6)
    alpha = some(0.5, between(0.002, 0.4), 0.0)
    beta = some(0.55, between(1e-5, 0.03), 0.0)
    ceiling = some(0.4, between(0.6, 100.0), 1e9)
    cliff = some(0.2, between(2.0, 64.0), 1e9)
    steep = between(0.1, 1.5)
    edge = np.where(column(draw.random(CURVES)) < 0.3, cores, between(2.0, 64.0))
    fall = some(0.25, column(draw.uniform(0.3, 0.95, CURVES)), 1.0)
    """What is left beyond an edge: memory that ended, a second socket, a server that refuses."""
    sharp = between(3.0, 30.0)
    over = some(0.3, between(0.003, 0.12), 0.0)
    """Share of a core's work that every process beyond the cores costs: caches, switches."""

    n = np.maximum(counts[None, :], 1e-9)
    ones = n / (1 + alpha * (n - 1) + beta * n * (n - 1))
    busy = computing + sending
    together = ones / (1 + sending)
    full = cores * crowd
    runnable = np.minimum(n * busy / (1 + sending), full)
    first = full * physical
    usable = np.minimum(runnable, first) + second_thread * np.maximum(0.0, runnable - first)
    cpu_bound = usable / busy / (1 + over * np.maximum(0.0, n - full))
    limits = [together, cpu_bound, np.broadcast_to(ceiling, together.shape), np.broadcast_to(1 / taking, together.shape)]
    supply = sum(np.power(limit, -sharp) for limit in limits) ** (-1 / sharp)
    supply = supply * np.power(np.maximum(n / cliff, 1.0), -steep) * np.where(n > edge + 0.5, fall, 1.0)
    alone = np.minimum(1.0, ceiling) * np.ones_like(supply[:, :1])
    return np.asarray(np.log(np.where(counts[None, :] < 0.5, alone, supply)))


def fit(points: Sequence[Point], counts: Sequence[int], *, cores: float, ceiling: float | None = None, seed: int = 0) -> Cloud:
    """The curves through ``points``. ``ceiling``: what the cores can make at most, from the CPU time of a sample."""
    grid = np.asarray(sorted({*counts, *(point.workers for point in points)}), dtype=float)
    prior = _prior(tuple(grid.tolist()), cores, seed)
    draw = np.random.default_rng(seed + 1)
    if not points:
        chosen = draw.integers(0, CURVES, DRAWS)
        return Cloud(grid, prior[chosen])
    places = np.searchsorted(grid, [point.workers for point in points])
    logs = np.log([point.rate for point in points])
    residual = RESIDUAL**2 * _kernel(grid, grid)
    noise = np.diag([point.doubt**2 for point in points])
    seen = residual[np.ix_(places, places)] + noise + UNKNOWN_SCALE
    missed = logs[None, :] - prior[:, places]
    solved = np.linalg.solve(seen, missed.T).T
    fit_of = -0.5 * np.einsum("ij,ij->i", missed, solved)
    cross = residual[:, places] + UNKNOWN_SCALE
    if ceiling is not None:
        highest = prior.max(axis=1) + missed.mean(axis=1)
        fit_of -= 0.5 * (np.maximum(0.0, highest - np.log(1.15 * ceiling)) / 0.1) ** 2
    weights = np.exp(fit_of - fit_of.max())
    chosen = draw.choice(CURVES, DRAWS, p=weights / weights.sum())
    middle = prior[chosen] + solved[chosen] @ cross.T
    spread = residual + UNKNOWN_SCALE - cross @ np.linalg.solve(seen, cross.T)
    values, vectors = np.linalg.eigh((spread + spread.T) / 2)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return Cloud(grid, middle + draw.standard_normal((DRAWS, len(grid))) @ root.T)


def _kernel(one: Floats, other: Floats) -> Floats:
    apart = np.log1p(one)[:, None] - np.log1p(other)[None, :]
    return np.asarray(np.exp(-0.5 * (apart / REACH) ** 2))
