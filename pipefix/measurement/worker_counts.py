"""Runs the pipeline with other numbers of workers, block by block in turn with the workers it has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

from pipefix.measurement import experiments
from pipefix.measurement.budget import BudgetClock
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.measurement import Block, Measurement
from pipefix.measurement.probe_task import ProbeOptions
from pipefix.measurement.run_arms import Pool
from pipefix.measurement.schedule import SHORTEST, TRIAL_LENGTH
from pipefix.measurement.statistics import in_turn, paired_ratio
from pipefix.measurement.time_limit import LIMIT
from pipefix.subject.subject import Subject
from pipefix.system.forks import lost_by_workers_of, pool_of_processes

TRIAL_LIMIT, SLOWER = 10.0, 6.0
"""Seconds, and times the first batch, after which a batch of other settings is not waited for: a library that had threads before a
fork may hang after it."""
SURE = 0.05
"""Half the width of the interval, as part of the gain, below which a trial is known well enough."""
GAINS = 1.03
"""A gain below this is nothing that more blocks would be spent on."""


class Trials:
    """Pools of other sizes, which rest while anything else is measured."""

    def __init__(self, subject: Subject, consumer: Consumer, clock: BudgetClock, found: Measurement, pool: Pool) -> None:
        self._subject, self._consumer = subject, consumer
        self._clock, self._found, self._pool = clock, found, pool
        self.pools: dict[str, Pool] = {}

    def start(self, counts: Sequence[int], known: list[Any], first_seconds: float, *, children_compute: bool) -> None:
        """``first_seconds``: of the first batch with the workers there are; ``children_compute``: processes of the dataset's."""
        if not self._found.workers:
            self._found.lost_by_fork = lost_by_workers_of(self._subject.loader)
            self._found.own_pool = pool_of_processes() if children_compute else None
        lost = self._found.lost_by_fork or self._found.own_pool
        for workers in counts:
            if workers and lost:
                self._found.declined[f"workers-{workers}"] = f"forked workers would wait for threads of {lost}"
                continue
            # With the hooks of the pool they are held against, though nothing is timed: what they cost is on both sides.
            limit = min(LIMIT, max(TRIAL_LIMIT, SLOWER * first_seconds))
            options = ProbeOptions(0, workers, package=self._subject.package, limit=limit)
            pool = Pool(self._subject, options, self._consumer, known=known)
            pool.kept = self._pool.kept
            self.pools[f"workers-{workers}"] = pool

    def run(self, name: str, length: float) -> None:
        """Two pairs of blocks, with these workers and with those there are. ``length``: seconds of an arm's block."""
        pool, seconds = self.pools[name], TRIAL_LENGTH * length
        if name not in self._found.trials:  # workers that have only begun are slow
            self._block(pool, SHORTEST)
        self._pool.rest()
        for tried, base in islice(in_turn(partial(self._block, pool, seconds), partial(self._block, self._pool, seconds)), 2):
            self._found.blocks.append(base)
            self._found.trials.setdefault(name, []).append((tried.rate, base.rate))

    def doubted(self) -> str | None:
        """The one that gains most, where what it gains is not known well."""
        gains = {name: paired_ratio(pairs) for name, pairs in self._found.trials.items()}
        name = max((name for name in gains if name in self.pools), key=lambda name: gains[name].value, default=None)
        if name is None or gains[name].value < GAINS:
            return None
        return name if gains[name].high - gains[name].low > 2 * SURE * gains[name].value else None

    def lost(self) -> list[str]:
        """Those that could not start or lost a worker."""
        return [name for name, pool in self.pools.items() if pool.lost or pool.failed]

    def _block(self, pool: Pool, seconds: float) -> Block:
        """A block of what the settings themselves deliver; its pool rests then."""
        block = pool.block(experiments.PLAIN, seconds, most=max(2.0, self._clock.left))
        pool.rest()
        return block
