"""The remedy of another ``num_workers``: the best count that was tried, or that the model predicts."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pipefix.diagnosis.throughput import at_most
from pipefix.measurement.experiments import FAILED
from pipefix.measurement.statistics import paired_ratio
from pipefix.plan.case import Case
from pipefix.plan.fit import SATURATED
from pipefix.plan.plan import Step
from pipefix.plan.planfile import LoaderChange
from pipefix.plan.remedy import Remedy
from pipefix.system.resources import WORKER_BYTES
from pipefix.vocabulary.commands import as_measured, on_target
from pipefix.vocabulary.gain import MeasuredGain, Modelled, Told, figure
from pipefix.vocabulary.quantity import core_count, counted, exactly, percent, size
from pipefix.vocabulary.shards import GIVE_PARTS, MAY_REPEAT
from pipefix.vocabulary.stage import IN_SAMPLE, Stage

WORTH = 1.03
NEAR = 0.98
"""Counts whose throughput differs by less are called equal, and the smaller one is taken."""
MOST = 32
"""The model is not asked about more workers than this, or than twice what there are."""

_COPIES = {
    True: "Each goes through the whole stream: as it is",
    None: "With the same random numbers each gives the same samples: unless these are drawn without end",
}


class WorkerCount(Remedy):
    id = "workers"
    stage = Stage.IPC
    relieves = (*IN_SAMPLE, Stage.COLLATE)
    title = "Change the number of workers"

    def judge(self, case: Case) -> Iterable[Step]:
        tried, now = _tried(case), case.measurement.workers
        known = tried or _predicted(case)
        fitting = {count: gain for count, gain in known.items() if _in_vain(case, count, tried=bool(tried)) is None}
        best = _best(fitting, now)
        if tried:
            beside = f", {processes(best)} {figure(tried[best])}" if best is not None else ""
            for count, gain in sorted(tried.items()):
                yield self._changed(case, count, gain) if count == best else self._other(case, count, gain, beside, tried=True)
            return
        yield self._from_model(case, best, known)
        for count in sorted({now // 2, 2 * now} - {best, now, 0}):
            gain = known.get(count) or _modelled(case, count)
            yield self._other(case, count, gain, " (predicted, no other number was tried)", tried=False)

    def _from_model(self, case: Case, best: int | None, known: dict[int, Told]) -> Step:
        now = case.measurement.workers
        if best is not None:
            return self._changed(case, best, known[best])
        most = max(known, key=lambda count: known[count].interval.value, default=None)
        if most is not None and known[most].interval.value >= WORTH and (why := _in_vain(case, most)) is not None:
            return self.declined(why, known[most])
        more = max((count for count in known if count > now), key=lambda count: known[count].interval.value, default=None)
        gain = f": {processes(more)} would give {figure(known[more])}" if more is not None else ""
        limit = "making batches is not what limits"
        if case.diagnosis.verdict.kind == "step-bound":
            limit = "the training step limits"
        elif case.model.with_workers(2 * now or 1, case.batch, case.batch_bytes).busy >= SATURATED:
            limit = f"nothing is left of {core_count(case.measurement.cores)}"
        workers = f"more workers than the {now} in use" if now else "workers"
        return self.declined(f"{workers} would not help, {limit}{gain} (predicted, no other number was tried)")

    def _other(self, case: Case, count: int, gain: Told, beside: str, *, tried: bool) -> Step:
        """A count that is not taken."""
        told = f"{processes(count)} {'gave' if tried else 'would give'} {figure(gain)} of today's throughput{beside}"
        return self.declined(_in_vain(case, count, tried=tried) or told, gain, **_named(case, count))

    def _changed(self, case: Case, count: int, gain: Told) -> Step:
        now = case.measurement.workers
        if count < now and gain.interval.value < WORTH:
            spared = f"{processes(now - count)} and {'their' if now - count > 1 else 'its'} memory"
            why = f"{processes(count)} would be as fast as today, {figure(gain)}, and save {spared}"
            return self.declined(why, gain, **_named(case, count))
        tried = isinstance(gain, MeasuredGain)
        known = "predicted from wall and CPU times"
        if tried:
            known = f"{processes(count)} {'was' if count == 1 else 'were'} really tried beside today's setting"
        why = f"{processes(now)} now, {core_count(case.measurement.cores)}; {known}"
        lost = case.measurement.lost_by_fork
        if count and lost:
            why += f". By forkserver: forked from a process that has used {lost}, they would wait for its threads without end"
        keep = bool(count and case.measurement.kept_by_dataset and not case.measurement.settings.persistent_workers)
        if keep:
            why += ". Each keeps for itself what its dataset has read, and would read it anew in every epoch if it did not stay"
        how = ', multiprocessing_context="forkserver"' if count and lost else ""
        how += ", persistent_workers=True" if keep else ""
        if case.measurement.whole_stream_each is not False and count > max(1, now):
            why += f". {_COPIES[case.measurement.whole_stream_each]}, they would give every sample {count} times"
            by_hand = "each worker has to be given its part of the stream, which only its author can write"
            parts = f"{GIVE_PARTS} Then DataLoader(..., num_workers={count}{how})"
            title = f"Share the stream among {processes(count)}"
            return self.proposed(why, gain, parts, by_hand=by_hand, id=f"{self.id}-{count}", title=title)
        tune = on_target("tune", case.target, **as_measured(case.target, case.measurement.consumer, case.given))
        arguments = f"DataLoader(..., num_workers={count}{how})  # or all settings at once: {tune}"
        change = LoaderChange(
            num_workers=count, start_method="forkserver" if count and lost else None, persistent_workers=keep or None
        )
        return self.proposed(why, gain, arguments, **_named(case, count), risk=_risk(case, count), change=change)


def processes(count: int) -> str:
    return counted(count, "worker") if count else "no workers"


def _named(case: Case, count: int) -> dict[str, str]:
    return {"id": f"workers-{count}", "title": f"Use {processes(count)} instead of {case.measurement.workers or 'none'}"}


def _risk(case: Case, count: int) -> str | None:
    if case.measurement.lost_by_fork and count:
        return 'forkserver pickles the dataset, and needs  if __name__ == "__main__":  around what starts the training.'
    return MAY_REPEAT if case.measurement.settings.kind == "iterable" and count > 1 else None


def _tried(case: Case) -> dict[int, Told]:
    trials = case.measurement.trials.items()
    return {int(name.removeprefix("workers-")): MeasuredGain(paired_ratio(pairs), len(pairs)) for name, pairs in trials}


def _predicted(case: Case) -> dict[int, Told]:
    """The model's speed-up at counts worth thinking of."""
    now, cores = case.measurement.workers, math.ceil(case.measurement.cores)
    counts = sorted({1, 2, 4, 8, 16, MOST, cores, 2 * cores, 2 * now} - {now})
    return {count: _modelled(case, count) for count in counts if count <= max(MOST, 2 * now)}


