"""Runs the trials that the search asks for, within the limits and the time there is, and holds the winner against the start."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pipefix.tuning import block_figures as figures
from pipefix.tuning.block_figures import TrialBlock
from pipefix.tuning.limits import BatchCost, Footprint, ResourceLimits, Usage, ending, refusal
from pipefix.tuning.results import Goal, Preview, TrialResult
from pipefix.tuning.search import MOST_TRIALS, Finished, Search
from pipefix.tuning.space import Settings, Space, most_workers, said
from pipefix.tuning.trial import TrialEnded, Watch
from pipefix.tuning.verdict import beaten
from pipefix.vocabulary.errors import BadUsage, TargetError
from pipefix.vocabulary.quantity import Interval

PAIRS = 6
"""Blocks of a trial, each beside one of the incumbent's: many short ones, since a machine's pace changes within seconds."""
CERTIFYING = 3
"""Blocks of what stays that the certificate rests on, where nothing was confirmed."""
HOPELESS = 0.7
"""A trial whose first block delivers less than this share of the incumbent's is left at that."""
SHORTEST = 0.25
"""Seconds of a block."""
ALONE_DOUBT = 0.05
"""What is known of a rate at least where no incumbent ran beside it."""

Progress = Callable[[str, float], None]


class Running(Protocol):
    """Settings that run."""

    settings: Settings
    used: Usage
    now: Usage

    def block(self, seconds: float) -> TrialBlock:
        """The next batches; `TrialEnded` where it came near a limit or failed."""

    def close(self, *, at_once: bool = False) -> None:
        """Leave nothing behind."""


class TrialBench(Protocol):
    """What trials run on: this machine, or one that a test made up."""

    def own(self) -> Usage:
        """What a process takes that holds the target and makes nothing."""

    def look(self, settings: Settings, watch: Watch) -> BatchCost:
        """A few batches without workers."""

    def start(self, settings: Settings, watch: Watch) -> Running:
        """Run settings, on samples that no other trial reads."""


@dataclass(frozen=True)
class TuningPlan:
    """How much to try, and with what aim."""

    space: Space
    goal: Goal
    start: Settings
    limits: ResourceLimits = field(default=ResourceLimits())
    budget: float = 90.0
    """Seconds for everything."""
    most_trials: int = MOST_TRIALS


@dataclass(frozen=True)
class TrialLine:
    """One line of the report's table: settings, and how their trial went."""

    settings: Settings
    why: str
    """Why these settings were chosen for a trial."""
    status: str
    """run, refused, ended or failed."""
    reason: str = ""
    """Why these settings were not run, or not to their end; empty where they were."""
    rate: Interval | None = None
    stall: float | None = None
    used: Usage = field(default=Usage())
    seconds: float = 0.0
    started_s: float = 0.0
    """From the start of the workers to the first batch."""


@dataclass(frozen=True)
class Found:
    """The result of a tuning."""

    tried: tuple[TrialLine, ...]
    chosen: Settings
    kept: str | None
    """Why the start is kept; None where it was beaten."""
    before: Interval | None
    """Delivered by the start, side by side with the winner at the end."""
    after: Interval | None
    blocks: tuple[TrialBlock, ...]
    """Of the settings chosen, the last ones: what the certificate rests on."""
    batch: BatchCost | None
    enough: str
    """Why no more was tried."""
    partial: bool = False
    seconds: float = 0.0
    started_s: float = 0.0
    used: Usage = field(default=Usage())


@dataclass
class _Contender:
    """Settings with a process that runs them, and the level they were found at."""

    running: Running
    seen: TrialResult


