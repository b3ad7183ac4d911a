"""Runs the trials that the search asks for, within the limits and the time there is, and holds the winner against the start."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from pipefix.measurement.budget import Progress
from pipefix.measurement.statistics import in_turn
from pipefix.tuning import block_figures as figures
from pipefix.tuning.limits import BatchCost, Footprint, StartTimes, Usage, ending, refusal
from pipefix.tuning.results import Trial, TuneResult, TuningPlan, trial_of, why_none_is_better
from pipefix.tuning.search import Finished, Search, confirmed
from pipefix.tuning.space import Settings, most_workers, said
from pipefix.tuning.trial import TrialEnded, TrialProcess, TrialProcesses, Watch
from pipefix.vocabulary.errors import BadUsage, TargetError
from pipefix.vocabulary.quantity import Interval, counted

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


@dataclass
class _Contender:
    """Settings with a process that runs them, and how their trial went."""

    running: TrialProcess
    trial: Trial


Blocks = list[figures.TrialBlock]


class Tuner:
    def __init__(
        self, bench: TrialProcesses, plan: TuningPlan, *,
        progress: Progress = lambda *_: None, clock: Callable[[], float] = time.perf_counter,
    ) -> None:  # fmt: skip
        self.bench, self.plan, self._clock = bench, plan, clock
        self.late = 0.0
        """Seconds that first steps of trials took beside steps, such as compiling: they are not taken off the budget."""
        self.begun = clock()
        self.progress = progress
        self.search = Search(plan.space, plan.goal, plan.start, plan.most_trials)
        self.trials: list[Trial] = []
        self.refused: dict[Settings, str] = {}
        self.batch: BatchCost | None = None
        self.footprint: Footprint
        self.starts = StartTimes(plan.space.cores, 0.0)
        self._until, self._latest = math.inf, 0.0
        """When the running trial is ended, for the budget's sake; the longest first step so far: others may take as long."""
        self.live: list[TrialProcess] = []
        self.best: _Contender | None = None
        """The best so far, whose process lives on as the measure of the next trial."""
        self.last: dict[Settings, Blocks] = {}
        self.error: TargetError | None = None

    def clock(self) -> float:
        return self._clock() - self.late

    def _block(self, running: TrialProcess) -> figures.TrialBlock:
        block = running.block(max(SHORTEST, self.each / (2 * PAIRS + 2)))
        self.late += block.late_s
        self._latest = max(self._latest, block.late_s)
        return block

    @property
    def left(self) -> float:
        return self.plan.budget - (self.clock() - self.begun)

    @property
    def each(self) -> float:
        """Seconds for a trial: the start and the confirmation are as long as two."""
        return self.plan.budget / (self.plan.most_trials + 3)

    def run(self) -> TuneResult:
        """Partial where the user interrupts it."""
        enough, partial, chosen = "", False, self.plan.start
        why_kept: str | None = None
        before = after = None
        try:
            self._look()
            enough = self._trials()
            chosen, why_kept, before, after = self._confirm()
        except KeyboardInterrupt:
            enough, partial = "it was interrupted", True
            why_kept = "it was interrupted before the settings found could be held against the start"
        finally:
            for running in list(self.live):
                self._close(running)
        if not any(trial.ran for trial in self.trials) and self.error is not None and not partial:
            raise self.error
        last = self.last.get(chosen.normal(), [])
        tried = {trial.settings for trial in self.trials}
        refused = [Trial(settings, status="refused", reason=why) for settings, why in self.refused.items() if settings not in tried]
        return TuneResult(
            tried=(*self.trials, *refused), chosen=chosen, kept=why_kept, before=before, after=after, blocks=tuple(last),
            batch=self.batch, enough=enough, partial=partial,
            seconds=self.clock() - self.begun, started_s=last[-1].started_s if last else 0.0,
            used=next((trial.used for trial in self.trials if trial.settings == chosen.normal()), Usage()),
        )  # fmt: skip

    # -- before the trials ---------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._say("making a few batches")
        why = refusal(self.plan.limits, self.bench.own())
        if why is not None:
            nothing = f"Nothing can be run within the limits: before the first batch is made, {why}."
            raise BadUsage(nothing, advice="Give it more room.")
        try:
            batch = self.bench.look(self.plan.start.but(workers=0).normal(), self._watch_of([]))
        except TrialEnded as end:
            if end.error is not None:
                raise end.error from end
            problem = f"Not even one process without workers could make a few batches: {end}."
            raise TargetError(problem, advice="Give it more room, or a smaller batch: --batch-size 8.") from end
        self.batch, self.footprint = batch, Footprint(batch)
        self.starts = replace(self.starts, batch_s=batch.seconds)
        if batch.why_none:
            goal = replace(self.plan.goal, has_consumer=False)
            self.plan, self.search = replace(self.plan, goal=goal), replace(self.search, goal=goal)
        space = self.plan.space
        if space.open:
            most = max(space.most_workers, most_workers(space.cores, self.plan.start.workers, batch.computing))
            self.search = replace(self.search, space=replace(space, most_workers=most))

    def _fits(self, settings: Settings) -> str | None:
        why, space = refusal(self.plan.limits, self.footprint.predict(settings)), self.search.space
        if not space.open and settings.workers > space.most_workers:
            why = f"no more than {counted(space.most_workers, 'worker')} may be tried"
        if why is None and settings.normal() != self.plan.start.normal():
            why = self.starts.too_long(settings.workers, self.each)
        if why is not None:
            self.refused.setdefault(settings.normal(), why)
        return why

    def _fit_together(self, settings: Settings, used: Usage) -> bool:
        """Whether settings may run beside what takes so much."""
        return refusal(self.plan.limits, self.footprint.predict(settings).beside([used])) is None

    def _watch_of(self, mine: list[TrialProcess]) -> Watch:
        """Watches one trial, and with it all others that run."""
        latest: Usage | None = None

        def watch(now: Usage) -> str | None:
            nonlocal latest
            before, latest = latest, now.beside([running.now for running in self.live if running not in mine])
            if self.clock() > self._until and mine and (self.best is None or mine[0] is not self.best.running):
                return f"it was not measured by the time that the budget of {self.plan.budget:.0f} s leaves it"
            return ending(self.plan.limits, latest, before)

        return watch

    def _start(self, settings: Settings) -> TrialProcess:
        """Start settings; where they do not fit beside the best so far, that one makes room."""
        if self.best is not None and not self._fit_together(settings, self.best.running.used):
            self._dismiss()
        mine: list[TrialProcess] = []
        mine.append(self.bench.start(settings, self._watch_of(mine)))
        self.live += mine
        return mine[0]

    def _close(self, running: TrialProcess) -> None:
        running.close()
        if running in self.live:
            self.live.remove(running)

    def _dismiss(self) -> None:
        if self.best is not None:
            self._close(self.best.running)
            self.best = None

    def _trials(self) -> str:
        while True:
            proposal = self.search.next(self.trials, self.footprint.batch, fits=self._fits)
            if isinstance(proposal, Finished):
                return proposal.why
            if self.trials and self.left < self.starts.needed(proposal.settings.workers, self.plan.start.workers, self.each):
                return f"the {self.plan.budget:.0f} s were spent"
            self._say(f"trial {len(self.trials) + 1}: {said(proposal.settings)}")
            self._trial(proposal.settings, proposal.why)

    def _trial(self, settings: Settings, why: str) -> None:
        begun = self.clock()
        if self.trials:  # the first are the settings as they are, without which nothing can be told
            self._until = begun + self.starts.longest_trial(settings.workers, self.each, self.left) + 2 * self._latest
        running: TrialProcess | None = None
        try:
            running = self._start(settings)
            blocks, level, doubt = self._beside_the_best(running, begun)
        except TrialEnded as end:
            self._ended(settings, why, end, running, begun)
            return
        measured_trial = trial_of(settings, blocks, figures.around(level, doubt), self.plan.goal)
        trial = msgspec.structs.replace(
            measured_trial, why=why, used=running.used, seconds=self.clock() - begun,
            alone=self.best is None and any(before.ran for before in self.trials),
        )  # fmt: skip
        self.footprint = self.footprint.with_trial(settings, running.used)
        self.starts = self.starts.with_start(settings.workers, trial.started_s)
        self.trials.append(trial)
        self.last[settings.normal()] = blocks
        best = self.search.best(self.trials)
        if self.best is None or (best is not None and best.settings == trial.settings):
            self._dismiss()
            self.best = _Contender(running, trial)
        else:
            self._close(running)

    def _ended(self, settings: Settings, why: str, end: TrialEnded, running: TrialProcess | None, begun: float) -> None:
        used = running.used if running is not None else Usage()
        if running is not None:
            self._close(running)
        if self.best is not None and self.best.running not in self.live:
            self.best = None
        self.error = self.error or end.error
        if end.limit:
            self.footprint = self.footprint.with_trial(settings, used, ended=True)
        status, seconds = "ended" if end.limit else "failed", self.clock() - begun
        if self.clock() > self._until:
            self.starts = self.starts.with_start(settings.workers, seconds)
        self.trials.append(Trial(settings.normal(), status=status, why=why, reason=str(end), used=used, seconds=seconds))

    def _beside_the_best(self, running: TrialProcess, begun: float) -> tuple[Blocks, float, float]:
        """Blocks of settings in turn with those of the best so far: the blocks, the level they put the settings at, its doubt."""
        blocks: Blocks = []
        logs: list[float] = []
        while len(blocks) < PAIRS and (len(blocks) < 1 or self.clock() - begun < self.each):
            blocks.append(self._block(running))
            if self.best is None:
                continue
            try:
                beside = self._block(self.best.running)
            except TrialEnded:
                self._dismiss()
                continue
            self.last.setdefault(self.best.trial.settings, []).append(beside)
            logs.append(math.log(blocks[-1].rate / beside.rate))
            if len(logs) == 1 and logs[0] < math.log(HOPELESS):
                break
        if not logs or self.best is None:
            alone = [math.log(block.rate) for block in blocks]
            return blocks, math.exp(sum(alone) / len(alone)), max(ALONE_DOUBT, figures.doubt(alone))
        level = self.best.trial.level * math.exp(sum(logs) / len(logs))
        return blocks, level, math.hypot(figures.doubt(logs), 0.3 * self.best.trial.doubt)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _confirm(self) -> tuple[Settings, str | None, Interval | None, Interval | None]:
        """The winner and the start side by side once more: the best of several noisy trials is overestimated."""
        start, self._until = self.plan.start.normal(), math.inf
        best = self.search.best(self.trials)
        if best is None:
            return self.plan.start, "no settings could be run", None, None
        first = next((trial for trial in self.trials if trial.settings == start), None)
        if first is None or not first.ran:
            return best.settings, None, None, best.rate
        if best.settings == start:
            self._certify(best)
            return self.plan.start, why_none_is_better(self.trials, start), best.rate, best.rate
        self._say(f"confirming {said(best.settings)}")
        try:
            best_blocks, start_blocks = self._side_by_side(best.settings, start)
        except TrialEnded as end:
            return self.plan.start, f"the settings found did not run again: {end}", None, None
        self.last[best.settings], self.last[start] = best_blocks, start_blocks
        why_kept, before, after = confirmed(best.settings, best_blocks, start, start_blocks, self.plan.goal)
        return (best.settings, None, before, after) if why_kept is None else (self.plan.start, why_kept, before, before)

    def _side_by_side(self, best: Settings, start: Settings) -> tuple[Blocks, Blocks]:
        """Blocks of both in turn; where both do not fit the limits together, one after the other, twice."""
        begun = self.clock()
        if self.best is not None and self.best.trial.settings != best:
            self._dismiss()
        most = 2 * PAIRS
        if self._fit_together(best, self.footprint.predict(start)):
            ours = self.best.running if self.best is not None else self._start(best)
            pairs = in_turn(partial(self._block, ours), partial(self._block, self._start(start)))
        else:
            self._dismiss()
            pairs, most = in_turn(partial(self._block_of, best), partial(self._block_of, start)), 2
        block_pairs: list[tuple[figures.TrialBlock, figures.TrialBlock]] = []
        for pair in pairs:
            block_pairs.append(pair)
            if len(block_pairs) >= 2 and (len(block_pairs) >= most or self.clock() - begun >= 2 * self.each):
                break
        return [block for block, _ in block_pairs], [block for _, block in block_pairs]

    def _block_of(self, settings: Settings) -> figures.TrialBlock:
        """By a process of its own, which is gone afterwards."""
        running = self._start(settings)
        block = self._block(running)
        self._close(running)
        return block

    def _certify(self, best: Trial) -> None:
        """A few more blocks of what stays, so that the certificate does not rest on the trial that chose it."""
        with suppress(TrialEnded):
            is_running = self.best is not None and self.best.trial.settings == best.settings
            running = self.best.running if self.best is not None and is_running else self._start(best.settings)
            self.last[best.settings] = [self._block(running) for _ in range(CERTIFYING)]

    def _say(self, phase: str) -> None:
        self.progress(phase, min(1.0, (self.clock() - self.begun) / self.plan.budget))
