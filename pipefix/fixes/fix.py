"""One run of ``fix``: look, apply the best remedy, verify it, keep it or take it back, and look again until it is good enough."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pipefix.fixes import apply_plan, fix_log, speedup
from pipefix.fixes.attempt import Ask, Attempt, FixContext, Fixer, Look, ProbeResult, compared
from pipefix.fixes.cache_process import Builder, Say
from pipefix.fixes.choice import Wishes, candidates, condition, fixer_for, is_called, refused, too_little, why_not
from pipefix.fixes.fix_log import Log, settle
from pipefix.fixes.outcome import Applied, Fixed, Measured, Outcome, Refused, Sameness
from pipefix.loader.planning import planned
from pipefix.measurement.consumer import Consumer
from pipefix.plan import backups, planfile
from pipefix.plan.plan import Plan, Proposed
from pipefix.plan.planfile import BeforeAfter, CacheChange, LoaderChange, PlanFile
from pipefix.plan.remedies.scheduling import PersistentWorkers
from pipefix.subject.subject import Subject
from pipefix.system.machine import Machine
from pipefix.vocabulary.errors import BadUsage, PipefixError, UnreadableFile
from pipefix.vocabulary.quantity import times_between
from pipefix.vocabulary.version import VERSION

MOST_STEPS = 10
"""Kept in one run: a pipeline that still gains then is looked at again by another."""
LOOKING = 0.6
"""Part of a round's time that the probe has; verifying has the rest."""
RUN_FILE = "pipefix.after.json"
UNSEEN = "pictures are made by {}, which no probe sees into, so nothing more is looked for; --undo takes them back"


