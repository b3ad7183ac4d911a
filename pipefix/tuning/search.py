"""Which settings to try next, and which to keep: decided from what was seen so far and nothing else. Pure.

With a consumer the best settings are those that keep it fed with the fewest workers; where none do, those that deliver most. The
number of workers comes first, by the model: the count is tried that promises most beyond the best one known, in expectation over
all curves that explain what was seen. The other knobs follow, one at a time, at the best count, where something hints at them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipefix.tuning.model import Cloud, Floats, Point, fit
from pipefix.tuning.space import Knob, Settings, Space
from pipefix.tuning.starting import SERVER

MOST_TRIALS = 8
WORTH_A_TRIAL = 0.004
"""Expected gain (a share of the throughput) below which another count of workers is not tried."""
TIE = 0.01
"""Throughputs closer than this (or than they are known to, up to twice this) are the same: the fewer workers win."""
SPARING = 0.03
"""What doing without any worker is worth where throughput decides, against having the most allowed."""
FED, LEAN = 0.05, 0.3
"""What being fed is worth, and being fed by no worker at all rather than by the most allowed, as shares of the throughput."""
MARGIN = 0.02
"""Supply above the demand that an untried count is believed to need: batches do not come evenly."""
BUSY = 1.3
"""Cores that the threads of one worker keep busy, above which it is tried with one."""
REORDERING = 0.02
"""What giving up the order of batches must gain to be worth it."""
HANDING = 0.05
"""Part of a batch's making that handing it over takes, above which memory that is used again is tried."""
WHOLE = 0.95
"""Samples fetched one by one in less than this part of the time that all at once take are tried so."""
SCATTERED = 16
"""Tensors of a batch, each with a descriptor of its own, above which sharing them by name is tried."""
NOT_FORKED = "Cannot re-initialize CUDA in forked subprocess"
"""What torch says where a forked worker touches the device."""
LATE = 4.0
"""The slowest batches take so many times as long as most: whoever keeps the order waits for them."""


@dataclass(frozen=True)
class Goal:
    stall: float = 0.01
    """Share of the time that the consumer may wait for batches."""
    has_consumer: bool = False


@dataclass(frozen=True)
class Seen:
    """What one trial told, brought to the same level as the others by the incumbent that ran beside it."""

    settings: Settings
    rate: float = 0.0
    """Delivered samples a second."""
    doubt: float = 0.03
    """Standard deviation of its logarithm."""
    stall: float | None = None
    """Share of the time that the consumer waited; None without a consumer."""
    demand: float | None = None
    """Samples a second that the consumer takes where nothing keeps it waiting."""
    potential: float | None = None
    """Samples a second that the workers made while they were at work, with all of them at work all the time."""
    tail: float | None = None
    """Making time of the slowest batches over that of the middle ones."""
    threads: float | None = None
    """CPU seconds that a worker's threads spent in a second of its own work; above one, libraries compute beside it."""
    starting: float | None = None
    """Seconds from the start of the workers to the first batch, without making it; None without workers."""
    ended: str | None = None
    """Why it was ended before it told anything."""


@dataclass(frozen=True)
class Look:
    """A few batches made in one process before any trial."""

    rate: float
    """Samples a second."""
    doubt: float = 0.1
    cpu_s: float | None = None
    """CPU seconds a sample."""
    handing: float = 0.0
    """Handing a batch over to another process, as part of its making: what batches of its size are known to take."""
    tensors: int = 1
    """Of a batch, each in memory of its own."""
    one_by_one: float | None = None
    """Fetching a batch's samples one after the other, as a multiple of asking for them at once; None where that is no question."""


@dataclass(frozen=True)
class Try:
    settings: Settings
    why: str


@dataclass(frozen=True)
class Done:
    why: str


Fits = Callable[[Settings], str | None]
"""Why settings would break a limit; None where they would not."""


