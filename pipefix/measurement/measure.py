"""Run the experiments on one subject within a time budget, interleaved, and keep what was seen."""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from pipefix.measurement import burner, cgroups, experiments, gpu, residency, startup, transfer
from pipefix.measurement.consumer import Consumer, Emulated, UserStep
from pipefix.measurement.experiments import Experiment
from pipefix.measurement.measurement import Block, Measurement, Row
from pipefix.measurement.replay import Pool, without_recording
from pipefix.measurement.stand_in import StandInOptions
from pipefix.subject.subject import Subject
from pipefix.vocabulary.stage import IN_SAMPLE, Stage

RECORD_SHARE = 0.18
"""Part of the budget that recording may take."""
ROUNDS = 4
"""Rounds of all arms that the block length is chosen for."""
SHORTEST, LONGEST = 0.04, 1.5
"""Seconds of steady state in a block."""
SMALL_STAGE = 0.02
"""A stage below this share of the sample's time gets no arm of its own: its removal can gain no more than that."""
MOST_UNITS, FEWEST_UNITS = 2048, 48

_UNREAL = ("/proc/", "/sys/", "/dev/")
"""Files of these trees are made up when read: there is nothing to evict."""

Progress = Callable[[str, float], None]


def silent(phase: str, done: float) -> None:
    """Tell nobody how far the measurement is."""


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    budget: float = 60.0
    """Seconds for everything."""
    recording_bytes: int = 1_000_000_000
    trial_workers: tuple[int, ...] = ()
    """Worker counts to try for real."""
    events: bool = False
    observe: Callable[[Any], dict[str, float]] | None = None
    enough: Callable[[Measurement], bool] | None = None
    """Asked after every round: whether the verdict is settled."""
    seed: int = 0
    """Of the sampler's order where the user gave it no generator of its own."""
    progress: Progress = silent


class _Clock:
    """What is left of the budget."""

    def __init__(self, budget: float) -> None:
        self.begun = time.perf_counter()
        self.budget = budget

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.begun

    @property
    def left(self) -> float:
        return self.budget - self.spent


def measure(subject: Subject, consumer: Consumer, plan: Plan, *, cores: float) -> Measurement:
    """The measurement of ``subject``; partial where the user interrupts it."""
    settings = subject.settings
    found = Measurement(settings, settings.num_workers, cores, consumer.name, consumer.present)
    clock = _Clock(plan.budget)
    before = cgroups.throttle()
    with _untouched_rng(subject):
        torch.manual_seed(plan.seed)
        try:
            _measure(subject, consumer, plan, clock, found)
        except KeyboardInterrupt:
            found.partial = True
    found.seconds = clock.spent
    found.throttled = cgroups.throttle().share_since(before)
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    found.peak_rss = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + children * settings.num_workers)
    return found


def _measure(subject: Subject, consumer: Consumer, plan: Plan, clock: _Clock, found: Measurement) -> None:
    workers = found.workers
    share = plan.recording_bytes // max(1, workers)
    options = StandInOptions(share, workers, events=plan.events, observe=plan.observe)
    pool = Pool(subject, options, consumer)
    session = _Session(subject, consumer, plan, clock, found, pool)
    try:
        session.record()
        session.alone()
        with gpu.NvmlWatch() as watch:
            session.rounds()
        found.nvml = watch.figures
        session.cold()
    finally:
        session.close()
    if clock.left > 0.05 * plan.budget and not found.partial:
        plan.progress("measuring start-up", clock.spent / plan.budget)
        startup.measure(subject, found, clock.left)