def _modelled(case: Case, count: int) -> Told:
    """No faster than all cores together could do the same work, library threads included."""
    gain = case.predicted(case.model.with_workers(count, case.batch, case.batch_bytes))
    return Modelled(at_most(gain, exactly(max(1.0, case.most))) if case.most is not None else gain)


def _best(known: dict[int, Told], now: int) -> int | None:
    """The smallest count that is nearly as fast as the fastest; fewer than now where nothing is faster."""
    faster = {count: gain for count, gain in known.items() if gain.interval.value >= WORTH}
    if faster:
        most = max(gain.interval.value for gain in faster.values())
        return min(count for count, gain in faster.items() if gain.interval.value >= NEAR * most)
    fewer = [count for count, gain in known.items() if count < now and gain.interval.value >= NEAR and gain.interval.low >= 0.95]
    return min(fewer, default=None)


def _in_vain(case: Case, count: int, *, tried: bool = False) -> str | None:
    """Why so many workers would do nothing: no shard to read, no core to run on, or no memory for their batches; or they failed."""
    shards = case.measurement.shards
    if shards == 0:
        return "a graph of nodes has no loader that workers are given to; nodes such as ParallelMapper have them"
    if shards is not None and count > shards:
        parts = "1 shard, which feeds one worker" if shards == 1 else f"{shards} shards, each of which feeds one worker"
        return f"the stream has {parts}: {processes(count)} would leave {count - shards} of them without a sample"
    pool = case.measurement.own_pool
    if count and pool is not None:
        return f"the dataset computes in a {pool} of its own, which a worker can neither use nor start; its size decides instead"
    cores = case.measurement.cores
    if count > case.measurement.workers and not tried:
        if case.cores_taken is not None:
            return case.cores_taken
        if count > cores and case.model.busy >= SATURATED:
            return f"the pipeline keeps {core_count(cores)} busy {percent(min(1.0, case.model.busy))} of the time already"
    return _failed(case, count, tried=tried) or _too_large(case, count, tried=tried)


def _failed(case: Case, count: int, *, tried: bool) -> str | None:
    """That so many workers failed when they were tried. Where these were not: that fewer did, or any where there are none now."""
    now = case.measurement.workers
    for name, why in case.measurement.declined.items():
        failed = int(name.removeprefix("workers-")) if why.startswith(FAILED) else None
        if failed is not None and (failed == count or (not tried and now < failed and (failed < count or not now))):
            return f"{processes(failed)} {why.removeprefix('it ').rstrip('.')}"
    return None


def _too_large(case: Case, count: int, *, tried: bool) -> str | None:
    """Why so many workers cannot be had: their batches in shared memory or, where they were not tried, their own memory."""
    more = count - case.measurement.workers
    if more <= 0:
        return None
    each = ((case.measurement.settings.prefetch_factor or 2) + 1) * case.batch_bytes
    room = case.machine.shm_free_bytes if case.machine is not None else None
    if room is not None and count * each > room:
        return f"{processes(count)} hold up to {size(count * each)} of batches in /dev/shm, where {size(room)} are free"
    uss_bytes = case.measurement.facts.get("worker.uss_bytes") if case.measurement.workers else None
    needed = more * ((uss_bytes or WORKER_BYTES) + each)
    if tried or case.memory is None or needed <= case.memory:
        return None
    return f"{processes(count)} would take about {size(needed)} more of memory, where {size(case.memory)} are left"
