"""Runs the subject's loader, one arm after the other, and notes when each batch came (`Pool`). The only hot loop."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections import deque
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import perf_counter_ns, thread_time_ns
from typing import Any

import torch

from pipefix.hooks import ipc_timer, torch_internals
from pipefix.measurement import failing
from pipefix.measurement import trace as traces
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.experiments import NO_SAMPLER, POOL, RECORD, Experiment
from pipefix.measurement.failing import Failure, UnsuitableArm, cannot_start
from pipefix.measurement.kept_batch import KeptBatch, copy_of
from pipefix.measurement.measurement import Block, Row
from pipefix.measurement.probe_task import SWITCH_WORDS, Delivered, ProbeOptions
from pipefix.measurement.time_limit import BatchTimeLimit
from pipefix.measurement.trace import BatchTrace
from pipefix.measurement.worker_endings import Sockets, abandon
from pipefix.measurement.worker_probe import SampleOrders, close_fetchers, probe_of, probed_loader
from pipefix.subject.subject import Subject
from pipefix.vocabulary.nested import map_leaves
from pipefix.vocabulary.stage import Stage

LONGEST_REST = 10.0
"""Seconds that are waited at most for workers to make what they were told to."""
LOOK_AGAIN = 0.001
OUTLIVES = 1.5
"""Limits of a batch for which the training process waits: the worker that hangs is given time to say where."""


class Pool:
    """The subject's loader with a worker probe: its processes stay up while arms come and go."""

    def __init__(self, subject: Subject, options: ProbeOptions, consumer: Consumer, *, known: list[Any] | None = None) -> None:
        self._subject = subject
        self.workers = options.workers
        self.consumer = consumer
        self.switch = torch.zeros(SWITCH_WORDS + self.workers, dtype=torch.int64, device="cpu")
        if self.workers:
            try:
                self.switch.share_memory_()
            except (RuntimeError, OSError) as error:
                raise cannot_start(error, None) from error
        self.epoch = 0
        self.kept: KeptBatch | None = None
        """For arms that hand none over, or run without a loader."""
        self.last_samples = 1
        """How many samples the last batch kept holds."""
        self.traces_with_facts: list[BatchTrace] = []
        """Of batches that came with facts about the process that made them."""
        self._iterator: Any = None
        self.failed = False
        self._sockets = Sockets()
        self._time_limit = BatchTimeLimit(OUTLIVES * options.limit)
        self._hand = ipc_timer.attach() if self.workers else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._probe = probe_of(subject, self.switch, options)
            self._loader = probed_loader(subject, self._probe, known)
        self._orders = self._loader.sampler if self._loader.batch_sampler is None else self._loader.batch_sampler
        self._given = 0
        """Batches taken so far."""
        self._done_cpu: int | None = None
        """This thread's CPU time when the last batch was done with, as if the harness came after its consumer: what it computes
        from then until the next batch is asked for is its own."""
        self._taken: deque[int] = deque(maxlen=max(1, self.workers * self.prefetch))
        """When the latest batches were taken: as each is, a worker is told to make the one so many places further on."""

    @property
    def prefetch(self) -> int:
        return self._loader.prefetch_factor or 1

    @property
    def processes(self) -> list[Any]:
        """The workers' processes, once they were started."""
        return torch_internals.processes_of(self._iterator)

    @property
    def serving(self) -> int:
        """Workers that give batches: those whose part of a stream is empty leave at once."""
        status = getattr(self._iterator, "_workers_status", None)
        return max(1, sum(status)) if status else max(1, self.workers)

    @property
    def lost(self) -> bool:
        """Whether one of its workers died."""
        return any(process.exitcode for process in self.processes)

    def start(self) -> None:
        if self._iterator is not None:
            return
        take_back = None if self.workers else torch_internals.make_next_fetcher(self._probe.fetcher)
        try:
            # Where there is no place for their sockets this raises; torch would wait for ever.
            sockets = self._sockets.given(self._loader.multiprocessing_context) if self.workers else None
            self._iterator = failing.iterator_of(self._loader, sockets)
        finally:
            if take_back is not None:
                take_back()

    def turn_to(self, experiment: Experiment) -> None:
        """From now on workers make batches of this arm; those in flight are still of the last one."""
        self.epoch += 1
        self.switch[0] = POOL.index(experiment)
        self.switch[1] = self.epoch
        if isinstance(self._orders, SampleOrders):
            self._orders.recorded = experiment is NO_SAMPLER

    def next(self, *, consume: bool) -> Row:
        """Ask for a batch, note what that took, hand it to the consumer."""
        hand = self._hand
        if hand is not None:
            hand.take()
        again = None  # the kept batch, where this arm hands none over
        if consume and hand is not None and self.kept is not None and Stage.IPC in POOL[int(self.switch[0])].replaces:
            again = self.kept()
        sampled = self._sampler_ns()
        asked_ns, cpu = perf_counter_ns(), thread_time_ns()
        delivered = self._advance()
        taken_cpu = thread_time_ns()
        computed, got = taken_cpu - cpu, perf_counter_ns()
        sampled = min(self._sampler_ns() - sampled, got - asked_ns)
        room = self._taken[0] if len(self._taken) == self._taken.maxlen else 0
        self._took(got)
        waited = received = 0
        if hand is not None:
            counters = hand.take()
            # A worker that computes hands over in fits and starts, so reading from the pipe waits for it too: only what this
            # thread computed is taking over. With a pinning thread it is that thread which polls and rebuilds.
            waited = got - asked_ns if self._loader.pin_memory else max(counters.poll_ns, got - asked_ns - computed)
            waited = min(waited, got - asked_ns - sampled)
            received = counters.recv_ns + counters.loads_ns
        handed, handed_cpu = perf_counter_ns(), thread_time_ns()
        if consume:
            batch = delivered.batch
            if delivered.skipped and self.kept is not None:
                batch = self.kept() if again is None else again  # none was made for a late one of the arm before
            self.consumer(batch)
            batch = again = None
        # What it computes, not how long that takes: where workers want the core meanwhile, they would have it without it, too.
        harness = cpu - self._done_cpu if self._done_cpu is not None else 0
        done = perf_counter_ns() - (handed - got)  # so that the consumer's time is that between `got` and `done`
        self._done_cpu = thread_time_ns() - (handed_cpu - taken_cpu)
        trace = self._read(delivered)
        return Row(asked_ns, got, done, waited, received, trace, room=room, sampled=sampled, harness=harness)

    def _took(self, now: int) -> None:
        self._given += 1
        self._taken.append(now)

    def _read(self, delivered: Delivered) -> BatchTrace:
        trace = traces.decode(delivered.trace)
        if trace.facts:
            self.traces_with_facts.append(trace)
        return trace

    def _sampler_ns(self) -> int:
        """What the user's sampler took so far; a stream has none."""
        return int(getattr(self._orders, "spent_ns", 0))

    def _advance(self) -> Delivered:
        self.failed = True  # unless it gives one
        self.start()
        # Without workers the fetcher watches its own batches.
        delivered = failing.next_of(self._iterator, self._subject, self._time_limit if self.workers else None)
        if isinstance(delivered, Failure):
            raise delivered.as_error()
        self.failed = False
        return delivered  # type: ignore[no-any-return]

    def keep_batch(self) -> KeptBatch:
        """A copy of the next batch, for arms that run without a loader."""
        for _ in range(2):
            delivered = self._advance()
            self._took(perf_counter_ns())
            trace = self._read(delivered)
            if trace.samples >= self._subject.settings.samples_a_batch:  # not what was left at the end of an epoch
                break
        pinned = bool(self._loader.pin_memory)
        value = map_leaves(partial(copy_of, pinned=pinned), delivered.batch)
        self.kept, self.last_samples = KeptBatch(value, pinned=pinned), trace.samples
        return self.kept

    def rest(self) -> None:
        """Wait until the workers have made all that they were told to: what is measured next shares the machine with them.

        They count what they made. Where a loader tells them less than torch's would, the pace of the latest batches says when they
        must be done.
        """
        if len(self._taken) < 2 or not self.workers:
            return
        batches_ordered = self._given + self.serving * self.prefetch
        each = (self._taken[-1] - self._taken[0]) / (len(self._taken) - 1)
        until = self._taken[-1] + min(1e9 * LONGEST_REST, 2 * each * self.workers * (self.prefetch + 1))
        while int(self.switch[SWITCH_WORDS:].sum()) < batches_ordered and perf_counter_ns() < until:
            time.sleep(LOOK_AGAIN)

    def halt(self) -> None:
        """Stop the workers where they are, at once. Only for those that the kernel ends with this process: they notice nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def close(self, *, at_once: bool = False) -> None:
        """End the workers; ``at_once`` does not wait for the batches that they are making."""
        if at_once or any(not process.is_alive() for process in torch_internals.processes_of(self._iterator)):
            abandon(self._iterator)
        iterator, self._iterator = self._iterator, None
        torch_internals.end_workers(iterator)
        self._sockets.remove()
        self._time_limit.close()
        if self._hand is not None:
            self._hand.detach()
            self._hand = None
        if not self.workers:
            close_fetchers()

    # -- blocks --------------------------------------------------------------------------------------------------------

    def block(
        self, experiment: Experiment, seconds: float, *, most: float = 30.0, least_rounds: int = 2, brief: bool = False
    ) -> Block:
        """Run one arm for about ``seconds`` of steady state; whole rounds of all workers, so that their turns even out. The cold
        arm ends before samples are read again, or, where even its first round reads some again, with that one (`wrapped`).

        ``brief``: one round is enough, and a process that makes batches when they are asked for is not warmed up.
        """
        self.turn_to(experiment)
        consume = experiment.consumer and self.consumer.present
        limit = time.perf_counter() + most
        warm: set[int] = set()
        warms_up = self.workers or not brief
        while warms_up and len(warm) < self.serving:  # workers whose part of a stream is empty are only now seen to leave
            # A worker's batches come in the order it made them: after its first of this arm, all are.
            row = self.next(consume=consume)
            if row.trace.epoch == self.epoch:
                _check_fit(row)
                warm.add(row.trace.worker)
        round_size, least = self.serving, 1 if brief else least_rounds
        if warm and not consume:
            mark = row.done
        else:
            mark, self._done_cpu = perf_counter_ns(), thread_time_ns()
        rows: list[Row] = []
        until = mark + int(seconds * 1e9)
        cpu, again = time.process_time(), 0
        while True:
            row = self.next(consume=consume)
            _check_fit(row)
            rows.append(row)
            whole = len(rows) % round_size == 0
            if whole and (row.done >= until or time.perf_counter() > limit) and len(rows) >= least * round_size:
                break
            if whole and experiment.source == "cold" and any(row.trace.wrapped for row in rows[-round_size:]):
                again = round_size if len(rows) > round_size else 0
                break
        return self._block(experiment, rows, mark, time.process_time() - cpu, warm=bool(warm), again=again)

    def _block(self, experiment: Experiment, rows: list[Row], mark: int, cpu: float, *, warm: bool, again: int = 0) -> Block:
        """``again``: so many of the last rows are of files that the block itself has brought back into memory."""
        device = self.consumer.settle()[-len(rows) :]  # those of the warm-up come first
        rows, device = rows[: len(rows) - again], device[: len(device) - again]
        gross, computed = rows[-1].done - mark, 0
        if device:
            rows = [replace(row, device=time.busy, idle=time.idle) for row, time in zip(rows, device, strict=False)]
            gross, computed = _on_device(rows, mark, warm=warm), sum(row.device for row in rows)
        own = sum(row.trace.replay + row.trace.extra for row in rows)
        if self.workers:
            # What a worker does for the instrument delays the consumer only as far as it waited.
            own = min(own // self.workers, sum(row.waited for row in rows))
        # The workers go on while the harness works here: that delays the consumer only where it would not have waited as long.
        own += sum(max(0, row.harness - row.waited) for row in rows)
        own = min(own, max(0, gross - computed))  # nor while its device computes
        seconds = max(gross - own, gross // 20) / 1e9
        return Block(experiment.name, tuple(rows), seconds, sum(row.trace.samples for row in rows), cpu, own / 1e9)

    def record(self, units: int, seconds: float) -> list[Row]:
        """Run the recording arm until every process holds ``units`` samples, its budget is spent or time is up."""
        self.turn_to(RECORD)
        until = time.perf_counter() + seconds
        state: dict[int, tuple[int, bool]] = {}
        rows: list[Row] = []
        while True:
            row = self.next(consume=False)
            if row.trace.epoch != self.epoch:
                continue
            rows.append(row)
            state[row.trace.worker] = (row.trace.recorded, row.trace.full)
            everyone = len(state) >= self.serving
            if everyone and all(count >= units or full for count, full in state.values()):
                return rows
            if time.perf_counter() > until and everyone and all(count >= 1 for count, _ in state.values()):
                return rows


def _on_device(rows: list[Row], mark: int, *, warm: bool) -> int:
    """Nanoseconds from the end of the step before the first of ``rows`` to the end of the last, on a device that computes while the
    next batch is made.

    Not ``warm``, there was no step before: the first batch counts as those that follow do, with its making or its step, whichever
    takes longer.
    """
    first, *others = rows
    begun = first.device + first.idle if warm and first.idle is not None else max(first.done - mark, first.device)
    return begun + sum(row.device + (row.idle or 0) for row in others)


def _check_fit(row: Row) -> None:
    if row.trace.unfit:
        raise UnsuitableArm(f"the pipeline does not run with that replaced: {row.trace.unfit}")
