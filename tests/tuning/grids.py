"""Full grids of settings with the throughput of every one, and a machine that measures them with noise.

Most are curves with the shapes that pipelines were seen to have; none is drawn from the
families that the search itself believes in.
The tables (Lightning's among them) go through figures that somebody published.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipefix.tuning.block_figures import around
from pipefix.tuning.limits import FRESH_RATE, HANDING_S, BatchCost
from pipefix.tuning.results import Goal, Trial
from pipefix.tuning.space import Settings, Space

MEASURED = Path(__file__).resolve().parents[2] / "fixtures" / "grids" / "measured.json"


def tried(settings: Settings, rate: float = 0.0, doubt: float = 0.03, *, ended: str = "", **more: Any) -> Trial:
    """A trial that was run, or ended."""
    if ended:
        return Trial(settings, status="ended", reason=ended)
    return Trial(settings, around(rate, doubt), **more)


def looked(rate: float, *, handing: float = 0.0, cpu_s: float = 0.0) -> BatchCost:
    """A look at batches of 16 samples; ``handing``: of the making of one, ``cpu_s``: of a sample."""
    seconds = 16 / rate
    return BatchCost(max(0.0, handing * seconds - HANDING_S) * FRESH_RATE, 1, 3e8, 40, 16 * cpu_s, seconds, 16)


@dataclass(frozen=True)
class Grid:
    """What every setting of one pipeline supplies, in samples a second."""

    name: str
    cores: float
    curve: Callable[[int], float]
    """Supply by number of workers, other knobs as torch has them."""
    most: int = 64
    noise: float = 0.025
    """Standard deviation of a measured logarithm."""
    bump: float = 0.008
    """Unevenness of the truth itself, from one count to the next."""
    prefetch: Mapping[int, float] = field(default_factory=dict)
    """Factor by batches in flight a worker (2 is 1)."""
    reorder: float = 1.0
    """Factor where batches may come as they are made."""
    tail: float = 1.3
    threads: float = 1.0
    """Cores that one worker keeps busy."""
    capped: Callable[[int], float] | None = None
    """Supply with one thread a worker."""
    demand: float | None = None
    computing: float = 1.0

    def supply(self, settings: Settings) -> float:
        settings = settings.normal()
        curve = self.capped if settings.worker_threads == 1 and self.capped is not None else self.curve
        rate = curve(settings.workers) * math.exp(self.bump * _uneven(self.name, settings.workers))
        if settings.workers:
            rate *= self.prefetch.get(settings.prefetch, 1.0) * (1.0 if settings.in_order else self.reorder)
        return rate

    def delivered(self, settings: Settings) -> float:
        supply = self.supply(settings)
        if self.demand is None:
            return supply
        if not settings.workers:
            return 1 / (1 / supply + 1 / self.demand)
        return (supply**-30 + self.demand**-30) ** (-1 / 30) if 0.5 < supply / self.demand < 2 else min(supply, self.demand)

    def stall(self, settings: Settings) -> float:
        assert self.demand is not None
        return 1 - self.delivered(settings) / self.demand

    @property
    def space(self) -> Space:
        return Space(most_workers=self.most, cores=self.cores, reorder=True)

    def everything(self) -> Iterator[Settings]:
        for workers in range(self.most + 1):
            for prefetch in sorted({2, *self.prefetch}) if workers else (2,):
                for in_order in (True, False) if workers and self.reorder != 1.0 else (True,):
                    for threads in (None, 1) if workers and self.capped is not None else (None,):
                        yield Settings(workers, prefetch=prefetch, in_order=in_order, worker_threads=threads)

    def best(self) -> float:
        """Delivered by the best settings of all."""
        return max(self.delivered(settings) for settings in self.everything())

    def fewest(self, goal: Goal) -> int | None:
        """Workers that feed the consumer; None where none do."""
        if self.demand is None:
            return None
        return min((settings.workers for settings in self.everything() if self.stall(settings) <= goal.stall), default=None)

    # -- measured with noise -------------------------------------------------------------------------------------------

    def measured(self, settings: Settings, draw: np.random.Generator, *, noise: float | None = None) -> Trial:
        sigma = self.noise if noise is None else noise
        rate = self.delivered(settings) * math.exp(sigma * draw.standard_normal())
        doubt = sigma * math.exp(0.3 * draw.standard_normal())
        if self.demand is None:
            return tried(settings.normal(), rate, doubt, tail=self.tail, threads=self.threads)
        stall = min(1.0, max(0.0, self.stall(settings) + 0.002 * draw.standard_normal()))
        potential = self.supply(settings) * math.exp(0.1 + 0.1 * draw.standard_normal()) if settings.workers else None
        return tried(
            settings.normal(), min(rate, self.demand) if stall < 0.02 else rate, doubt, tail=self.tail, threads=self.threads,
            stall=stall, demand=self.demand * math.exp(0.005 * draw.standard_normal()), potential=potential,
        )  # fmt: skip

    def looked_at(self, draw: np.random.Generator) -> BatchCost:
        alone = self.curve(0)
        rate = alone * math.exp(0.08 * draw.standard_normal())
        return looked(rate, cpu_s=self.computing * self.threads / alone * math.exp(0.05 * draw.standard_normal()))


def _uneven(name: str, workers: int) -> float:
    """A fixed draw for each place of each grid."""
    return float(np.random.default_rng([zlib.crc32(name.encode()), workers]).standard_normal())


# -- shapes ----------------------------------------------------------------------------------------------------------------


def through(points: Mapping[int, float]) -> Callable[[int], float]:
    """Straight between the points, in logarithms of 1 + workers and of the rate."""
    places, logs = np.log1p(sorted(points)), np.log([points[key] for key in sorted(points)])
    return lambda workers: float(np.exp(np.interp(np.log1p(workers), places, logs)))


def milliseconds(points: Mapping[int, float]) -> Callable[[int], float]:
    return through({workers: 1e5 / spent for workers, spent in points.items()})


def roof(knee: float, *, after: float = 0.0, alone: float = 0.95, each: float = 100.0) -> Callable[[int], float]:
    """Straight up to a knee, then ``after`` a worker (a share of one worker's rate)."""

    def curve(workers: int) -> float:
        if not workers:
            return each * alone
        return float(each * max(0.1, min(workers, knee) + after * max(0.0, workers - knee)))

    return curve


def usl(alpha: float, beta: float, *, alone: float = 0.97) -> Callable[[int], float]:
    return lambda n: 100 * (alone if not n else n / (1 + alpha * (n - 1) + beta * n * (n - 1)))


def bent(curve: Callable[[int], float], place: float, factor: float) -> Callable[[int], float]:
    """The same, times ``factor`` beyond a place: memory ran out, a server began to refuse."""
    return lambda n: curve(n) * (factor if n > place else 1.0)


def queue(latency: float, cap: float) -> Callable[[int], float]:
    """Requests to a far store: in step with their number, then the store's own limit, reached softly."""
    return lambda n: 100 * cap * (1 - math.exp(-max(n, 0.9) / (latency * cap)))


SHAPES: tuple[Grid, ...] = (
    Grid("lightning-19391", 16, milliseconds({0: 3222, 4: 2016, 8: 1844, 16: 1880, 32: 2257, 48: 2646}), most=48),
    Grid("eight-cores", 8, roof(8)),
    Grid("eight-cores-crowded", 8, roof(7.5, after=-0.03)),
    Grid("hyper-threads", 16, lambda n: roof(8, after=0.25)(min(n, 16)) * (1 - 0.004 * max(0, n - 16))),
    Grid("thirty-two-cores", 32, roof(29, after=-0.1), most=96),
    Grid("two-sockets", 32, lambda n: roof(16, after=0.6)(min(n, 32)) * (0.92 if n > 32 else 1.0), most=96),
    Grid("one-core", 1, through({0: 100, 1: 112, 2: 110, 4: 104, 16: 92, 64: 70})),
    Grid("two-cores-quota", 2, through({0: 100, 1: 104, 2: 196, 4: 188, 8: 167, 32: 120, 64: 85})),
    Grid("main-thread-bound", 16, roof(1.9)),
    Grid("large-batches", 8, through({0: 100, 1: 71, 2: 97, 3: 101, 8: 100, 64: 88}), computing=1.0),
    Grid("larger-batches", 8, through({0: 100, 1: 58, 2: 104, 3: 128, 4: 131, 64: 121})),
    Grid("huge-batches", 8, through({0: 100, 1: 44, 2: 62, 4: 66, 16: 63, 64: 58})),
    Grid("locks", 16, usl(0.25, 0.01)),
    Grid("shared-state", 64, usl(0.05, 0.002)),
    Grid("amdahl", 32, usl(0.1, 0.0)),
    Grid("steep-usl", 16, usl(0.02, 0.02)),
    Grid("memory-ends", 16, bent(roof(16), 12.5, 0.45)),
    Grid("far-store", 4, queue(1.0, 40.0), computing=0.05),
    Grid("far-store-wide", 2, queue(1.0, 120.0), most=128, computing=0.03),
    Grid("far-store-refuses", 4, bent(queue(1.0, 60.0), 24.5, 0.6), computing=0.05),
    Grid("disk-seeks", 8, through({0: 95, 1: 100, 2: 118, 3: 104, 4: 80, 8: 58, 16: 44, 64: 38}), computing=0.2),
    Grid("disk-bandwidth", 16, roof(3.3, alone=0.9), computing=0.6),
    Grid("page-cache-lost", 16, through({0: 98, 1: 100, 4: 380, 6: 430, 8: 310, 16: 290, 64: 250})),
    Grid("network-drive", 8, through({0: 90, 1: 98, 8: 690, 16: 1150, 24: 1320, 32: 1390, 64: 1360}), computing=0.4),
    Grid("nothing-helps", 4, through({0: 100, 1: 99, 64: 96})),
    Grid("late-batches", 16, roof(14, each=40), reorder=2.4, tail=60.0, prefetch={2: 1.0, 4: 1.25, 8: 1.5}),
    Grid("rather-late-batches", 8, roof(8), reorder=1.22, tail=9.0, prefetch={2: 1.0, 4: 1.05, 8: 1.09}),
    Grid("uneven-batches", 8, roof(8), prefetch={2: 1.0, 4: 1.08, 8: 1.13}, tail=3.0),
    Grid(
        "threads-everywhere", 8, through({0: 300, 1: 290, 2: 330, 4: 300, 8: 230, 64: 120}),
        threads=4.0, capped=roof(8), computing=0.35,
    ),
    Grid("noisy-neighbour", 8, roof(8, after=-0.02), noise=0.06),
    Grid("noisy-usl", 32, usl(0.03, 0.0015), noise=0.05),
)  # fmt: skip
"""No consumer: what counts is the rate."""


def beside(name: str, share: float) -> Grid:
    """A shape with a consumer that takes ``share`` of the most that it can supply."""
    grid = next(shape for shape in SHAPES if shape.name == name)
    most = max(grid.supply(Settings(workers)) for workers in range(grid.most + 1))
    return replace(grid, name=f"{name}-fed-{share:g}", demand=share * most)


FED: tuple[Grid, ...] = tuple(
    beside(name, share)
    for name, share in (
        ("eight-cores", 0.3), ("eight-cores", 0.8), ("eight-cores", 1.5), ("lightning-19391", 0.7), ("lightning-19391", 1.4),
        ("thirty-two-cores", 0.25), ("far-store", 0.6),
        ("far-store-wide", 0.3), ("two-cores-quota", 0.45), ("two-cores-quota", 0.7),
        ("shared-state", 0.9), ("disk-seeks", 0.75), ("large-batches", 0.5), ("hyper-threads", 0.85),
    )
)  # fmt: skip
"""With a consumer: it is to be fed by the fewest workers, or as well as can be."""


def measured() -> tuple[Grid, ...]:
    """Pipelines that were really run with every number of workers."""
    if not MEASURED.is_file():
        return ()
    return tuple(
        Grid(
            described["name"],
            described["cores"],
            _table(described["rates"]),
            most=max(map(int, described["rates"])),
            noise=described["noise"],
            bump=0.0,
            computing=described["computing"],
        )
        for described in json.loads(MEASURED.read_text())["grids"]
    )


def _table(rates: Mapping[str, float]) -> Callable[[int], float]:
    return through({int(workers): rate for workers, rate in rates.items()})


def every() -> tuple[Grid, ...]:
    return (*SHAPES, *FED, *measured())
