"""`measure`: runs the experiments on one subject within a time budget, arms in turn, and keeps what was seen."""

from __future__ import annotations

import os
import pickle
import resource
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import torch
from torch.utils.data import DataLoader

from pipefix.measurement import experiments, failing, gpu, residency, startup
from pipefix.measurement.budget import BudgetClock, MeasurementPlan
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.consumer_alone import ConsumerAlone
from pipefix.measurement.experiments import Experiment
from pipefix.measurement.kept_batch import KeptBatch
from pipefix.measurement.measurement import Block, DistinctReads, Measurement, Row, calls_by_stage, cpu_by_stage, unpacked_of
from pipefix.measurement.probe_task import ProbeOptions
from pipefix.measurement.run_arms import Pool
from pipefix.measurement.schedule import FEWEST_ROUNDS, SHORTEST, TRIED_EVERY, Schedule, facts_of, schedule, unreplaced_operation
from pipefix.measurement.time_limit import HANGS, LIMIT
from pipefix.measurement.worker_counts import Trials
from pipefix.measurement.worker_endings import deaf_to_interrupts
from pipefix.subject.subject import Subject
from pipefix.system import cgroups
from pipefix.system.forks import lost_by_workers_of
from pipefix.system.page_cache import Ranges
from pipefix.system.resources import Neighbours, reference_seconds
from pipefix.vocabulary import worker_exit
from pipefix.vocabulary.errors import TargetError
from pipefix.vocabulary.gain import FEWEST_FOR_INTERVAL
from pipefix.vocabulary.garbage import existing_objects_skipped
from pipefix.vocabulary.generators import untouched
from pipefix.vocabulary.shards import shards_of
from pipefix.vocabulary.urls import is_remote

RECORD_SHARE = 0.15
"""Part of the budget that recording may take."""
RESERVE_SHARE = 0.12
"""Part kept for cold reads and start-up."""
HELD, WARMING = 0.5, 0.05
"""Files of which more than this part was in memory are read in again once they were read cold; and part of the budget for that."""
BRIEF = 0.02
"""Part of the budget: a first batch that comes within it is timed even where nothing is left, since what is tried beside a probe is
left out without it."""
MOST_UNITS, FEWEST_UNITS = 2048, 48
MOST_CLOSING = 6
"""Times that the verdict is asked what it still needs, once no whole round fits."""
TRACED_SECONDS = 0.5
"""Of the pipeline that a trace shows: apart from the measured blocks, which noting every operation would slow down."""

_UNREAL = ("/proc/", "/sys/", "/dev/")
"""Files of these trees are made up when read: there is nothing to evict."""


def measure(subject: Subject, consumer: Consumer, plan: MeasurementPlan, *, cores: float) -> Measurement:
    """The measurement of ``subject``; partial where the user interrupts it."""
    settings = subject.settings
    measurement = Measurement(settings, settings.num_workers, cores, consumer.name, consumer.present)
    measurement.seam_cost = plan.seam_cost
    measurement.reuses_memory = getattr(subject.loader, "another", DataLoader) is not DataLoader
    measurement.copies_early = getattr(consumer.way, "copies", False)
    measurement.shards = shards_of(subject.loader.dataset) if subject.iterable else None
    clock = BudgetClock(plan.budget)
    before, neighbours = cgroups.throttle(), Neighbours()
    # A full collection takes as long as the process's heap is large: a stop of a tenth of a second, now and then, that batches of
    # many small objects bring about and no short block can average out. The heap is the probe's, not that of the training run.
    with untouched(subject.loader), existing_objects_skipped():
        # Not torch.manual_seed: that would also seed CUDA, now or when it wakes up.
        torch.default_generator.manual_seed(plan.seed)
        try:
            _measure(subject, consumer, plan, clock, measurement)
        except KeyboardInterrupt:
            measurement.partial = True
    measurement.seconds = clock.spent
    measurement.throttled = cgroups.throttled_share(before, cgroups.throttle())
    measurement.others_cores = neighbours.cores()
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    measurement.peak_rss = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + children * settings.num_workers)
    return measurement


