"""What the trials so far say together: which settings are the best seen, and what every count of workers would be worth. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipefix.tuning.model import Cloud, Floats, Point, fit
from pipefix.tuning.results import Preview, Question, TrialResult
from pipefix.tuning.space import Settings

TIE = 0.02
"""Throughputs closer than this are the same: the fewer workers win."""
SPARING = 0.03
"""What doing without any worker is worth where throughput decides, against having the most allowed."""
FED, LEAN = 0.05, 0.3
"""What being fed is worth, and being fed by no worker at all rather than by the most allowed, as shares of the throughput."""
MARGIN = 0.02
"""Supply above the demand that an untried count is believed to need: batches do not come evenly."""
REORDERING, IN_FLIGHT = 0.02, 0.03
"""What giving up the order of batches must gain to be worth it, and what holding more of them ready must."""


class Standings:
    """What the trials say together."""

    def __init__(self, question: Question, told: Sequence[TrialResult], look: Preview | None) -> None:
        self.question, self.told = question, told
        demands = [one.demand for one in told if one.demand is not None]
        self.demand = float(np.median(demands)) if demands else 0.0
        self.look = look
        self.base = self._base(self._raw_best())
        self.effects = _effects(self.base, told)
        self.cloud = self._fit()
        self.best = self._best()
        if self._base(self.best) != self.base:
            self.base = self._base(self.best)
            self.effects = _effects(self.base, told)
            self.cloud = self._fit()

    def _base(self, best: TrialResult) -> Settings:
        """The knobs that other counts are tried with: the best's, or where it has no workers, those of the best that has."""
        if best.settings.workers:
            return _knobs_of(best.settings)
        return _knobs_of(max((one for one in self.told if one.settings.workers), key=lambda one: one.rate, default=best).settings)

    @property
    def crowded(self) -> TrialResult:
        """What knobs are turned on: the best, or the best that has workers."""
        if self.best.settings.workers:
            return self.best
        return max((one for one in self.told if one.settings.workers), key=lambda one: one.rate, default=self.best)

    def fed(self, one: TrialResult) -> bool:
        return one.stall is not None and one.stall <= self.question.goal.stall

    def _raw_best(self) -> TrialResult:
        fed = [one for one in self.told if self.fed(one)]
        return min(fed, key=lambda one: _cost(one.settings)) if fed else max(self.told, key=lambda one: one.rate)

    def _best(self) -> TrialResult:
        fed = [one for one in self.told if self.fed(one)]
        if fed:
            return min(fed, key=lambda one: _cost(one.settings))
        values = {one: self._value(one) for one in self.told}
        most = max(values.values())
        return min((one for one in self.told if values[one] >= most - TIE), key=lambda one: _cost(one.settings))

    def _value(self, one: TrialResult) -> float:
        """Its log throughput, drawn towards what the curve through all trials says: the luckiest of many is lucky."""
        start = self.question.start
        price = REORDERING if not one.settings.in_order and start.in_order else 0.0
        price += IN_FLIGHT if one.settings.prefetch > start.prefetch else 0.0
        found = math.log(one.rate) - price
        effect = self.effects.get(_knobs_of(one.settings))
        if effect is None or (self.question.goal.has_consumer and not one.settings.workers):
            return found
        smooth = float(np.median(self.cloud.at(one.settings.workers))) + effect - price
        return min(smooth, found + 2 * one.doubt)

    def _fit(self) -> Cloud:
        points = []
        for one in self.told:
            effect = self.effects.get(_knobs_of(one.settings)) if one.settings.workers else 0.0
            if effect is None:
                continue
            supply, doubt = self._supply(one)
            points.append(Point(one.settings.workers, supply * math.exp(-effect), doubt + 0.3 * abs(effect)))
        look, space = self.look, self.question.space
        ceiling = None
        if look is not None:
            if not any(point.workers == 0 for point in points):
                points.append(Point(0, look.rate, look.doubt))
            ceiling = space.cores / look.cpu_s if look.cpu_s else None
        return fit(points, space.worker_counts(), cores=space.cores, ceiling=ceiling, seed=self.question.seed)

    def _supply(self, one: TrialResult) -> tuple[float, float]:
        """What the loader could supply, and how sure that is."""
        if one.demand is None:
            return one.rate, one.doubt
        if not one.settings.workers:
            # The step and the making take turns.
            making = max(1 / one.rate - 1 / one.demand, 0.02 / one.rate)
            return 1 / making, one.doubt / min(1.0, making * one.rate)
        if one.stall is not None and one.stall > 2 * self.question.goal.stall:
            return one.rate, one.doubt
        if one.potential is not None:
            return max(one.potential, one.demand), 0.2
        return 1.3 * one.demand, 0.3

    def utility(self) -> Floats:
        """(curve, count): what each count would be worth, in shares of the throughput."""
        counts, logs = self.cloud.counts, self.cloud.draws
        size = np.log1p(counts) / np.log1p(counts[-1])
        if not self.demand:
            return np.asarray(logs - SPARING * size)
        relative = logs - math.log(self.demand)
        alone = -np.logaddexp(0.0, -relative)
        delivered = np.where(counts[None, :] < 0.5, alone, np.minimum(0.0, relative))
        enough = np.where(counts[None, :] < 0.5, delivered > math.log(1 - self.question.goal.stall), relative > MARGIN)
        for one in self.told:
            if _knobs_of(one.settings) == self.base or not one.settings.workers:
                place = int(np.searchsorted(counts, one.settings.workers))
                enough[:, place] = self.fed(one)
        return np.asarray(delivered + enough * (FED + LEAN * (1 - size)) - SPARING * size)


def _cost(settings: Settings) -> tuple[int, int, bool, bool]:
    """What settings take; the least of equals wins."""
    return (settings.workers, settings.in_flight, not settings.in_order, settings.pin_memory)


def _knobs_of(settings: Settings) -> Settings:
    """Everything but the number of workers."""
    return replace(settings, workers=1)


def _effects(base: Settings, told: Sequence[TrialResult]) -> dict[Settings, float]:
    """Logarithm of what each combination of knobs delivers over ``base``, where trials at the same count link the two."""
    known = {base: 0.0}
    grew = True
    while grew:
        grew = False
        for one in told:
            key = _knobs_of(one.settings)
            if key in known:
                continue
            for other in told:
                theirs = _knobs_of(other.settings)
                if theirs in known and theirs != key and other.settings.workers == one.settings.workers:
                    known[key] = known[theirs] + math.log(one.rate) - math.log(other.rate)
                    grew = True
                    break
    return known
