"""Which settings to try next, and which to keep: decided from what was seen so far and nothing else. Pure.

With a consumer the best settings are those that keep it fed with the fewest workers; where none do, those that deliver most. The
number of workers comes first, by the model: the count is tried that promises most beyond the best one known, in expectation over
all curves that explain what was seen. The other knobs follow, one at a time, at the best count, where something hints at them; one
whose hint promises more than any count does comes before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipefix.tuning.model import Floats
from pipefix.tuning.results import Preview, Question, TrialResult
from pipefix.tuning.space import Knob, Settings
from pipefix.tuning.standings import Standings
from pipefix.tuning.starting import SERVER

MOST_TRIALS = 8
WORTH_A_TRIAL = 0.004
"""Expected gain (a share of the throughput) below which another count of workers is not tried."""
NEAR = 0.4
"""Part of what the best count promises that the number of cores must promise to be the first of several workers tried."""
BUSY = 1.3
"""Cores that the threads of one worker keep busy, above which it is tried with one."""
HANDING = 0.05
"""Part of a batch's making that handing it over takes, above which reusable memory is tried."""
UNUSED = 0.2
"""Part of what workers could make that never comes while somebody waits for it, above which handing over holds them up."""
SAVED = 0.5
"""Part of what handing over takes that memory which is used again is thought to save."""
WHOLE = 0.95
"""Samples fetched one by one in less than this part of the time that all at once take are tried so."""
SCATTERED = 16
"""Tensors of a batch, each with a descriptor of its own, above which sharing them by name is tried."""
NOT_FORKED = "Cannot re-initialize CUDA in forked subprocess"
"""What torch says where a forked worker touches the device."""
LATE = 4.0
"""The slowest batches take so many times as long as most: whoever keeps the order waits for them."""


@dataclass(frozen=True)
class NextTrial:
    settings: Settings
    why: str
    gain: float = 0.0
    """Share of the throughput that another number of workers is expected to gain."""


@dataclass(frozen=True)
class Finished:
    why: str


Fits = Callable[[Settings], str | None]
"""Why settings would break a limit; None where they would not."""