class Tuner:
    """One tuning."""

    def __init__(
        self,
        bench: TrialBench,
        plan: TuningPlan,
        *,
        progress: Progress = lambda *_: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.bench = bench
        self.plan = plan
        self._clock = clock
        self.late = 0.0
        """Seconds that first steps of trials took beside steps, such as compiling: they are not taken off the budget."""
        self.begun = clock()
        self.progress = progress
        self.search = Search(plan.space, plan.goal, plan.start, plan.most_trials)
        self.seen: list[TrialResult] = []
        self.tried: list[TrialLine] = []
        self.refused: dict[Settings, str] = {}
        self.footprint: Footprint | None = None
        self.look: Preview | None = None
        self.live: list[Running] = []
        self.incumbent: _Contender | None = None
        self.last: dict[Settings, list[TrialBlock]] = {}
        self.error: TargetError | None = None

    def clock(self) -> float:
        return self._clock() - self.late

    def _block(self, running: Running, seconds: float) -> TrialBlock:
        block = running.block(seconds)
        self.late += block.late_s
        return block

    @property
    def left(self) -> float:
        return self.plan.budget - (self.clock() - self.begun)

    @property
    def each(self) -> float:
        """Seconds for a trial: the start and the confirmation are as long as two."""
        return self.plan.budget / (self.plan.most_trials + 3)

    def run(self) -> Found:
        """Partial where the user interrupts it."""
        enough, partial = "", False
        kept: str | None = None
        before = after = None
        chosen = self.plan.start
        try:
            self._look()
            enough = self._trials()
            chosen, kept, before, after = self._confirm()
        except KeyboardInterrupt:
            enough, partial = "it was interrupted", True
            kept = "it was interrupted before the settings found could be held against the start"
        finally:
            for running in list(self.live):
                self._close(running)
        if not any(one.status == "run" for one in self.tried) and self.error is not None and not partial:
            raise self.error
        last = self.last.get(chosen.normal(), [])
        return Found(
            tried=(*self.tried, *self._refusals()), chosen=chosen, kept=kept, before=before, after=after, blocks=tuple(last),
            batch=self.footprint.batch if self.footprint is not None else None, enough=enough, partial=partial,
            seconds=self.clock() - self.begun, started_s=last[-1].started_s if last else 0.0,
            used=next((one.used for one in self.tried if one.settings.normal() == chosen.normal()), Usage()),
        )  # fmt: skip

    # -- before the trials ---------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._say("making a few batches")
        why = refusal(self.plan.limits, self.bench.own())
        if why is not None:
            raise BadUsage(
                f"Nothing can be run within the limits: before the first batch is made, {why}.", advice="Give it more room."
            )
        try:
            batch = self.bench.look(replace(self.plan.start, workers=0).normal(), self._watch_of([]))
        except TrialEnded as end:
            if end.error is not None:
                raise end.error from end
            raise TargetError(
                f"Not even one process without workers could make a few batches: {end}.",
                advice="Give it more room, or a smaller batch: --batch-size 8.",
            ) from end
        self.footprint = Footprint(batch)
        if batch.why_none:
            goal = replace(self.plan.goal, has_consumer=False)
            self.plan, self.search = replace(self.plan, goal=goal), replace(self.search, goal=goal)
        space = self.plan.space
        if space.open:
            computing = batch.cpu_s / max(batch.seconds, 1e-9)
            most = max(space.most_workers, most_workers(space.cores, self.plan.start.workers, computing))
            self.search = replace(self.search, space=replace(space, most_workers=most))
        self.look = Preview(
            batch.samples / max(batch.seconds, 1e-9),
            cpu_s=batch.cpu_s / batch.samples,
            handing=batch.handing,
        )

    # -- limits --------------------------------------------------------------------------------------------------------

    def _fits(self, settings: Settings) -> str | None:
        assert self.footprint is not None
        why = refusal(self.plan.limits, self.footprint.predict(settings))
        if why is not None:
            self.refused.setdefault(settings.normal(), why)
        return why

    def _watch_of(self, mine: list[Running]) -> Watch:
        """Watches one trial, and with it all others that run."""
        before: list[Usage] = []

        def watch(now: Usage) -> str | None:
            others = [one.now for one in self.live if one not in mine]
            together = _together(now, others)
            since = before[-1] if before else None
            before[:] = [together]
            return ending(self.plan.limits, together, since)

        return watch

    def _start(self, settings: Settings) -> Running:
        """Start settings; where they do not fit beside the incumbent, that one makes room."""
        assert self.footprint is not None
        if self.incumbent is not None:
            both = _together(self.footprint.predict(settings), [self.incumbent.running.used])
            if refusal(self.plan.limits, both) is not None:
                self._close(self.incumbent.running)
                self.incumbent = None
        of: list[Running] = []
        running = self.bench.start(settings, self._watch_of(of))
        of.append(running)
        self.live.append(running)
        return running

    def _close(self, running: Running) -> None:
        running.close()
        if running in self.live:
            self.live.remove(running)

    # -- trials --------------------------------------------------------------------------------------------------------

    def _trials(self) -> str:
        while True:
            asked = self.search.next(self.seen, look=self.look, fits=self._fits)
            if isinstance(asked, Finished):
                return asked.why
            if self.seen and self.left < 3.2 * self.each:
                return f"the {self.plan.budget:.0f} s were spent"
            self._say(f"trial {len(self.seen) + 1}: {said(asked.settings)}")
            self._trial(asked.settings, asked.why)

    def _trial(self, settings: Settings, why: str) -> None:
        begun = self.clock()
        running: Running | None = None
        try:
            running = self._start(settings)
            blocks, level, doubt = self._beside(running, begun)
        except TrialEnded as end:
            self._ended(settings, why, end, running, begun)
            return
        seen = self._seen(settings, blocks, level, doubt)
        assert self.footprint is not None
        self.footprint = self.footprint.with_trial(settings, running.used)
        self.seen.append(seen)
        self.last[settings.normal()] = blocks
        self.tried.append(
            TrialLine(
                settings, why, "run", rate=figures.around(level, doubt), stall=seen.stall, used=running.used,
                seconds=self.clock() - begun, started_s=blocks[-1].started_s if settings.workers else 0.0,
            )
        )  # fmt: skip
        self._crown(_Contender(running, seen))

    def _ended(self, settings: Settings, why: str, end: TrialEnded, running: Running | None, begun: float) -> None:
        assert self.footprint is not None
        used = running.used if running is not None else Usage()
        if running is not None:
            self._close(running)
        if self.incumbent is not None and self.incumbent.running not in self.live:
            self.incumbent = None
        self.seen.append(TrialResult(settings.normal(), ended=str(end)))
        self.error = self.error or end.error
        if end.limit:
            self.footprint = self.footprint.with_trial(settings, used, ended=True)
        status = "ended" if end.limit else "failed"
        self.tried.append(TrialLine(settings, why, status, reason=str(end), used=used, seconds=self.clock() - begun))

    def _beside(self, running: Running, begun: float) -> tuple[list[TrialBlock], float, float]:
        """Blocks of settings in turn with the incumbent's: the blocks, the level they put the settings at, and its doubt."""
        length = max(SHORTEST, self.each / (2 * PAIRS + 2))
        blocks: list[TrialBlock] = []
        logs: list[float] = []
        while len(blocks) < PAIRS and (len(blocks) < 1 or self.clock() - begun < self.each):
            blocks.append(self._block(running, length))
            beside = self._incumbents(length)
            if beside is not None:
                logs.append(math.log(blocks[-1].rate / beside))
                if len(logs) == 1 and logs[0] < math.log(HOPELESS):
                    break
        if not logs or self.incumbent is None:
            found = [math.log(block.rate) for block in blocks]
            return blocks, math.exp(sum(found) / len(found)), max(ALONE_DOUBT, figures.doubt(found))
        level = self.incumbent.seen.rate * math.exp(sum(logs) / len(logs))
        return blocks, level, math.hypot(figures.doubt(logs), 0.3 * self.incumbent.seen.doubt)

    def _incumbents(self, length: float) -> float | None:
        """What the incumbent delivers just now; None where there is none, or it fell away."""
        if self.incumbent is None:
            return None
        try:
            block = self._block(self.incumbent.running, length)
        except TrialEnded:
            self._close(self.incumbent.running)
            self.incumbent = None
            return None
        self.last.setdefault(self.incumbent.seen.settings, []).append(block)
        return block.rate

    def _seen(self, settings: Settings, blocks: list[TrialBlock], level: float, doubt: float) -> TrialResult:
        with_consumer = self.plan.goal.has_consumer
        return TrialResult(
            settings.normal(), level, doubt,
            stall=figures.stall(blocks).value if with_consumer else None,
            demand=blocks[-1].demand if with_consumer else None,
            potential=figures.potential(blocks),
            tail=figures.tail(blocks),
            threads=figures.threads(blocks),
        )  # fmt: skip

    def _crown(self, new: _Contender) -> None:
        """Of the incumbent and the newest, the better goes on running."""
        best = self.search.best(self.seen)
        old = self.incumbent
        if old is None or (best is not None and best.settings == new.seen.settings):
            if old is not None:
                self._close(old.running)
            self.incumbent = new
        else:
            self._close(new.running)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _confirm(self) -> tuple[Settings, str | None, Interval | None, Interval | None]:
        """The winner and the start side by side once more: the luckiest of many trials is lucky, and is asked again."""
        start = self.plan.start.normal()
        best = self.search.best(self.seen)
        if best is None:
            return self.plan.start, "no settings could be run", None, None
        first = next((one for one in self.seen if one.settings == start), TrialResult(start, ended="its trial was not made"))
        if first.ended is not None:
            rate = figures.around(best.rate, best.doubt)
            return best.settings, None, rate, rate
        if best.settings == start:
            self._certify(best)
            rate = figures.around(best.rate, best.doubt)
            return self.plan.start, "no settings were found that are better", rate, rate
        self._say(f"confirming {said(best.settings)}")
        begun = self.clock()
        try:
            ours, theirs = self._side_by_side(best.settings, start, begun)
        except TrialEnded as end:
            return self.plan.start, f"the settings found did not run again: {end}", None, None
        logs = [math.log(one.rate / other.rate) for one, other in zip(ours, theirs, strict=True)]
        doubt = figures.doubt(logs)
        base = math.exp(sum(math.log(one.rate) for one in theirs) / len(theirs))
        again = self._seen(best.settings, ours, base * math.exp(sum(logs) / len(logs)), doubt / math.sqrt(2))
        start_again = self._seen(start, theirs, base, doubt / math.sqrt(2))
        kept = beaten(start_again, again, self.plan.goal)
        self.last[best.settings], self.last[start] = ours, theirs
        levels = [math.log(one.rate) for one in theirs]
        before = figures.around(base, figures.doubt(levels))
        after = figures.around(again.rate, figures.doubt(levels) if len(logs) < 2 else math.hypot(figures.doubt(levels), doubt / 2))
        return (best.settings, None, before, after) if kept is None else (self.plan.start, kept, before, before)

    def _side_by_side(self, best: Settings, start: Settings, begun: float) -> tuple[list[TrialBlock], list[TrialBlock]]:
        if self.incumbent is not None and self.incumbent.seen.settings != best:
            self._close(self.incumbent.running)
            self.incumbent = None
        length = max(SHORTEST, self.each / (2 * PAIRS + 2))
        if self._too_much(best, start):
            return self._in_turns(best, start, length)
        winner = self.incumbent.running if self.incumbent is not None else self._start(best)
        other = self._start(start)
        ours: list[TrialBlock] = []
        theirs: list[TrialBlock] = []
        while len(ours) < 2 or (self.clock() - begun < 2 * self.each and len(ours) < 2 * PAIRS):
            for running, blocks in ((winner, ours), (other, theirs))[:: 1 if len(ours) % 2 == 0 else -1]:
                blocks.append(self._block(running, length))
        return ours, theirs

    def _in_turns(self, best: Settings, start: Settings, length: float) -> tuple[list[TrialBlock], list[TrialBlock]]:
        """Both do not fit the limits together: one after the other, twice."""
        if self.incumbent is not None:
            self._close(self.incumbent.running)
            self.incumbent = None
        blocks: dict[Settings, list[TrialBlock]] = {best: [], start: []}
        for settings in (best, start, start, best):
            running = self._start(settings)
            blocks[settings].append(self._block(running, length))
            self._close(running)
        return blocks[best], blocks[start]

    def _too_much(self, settings: Settings, other: Settings) -> bool:
        """Whether both together would break a limit."""
        assert self.footprint is not None
        mine, theirs = self.footprint.predict(settings), self.footprint.predict(other)
        return refusal(self.plan.limits, _together(mine, [theirs])) is not None

    def _certify(self, best: TrialResult) -> None:
        """A few more blocks of what stays, so that the certificate does not rest on the trial that chose it."""
        length = max(SHORTEST, self.each / (2 * PAIRS + 2))
        running = self.incumbent.running if self.incumbent is not None and self.incumbent.seen.settings == best.settings else None
        try:
            running = running or self._start(best.settings)
            self.last[best.settings] = [self._block(running, length) for _ in range(CERTIFYING)]
        except TrialEnded:
            return

    # -- telling -------------------------------------------------------------------------------------------------------

    def _say(self, phase: str) -> None:
        self.progress(phase, min(1.0, (self.clock() - self.begun) / self.plan.budget))

    def _refusals(self) -> list[TrialLine]:
        known = {one.settings.normal() for one in self.tried}
        return [TrialLine(settings, "", "refused", reason=why) for settings, why in self.refused.items() if settings not in known]


def _together(one: Usage, others: Sequence[Usage]) -> Usage:
    """What runs side by side takes. CPU is each one's own: they run in turn."""
    return Usage(
        one.memory_bytes + sum(other.memory_bytes for other in others),
        one.shm_bytes + sum(other.shm_bytes for other in others),
        max([one.files, *(other.files for other in others)]),
        one.cores,
        one.vram_bytes + sum(other.vram_bytes for other in others),
    )