def _measure(subject: Subject, consumer: Consumer, plan: MeasurementPlan, clock: BudgetClock, measurement: Measurement) -> None:
    session = _Session(subject, consumer, plan, clock, measurement)
    complete = False
    try:
        kept_batch = session.record()
        session.alone(kept_batch)
        with gpu.NvmlWatch() as watch:
            session.rounds()
        measurement.nvml = watch.figures
        session.cold()
        session.apart.copies(kept_batch)
        complete = True
    except RuntimeError as error:
        if not worker_exit.is_worker_death(error):
            raise
        raise failing.raised("The loader", error, session.pool.processes) from error
    finally:
        session.close(at_once=not complete)
    if session.first_seconds < BRIEF * plan.budget or clock.left > min(0.05 * plan.budget, session.first_seconds):
        session.say("measuring start-up")
        startup.measure(subject, measurement, clock.left)


class _Session:
    """One run through the experiments."""

    def __init__(
        self, subject: Subject, consumer: Consumer, plan: MeasurementPlan, clock: BudgetClock, measurement: Measurement
    ) -> None:
        self.subject, self.consumer, self.plan, self.clock, self.found = subject, consumer, plan, clock, measurement
        workers = measurement.workers
        share = plan.recording_bytes // max(1, workers)
        limit = HANGS if workers and lost_by_workers_of(subject.loader) else LIMIT
        options = ProbeOptions(share, workers, observe=plan.observe, package=subject.package, limit=limit)
        self.pool = Pool(subject, options, consumer)
        self.apart = ConsumerAlone(consumer, plan, clock, measurement)
        self.trials = Trials(subject, consumer, clock, measurement, self.pool)
        self.known: list[Any] = []
        self.ranges: dict[str, dict[int, Ranges]] = {}
        """What each worker read of each file."""
        self.first_seconds = 0.0
        """How long the first batch took, the start of the workers included."""

    def close(self, *, at_once: bool = False) -> None:
        with deaf_to_interrupts():
            for pool in (*self.trials.pools.values(), self.pool):
                pool.close(at_once=at_once)

    def say(self, phase: str) -> None:
        self.plan.progress(phase, min(1.0, self.clock.spent / self.plan.budget))

    # -- recording -----------------------------------------------------------------------------------------------------

    def record(self) -> KeptBatch:
        self.say("recording samples")
        measurement, workers = self.found, max(1, self.found.workers)
        batch = max(1, round(measurement.settings.samples_a_batch))
        in_flight = measurement.workers * self.pool.prefetch
        wanted = min(MOST_UNITS, max(FEWEST_UNITS, batch * (in_flight + 4 * workers)))
        if measurement.settings.length is not None:
            wanted = min(wanted, measurement.settings.length - 2 * workers)
        per_worker = max(1, wanted // workers)
        if self.subject.batched_fetch:
            per_worker = max(1, per_worker // batch)
        rows = self.pool.record(per_worker, RECORD_SHARE * self.plan.budget)
        self.first_seconds = (rows[0].got - rows[0].asked) / 1e9
        last: dict[int, Row] = {}
        samples, read_bytes = 0, 0.0
        for number, row in enumerate(rows, 1):
            before = last.get(row.trace.worker)
            units = row.trace.recorded - (before.trace.recorded if before is not None else 0)  # the first few are not recorded
            recorded = units * row.trace.samples if self.subject.batched_fetch else units
            samples += recorded
            read_bytes += row.trace.bytes_read * recorded / max(1, row.trace.samples)
            last[row.trace.worker] = row
            self.known += pickle.loads(row.trace.units) if row.trace.units else []
            for path, ranges in row.trace.paths:
                self.ranges.setdefault(os.fsdecode(path), {})[row.trace.worker] = ranges
            if self.ranges and read_bytes and number in (len(rows) // 2, len(rows)):
                once = sum(length for path in self.ranges for _, length in residency.merged(self._read_of(path)))
                in_workers = sum(length for parts in self.ranges.values() for read in parts.values() for _, length in read)
                if in_workers:  # else files were opened and nothing was read of them: the bytes came from elsewhere
                    overlaps = sum(row.trace.pieces_bytes for row in last.values()) / in_workers
                    measurement.read_once.append(DistinctReads(once * max(1.0, overlaps), read_bytes, samples))
        if self.pool.serving < measurement.workers:
            measurement.idle_workers, measurement.workers = measurement.workers - self.pool.serving, self.pool.serving
            measurement.shards = measurement.workers  # whatever the stream says: the others found nothing to read
        measurement.take_in([row.trace for row in last.values()])
        measurement.unpacked = unpacked_of(list(last.values()), sum(row.trace.samples for row in rows))
        # What is imported and set up with a worker's first batch is no part of a sample.
        begun = {row.trace.worker: row.trace.begun for row in reversed(rows)}
        later = [row for row in rows if row.trace.begun > begun[row.trace.worker]]
        measurement.first_calls, measurement.first_cpu = calls_by_stage(later), cpu_by_stage(later)
        self.pool.turn_to(experiments.PLAIN)
        return self.pool.keep_batch()

    # -- arms ----------------------------------------------------------------------------------------------------------

    def rounds(self) -> None:
        first = self.pool.block(experiments.REAL, SHORTEST, most=max(2.0, self.clock.left))
        lap = first.seconds * max(1, self.found.workers) / max(1, len(first.rows))
        reserve = RESERVE_SHARE * self.plan.budget
        facts = facts_of(first, self.found.workers, self.consumer.present, self.found.refused.get("batch"))
        chosen = schedule(facts, self.plan.trial_workers, seconds=self.clock.left - reserve, lap=lap)
        self.found.declined.update(chosen.declined)
        self.found.untried |= chosen.untried
        if chosen.short:
            self._keep(experiments.REAL, first)
        children_compute = any(row.trace.children_cpu for row in first.rows)
        self.trials.start(chosen.trials, self.known, self.first_seconds, children_compute=children_compute)
        if self.plan.events:
            self.say("tracing")
            traced = self.pool.block(experiments.TRACED, TRACED_SECONDS, most=max(2.0, self.clock.left))
            self.found.traced = [row for row in traced.rows if row.trace.events]
        self._laps(chosen, reserve)
        self._closing(chosen)
        while self.clock.left > reserve and (doubted := self.trials.doubted()) is not None:
            self._try(doubted, chosen)
        for arm in chosen.arms:
            if not self.found.of(arm.name) and arm.name not in self.found.declined:
                self.found.declined[arm.name] = "no time was left in the budget for it; a longer --budget runs it"
                self.found.untried.add(arm.name)

    def _laps(self, chosen: Schedule, reserve: float) -> None:
        """Round after round, every second one backwards, until the time or the doubt is used up: first of all arms, then of those
        that decide what is still open."""
        done, deciding = 0, frozenset[str]()
        while True:
            lap = time.perf_counter()
            for arm in (arm for arm in chosen.lap(done) if not deciding or arm.name in deciding):
                known = {*self.found.declined, *(block.arm for block in self.found.blocks)}
                if self.clock.left < reserve and all(needed.name in known for needed in chosen.needed):
                    break
                if (done % arm.every and not deciding) or arm.name in self.found.declined:
                    continue
                self.say(f"round {done + 1}: {arm.name}")
                self._spared(partial(self._run, arm, chosen), arm.name)
            # Not in the first round: memory that is touched for the first time makes it slow, and only one of the two sides.
            doubted = self.trials.doubted() if done >= FEWEST_ROUNDS and not deciding else None
            for name in self.trials.pools.copy() if done % TRIED_EVERY == 1 else filter(None, [doubted]):
                if self.clock.left >= reserve or not self.found.trials.get(name):
                    self._try(name, chosen)
            done += 1
            if self.clock.left < reserve + 0.5 * (time.perf_counter() - lap):
                return
            if done >= FEWEST_ROUNDS and self.plan.enough is not None and self.plan.enough(self.found):
                return
            if done >= FEWEST_ROUNDS and self.plan.wanting is not None:
                deciding = frozenset(self.plan.wanting(self.found)) & {arm.name for arm in chosen.arms}

    def _closing(self, chosen: Schedule) -> None:
        """Blocks of the few arms that the verdict needs, where no whole round fits: they come before cold reads and start-up."""
        for _ in range(MOST_CLOSING):
            names = self.plan.wanting(self.found) if self.plan.wanting is not None else ()
            few = {name for name in names if len(self.found.of(name)) < FEWEST_FOR_INTERVAL}
            wanting = [arm for arm in chosen.arms if arm.name in few and arm.name not in self.found.declined]
            for arm in wanting:
                if self.clock.left < -RESERVE_SHARE * self.plan.budget:
                    return
                self.say(f"once more: {arm.name}")
                self._spared(partial(self._run, arm, chosen), arm.name)
            if not wanting:
                return

    def _try(self, name: str, chosen: Schedule) -> None:
        if name not in self.trials.pools:  # lost while another was tried
            return
        self.say(f"trying {name}")
        self._spared(partial(self.trials.run, name, chosen.length))

    def _spared(self, run: Callable[[], object], arm: str = "") -> None:
        """Run; where a pool that only tries other settings could not start or lost a worker, go on without it.

        Torch's signal handler speaks of a lost worker wherever the main thread happens to be, so it may be another pool's turn.
        """
        try:
            run()
        except failing.UnsuitableArm as error:
            self.found.declined[arm] = str(error)
            self.found.blocks = [block for block in self.found.blocks if block.arm != arm]
        except (RuntimeError, TargetError) as error:
            lost = self.trials.lost()
            if not lost or self.pool.lost:
                raise
            for name in lost:
                self.found.declined[name] = f"{experiments.FAILED}: {error}"
                self.trials.pools.pop(name).close(at_once=True)

    def _run(self, arm: Experiment, chosen: Schedule) -> None:
        block = self.pool.block(arm, chosen.length * arm.length, most=max(2.0, self.clock.left), brief=chosen.short)
        left = unreplaced_operation(arm, block, self.found.of(experiments.REAL.name))
        if left is not None:
            raise failing.UnsuitableArm(f"{left} runs all the same, because what it gives cannot be recorded")
        self._keep(arm, block)

    def _keep(self, arm: Experiment, block: Block) -> None:
        self.found.reference_seconds.append(reference_seconds())
        if arm is not experiments.REAL:
            block.keep_sums()
        self.found.blocks.append(block)
        for trace in self.pool.traces_with_facts:
            self.found.looks.setdefault(trace.pid, []).append((trace.samples_made, trace.facts))
        self.pool.traces_with_facts.clear()

    # -- apart from the loader -----------------------------------------------------------------------------------------

    def _read_of(self, path: str) -> Ranges:
        """What all workers together read of a file."""
        return [part for parts in self.ranges[path].values() for part in parts]

    def alone(self, kept_batch: KeptBatch) -> None:
        """The consumer on one batch again and again: what it could take if data were free."""
        if self.consumer.present or torch.cuda.is_initialized():  # else nothing is timed
            for pool in (*self.trials.pools.values(), self.pool):
                pool.rest()
        self.apart.measure(kept_batch, self.pool.last_samples)

    def _not_cold(self, why: str) -> None:
        """Refuse the word cold, with the reason."""
        self.found.cold |= {"cold": False, "why": why}
        self.found.declined[experiments.COLD.name] = why

    def cold(self) -> None:
        """The real arm again after its files left the page cache, where that can be done and proven."""
        measurement = self.found
        paths = sorted(path for path in self.ranges if not path.startswith(_UNREAL) and os.path.isfile(path))
        measurement.paths, measurement.stores = paths, sorted(path for path in self.ranges if is_remote(path))
        if not paths or self.clock.left < 0:
            no_file = "no file was read through a hook, so there is nothing to evict"
            self._not_cold("no time was left in the budget" if paths else no_file)
            return
        self.say("cold reads")
        read = {path: self._read_of(path) for path in paths}
        try:
            self._read_cold(read)
        finally:
            if (self.found.cold.get("before") or 0) > HELD:  # what is tried later reads these files as the loader itself does
                residency.warm(read, WARMING * self.plan.budget)

    def _read_cold(self, read: dict[str, Ranges]) -> None:
        """Evict these parts of files and run the real arm, again and again."""
        measurement = self.found
        while True:
            self.pool.rest()
            proof = residency.cold(read)
            if not proof.cold and measurement.of(experiments.COLD.name):
                return  # what was cold before stays so
            before = measurement.cold.get("before", proof.before)  # the first time: later, the block has read what was evicted
            measurement.cold = msgspec.structs.asdict(proof) | {"before": before}
            if not proof.cold:
                self._not_cold(proof.why or "the pages could not be evicted")
                return
            block = self.pool.block(experiments.COLD, SHORTEST, most=max(2.0, self.clock.left), least_rounds=1)
            if any(row.trace.wrapped for row in block.rows):
                too_few = "too few samples were recorded: some were read again, from memory; a longer --budget records more"
                if not measurement.of(experiments.COLD.name):
                    self._not_cold(too_few)
                return
            self.found.blocks.append(block)
            reserve = max(0.06 * self.plan.budget, self.first_seconds)
            if len(measurement.of(experiments.COLD.name)) >= 3 or self.clock.left < reserve:
                return
