"""Run the subject's loader, one arm after the other, and note when each batch came. The only hot loop."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from multiprocessing.process import BaseProcess
from time import perf_counter_ns, thread_time_ns
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler
from torch.utils.data._utils import signal_handling

from pipefix.measurement import failing
from pipefix.measurement import trace as traces
from pipefix.measurement.bench import Delivered, StandInOptions
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.experiments import POOL, Experiment
from pipefix.measurement.failing import Failure, Unfit, cannot_start, raised
from pipefix.measurement.measurement import Block, Row
from pipefix.measurement.sockets import Sockets
from pipefix.measurement.stand_in import Deferred, StandIn, StreamStandIn, WorkerInit, close_benches
from pipefix.seams import handover
from pipefix.subject.subject import Subject

_NUMBER = {experiment: number for number, experiment in enumerate(POOL)}

PATIENCE = 1.0
"""Seconds that workers have to end when they are told to."""
LONGEST_REST = 1.0
"""Seconds that are waited at most for workers to make what they were told to."""


class Orders(Sampler[Any]):
    """The user's own sampler order, epoch after epoch; or samples that were read before, in batches of the user's size."""

    def __init__(self, subject: Subject, known: list[Any] | None = None) -> None:
        self._subject = subject
        self._known = known or []

    def __iter__(self) -> Iterator[Any]:
        if not self._known:
            return self._subject.orders()
        if self._subject.batched_fetch or not self._subject.auto_collation:
            return itertools.cycle(self._known)
        return self._batches()

    def _batches(self) -> Iterator[list[Any]]:
        known = itertools.cycle(self._known)
        for order in self._subject.orders():
            yield list(itertools.islice(known, len(order)))


def as_is(value: Any) -> Any:
    """The collate function of a loader whose dataset makes whole batches."""
    return value


def called(make: Any) -> Any:
    """The same, where the dataset gives what makes them."""
    return make()


class Pool:
    """The subject's loader with the stand-in dataset: its processes stay up while arms come and go."""

    def __init__(self, subject: Subject, options: StandInOptions, consumer: Consumer, *, known: list[Any] | None = None) -> None:
        self._subject = subject
        self.workers = options.workers
        self.consumer = consumer
        self.switch = torch.zeros(2, dtype=torch.int64)
        if self.workers:
            self.switch = _shared(self.switch)
        self.epoch = 0
        self.last_batch: Any = None
        self.told: list[Row] = []
        """Batches that came with facts about the process that made them."""
        self._iterator: Any = None
        self.failed = False
        self._sockets = Sockets()
        self._hand = handover.attach() if self.workers else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._loader = _loader(subject, self.switch, options, known)
        self._taken: deque[int] = deque(maxlen=max(1, self.workers * self.prefetch))
        """When the latest batches were taken: as each is, a worker is told to make the one so many places further on."""

    @property
    def subject(self) -> Subject:
        return self._subject

    @property
    def prefetch(self) -> int:
        return self._loader.prefetch_factor or 1

    @property
    def processes(self) -> list[Any]:
        """The workers' processes, once they were started."""
        return list(getattr(self._iterator, "_workers", []))

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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with self._sockets.given(self._loader.multiprocessing_context) if self.workers else nullcontext():
                    # Where there is no place for them this raises; torch would wait for ever.
                    self._iterator = iter(self._loader)
            except Exception as error:
                self.failed = True
                context = self._loader.multiprocessing_context
                raise cannot_start(error, context.get_start_method() if context is not None else None) from error

    def turn_to(self, experiment: Experiment) -> None:
        """From now on workers make batches of this arm; those in flight are still of the last one."""
        self.epoch += 1
        self.switch[0] = _NUMBER[experiment]
        self.switch[1] = self.epoch

    def next(self, *, consume: bool) -> Row:
        """Ask for a batch, note what that took, hand it to the consumer."""
        hand = self._hand
        if hand is not None:
            hand.take()
        asked, cpu = perf_counter_ns(), thread_time_ns()
        delivered = self._advance()
        computed = thread_time_ns() - cpu
        got = perf_counter_ns()
        room = self._taken[0] if len(self._taken) == self._taken.maxlen else 0
        self._taken.append(got)
        waited = received = 0
        if hand is not None:
            counters = hand.take()
            # A worker that computes hands over in fits and starts, so reading from the pipe waits for it too: only what this
            # thread computed is taking over. With a pinning thread it is that thread which polls and rebuilds.
            waited = got - asked if self._loader.pin_memory else max(counters.poll_ns, got - asked - computed)
            received = counters.recv_ns + counters.loads_ns
        if consume:
            batch = delivered.batch
            if isinstance(batch, torch.Tensor) and batch.numel() == 1 and self.last_batch is not None:
                batch = self.last_batch
            self.consumer(batch)
        done = perf_counter_ns()
        row = Row(asked, got, done, waited, received, traces.decode(delivered.trace), room=room)
        if row.trace.facts:
            self.told.append(row)
        return row

    def _advance(self) -> Delivered:
        self.start()
        try:
            delivered = next(self._iterator)
        except StopIteration as error:
            raise failing.nothing_came(self._subject) from error
        except KeyboardInterrupt:
            raise
        except Exception as error:
            self.failed = True
            raise raised("The loader", error, self.processes) from error
        if isinstance(delivered, Failure):
            self.failed = True
            raise delivered.as_error()
        return delivered  # type: ignore[no-any-return]

    def keep_batch(self) -> Any:
        """A copy of the next batch, for arms that run without a loader."""
        self.start()
        delivered = self._advance()
        self._taken.append(perf_counter_ns())
        trace = traces.decode(delivered.trace)
        if trace.facts:
            self.told.append(Row(0, 0, 0, 0, 0, trace))
        self.last_batch = _clone(delivered.batch)
        return self.last_batch

    def rest(self) -> None:
        """Wait until the workers have made all that they were told to: what is measured next shares the machine with them.

        How long that takes is told by the pace at which the latest ones came; a round more, since that pace is not even.
        """
        if len(self._taken) > 1:
            each = (self._taken[-1] - self._taken[0]) / (len(self._taken) - 1)
            left = self._taken[-1] + each * self.workers * (self.prefetch + 1) - perf_counter_ns()
            time.sleep(min(LONGEST_REST, max(0.0, left / 1e9)))

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
        if at_once or any(not process.is_alive() for process in getattr(self._iterator, "_workers", [])):
            abandon(self._iterator)
        iterator, self._iterator = self._iterator, None
        if iterator is not None and hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()
        self._sockets.remove()
        if self._hand is not None:
            self._hand.detach()
            self._hand = None
        if not self.workers:
            close_benches()

    # -- blocks --------------------------------------------------------------------------------------------------------

    def block(self, experiment: Experiment, seconds: float, *, most: float = 30.0, least_rounds: int = 2) -> Block:
        """Run one arm for about ``seconds`` of steady state; whole rounds of all workers, so that their turns even out."""
        self.turn_to(experiment)
        consume = experiment.consumer and self.consumer.present
        round_size = self.serving
        limit = time.perf_counter() + most
        warm: set[int] = set()
        while len(warm) < round_size:
            # A worker's batches come in the order it made them: after its first of this arm, all are.
            row = self.next(consume=consume)
            if row.trace.epoch == self.epoch:
                _check_fit(row)
                warm.add(row.trace.worker)
        self.consumer.settle()
        mark = perf_counter_ns() if consume else row.done
        rows: list[Row] = []
        until = mark + int(seconds * 1e9)
        cpu = time.process_time()
        while True:
            row = self.next(consume=consume)
            _check_fit(row)
            rows.append(row)
            whole = len(rows) % round_size == 0
            if whole and (row.done >= until or time.perf_counter() > limit) and len(rows) >= least_rounds * round_size:
                break
            if row.trace.wrapped and experiment.source == "cold" and whole:
                break
        return self._block(experiment, rows, mark, time.process_time() - cpu)

    def _block(self, experiment: Experiment, rows: list[Row], mark: int, cpu: float) -> Block:
        device = self.consumer.settle()
        ended = rows[-1].done
        if device:
            # Steps run on after their call returned: the block ends when the last one has.
            ended = perf_counter_ns()
            rows = [replace(row, device=busy) for row, busy in zip(rows, device, strict=False)]
        gross = ended - mark
        own = sum(row.trace.replay + row.trace.extra for row in rows)
        if self.workers:
            # What a worker does for the instrument delays the consumer only as far as it waited.
            own = min(own // self.workers, sum(row.waited for row in rows))
        seconds = max(gross - own, gross // 20) / 1e9
        worker_cpu = sum(row.trace.cpu for row in rows) / 1e9 if self.workers else 0.0
        return Block(experiment.name, tuple(rows), seconds, sum(row.trace.samples for row in rows), cpu, worker_cpu)

    def record(self, units: int, seconds: float) -> list[Row]:
        """Run the recording arm until every process holds ``units`` samples, its budget is spent or time is up."""
        from pipefix.measurement.experiments import RECORD

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


def _check_fit(row: Row) -> None:
    if row.trace.unfit:
        raise Unfit(f"the pipeline does not run with that replaced: {row.trace.unfit}")


def _shared(switch: torch.Tensor) -> torch.Tensor:
    """In memory that the workers see too."""
    try:
        switch.share_memory_()
    except (RuntimeError, OSError) as error:
        raise cannot_start(error, None) from error
    return switch


def abandon(iterator: Any) -> None:
    """End worker processes in the middle of a batch. Torch must not take that for a crash, so it forgets them first."""
    processes = getattr(iterator, "_workers", [])
    if getattr(iterator, "_worker_pids_set", False):
        signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]
        iterator._worker_pids_set = False
    done = getattr(iterator, "_workers_done_event", None)
    if done is not None and done._cond.acquire(True, PATIENCE):
        done._cond.release()
        done.set()
    # An interrupt first: a worker that can still hear it removes its own temporary files.
    for stop in (_interrupt, BaseProcess.terminate, BaseProcess.kill):
        alive = [process for process in processes if process.is_alive()]
        for process in alive:
            stop(process)
        until = time.monotonic() + PATIENCE
        for process in alive:
            process.join(max(0.0, until - time.monotonic()))
    if done is not None:
        # A worker that was ended while it looked at the event holds its lock for ever, and torch would wait for it.
        iterator._workers_done_event = threading.Event()


def _interrupt(process: BaseProcess) -> None:
    if process.pid is not None:
        os.kill(process.pid, signal.SIGINT)


def _loader(subject: Subject, switch: torch.Tensor, options: StandInOptions, known: list[Any] | None) -> DataLoader[Any]:
    theirs = subject.loader
    workers = options.workers
    generator = None
    if theirs.generator is not None:
        generator = torch.Generator()
        generator.set_state(theirs.generator.get_state())
    settings: dict[str, Any] = {
        "batch_size": None,
        "collate_fn": as_is,
        "num_workers": workers,
        "pin_memory": theirs.pin_memory and torch.cuda.is_available(),
        "generator": generator,
        "in_order": theirs.in_order,
        "worker_init_fn": WorkerInit(theirs.worker_init_fn),
    }
    if workers:
        settings |= {
            "timeout": theirs.timeout,
            "multiprocessing_context": theirs.multiprocessing_context,
            "prefetch_factor": theirs.prefetch_factor or 2,
        }
    # A loader that hands batches over in a way of its own brings what makes another that does.
    make = getattr(theirs, "another", DataLoader)
    if subject.iterable:
        stream = StreamStandIn(theirs.dataset, theirs.collate_fn, switch, options, theirs.batch_size, theirs.drop_last)
        return make(stream, **settings)
    kind = "batched" if subject.batched_fetch else "map" if subject.auto_collation else "single"
    if make is not DataLoader:
        settings["collate_fn"] = called
    stand_in = (StandIn if make is DataLoader else Deferred)(theirs.dataset, theirs.collate_fn, switch, options, kind)
    return make(stand_in, sampler=Orders(subject, known), **settings)


def _clone(value: Any) -> Any:
    """A batch that outlives the worker that made it."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _clone(inner) for key, inner in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_clone(inner) for inner in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_clone(inner) for inner in value)
    return value
