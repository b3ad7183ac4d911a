"""Which settings to try next, and which to keep: decided from the trials so far and nothing else. Pure.

The number of workers comes first. The first guess is as many as keep the cores busy, or as many as the consumer's pace takes. The
best count so far is doubled or halved while that helps; then the gaps to its neighbours are bisected, on a logarithmic scale. With
a consumer the fewest workers that keep it fed are wanted; otherwise the fewest that deliver within 2 % of the most. Other settings
follow, one at a time, at the best count, where something hints at them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from pipefix.tuning import block_figures as figures
from pipefix.tuning.limits import BatchCost
from pipefix.tuning.results import MOST_TRIALS, Goal, Trial, trial_of
from pipefix.tuning.space import Knob, Settings, Space
from pipefix.vocabulary.quantity import Interval, core_count, counted, percent

TIE = 0.02
"""Throughputs closer than this are the same: the fewer workers win."""
LEVEL = 0.05
"""Throughputs closer than this are one plateau, whose lower end is looked at first."""
STALLS = 0.2
"""Workers whose number grows throughput by a lesser power than this do not get there."""
REORDERING, IN_FLIGHT = 0.02, 0.03
"""What giving up the order of batches must gain to be worth it, and what holding more of them ready must."""
MARGIN = 0.02
"""Supply above the demand that a number of workers is believed to need: batches do not come evenly."""
NARROW = 1.17
"""Counts of workers whose ratio is below this are not told apart by another trial between them."""
ALIKE = 1.4
"""A count that was tried within this factor of the first guess stands for it."""
ALONE = 0.85
"""Part of the best throughput that the few batches made without workers must have reached for that to be tried."""
CORES_BUSY = 0.85
"""Part of what the cores can make at most, by the CPU time of a sample, above which more workers are not tried."""
URGENT = 0.1
"""Part of the throughput that a setting must be thought to gain to be tried before other counts of workers."""
BUSY = 1.3
"""Cores that the threads of one worker keep busy, above which it is tried with one."""
HANDING = 0.05
"""Part of a batch's making that handing it over takes, above which reusable memory is tried."""
UNUSED = 0.2
"""Part of what workers could make that never comes while somebody waits for it, above which handing over holds them up."""
SAVED = 0.5
"""Part of what handing over takes that memory which is used again is thought to save."""
LATE = 4.0
"""The slowest batches take so many times as long as most: whoever keeps the order waits for them."""
SURE = 1.64
"""Standard deviations by which a gain must exceed nothing: one in twenty who gain nothing is believed to."""


@dataclass(frozen=True)
class NextTrial:
    settings: Settings
    why: str


@dataclass(frozen=True)
class Finished:
    why: str


Fits = Callable[[Settings], str | None]
"""Why settings would break a limit; None where they would not."""
Step = tuple[float, float, float, str]
"""A number of workers that is wanted, the counts it must lie between, and why."""


