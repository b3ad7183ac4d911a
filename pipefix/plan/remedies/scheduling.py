"""Remedies for waiting: batches past a slow sample, threads that compete for cores, workers kept from epoch to epoch."""

from __future__ import annotations

from pipefix.diagnosis.attribution import other_threads
from pipefix.measurement import experiments
from pipefix.measurement.measurement import Measurement, rows_of
from pipefix.plan.case import STARVED, Case
from pipefix.plan.plan import Proposed, Step
from pipefix.plan.planfile import LoaderChange
from pipefix.plan.remedy import Remedy
from pipefix.vocabulary.quantity import Interval, core_count, counted, percent, seconds, times
from pipefix.vocabulary.stage import Stage

HEAVY_TAIL = 3.0
"""A 99th percentile so many times the median is a tail that can hold others up."""
HOLDS_UP = 0.1
"""A slow sample that takes less than this part of a batch's making holds no batch up."""
BUSY = 0.85
"""Cores used more than this make more threads a burden."""
OTHER_THREADS = 1.25
"""A worker that uses so many times its main thread's CPU time runs library threads beside it."""
RESTART_SPREAD = 0.3
"""Two restarts of the same loader differ by about so much."""


class TailScheduling(Remedy):
    """Finished batches are taken as they come, instead of waiting behind an unfinished earlier one."""

    id = "tail-scheduling"
    stage = Stage.IPC
    title = "Take batches as they are finished"
    change = LoaderChange(in_order=False)

    def answer(self, case: Case) -> Step:
        tail, workers = case.diagnosis.tail, case.measurement.workers
        if workers < 2:
            return self.declined(f"{'1 worker' if workers else 'no workers'}: no batch can overtake another")
        if not case.measurement.settings.in_order:
            return self.declined("in_order=False is set already")
        if not tail:
            return self.declined("how unequal samples are was not measured")
        ratio = tail["p99"] / tail["p50"] if tail["p50"] else 1.0
        blocked, sample = tail.get("blocked", 0.0), case.diagnosis.sample.value
        if ratio < HEAVY_TAIL:
            alike = f"samples are alike: the slowest in a hundred takes {times(ratio)} the median ({seconds(tail['p50'])})"
            return self.declined(alike)
        making_s = case.batch * sum(float(part.wall[0]) for part in case.model.making.values())
        if tail["p99"] * tail.get("together", 1.0) < HOLDS_UP * making_s:
            slow, whole = seconds(tail["p99"]), seconds(making_s)
            return self.declined(f"the slowest sample in a hundred takes {slow}, too little to hold up a batch that takes {whole}")
        if case.diagnosis.starved >= STARVED:
            waited = f"for {percent(case.diagnosis.starved)} of the time the pipeline was ready to run and had no CPU"
            return self.declined(f"samples seem unequal, but {waited}: whichever waits for one is slow")
        # What was waited could be saved, but no station works faster than it does.
        least = min(sample, float(case.model.seconds()[0]))
        best = sample / max(least, sample - blocked, 1e-9)
        return self.proposed(
            f"The slowest sample in a hundred takes {times(ratio)} the median ({seconds(tail['p50'])}), and finished batches "
            f"waited {seconds(blocked)} a sample behind it, {percent(blocked / sample)} of the time",
            Interval(best, 1 + 0.5 * (best - 1), 1 + 1.25 * (best - 1)),
            "DataLoader(..., in_order=False)",
            risk="Batches come in another order from run to run, and a run cannot be resumed at exactly the same batch.",
        )