class _Session:
    """One run through the experiments."""

    def __init__(self, subject: Subject, consumer: Consumer, plan: Plan, clock: _Clock, found: Measurement, pool: Pool) -> None:
        self.subject = subject
        self.consumer = consumer
        self.plan = plan
        self.clock = clock
        self.found = found
        self.pool = pool
        self.trials: dict[str, Pool] = {}
        self.known: list[Any] = []
        self.paths: list[str] = []
        self.round_seconds = 0.0
        """How long all workers take for a batch each, in the real arm."""

    def close(self) -> None:
        for pool in (*self.trials.values(), self.pool):
            pool.close()

    def say(self, phase: str) -> None:
        self.plan.progress(phase, min(1.0, self.clock.spent / self.plan.budget))

    # -- recording -----------------------------------------------------------------------------------------------------

    def record(self) -> None:
        self.say("recording samples")
        found, workers = self.found, max(1, self.found.workers)
        batch = found.settings.batch_size or 1
        in_flight = found.workers * self.pool.prefetch
        wanted = min(MOST_UNITS, max(FEWEST_UNITS, batch * (in_flight + 4 * workers)))
        if found.settings.length is not None:
            wanted = min(wanted, found.settings.length - 2 * workers)
        per_worker = max(1, wanted // workers)
        if self.subject.batched_fetch:
            per_worker = max(1, per_worker // batch)
        rows = self.pool.record(per_worker, RECORD_SHARE * self.plan.budget)
        last: dict[int, Row] = {}
        for row in rows:
            last[row.trace.worker] = row
            self.known += row.trace.units
            self.paths += row.trace.paths
        found.recorded_units = sum(row.trace.recorded for row in last.values())
        found.recorded_bytes = sum(row.trace.recorded_bytes for row in last.values())
        self._learn(list(last.values()))
        self.pool.turn_to(experiments.PLAIN)
        self.pool.keep_batch()

    def _learn(self, rows: list[Row]) -> None:
        found = self.found
        for row in rows:
            found.refused.update(row.trace.refused)
            found.opaque.update(row.trace.opaque)
            found.mixed = sorted({*found.mixed, *row.trace.mixed})
            found.seams = sorted({*found.seams, *row.trace.seams})

    # -- arms ----------------------------------------------------------------------------------------------------------

    def rounds(self) -> None:
        first = self.pool.block(experiments.REAL, SHORTEST, most=max(2.0, self.clock.left))
        self.round_seconds = first.seconds * max(1, self.found.workers) / max(1, len(first.rows))
        arms = self._arms(first)
        self._start_trials(first)
        reserve = 0.12 * self.plan.budget
        length = self._block_length(arms, reserve)
        done = 0
        while True:
            lap = time.perf_counter()
            for arm in arms if done % 2 == 0 else arms[::-1]:
                if self.clock.left < reserve and self.found.of(experiments.REAL.name):
                    break
                if done % arm.every:
                    continue
                self.say(f"round {done + 1}: {arm.name}")
                self._run(arm, length * arm.length)
            for name, pool in self.trials.items():
                if self.clock.left >= reserve or not self.found.trials.get(name):
                    self._trial(name, pool, length)
            done += 1
            if self.clock.left < reserve + 0.5 * (time.perf_counter() - lap):
                return
            if done >= 3 and self.plan.enough is not None and self.plan.enough(self.found):
                return

    def _run(self, arm: Experiment, seconds: float) -> Block:
        most = max(2.0, self.clock.left)
        block = self.pool.block(arm, seconds, most=most)
        self.found.blocks.append(block)
        for row in self.pool.told:
            self.found.looks.setdefault(row.trace.pid, []).append((row.trace.samples_made, row.trace.facts))
        self.pool.told.clear()
        for row in block.rows:
            self.found.events += [(row.trace.pid, *event) for event in row.trace.events]
        return block

    def _arms(self, first: Block) -> list[Experiment]:
        """Those arms that can tell something about this pipeline; the others are declined with the reason."""
        declined = self.found.declined
        spent = dict.fromkeys(IN_SAMPLE, 0)
        for row in first.rows:
            for charge in row.trace.charges:
                if charge.stage is not None:
                    spent[Stage(charge.stage)] += charge.wall
        total = sum(row.trace.ended - row.trace.begun for row in first.rows) or 1
        chosen = [experiments.REAL, experiments.PLAIN]
        for arm in experiments.POOL:
            if arm in (experiments.RECORD, experiments.REAL, experiments.PLAIN, experiments.COLD):
                continue
            why = self._useless(arm, {stage: value / total for stage, value in spent.items()})
            if why is None:
                chosen.append(arm)
            else:
                declined[arm.name] = why
        return chosen

    def _useless(self, arm: Experiment, share: dict[Stage, float]) -> str | None:
        if not arm.consumer and not self.consumer.present and arm is experiments.SUPPLY:
            return "there is no consumer to leave out"
        if not self.found.workers and arm.replaces & {Stage.IPC}:
            return "there are no workers, so nothing crosses a process border"
        if "batch" in self.found.refused and Stage.COLLATE in arm.replaces:
            return f"batches cannot be recorded: {self.found.refused['batch']}"
        replaced = arm.replaces & set(IN_SAMPLE)
        if replaced and Stage.COLLATE not in arm.replaces and sum(share[stage] for stage in replaced) < SMALL_STAGE:
            names = ", ".join(sorted(replaced))
            return f"{names} took under {SMALL_STAGE:.0%} of the sample's time, so replacing it can gain no more"
        if {Stage.STORAGE, Stage.DECODE} == set(arm.replaces) and min(share[stage] for stage in replaced) < SMALL_STAGE:
            return "the same as replacing the larger of storage and decode"
        return None

    def _block_length(self, arms: list[Experiment], reserve: float) -> float:
        """Seconds of steady state a block, so that about `ROUNDS` rounds fit. Every block also has its first rounds to throw away."""
        blocks = len(arms) + 2 * len(self.trials)
        each = (self.clock.left - reserve) / (ROUNDS * blocks)
        return min(LONGEST, max(SHORTEST, each - 1.3 * self.round_seconds * 0.6))

    # -- other settings, really tried -----------------------------------------------------------------------------------

    def _start_trials(self, first: Block) -> None:
        if self.clock.left < 6 * self.round_seconds * (1 + len(self.plan.trial_workers)):
            return
        for workers in self.plan.trial_workers:
            if workers == self.found.workers:
                continue
            options = without_recording(StandInOptions(0, workers), workers)
            pool = Pool(self.subject, options, self.consumer, known=self.known)
            pool.last_batch = self.pool.last_batch
            self.trials[f"workers-{workers}"] = pool

    def _trial(self, name: str, pool: Pool, length: float) -> None:
        self.say(f"trying {name}")
        most = max(2.0, self.clock.left)
        tried = pool.block(experiments.PLAIN, length, most=most)
        base = self.pool.block(experiments.PLAIN, length, most=most)
        self.found.blocks.append(base)
        self.found.trials.setdefault(name, []).append((tried.rate, base.rate))

    # -- apart from the loader -----------------------------------------------------------------------------------------

    def alone(self) -> None:
        """The consumer on one batch again and again: what it could take if data were free."""
        found, batch = self.found, self.pool.last_batch
        if batch is None:
            return
        found.transfer = transfer.measure(batch)
        if not self.consumer.present:
            found.declined[experiments.ALONE] = found.declined[experiments.BURNER] = "there is no consumer"
            return
        size = found.settings.batch_size or 1
        seconds = min(1.0, max(0.1, 0.02 * self.plan.budget))
        for _ in range(3):
            found.blocks.append(burner.alone(self.consumer, batch, size, seconds, name=experiments.ALONE))
        if isinstance(self.consumer, UserStep) and self.plan.budget >= 10:
            self.consumer.split_step(batch)
            found.step_split = self.consumer.split()
        if isinstance(self.consumer, Emulated):
            found.declined[experiments.BURNER] = "an emulated step uses no CPU that a burner could take from it"
        elif self.plan.budget < 10:
            found.declined[experiments.BURNER] = "the time budget is under 10 s"
        else:
            count = max(1, min(found.workers, int(found.cores)))
            for _ in range(2):
                found.blocks.append(burner.beside(self.consumer, batch, size, seconds, count, name=experiments.BURNER))

    def cold(self) -> None:
        """The real arm again after its files left the page cache, where that can be done and proven."""
        found, paths = self.found, sorted({path for path in self.paths if not path.startswith(_UNREAL) and os.path.isfile(path)})
        found.paths = paths
        if not paths:
            found.declined[experiments.COLD.name] = "no file was read through a seam, so there is nothing to evict"
            return
        if self.clock.left < 0:
            found.declined[experiments.COLD.name] = "no time was left in the budget"
            return
        self.say("cold reads")
        while True:
            time.sleep(min(1.0, self.round_seconds * self.pool.prefetch))
            proof = residency.cold(paths)
            found.cold = {
                "before": proof.before,
                "after": proof.after,
                "files": proof.files,
                "bytes": proof.bytes,
                "cold": proof.cold,
                "why": proof.why,
            }
            if not proof.cold:
                found.declined[experiments.COLD.name] = proof.why or "the pages could not be evicted"
                return
            self.found.blocks.append(self.pool.block(experiments.COLD, SHORTEST, most=max(2.0, self.clock.left), least_rounds=1))
            if len(found.of(experiments.COLD.name)) >= 3 or self.clock.left < 0.06 * self.plan.budget:
                return


@contextmanager
def _untouched_rng(subject: Subject) -> Iterator[None]:
    """The user's random state goes on afterwards as if nothing had run."""
    state, torch_state = random.getstate(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    numpy = _numpy_state()
    loader = subject.loader
    generators = [
        one
        for one in {id(g): g for g in (loader.generator, getattr(loader.sampler, "generator", None))}.values()
        if one is not None
    ]
    own = [one.get_state() for one in generators]
    try:
        yield
    finally:
        random.setstate(state)
        torch.set_rng_state(torch_state)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        if numpy is not None:
            numpy()
        for generator, one in zip(generators, own, strict=True):
            generator.set_state(one)


def _numpy_state() -> Callable[[], None] | None:
    import numpy

    state = numpy.random.get_state()
    return lambda: numpy.random.set_state(state)