@dataclass(frozen=True)
class Search:
    """One question, asked again after every trial: what next?"""

    space: Space
    goal: Goal
    start: Settings
    most_trials: int = MOST_TRIALS
    seed: int = 0

    def next(self, seen: Sequence[Seen], *, look: Look | None = None, fits: Fits = lambda _: None) -> Try | Done:
        tried = {one.settings.normal() for one in seen}
        left = self.most_trials - len(tried)
        tried |= {one.settings for one in self._level([one for one in seen if one.ended is None])}
        if not seen and fits(self.start) is None:
            return Try(self.start, "the settings as they are")
        if left <= 0:
            return Done(f"{self.most_trials} trials were made")
        told = [one for one in seen if one.ended is None]
        if not told:
            return self._first(seen, fits)
        known = _Known(self, told, look)
        at = known.crowded
        starting = self._another_start(at, tried, seen, fits)
        if starting is not None:
            # The last trial is kept for it: it is turned on what everything else has led to. Where all trials start late, it comes
            # before them, and what helps serves the others.
            left -= 1
            if not left or (self.space.starting is not None and self.space.starting.urgent(at)):
                return starting
        knobs = [knob for knob in self._knobs(known, at) if self._may(knob.turned(at.settings), tried, seen, fits)]
        count = self._count(known, tried, seen, fits)
        if count is not None and (left > min(len(knobs), 2) or not knobs):
            return count
        if knobs:
            return Try(knobs[0].turned(at.settings), knobs[0].why)
        return count or starting or Done(self._enough(known))

    def best(self, seen: Sequence[Seen], *, look: Look | None = None) -> Seen | None:
        """The settings to keep, before they are held against the start once more."""
        told = [one for one in seen if one.ended is None]
        if not told:
            return None
        best = _Known(self, told, look).best
        if any(one.settings == best.settings for one in told):
            return best
        # It ran with its workers started in another way alone: what ran as it would is kept.
        return _Known(self, [one for one in told if one.settings.start_method == best.settings.start_method], look).best

    def start_left(self, seen: Sequence[Seen], *, look: Look | None = None) -> str | None:
        """Why workers are to be started as they are; None where another way is better, or none was thought of."""
        told = [one for one in seen if one.ended is None]
        starting = self.space.starting
        if starting is None or not told:
            return None
        if self._method(told) != self.start.start_method:
            return None
        at = _Known(self, told, look).best
        other = next((one for one in told if self._served(one)), None)
        twin = next((one for one in told if other is not None and self._restarted(one, told) is other), None)
        if other is not None and twin is not None:
            return f"{SERVER} was tried, and {starting.no_better(twin, other)}"
        failed = next((one for one in seen if one.ended is not None and self._served(one)), None)
        if failed is not None:
            return f"{SERVER} was tried, and {failed.ended}"
        left = starting.left(at, at.settings.workers)
        return left if starting.hint(at, at.settings.workers) is None else f"{left}; there was no trial left for {SERVER}"

    # -- how workers start ---------------------------------------------------------------------------------------------

    def _ordinary(self, one: Seen) -> bool:
        """Whether its workers are started as the code has it."""
        return one.settings.start_method == self.start.start_method

    def _served(self, one: Seen) -> bool:
        return one.settings.start_method == SERVER != self.start.start_method

    def _restarted(self, one: Seen, told: Sequence[Seen]) -> Seen | None:
        """The same settings with workers from the fork server."""
        wanted = replace(one.settings, start_method=SERVER)
        return next((other for other in told if other.settings == wanted and other is not one), None)

    def _method(self, told: Sequence[Seen]) -> str | None:
        """How workers are to be started, by what is known."""
        starting, crowded = self.space.starting, [one for one in told if one.settings.workers]
        if starting is not None:
            for one in filter(self._ordinary, crowded):
                other = self._restarted(one, told)
                if other is not None and starting.no_better(one, other) is None:
                    return SERVER
        alone = crowded and all(self._served(one) for one in crowded)
        return SERVER if alone else self.start.start_method

    def _level(self, told: Sequence[Seen]) -> list[Seen]:
        """Trials as if all workers had been started in the way that is to be: that is judged by itself, and the pace is alike."""
        method, found = self._method(told), dict[Settings, Seen]()
        for one in told:
            settings = replace(one.settings, start_method=method).normal()
            if settings not in found or one.settings == settings:
                found[settings] = replace(one, settings=settings)
        return list(found.values())

    def _another_start(self, at: Seen, tried: set[Settings], seen: Sequence[Seen], fits: Fits) -> Try | None:
        starting = self.space.starting
        once = starting is not None and self._ordinary(at) and not any(self._served(one) for one in seen)
        why = starting.hint(at, at.settings.workers) if starting is not None and once else None
        settings = replace(at.settings, start_method=SERVER)
        return Try(settings, why) if why is not None and self._may(settings, tried, seen, fits) else None

    # -- what may be tried ---------------------------------------------------------------------------------------------

    def _first(self, seen: Sequence[Seen], fits: Fits) -> Try | Done:
        """Nothing is known and the start cannot be run: the most modest settings that can."""
        tried = {one.settings.normal() for one in seen}
        spared = replace(self.start, start_method=SERVER)
        forked = self.space.starting is not None and any(NOT_FORKED in (one.ended or "") for one in seen)
        if forked and self._may(spared, tried, seen, fits):
            return Try(spared, "the dataset uses CUDA, which no forked worker can")
        for workers in (max(1, self.start.workers // 2), 1, 0):
            modest = replace(self.start, workers=min(workers, self.start.workers), prefetch=min(2, self.start.prefetch)).normal()
            for settings in self._ways(modest, fits):
                if self._may(settings, tried, seen, fits):
                    return Try(settings, "the settings as they are do not fit the limits")
        return Done("no settings fit the limits")

    def _may(self, settings: Settings, tried: set[Settings], seen: Sequence[Seen], fits: Fits) -> bool:
        if settings.normal() in tried or fits(settings) is not None:
            return False
        alike = [one for one in seen if one.settings.start_method == settings.start_method]
        return not any(one.ended is not None and _at_least(settings, one.settings) for one in alike)

    def _knobs(self, known: _Known, at: Seen) -> Iterator[Knob]:
        """Those beside the workers that something hints at, the likeliest first; to be turned on ``at``."""
        space, settings = self.space, at.settings
        if known.fed(known.best) or not settings.workers:
            return
        threads = at.threads or 0.0
        if threads > BUSY and settings.worker_threads != 1:
            yield Knob(
                "worker_threads", 1, f"each worker's libraries keep {threads:.1f} cores busy", workers=max(1, round(space.cores))
            )
        if space.reorder and settings.in_order and (at.tail or 0.0) > LATE:
            yield Knob("in_order", False, f"the slowest batches take {at.tail:.0f} times as long as most, and all others wait")
        look = known.look
        if space.slots and settings.engine is None and look is not None and look.handing > HANDING:
            share = f"{100 * look.handing:.0f} %"
            yield Knob("engine", "processes", f"handing over a batch takes about {share} of its making, in fresh memory each time")
        elif space.sharing and settings.engine is settings.sharing is None and look is not None and look.tensors > SCATTERED:
            yield Knob("sharing", "file_system", f"{look.tensors} tensors of a batch cross with a descriptor each")
        single = look.one_by_one if look is not None else None
        if single is not None and single < WHOLE and settings.batched_fetch is None:
            told = f"a batch's samples one by one took {100 * single:.0f} % of what __getitems__ took"
            yield Knob("batched_fetch", False, told)
        if space.pin and not settings.pin_memory:
            yield Knob("pin_memory", True, "a device copies from pinned memory while the step runs")
        if settings.prefetch < space.most_prefetch and at is known.best:
            yield Knob("prefetch", space.most_prefetch, "more batches in flight even out slow ones")

    def _count(self, known: _Known, tried: set[Settings], seen: Sequence[Seen], fits: Fits) -> Try | None:
        """The count of workers that promises most beyond the best one known."""
        utility = known.utility()
        here = known.cloud.counts.tolist().index(known.best.settings.workers)
        gains = np.maximum(0.0, utility - utility[:, here : here + 1]).mean(axis=0)
        for place in np.argsort(-gains, kind="stable"):
            if gains[place] < WORTH_A_TRIAL:
                return None
            settings = replace(known.base, workers=int(known.cloud.counts[place])).normal()
            for one in self._ways(settings, fits):
                if self._may(one, tried, seen, fits):
                    return Try(one, self._promise(known, one, float(gains[place])))
        return None

    def _ways(self, settings: Settings, fits: Fits) -> Iterator[Settings]:
        """The settings; and where they do not fit, the same with fewer open files."""
        yield settings
        free = settings.workers and settings.engine is None and settings.sharing is None
        if self.space.sharing and free and fits(settings) is not None:
            yield replace(settings, sharing="file_system")

    def _promise(self, known: _Known, settings: Settings, gain: float) -> str:
        forecast = known.cloud.forecast(settings.workers)
        if known.fed(known.best):
            return f"fewer workers may do: {forecast:,.0f} samples/s are forecast, {known.demand:,.0f} are needed"
        return f"{forecast:,.0f} samples/s are forecast, {100 * math.expm1(gain):.1f} % to be gained on average"

    def _enough(self, known: _Known) -> str:
        if known.fed(known.best):
            return "the consumer is fed, and no smaller setting is likely to feed it"
        return f"no other setting is expected to gain {100 * WORTH_A_TRIAL:.1f} %"


class _Known:
    """What the trials say together."""

    def __init__(self, search: Search, told: Sequence[Seen], look: Look | None) -> None:
        self.search = search
        told = self.told = search._level(told)
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

    def _base(self, best: Seen) -> Settings:
        """The knobs that other counts are tried with: the best's, or where it has no workers, those of the best that has."""
        if best.settings.workers:
            return _knobs_of(best.settings)
        return _knobs_of(max((one for one in self.told if one.settings.workers), key=lambda one: one.rate, default=best).settings)

    @property
    def crowded(self) -> Seen:
        """What knobs are turned on: the best, or the best that has workers."""
        if self.best.settings.workers:
            return self.best
        return max((one for one in self.told if one.settings.workers), key=lambda one: one.rate, default=self.best)

    def fed(self, one: Seen) -> bool:
        return one.stall is not None and one.stall <= self.search.goal.stall

    def _raw_best(self) -> Seen:
        fed = [one for one in self.told if self.fed(one)]
        return min(fed, key=lambda one: _cost(one.settings)) if fed else max(self.told, key=lambda one: one.rate)

    def _best(self) -> Seen:
        fed = [one for one in self.told if self.fed(one)]
        if fed:
            return min(fed, key=lambda one: _cost(one.settings))
        values = {one: self._value(one) for one in self.told}
        most = max(values.values())
        tie = min(2 * TIE, max(TIE, float(np.median([one.doubt for one in self.told]))))
        return min((one for one in self.told if values[one] >= most - tie), key=lambda one: _cost(one.settings))

    def _value(self, one: Seen) -> float:
        """Its log throughput, drawn towards what the curve through all trials says: the luckiest of many is lucky."""
        found = math.log(one.rate)
        effect = self.effects.get(_knobs_of(one.settings))
        if effect is None or (self.search.goal.has_consumer and not one.settings.workers):
            return found
        smooth = float(np.median(self.cloud.at(one.settings.workers))) + effect
        price = REORDERING if not one.settings.in_order and self.search.start.in_order else 0.0
        return min(smooth, found + 2 * one.doubt) - price

    def _fit(self) -> Cloud:
        points = []
        for one in self.told:
            effect = self.effects.get(_knobs_of(one.settings)) if one.settings.workers else 0.0
            if effect is None:
                continue
            supply, doubt = self._supply(one)
            points.append(Point(one.settings.workers, supply * math.exp(-effect), doubt + 0.3 * abs(effect)))
        look, space = self.look, self.search.space
        ceiling = None
        if look is not None:
            if not any(point.workers == 0 for point in points):
                points.append(Point(0, look.rate, look.doubt))
            ceiling = space.cores / look.cpu_s if look.cpu_s else None
        return fit(points, space.worker_counts(), cores=space.cores, ceiling=ceiling, seed=self.search.seed)

    def _supply(self, one: Seen) -> tuple[float, float]:
        """What the loader could supply, and how sure that is."""
        if one.demand is None:
            return one.rate, one.doubt
        if not one.settings.workers:
            # The step and the making take turns.
            making = max(1 / one.rate - 1 / one.demand, 0.02 / one.rate)
            return 1 / making, one.doubt / min(1.0, making * one.rate)
        if one.stall is not None and one.stall > 2 * self.search.goal.stall:
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
        enough = np.where(counts[None, :] < 0.5, delivered > math.log(1 - self.search.goal.stall), relative > MARGIN)
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


def _at_least(settings: Settings, other: Settings) -> bool:
    """Whether it takes at least as much as another in every way."""
    return settings.workers >= other.workers and settings.in_flight >= other.in_flight


def _effects(base: Settings, told: Sequence[Seen]) -> dict[Settings, float]:
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
