"""More workers, or fewer: counts that were really tried, or the model's best where none was."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pipefix.measurement.statistics import ratio
from pipefix.plan import commands
from pipefix.plan.plan import Declined, Proposed, Step
from pipefix.plan.remedy import Remedy
from pipefix.plan.situation import Situation
from pipefix.plan.wording import processes, span
from pipefix.vocabulary.quantity import Interval, size
from pipefix.vocabulary.stage import Stage

WORTH = 1.03
NEAR = 0.98
"""Counts whose throughput differs by less are called equal, and the smaller one is taken."""
MOST = 32
"""The model is not asked about more workers than this."""


class Workers(Remedy):
    id = "workers"
    stage = Stage.IPC
    title = "Change the number of workers"

    def judge(self, at: Situation) -> Iterable[Step]:
        tried = _tried(at)
        known = tried or _predicted(at)
        fitting = {count: gain for count, gain in known.items() if _too_large(at, count) is None}
        best = _best(fitting, at.found.workers)
        if not tried:
            yield self._from_model(at, best, known)
            for count in sorted({at.found.workers // 2, 2 * at.found.workers} - {best, at.found.workers, 0}):
                yield self._other(at, count, known)
            return
        for count, gain in sorted(tried.items()):
            yield self._one(at, count, gain, best, tried)

    def _from_model(self, at: Situation, best: int | None, known: dict[int, Interval]) -> Step:
        now = at.found.workers
        if best is not None:
            return _proposed(at, best, known[best], measured=False)
        most = max(known, key=lambda count: known[count].value, default=None)
        if most is not None and known[most].value >= WORTH and (why := _too_large(at, most)) is not None:
            return self.declined(why, known[most])
        limit = _limit(at)
        gain = f"; {processes(most)} would give {span(known[most])}" if most is not None else ""
        return self.declined(f"{processes(now)} keep up with {limit}{gain} (predicted, no other count was tried)")

    def _other(self, at: Situation, count: int, known: dict[int, Interval]) -> Step:
        gain = known.get(count) or _modelled(at, count)
        why = f"{processes(count)} would give {span(gain)} of today's throughput (predicted, no other count was tried)"
        return Declined(id=f"workers-{count}", stage=self.stage, title=_title(at, count), why=why, speedup=gain)

    def _one(self, at: Situation, count: int, gain: Interval, best: int | None, tried: dict[int, Interval]) -> Step:
        if count == best:
            return _proposed(at, count, gain, measured=True)
        why = _too_large(at, count)
        if why is None:
            why = f"{processes(count)} gave {span(gain)} of today's throughput"
            if best is not None:
                why += f", {processes(best)} {span(tried[best])}"
        return Declined(id=f"workers-{count}", stage=self.stage, title=_title(at, count), why=why, speedup=gain, measured=True)


def _proposed(at: Situation, count: int, gain: Interval, *, measured: bool) -> Proposed:
    now = at.found.workers
    frees = None
    if count < now and gain.value < WORTH:
        spare = processes(now - count)
        frees = f"{spare} and their memory" if now - count > 1 else f"{spare} and its memory"
    tried = f"{processes(count)} were really tried beside today's setting"
    why = f"{processes(now)} now, {at.found.cores:g} cores; {tried if measured else 'predicted from wall and CPU times'}"
    if frees is not None:
        why += f". As fast as today, and it frees {frees}"
    return Proposed(
        id=f"workers-{count}",
        stage=Stage.IPC,
        title=_title(at, count),
        why=why,
        speedup=gain,
        command=commands.settings(at.target, at.verbs, num_workers=count),
        measured=measured,
        frees=frees,
        risk=_risk(at, count),
    )


def _title(at: Situation, count: int) -> str:
    return f"Use {processes(count)} instead of {at.found.workers or 'none'}"


def _risk(at: Situation, count: int) -> str | None:
    if at.found.settings.kind == "iterable" and count > 1:
        return "Each worker runs the whole IterableDataset: unless it shards itself by get_worker_info(), samples come repeated."
    return None


def _tried(at: Situation) -> dict[int, Interval]:
    found: dict[int, Interval] = {}
    for name, pairs in at.found.trials.items():
        word, _, count = name.rpartition("-")
        if word == "workers" and count.isdigit() and pairs:
            found[int(count)] = ratio([tried / base for tried, base in pairs], [1.0] * len(pairs))
    return found


def _predicted(at: Situation) -> dict[int, Interval]:
    """The model's speed-up at counts worth thinking of."""
    counts = sorted({1, 2, 4, 8, 16, MOST, math.ceil(at.found.cores), 2 * math.ceil(at.found.cores)})
    return {count: _modelled(at, count) for count in counts if count != at.found.workers and count <= MOST}


def _modelled(at: Situation, count: int) -> Interval:
    return at.predicted(at.line.with_workers(count, at.batch, at.batch_bytes))


def _best(known: dict[int, Interval], now: int) -> int | None:
    """The smallest count that is nearly as fast as the fastest; fewer than now where nothing is faster."""
    faster = {count: gain for count, gain in known.items() if gain.value >= WORTH}
    if faster:
        most = max(gain.value for gain in faster.values())
        return min(count for count, gain in faster.items() if gain.value >= NEAR * most)
    fewer = [count for count, gain in known.items() if count < now and gain.value >= NEAR and gain.low >= 0.95]
    return min(fewer, default=None)


def _too_large(at: Situation, count: int) -> str | None:
    """Why so many workers cannot be had: the batches they hold in shared memory."""
    room = at.machine.shm_free_bytes if at.machine is not None else None
    if room is None or count <= at.found.workers or not at.batch_bytes:
        return None
    ahead = at.found.settings.prefetch_factor or 2
    needed = count * (ahead + 1) * at.batch_bytes
    if needed <= room:
        return None
    return f"{processes(count)} hold up to {size(needed)} of batches in /dev/shm, where {size(room)} are free"


def _limit(at: Situation) -> str:
    if at.diagnosis.verdict.kind == "step-bound":
        return "the training step"
    return f"the {at.found.cores:g} cores"