@dataclass
class Session:
    subject: Subject
    consumer: Consumer
    machine: Machine
    folder: Path
    wishes: Wishes
    look: Look
    say: Say
    ask: Ask | None = None
    """Asks the user yes or no; None where nobody can be asked."""
    plan: PlanFile = field(default_factory=PlanFile)
    outcomes: list[Outcome] = field(default_factory=list)
    seen: list[ProbeResult] = field(default_factory=list)
    stopped: str = ""
    total: Measured | None = None
    whole_same: Sameness | None = None
    log: Log = field(init=False)
    _builder: Builder = field(init=False)
    _told: set[str] = field(default_factory=set)
    _went_on: bool = False
    _followed: bool = False
    """The code names the plan that lay there: the whole is held against that, and not against none."""
    _attempt: Attempt | None = None
    _left_alone: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log, self._builder = Log(self.folder), Builder(self.subject)

    def run(self) -> Fixed:
        """Do it. What was kept stays kept however it ends."""
        if self.wishes.dry_run:
            return self._rehearse()
        interrupted = False
        with self.log as log, self._builder:
            settle(self.folder)
            self._take_up()
            log.write("started", target=self.subject.target, pipefix=VERSION)
            try:
                interrupted = not self._rounds()
                if not interrupted:
                    self._confirm()
                    self._remove_unused()
            except KeyboardInterrupt:
                interrupted = True
            finally:
                with contextlib.suppress(UnreadableFile):  # a full disk: the next run settles it
                    settle(self.folder)
            if interrupted:
                self.stopped = "interrupted"
                if self._attempt is not None and self._attempt.number in backups.numbers(self.path):
                    self.outcomes.append(self._kept(self._attempt))
                elif self._attempt is not None:
                    log.write("dropped", step=self._attempt.number, id=self._attempt.step.id, why="interrupted")
            # In the log it is the gain of the whole plan over none.
            log.write("ended", why=self.stopped, measured=None if self._followed else self.total)
            return self._fixed(interrupted=interrupted)

    def _take_up(self) -> None:
        """Start from the plan that lies there."""
        text = planfile.text_of(self.path)
        if text is None:
            return
        self.plan = planfile.decode(text, origin=str(self.path))
        followed, _ = getattr(self.subject.loader, "follows", None) or (None, None)
        if followed != self.plan and not self.plan.is_for(self.subject.plan_target):
            problem = f"{self.path} is the plan of {self.plan.target}, not of {self.subject.plan_target}."
            raise BadUsage(problem, advice="Give this target a folder of its own: --out DIR")
        cache = self.plan.cache
        if cache is not None and cache.is_of_fix and not os.path.lexists(self.folder / cache.path):
            # Removed to have its room, or left behind when the plan went to another machine.
            self.plan = msgspec.structs.replace(self.plan, cache=None)
            gone = f"The cache {cache.path}, which the plan names, was not there."
            self._left_alone.append(f"{gone} If it was not made anew now, take [cache] out of the plan.")
        went_on = any((self.plan.loader, self.plan.cache, self.plan.augmentation))
        self._went_on, self._followed = went_on and followed is None, went_on and followed is not None

    def _unseen(self) -> str | None:
        """Why the pipeline is not probed any more; None where it can be."""
        if planned.by_dali(self.plan):
            return UNSEEN.format("DALI")
        return UNSEEN.format("fused calls") if self.plan.loader is not None and self.plan.loader.fuse is not None else None

    def _rehearse(self) -> Fixed:
        self._take_up()
        self.stopped = self._unseen() or ""
        if self.stopped:
            return msgspec.structs.replace(self._fixed(interrupted=False), dry=True)
        probed = self._look()
        ahead = []
        for step in self._wanted(probed.plan):
            fixer = fixer_for(step)
            why = fixer.refuses(step, self._context()) or too_little(step, self.wishes.min_gain)
            if why is None:
                ahead.append(refused(step, condition(step, fixer) or ""))
            else:
                self.outcomes.append(refused(step, why))
        self.stopped = "interrupted" if not probed.whole else "a dry run: nothing was changed"
        return msgspec.structs.replace(self._fixed(interrupted=not probed.whole), dry=True, ahead=ahead)

    def _rounds(self) -> bool:
        """Look, and try what is proposed, until nothing more is. False where a look was interrupted."""
        if not self._look_and_try():
            return False
        applied = self.applied
        if applied and self.wishes.only is None and PersistentWorkers.id not in self._told:
            step = speedup.workers_kept_up(self._pipeline(self.plan).subject, applied[-1].measured.after.value)
            if step is not None and too_little(step, self.wishes.min_gain) is None:
                self.outcomes.append(self._try(step))
        return True

    def _look_and_try(self) -> bool:
        for _ in range(MOST_STEPS):
            self.stopped = self._unseen() or ""
            if self.stopped:
                return True
            probed = self._look()
            if not probed.whole or not self._advance(probed.plan):
                return probed.whole
        self.stopped = f"{MOST_STEPS} steps were kept; another pipefix fix goes on from here"
        return True

    def _advance(self, plan: Plan) -> bool:
        """Try what the plan proposes until something is kept. False where nothing was."""
        for step in self._wanted(plan):
            if step.id in self._told:
                continue
            little = None if step.change is None else too_little(step, self.wishes.min_gain)
            if little is not None:
                self.stopped = f"good enough: the best that is left, {step.id}, {little}"
                return False
            self._told.add(step.id)
            self.outcomes.append(self._try(step))
            if isinstance(self.outcomes[-1], Applied):
                return True
        only, no_more = self.wishes.only, "the probe proposes nothing more that can be applied"
        self.stopped = self.stopped or (f"only {only} was asked for" if only else no_more)
        return False

    def _wanted(self, plan: Plan) -> list[Proposed]:
        only = self.wishes.only
        if only is None:
            return candidates(list(plan.proposed), self.wishes.min_gain)
        if self._told:
            return []  # what was asked for had its turn
        named = [step for step in plan.proposed if is_called(step.id, only)]
        if not named:
            self.outcomes += why_not(plan, only)
        return candidates(named, self.wishes.min_gain)

    # -- looking -------------------------------------------------------------------------------------------------------

    def _context(self) -> FixContext:
        return FixContext(self.subject, self.plan, self.folder, self._builder)

    def _pipeline(self, plan: PlanFile) -> speedup.Pipeline:
        if plan.loader is None and plan.cache is None and plan.augmentation is None:
            return speedup.Pipeline(self.subject, self.consumer)
        subject = apply_plan.fixed(self.subject, plan, self.folder)
        return speedup.Pipeline(subject, apply_plan.consumer(self.consumer, self.subject, plan, self.folder))

    def _look(self) -> ProbeResult:
        now = self._pipeline(self.plan)
        self.seen.append(self.look(now.subject, now.consumer, LOOKING * self.wishes.budget))
        return self.seen[-1]

    # -- one step ------------------------------------------------------------------------------------------------------

    def _try(self, step: Proposed) -> Outcome:
        fixer, context = fixer_for(step), self._context()
        why = fixer.refuses(step, context) or self._not_allowed(step, fixer)
        if why is not None:
            self.log.write("refused", id=step.id, why=why, predicted=step.speedup)
            return refused(step, why, command=step.command if step.change is None else None)
        makes = step.change.path if isinstance(step.change, CacheChange) else None
        attempt = self._attempt = Attempt(step, makes, backups.next_number(self.path))
        self.log.write("begun", step=attempt.number, id=step.id, makes=attempt.makes, predicted=step.speedup)
        try:
            attempt.plan = self.plan.merged(fixer.change(step, context))
            begun = time.perf_counter()
            fixer.make(step, context, self.say)
            attempt.seconds = time.perf_counter() - begun
            now, then = self._pipeline(self.plan), self._pipeline(attempt.plan)
            seconds = (1 - LOOKING) * self.wishes.budget
            on_batch = planned.module(self.subject.dataset, attempt.plan, self.folder)
            why = attempt.judge(self.plan, now, then, on_batch, alters=fixer.alters(step), seconds=seconds, say=self.say)
        except PipefixError as error:
            why = str(error).rstrip(".")
        except OSError as error:
            why = f"{error.strerror or error}"
        outcome = self._drop(attempt, why) if why is not None else self._keep(attempt)
        self._attempt = None
        return outcome

    def _not_allowed(self, step: Proposed, fixer: Fixer) -> str | None:
        question = condition(step, fixer)
        if question is None or self.wishes.yes:
            return None
        if self.ask is None:
            return f"{question}: --yes allows it"
        agreed = self.ask(f"{step.title}: {times_between(step.speedup)} predicted; {question}. Do it?")
        return None if agreed else f"{question}: declined"

    def _drop(self, attempt: Attempt, why: str) -> Refused:
        step = attempt.step
        self._remove_unused(attempt.makes)  # first, where the disk is full of it
        self.log.write("dropped", step=attempt.number, id=step.id, why=why, measured=attempt.measured, same=attempt.same)
        return refused(step, why, measured=attempt.measured, same=attempt.same)

    def _remove_unused(self, only: str | None = "") -> None:
        """Remove caches that no plan names: all of them, or this one alone. What an attempt would have made may be None."""
        if only is None:
            return
        removed, left = fix_log.remove_unused(self.folder, only or None)
        self._left_alone += [sentence for sentence in left if sentence not in self._left_alone]
        for path in removed:
            self.log.write("removed", makes=path)

    def _keep(self, attempt: Attempt) -> Outcome:
        assert attempt.measured is not None
        evidence = BeforeAfter(before=attempt.measured.before, after=attempt.measured.after, run=RUN_FILE)
        plan = apply_plan.with_evidence(attempt.plan, self.plan, evidence)
        workers = self.subject.given.get("workers")
        if workers is not None and (plan.loader is None or plan.loader.num_workers is None):
            plan = plan.merged(LoaderChange(num_workers=workers))  # what was measured had them, and the code has not
        machine = apply_plan.tuned_on(self.machine)
        attempt.plan = msgspec.structs.replace(plan, target=self.subject.plan_target, machine=machine)
        try:
            attempt.number = backups.replace(self.path, planfile.encode(attempt.plan))
        except UnreadableFile as error:
            return self._drop(attempt, str(error).rstrip("."))
        return self._kept(attempt)

    def _kept(self, attempt: Attempt) -> Applied:
        """Tell of a step whose plan is in its place: it holds, whatever becomes of the next line."""
        step, measured, same = attempt.step, attempt.measured, attempt.same
        assert measured is not None
        assert same is not None
        self.plan = attempt.plan
        self.log.write("kept", step=attempt.number, id=step.id, measured=measured, same=same)
        made = (self.folder / attempt.makes).rglob("*") if attempt.makes else None
        return Applied(
            id=step.id, title=step.title, stage=str(step.stage), predicted=step.speedup, measured=measured, same=same,
            step=attempt.number, makes=attempt.makes, seconds=attempt.seconds,
            disk_bytes=sum(path.stat().st_size for path in made if path.is_file()) if made is not None else None,
        )  # fmt: skip

    # -- the end -------------------------------------------------------------------------------------------------------

    def _confirm(self) -> None:
        """The whole plan against no plan: steps that each helped are not believed to have helped together until that is seen."""
        applied = self.applied
        if not applied:
            return
        first, last = speedup.Pipeline(self.subject, self.consumer), self._pipeline(self.plan)
        unequal = [outcome.same.sentence for outcome in applied if outcome.same.kind in ("order", "different")]
        altered = "; ".join(dict.fromkeys(sentence.partition(":")[0] for sentence in unequal)) or None
        on_batch = planned.module(self.subject.dataset, self.plan, self.folder)
        self.whole_same = compared(PlanFile(), first.subject, self.plan, last.subject, on_batch, alters=altered)
        workers = {pipeline.subject.loader.num_workers for pipeline in (first, last)}
        epochs = any(outcome.measured.epochs for outcome in applied) or len(workers) > 1  # those have to be started
        self.total = speedup.faster(first, last, seconds=(1 - LOOKING) * self.wishes.budget, epochs=epochs, say=self.say)
        if not self.total.slower:
            return
        why = f"all steps together made it slower: {times_between(self.total.gain)}"
        for outcome in reversed(applied):
            backups.put_back(self.path, written=planfile.encode(self.plan))
            text = planfile.text_of(self.path)
            self.plan = planfile.decode(text, origin=planfile.NAME) if text is not None else PlanFile()
            self.log.write("undone", step=outcome.step, id=outcome.id, why=why)
            self.outcomes[self.outcomes.index(outcome)] = Refused(
                id=outcome.id, title=outcome.title, stage=outcome.stage, why=why,
                predicted=outcome.predicted, measured=outcome.measured, same=outcome.same,
            )  # fmt: skip
        self.total, self.stopped = None, why

    def held_after(self, error: PipefixError) -> Fixed:
        """What holds, and why it ended."""
        self.stopped = str(error).rstrip(".")
        return self._fixed(interrupted=True)

    def _fixed(self, *, interrupted: bool) -> Fixed:
        now = self.plan.cache.path if self.plan.cache is not None else None
        made = [outcome.makes for outcome in self.applied]
        return Fixed(
            target=self.subject.target, program=list(self.subject.program), folder=str(self.folder),
            plan=str(self.path) if self.path.exists() else None, went_on=self._went_on, interrupted=interrupted,
            outcomes=list(self.outcomes), stopped=self.stopped, total=self.total, same=self.whole_same,
            length=self.subject.epoch, no_longer_read=[makes for makes in made if makes and makes != now],
            left_alone=[*self._left_alone, *self.log.unwritten],
        )  # fmt: skip

    @property
    def applied(self) -> list[Applied]:
        return [outcome for outcome in self.outcomes if isinstance(outcome, Applied)]

    @property
    def path(self) -> Path:
        return self.folder / planfile.NAME