@dataclass(frozen=True)
class Search(Question):
    """Asked again after every trial: what next?"""

    most_trials: int = MOST_TRIALS

    def next(
        self, seen: Sequence[TrialResult], *, look: Preview | None = None, fits: Fits = lambda _: None
    ) -> NextTrial | Finished:
        tried = {one.settings.normal() for one in seen}
        left = self.most_trials - len(tried)
        tried |= {one.settings for one in self._level([one for one in seen if one.ended is None])}
        if not seen and fits(self.start) is None:
            return NextTrial(self.start, "the settings as they are")
        if left <= 0:
            return Finished(f"{self.most_trials} trials were made")
        told = [one for one in seen if one.ended is None]
        if not told:
            return self._first(seen, fits)
        known = self._known(told, look)
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
        spare = left > min(len(knobs), 2)
        if count is not None and (not knobs or (spare and count.gain >= knobs[0].worth)):
            return count
        if knobs:
            return NextTrial(knobs[0].turned(at.settings), knobs[0].why)
        return count or starting or Finished(self._enough(known))

    def _known(self, told: Sequence[TrialResult], look: Preview | None) -> Standings:
        return Standings(self, self._level(told), look)

    def best(self, seen: Sequence[TrialResult], *, look: Preview | None = None) -> TrialResult | None:
        """The settings to keep, before they are held against the start once more."""
        told = [one for one in seen if one.ended is None]
        if not told:
            return None
        best = self._known(told, look).best
        if any(one.settings == best.settings for one in told):
            return best
        # It ran with its workers started in another way alone: what ran as it would is kept.
        return self._known([one for one in told if one.settings.start_method == best.settings.start_method], look).best

    def start_left(self, seen: Sequence[TrialResult], *, look: Preview | None = None) -> str | None:
        """Why workers are to be started as they are; None where another way is better, or none was thought of."""
        told = [one for one in seen if one.ended is None]
        starting = self.space.starting
        if starting is None or not told:
            return None
        if self._method(told) != self.start.start_method:
            return None
        at = self._known(told, look).best
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

    def _ordinary(self, one: TrialResult) -> bool:
        """Whether its workers are started as the code has it."""
        return one.settings.start_method == self.start.start_method

    def _served(self, one: TrialResult) -> bool:
        return one.settings.start_method == SERVER != self.start.start_method

    def _restarted(self, one: TrialResult, told: Sequence[TrialResult]) -> TrialResult | None:
        """The same settings with workers from the fork server."""
        wanted = replace(one.settings, start_method=SERVER)
        return next((other for other in told if other.settings == wanted and other is not one), None)

    def _method(self, told: Sequence[TrialResult]) -> str | None:
        """How workers are to be started, by what is known."""
        starting, crowded = self.space.starting, [one for one in told if one.settings.workers]
        if starting is not None:
            for one in filter(self._ordinary, crowded):
                other = self._restarted(one, told)
                if other is not None and starting.no_better(one, other) is None:
                    return SERVER
        alone = crowded and all(self._served(one) for one in crowded)
        return SERVER if alone else self.start.start_method

    def _level(self, told: Sequence[TrialResult]) -> list[TrialResult]:
        """Trials as if all workers had been started in the way that is to be: that is judged by itself, and the pace is alike."""
        method, found = self._method(told), dict[Settings, TrialResult]()
        for one in told:
            settings = replace(one.settings, start_method=method).normal()
            if settings not in found or one.settings == settings:
                found[settings] = replace(one, settings=settings)
        return list(found.values())

    def _another_start(self, at: TrialResult, tried: set[Settings], seen: Sequence[TrialResult], fits: Fits) -> NextTrial | None:
        starting = self.space.starting
        once = starting is not None and self._ordinary(at) and not any(self._served(one) for one in seen)
        why = starting.hint(at, at.settings.workers) if starting is not None and once else None
        settings = replace(at.settings, start_method=SERVER)
        return NextTrial(settings, why) if why is not None and self._may(settings, tried, seen, fits) else None

    # -- what may be tried ---------------------------------------------------------------------------------------------

    def _first(self, seen: Sequence[TrialResult], fits: Fits) -> NextTrial | Finished:
        """Nothing is known and the start cannot be run: the most modest settings that can."""
        tried = {one.settings.normal() for one in seen}
        spared = replace(self.start, start_method=SERVER)
        forked = self.space.starting is not None and any(NOT_FORKED in (one.ended or "") for one in seen)
        if forked and self._may(spared, tried, seen, fits):
            return NextTrial(spared, "the dataset uses CUDA, which no forked worker can")
        for workers in (max(1, self.start.workers // 2), 1, 0):
            modest = replace(self.start, workers=min(workers, self.start.workers), prefetch=min(2, self.start.prefetch)).normal()
            for settings in self._ways(modest, fits):
                if self._may(settings, tried, seen, fits):
                    return NextTrial(settings, "the settings as they are do not fit the limits")
        return Finished("no settings fit the limits")

    def _may(self, settings: Settings, tried: set[Settings], seen: Sequence[TrialResult], fits: Fits) -> bool:
        if settings.normal() in tried or fits(settings) is not None:
            return False
        alike = [one for one in seen if one.settings.start_method == settings.start_method]
        return not any(one.ended is not None and _at_least(settings, one.settings) for one in alike)

    def _knobs(self, known: Standings, at: TrialResult) -> Iterator[Knob]:
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
        held_up = self._held_up(at, look) if space.slots and settings.engine is None else None
        if held_up is not None:
            share, why = held_up
            yield Knob("engine", "processes", why, worth=SAVED * share)
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

    def _held_up(self, at: TrialResult, look: Preview | None) -> tuple[float, str] | None:
        """The part of the time that handing over is thought to keep workers from making batches, and why; None where it is not."""
        waited = at.stall is None or at.stall > UNUSED
        unused = 1 - at.rate / at.potential if at.potential and waited else 0.0
        if unused > UNUSED:
            told = f"workers idle {100 * unused:.0f} % of the time though every batch is waited for: handing over holds them up"
            return unused, told
        if look is not None and look.handing > HANDING:
            told = f"handing over a batch takes about {100 * look.handing:.0f} % of its making, in fresh memory each time"
            return look.handing, told
        return None

    def _count(self, known: Standings, tried: set[Settings], seen: Sequence[TrialResult], fits: Fits) -> NextTrial | None:
        """The count of workers that promises most beyond the best one known."""
        utility = known.utility()
        here = known.cloud.counts.tolist().index(known.best.settings.workers)
        gains = np.maximum(0.0, utility - utility[:, here : here + 1]).mean(axis=0)
        for place in self._in_turn(gains, known, seen):
            if gains[place] < WORTH_A_TRIAL:
                return None
            settings = replace(known.base, workers=int(known.cloud.counts[place])).normal()
            for one in self._ways(settings, fits):
                if self._may(one, tried, seen, fits):
                    gain = float(gains[place])
                    return NextTrial(one, self._promise(known, one, gain), gain)
        return None

    def _in_turn(self, gains: Floats, known: Standings, seen: Sequence[TrialResult]) -> list[int]:
        """Places of counts, those that promise most first; but as many workers as cores before all others of several."""
        order: list[int] = np.argsort(-gains, kind="stable").tolist()
        several = any(one.settings.workers > 1 for one in seen)
        cores = int(np.searchsorted(known.cloud.counts, round(self.space.cores)))
        if not several and cores < len(gains) and gains[cores] >= NEAR * gains[order[0]]:
            order.insert(0, cores)
        return order

    def _ways(self, settings: Settings, fits: Fits) -> Iterator[Settings]:
        """The settings; and where they do not fit, the same with fewer open files."""
        yield settings
        free = settings.workers and settings.engine is None and settings.sharing is None
        if self.space.sharing and free and fits(settings) is not None:
            yield replace(settings, sharing="file_system")

    def _promise(self, known: Standings, settings: Settings, gain: float) -> str:
        forecast = known.cloud.forecast(settings.workers)
        if known.fed(known.best):
            return f"fewer workers may do: {forecast:,.0f} samples/s are forecast, {known.demand:,.0f} are needed"
        return f"{forecast:,.0f} samples/s are forecast, {100 * math.expm1(gain):.1f} % to be gained on average"

    def _enough(self, known: Standings) -> str:
        if known.fed(known.best):
            return "the consumer is fed, and no smaller setting is likely to feed it"
        return f"no other setting is expected to gain {100 * WORTH_A_TRIAL:.1f} %"


def _at_least(settings: Settings, other: Settings) -> bool:
    """Whether it takes at least as much as another in every way."""
    return settings.workers >= other.workers and settings.in_flight >= other.in_flight