class ThreadCaps(Remedy):
    """One thread a worker for libraries that would start one a core."""

    id = "thread-caps"
    stage = Stage.DECODE
    relieves = (Stage.AUGMENT,)
    title = "Limit library threads inside workers"
    change = LoaderChange(worker_threads=1)

    def answer(self, case: Case) -> Step:
        workers, cores = case.measurement.workers, case.measurement.cores
        if not workers:
            return self.declined("no workers: library threads have the cores to themselves")
        threads = 1 + case.measurement.facts.get("worker.busy_threads", 0.0)
        used = process_over_thread(case.measurement)
        # Where the threads could not be counted, their CPU time is all there is to go by, and Python's own are among them.
        seen = "worker.busy_threads" in case.measurement.facts
        if threads <= 1 and (seen or used is None or used < OTHER_THREADS):
            return self.declined("libraries run no busy threads of their own inside the workers")
        wanted = threads * workers if threads > 1 else 2 * workers
        run = f"{'' if threads > 1 else 'at least '}{wanted:.0f} busy threads of {counted(workers, 'worker')}"
        if wanted <= cores:
            return self.declined(f"{run} {'fit' if threads > 1 else 'may fit'} on {core_count(cores)}")
        busy = case.model.busy * (used or 1.0)
        if busy < BUSY:
            return self.declined(f"{wanted:.0f} threads share {core_count(cores)}, but only {percent(busy)} of their time is used")
        if used is not None and threads > 1 and used > threads:
            little = f"the main threads of the workers compute only {percent(1 / used)} of what their threads do"
            return self.declined(f"{little}: they wait for them, and would wait longer for fewer")
        if used is None or used < 1.05:
            idle = "those beside the main ones use next to no CPU time"
            return self.declined(f"{wanted:.0f} threads share {core_count(cores)}, but {idle}")
        # At worst all their work is useful and only changes its thread; at best it is all contention.
        gain = Interval(used**0.5, 1.0, used)
        own = "Set OMP_NUM_THREADS=1 (and the library's own setting) in the environment before the workers start."
        if case.measurement.facts.get("worker.cv2_threads", 0.0) > 1:
            own = "Have a worker_init_fn call cv2.setNumThreads(0), and set OMP_NUM_THREADS=1 in the environment."
        return self.proposed(f"{run} share {core_count(cores)} and use {times(used)} the CPU time of the main ones", gain, own)


class PersistentWorkers(Remedy):
    """Workers that stay up between epochs."""

    id = "persistent-workers"
    stage = Stage.IPC
    title = "Keep workers between epochs"
    every_epoch = True
    change = LoaderChange(persistent_workers=True)

    def answer(self, case: Case) -> Step:
        restart = case.measurement.epoch_restart
        if not case.measurement.workers:
            return self.declined("no workers: there is none to start anew for each epoch")
        if case.measurement.settings.persistent_workers:
            return self.declined("persistent_workers=True is set already")
        if restart is None:
            why = case.measurement.declined.get(experiments.START_UP, "the time budget was spent")
            return self.declined(f"how long an epoch takes to begin was not measured: {why}")
        if case.epoch is None:
            return self.declined(f"an epoch takes {seconds(restart)} to begin, but the dataset tells no length to compare it with")
        steady = case.epoch * case.diagnosis.sample.value
        first = case.batch * sum(float(part.wall[0]) for part in case.model.making.values())

        def gain(before: float, after: float) -> float:
            """Of whole epochs, where ``after`` seconds without a batch replace ``before``."""
            return (before + steady) / (min(before, after) + steady)

        low = gain(restart * (1 - RESTART_SPREAD), 1.5 * first)
        high = gain(restart * (1 + RESTART_SPREAD), 0.5 * first)
        again = "; what its dataset keeps is read anew besides, which is not in this figure"
        beside = again if case.measurement.kept_by_dataset else ""
        return self.kept_up(restart, restart + steady, Interval(gain(restart, first), low, high), beside)

    def kept_up(self, restart: float, whole: float, gain: Interval, beside: str = "") -> Proposed:
        """``restart``: seconds of ``whole``, an epoch, that pass before its first batch. ``beside``: what else is to be said."""
        begins = f"Every epoch waits {seconds(restart)} for its first batch, {percent(restart / whole)} of its {seconds(whole)}"
        changes = "changes made to it between epochs in the training process do not reach them."
        risk = f"Workers keep their copy of the dataset: {changes}"
        return self.proposed(begins + beside, gain, "DataLoader(..., persistent_workers=True)", risk=risk)


def process_over_thread(measurement: Measurement) -> float | None:
    """CPU time of all threads of workers over that of those that make batches, while they are made; None where it was not seen.

    Not from batch to batch: what a worker does between two (it hands one over, and is measured) is no thread of a library's.
    """
    blocks = measurement.of(experiments.REAL.name)
    making = sum(row.trace.cpu for row in rows_of(blocks) if row.trace.process_made)
    return 1 + other_threads(blocks) / making if making else None