@dataclass(frozen=True)
class Search:
    """Asked again after every trial: what next?"""

    space: Space
    goal: Goal
    start: Settings
    most_trials: int = MOST_TRIALS

    def next(self, trials: Sequence[Trial], look: BatchCost, *, fits: Fits = lambda _: None) -> NextTrial | Finished:
        tried = {trial.settings.normal() for trial in trials}
        left = self.most_trials - len(tried)
        if not trials and fits(self.start) is None:
            return NextTrial(self.start, "the settings as they are")
        if left <= 0:
            return Finished(f"the limit is {counted(self.most_trials, 'trial')}")

        def allowed(settings: Settings) -> bool:
            if settings.normal() in tried or fits(settings) is not None:
                return False
            failed = [trial.settings for trial in trials if not trial.ran]
            return not any(settings.workers >= other.workers and settings.in_flight >= other.in_flight for other in failed)

        best = self.best(trials)
        if best is None:
            return self._modest(allowed)
        ran = [trial for trial in trials if trial.ran]
        with_workers = max((trial for trial in ran if trial.settings.workers), key=lambda trial: trial.level, default=best)
        crowded = best if best.settings.workers else with_workers
        knobs = [knob for knob in self._knobs(crowded, best, look) if allowed(knob.turned(crowded.settings))]
        count = self._count(ran, best, crowded, look, allowed)
        spare = left > min(len(knobs), 2)
        if count is not None and (not knobs or (spare and knobs[0].worth < URGENT)):
            return count
        if knobs:
            return NextTrial(knobs[0].turned(crowded.settings), knobs[0].why)
        fed = "the consumer is fed, and no smaller setting is likely to feed it"
        nothing = "neither more nor fewer workers, nor anything else that something hints at, is left to try"
        return count or Finished(fed if self.goal.fed(best) else nothing)

    def best(self, trials: Sequence[Trial]) -> Trial | None:
        """The settings to keep, before they are held against the start once more."""
        ran = [trial for trial in trials if trial.ran]
        good = [trial for trial in ran if self.goal.fed(trial)]
        if not good and ran:
            most = max(map(self._value, ran))
            good = [trial for trial in ran if self._value(trial) >= most - TIE]
        return min(good, key=lambda trial: _cost(trial.settings), default=None)

    def _value(self, trial: Trial) -> float:
        """Logarithm of its throughput, less what its settings cost the user."""
        price = REORDERING if not trial.settings.in_order and self.start.in_order else 0.0
        price += IN_FLIGHT if trial.settings.prefetch > self.start.prefetch else 0.0
        return math.log(trial.level) - price

    def _modest(self, allowed: Callable[[Settings], bool]) -> NextTrial | Finished:
        """Nothing is known and the start cannot be run: the most modest settings that can."""
        for workers in (max(1, min(self.start.workers // 2, self.space.most_workers)), 1, 0):
            settings = self.start.but(workers=min(workers, self.start.workers), prefetch=min(2, self.start.prefetch)).normal()
            if allowed(settings):
                return NextTrial(settings, "the settings as they are do not fit the limits")
        return Finished("no settings fit the limits")

    # -- how many workers ----------------------------------------------------------------------------------------------

    def _count(
        self, ran: Sequence[Trial], best: Trial, crowded: Trial, look: BatchCost, allowed: Callable[[Settings], bool]
    ) -> NextTrial | None:
        """The next number of workers to try, with the other settings of the best that has any."""
        same = _with_knobs_of(crowded, ran)
        counts = [n for n in self.space.worker_counts() if n not in same]
        for wanted, low, high, why in self._steps(same, best, look):
            between = [n for n in counts if low < n < high and allowed(crowded.settings.but(workers=n).normal())]
            if between:
                workers = min(between, key=lambda n: abs(math.log1p(n) - math.log1p(wanted)))
                return NextTrial(crowded.settings.but(workers=workers).normal(), why)
        return None

    def _steps(self, same: dict[int, Trial], best: Trial, look: BatchCost) -> Iterator[Step]:
        """What to try, the best idea first. ``same``: trials with the same other settings, by number of workers."""
        demands = [trial.demand for trial in same.values() if trial.demand is not None]
        demand = statistics.median(demands) if demands else None
        if demand is not None:
            yield from self._to_feed(same, demand, look)
            if self.goal.fed(best):
                return
        if demand is None and look.rate > ALONE * best.level:
            yield 0, -1, 1, f"without workers {look.rate:,.0f} samples/s were made beforehand"
        guess = self._guess(look)
        if len(same) < 3 and not any(1 / ALIKE < (n or 0.1) / max(guess, 0.1) < ALIKE for n in same):
            yield guess, 0, math.inf, f"as many as keep {core_count(self.space.cores)} busy"
        most = max(trial.level for trial in same.values())
        plateau = [n for n, trial in same.items() if trial.level >= (1 - LEVEL) * most]
        can_make = self.space.cores / look.sample_cpu_s if look.sample_cpu_s else math.inf
        # About as much as the cores can make, by the CPU time of a sample.
        full = look.computing > 0.5 and CORES_BUSY * can_make <= same[max(plateau)].level <= can_make / CORES_BUSY
        more = _more(same, max(plateau), double=not full)
        steps = [*more, *_fewer(same, min(plateau)), *_more(same, min(plateau), double=False)]
        yield from sorted(steps, key=_width, reverse=True)

    def _guess(self, look: BatchCost) -> float:
        """Workers that keep the cores busy."""
        return min(self.space.cores / max(look.computing, 0.02), self.space.most_workers)

    def _to_feed(self, same: dict[int, Trial], demand: float, look: BatchCost) -> Iterator[Step]:
        """Towards the fewest workers that feed the consumer, by what a worker supplies."""
        feeds = min((n for n, trial in same.items() if self.goal.fed(trial)), default=None)
        fails = max((n for n, trial in same.items() if not self.goal.fed(trial) and (feeds is None or n < feeds)), default=0)
        if feeds is not None and demand / (demand + look.rate) <= self.goal.stall:
            yield 0, -1, 1, "making a batch takes so little that the consumer may be fed without workers"
        needs = [n * demand * (1 + MARGIN) / supply for n in (fails, feeds) if n and (supply := self._supply(same[n], demand))]
        if feeds is None and not fails and 0 in same:
            needs = [demand * (1 + MARGIN) * max(1 / same[0].level - 1 / demand, 0.02 / demand)]
        if not needs:
            return
        if feeds is None:
            grows = _exponent(same, fails)
            if grows > 0:
                wanted = max(fails, 1) * (needs[0] / max(fails, 1)) ** (1 / grows)
                most = 2 * max(fails, math.ceil(self._guess(look)))
                wanted = min(math.ceil(wanted - 0.2), self.space.most_workers, 4 * max(fails, 8) if fails else math.inf, most)
                yield wanted, fails, math.inf, f"{demand:,.0f} samples/s are needed"
        elif feeds and feeds - fails > 1 and feeds > 1.03 * fails:
            yield math.ceil(needs[0] - 0.2), fails, feeds, f"fewer workers may do: {demand:,.0f} samples/s are needed"

    def _supply(self, trial: Trial, demand: float) -> float:
        """Samples a second that its workers could make."""
        return trial.level if not self.goal.fed(trial) else max(trial.potential or 1.3 * demand, demand)

    # -- everything else -----------------------------------------------------------------------------------------------

    def _knobs(self, trial: Trial, best: Trial, look: BatchCost) -> Iterator[Knob]:
        """Settings beside the workers that something hints at, the likeliest first; to be turned on ``trial``."""
        space, settings = self.space, trial.settings
        if self.goal.fed(best) or not settings.workers:
            return
        threads = trial.threads or 0.0
        if threads > BUSY and settings.worker_threads != 1:
            busy = f"each worker's libraries keep {threads:.1f} cores busy"
            yield Knob("worker_threads", 1, busy, workers=max(1, round(space.cores)))
        if space.reorder and settings.in_order and (trial.tail or 0.0) > LATE:
            yield Knob("in_order", False, f"the slowest batches take {trial.tail:.0f} times as long as most, and all others wait")
        held_up = self._held_up(trial, look) if space.slots and settings.engine is None else None
        if held_up is not None:
            yield Knob("engine", "processes", held_up[1], worth=SAVED * held_up[0])
        if space.pin and not settings.pin_memory:
            yield Knob("pin_memory", True, "a device copies from pinned memory while the step runs")
        if settings.prefetch < space.most_prefetch and trial is best:
            yield Knob("prefetch", space.most_prefetch, "more batches in flight even out slow ones")

    def _held_up(self, trial: Trial, look: BatchCost) -> tuple[float, str] | None:
        """The part of the time that handing over is thought to keep workers from making batches, and why; None where it is not."""
        waited = trial.stall is None or trial.stall > UNUSED
        unused, handing = 1 - trial.level / trial.potential if trial.potential and waited else 0.0, look.handing
        if unused > UNUSED:
            idle = f"workers idle {100 * unused:.0f} % of the time though every batch is waited for"
            return unused, f"{idle}: handing over holds them up"
        if handing > HANDING:
            return handing, f"handing over a batch takes about {100 * handing:.0f} % of its making, in fresh memory each time"
        return None


def _with_knobs_of(crowded: Trial, ran: Sequence[Trial]) -> dict[int, Trial]:
    """Trials by number of workers, brought to the other settings of ``crowded`` by what these changed at the same count."""
    knobs = _knobs_of(crowded.settings)
    trials = {(trial.settings.workers, _knobs_of(trial.settings)): trial for trial in ran}
    same: dict[int, Trial] = {}
    for (workers, trial_knobs), trial in trials.items():
        twin = trials.get((crowded.settings.workers, trial_knobs))
        alike = trial.demand is None and trial_knobs.worker_threads == knobs.worker_threads
        if not workers or trial_knobs == knobs:
            same[workers] = trial
        elif twin is not None and alike and trial.rate is not None and (workers, knobs) not in trials:
            same[workers] = msgspec.structs.replace(trial, rate=trial.rate.scaled(crowded.level / twin.level))
    return same


def _exponent(same: dict[int, Trial], last: int) -> float:
    """The power of the number of workers that throughput grows by up to ``last``; 0 where it no longer does."""
    fewer = [n for n in same if 0 < n < last]
    if not fewer:
        return 1.0
    base_count = max(fewer, key=lambda n: (n <= 0.8 * last, n))
    grows = math.log(same[last].level / same[base_count].level) / math.log(last / base_count)
    return 0.0 if grows < STALLS else min(1.0, grows)


def _more(same: dict[int, Trial], here: int, *, double: bool) -> Iterator[Step]:
    """Double a count; where more was tried, the middle between it and its neighbour."""
    above = min((n for n in same if n > here), default=None)
    if above is None and double:
        yield 2.0 * max(here, 1), here, math.inf, "more workers than the best so far"
    elif above is not None and (1 + above) / (1 + here) > NARROW**2:
        yield min(2.0 * max(here, 1), _middle(here, above)), here, above, "more workers than the best so far"


def _fewer(same: dict[int, Trial], here: int) -> Iterator[Step]:
    """Halve a count; where fewer were tried, the middle. No worker delivers more than one of a smaller number does."""
    below = max((n for n in same if n < here), default=0)
    each = same[below].level / max(below, 1) if below in same else math.inf
    wanted = max(here / 2, _middle(below, here), (1 - TIE) * same[here].level / each)
    if here > 1 and (1 + here) / (1 + below) > NARROW**2 and here / wanted > NARROW:
        yield wanted, below, here, "fewer workers than the best so far"


def _width(step: Step) -> float:
    """The gap that a step looks into, on a logarithmic scale."""
    wanted, low, high, _ = step
    return math.log((1 + (wanted if high == math.inf else high)) / (1 + low))


def _middle(low: int, high: int) -> float:
    """Between two counts on a logarithmic scale that has a place for none."""
    return math.sqrt((1.0 + low) * (1.0 + high)) - 1


def _cost(settings: Settings) -> tuple[int, int, bool, bool]:
    """What settings take; the least of equals wins."""
    return (settings.workers, settings.in_flight, not settings.in_order, settings.pin_memory)


def _knobs_of(settings: Settings) -> Settings:
    return settings.but(workers=1)


def confirmed(
    best: Settings, best_blocks: list[figures.TrialBlock], start: Settings, start_blocks: list[figures.TrialBlock], goal: Goal
) -> tuple[str | None, Interval, Interval]:
    """By blocks of both that were run in turn: why the start is kept, None where it is beaten; what start and winner deliver."""
    logs = [math.log(block.rate / start_block.rate) for block, start_block in zip(best_blocks, start_blocks, strict=True)]
    levels = [math.log(block.rate) for block in start_blocks]
    base, doubt, spread = math.exp(sum(levels) / len(levels)), figures.doubt(logs), figures.doubt(levels)
    level = base * math.exp(sum(logs) / len(logs))
    again = trial_of(best, best_blocks, figures.around(level, doubt / math.sqrt(2)), goal)
    start_again = trial_of(start, start_blocks, figures.around(base, doubt / math.sqrt(2)), goal)
    after = figures.around(level, spread if len(logs) < 2 else math.hypot(spread, doubt / 2))
    return beaten(start_again, again, goal), figures.around(base, spread), after


def beaten(start: Trial, winner: Trial, goal: Goal) -> str | None:
    """Why the start is kept, both having been measured once more side by side; None where it is beaten."""
    if goal.fed(winner):
        less = not goal.fed(start) or _takes_less(winner.settings, start.settings)
        return None if less else "the consumer is fed as it is, with no more than is needed"
    gain = math.log(winner.level / start.level)
    if gain > SURE * math.hypot(winner.doubt, start.doubt):
        return None
    if gain > -0.01 and _takes_less(winner.settings, start.settings) and not goal.fed(start):
        return None
    comparison = "more, which is within the noise" if gain > 0 else "less"
    return f"measured side by side, the settings found deliver {percent(abs(math.expm1(gain)))} {comparison}"


def _takes_less(settings: Settings, reference: Settings) -> bool:
    """Fewer workers, or as many with less in flight."""
    return (settings.workers, settings.in_flight) < (reference.workers, reference.in_flight)
