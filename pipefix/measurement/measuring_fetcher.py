"""Stands in for torch's fetcher in a process that makes batches: makes each as the experiment has it, and times it.

In a worker, or in the training process where there are no workers. It puts back what it patched when it is closed.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch.utils.data import get_worker_info

from pipefix.hooks import ipc_timer, torch_internals
from pipefix.hooks.install import install_all
from pipefix.hooks.patches import Patches
from pipefix.hooks.recording import Recording
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.hooks.snapshot import snapshot
from pipefix.measurement import failing
from pipefix.measurement.experiments import PLAIN, POOL, RECORD, TRACED, Experiment
from pipefix.measurement.failing import EmptyStream, Failure
from pipefix.measurement.kept_batch import shared_anew
from pipefix.measurement.own_lines import OwnLines
from pipefix.measurement.probe_task import SWITCH_WORDS, Delivered, ProbeTask
from pipefix.measurement.sample_maker import DISCOVERY_UNITS, SampleMaker
from pipefix.measurement.time_limit import BatchTimeLimit
from pipefix.measurement.trace import BatchTrace, Charge, encode
from pipefix.subject import failure
from pipefix.subject.call_sites import CallSites
from pipefix.subject.subject import length_of
from pipefix.subject.user_code import UserCodeHooks
from pipefix.system.resources import childrens_cpu_ns
from pipefix.system.run_queue import RunQueue
from pipefix.vocabulary import last_act, user_modules
from pipefix.vocabulary.stage import Stage

PLAIN_COLLATE_EVERY = 5
OBSERVE_EVERY = 64
"""Batches between two looks at the worker's memory and threads."""
TRACED_BATCHES = 60
"""Batches a process traces: enough to look at, few enough to open quickly."""


class MeasuringFetcher:
    """One process's share of the experiment: its timer, its recording, and the making of batches."""

    def __init__(
        self, task: ProbeTask, dataset: Any, collate: Callable[[Callable[[], Any]], Any], *, auto_collation: bool, places: bool
    ) -> None:
        """``collate``: the loader's, which is given what makes the batch and calls it. ``places``: it puts batches where the
        training process finds them. ``auto_collation``: orders are lists of what to ask for."""
        self.task, self.dataset = task, dataset
        self._collate, self._auto_collation, self._places = collate, auto_collation, places
        info = get_worker_info()
        self.worker = info.id if info is not None else 0
        self.queue = RunQueue()
        self._time_limit = BatchTimeLimit(task.options.limit)
        self._in_view = info is None and last_act.kept()
        """Whether somebody watches what this process dies of; of workers the training process tells."""
        user_modules.count_as_users(task.options.package)
        self.timer = SampleTimer()
        self.lines = OwnLines(self.timer)
        self.patches = Patches()
        self.recording = Recording(task.options.recording_bytes)
        self.user_code = UserCodeHooks(self.timer, self.patches)
        self.sites = CallSites(self.timer, self.patches, self.user_code.evidence)
        self.hand = ipc_timer.attach() if info is not None and task.options.cut else None
        if task.options.cut:
            install_all(self.timer, self.patches)
            self.user_code.dataset(dataset)
            self.sites.observe(self.user_code.functions)
        self.samples = SampleMaker(dataset, task, self.timer, self.recording, self.sites)
        self.epoch = -1
        self.counter = 0
        self.batches = self.plain_batches = self.samples_made = 0
        self._modules = 0
        self._hooks_out = False
        self._entered = self._writing = 0
        self._token: Any = torch.zeros(1, device="cpu")
        self._shared_anew: Callable[[], Any] | None = None
        """Gives the recorded batch again."""
        self._kept_samples = 0
        """How many samples it holds."""
        self._collating: list[Any] | None = None

    def close(self) -> None:
        self.timer.active = False
        self.lines.turn(on=False)
        self.patches.undo()
        self.queue.close()
        self._time_limit.close()

    def fetch(self, order: Any) -> Any:
        """What the loader hands over for an order of its sampler; asked as torch's own fetchers are."""
        if self.task.kind == "stream":
            order = len(order) if self._auto_collation else None
        try:
            return self._collate(functools.partial(self.attempt, order))
        except EmptyStream:
            if self.samples.drawn:
                return failing.stream_spent(self.samples.drawn)
            raise StopIteration from None  # this worker has no part of the stream: the others go on

    def failure(self, error: BaseException) -> Failure:
        """What the user's code was doing when it raised."""
        kind, samples = self.task.kind, self.samples
        collating, self._collating = self._collating, None
        if collating is not None:
            return failing.of_batch(error, samples.asked_for, collating if kind != "batched" else ())
        return failing.of_sample(error, samples.doing, kind=kind, length=length_of(self.dataset))

    # -- a batch -----------------------------------------------------------------------------------------------------

    def attempt(self, order: Any) -> Delivered | Failure:
        """A batch of the arm that is on, or what is to be said in its place.

        Where the user's code raises while something is replaced, the replacement may be to blame: the same batch is made live, and
        if that succeeds, the arm does not suit this pipeline. ``order``: of a stream how many samples, None for one that is not to
        be collated.
        """
        self._entered = time.perf_counter_ns()
        switch = self.task.switch
        arm, epoch = int(switch[0]), int(switch[1])  # it may be turned while the batch is made
        outcome = self._guarded(order, arm, epoch)
        if isinstance(outcome, Failure) and self.sites.looks and not self._time_limit.fired and self.task.kind != "stream":
            self._collating = None
            self.sites.put_back()  # what looks for its caller finds us there while expressions are looked at
            outcome = self._guarded(order, arm, epoch)
        elif isinstance(outcome, Failure) and not self._time_limit.fired and POOL[arm].replaces:
            self._collating = None
            self.samples.stream, self.samples.position = None, 0  # a stream is begun anew
            outcome = self._guarded(order, arm, epoch, unfit=outcome.what)
        if len(switch) > SWITCH_WORDS + self.worker:
            switch[SWITCH_WORDS + self.worker] += 1
        return outcome

    def _guarded(self, order: Any, arm: int, epoch: int, *, unfit: str = "") -> Delivered | Failure:
        """`make`; whatever the user's code raises becomes a failure that says so, and so does what takes too long."""
        if self._in_view:
            last_act.note(failing.making(order, self.task.kind))
        try:
            with self._time_limit:
                return self.make(order, arm, epoch, unfit=unfit)
        except EmptyStream:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code may raise anything; it is told, not swallowed
            return self.failure(error)
        except KeyboardInterrupt as interrupt:
            if self._time_limit.fired:
                return self.failure(self._time_limit.as_timeout(interrupt))
            if not failure.is_raised_by_code(interrupt):
                raise
            return self.failure(interrupt)
        finally:
            if self._in_view:
                last_act.note("")

    def make(self, order: Any, arm: int, epoch: int, *, unfit: str = "") -> Delivered:
        """``unfit``: why the arm does not suit; the batch is made with nothing replaced."""
        if epoch != self.epoch:
            self.epoch, self.counter = epoch, 0
        experiment = POOL[arm] if not unfit else PLAIN
        self._mode(experiment)
        starved = self.queue.waited()
        process_begun, children_begun = time.process_time_ns(), childrens_cpu_ns()
        begun, cpu_begun = time.perf_counter_ns(), time.thread_time_ns()
        trace = BatchTrace(arm, epoch, self.worker, os.getpid(), 0, begun, 0, 0, 0, 0, unfit=unfit)
        skipped = Stage.COLLATE in experiment.replaces and bool(self.recording.batches)
        if skipped and Stage.AUGMENT in experiment.replaces:
            made: list[Any] = []
            trace.samples = self._kept_samples
        else:
            made = self.samples.make(order, experiment, trace, self.counter)
        trace.made = time.perf_counter_ns()
        cpu_made = time.thread_time_ns()
        batch = self._batch(made, trace, skipped=skipped)
        trace.ended = time.perf_counter_ns()
        cpu_ended = time.thread_time_ns()
        trace.cpu = cpu_ended - cpu_begun
        trace.collate_wall = trace.ended - trace.made if not skipped else 0
        trace.collate_cpu = cpu_ended - cpu_made if not skipped else 0
        trace.children_cpu = max(0, childrens_cpu_ns() - children_begun)
        trace.process_made = time.process_time_ns() - process_begun + trace.children_cpu
        trace.starved = self.queue.waited() - starved
        self._fill(trace, experiment)
        self._asides(trace, made, batch, experiment)
        self.batches += 1
        self.samples_made += trace.samples
        trace.samples_made = self.samples_made
        self.counter += 1
        token = Stage.IPC in experiment.replaces and self.hand is not None
        if token:
            batch = self._token
        # Before the clock began and after it ended; what writing the trace takes is told with the next one.
        ended = time.perf_counter_ns()
        trace.extra = begun - self._entered + ended - trace.ended + self._writing
        delivered = Delivered(batch, encode(trace), token)
        self._writing = time.perf_counter_ns() - ended
        return delivered

    def _mode(self, experiment: Experiment) -> None:
        timer = self.timer
        replaced = experiment.replaces & {Stage.STORAGE, Stage.DECODE, Stage.AUGMENT}
        timer.recording = None
        timer.playing = self.recording if replaced else None
        timer.replaced = frozenset(replaced)
        timer.active = self.task.options.cut and (experiment.timed or experiment is RECORD)
        if timer.active is self._hooks_out:  # the plain arm is plain: nothing of ours stands in any function's place
            (self.patches.resume if timer.active else self.patches.pause)()
            self._hooks_out = not timer.active
        if self.sites.looks and experiment is not RECORD:
            self.sites.choose()
        self.lines.turn(on=timer.active and experiment is RECORD)
        if timer.active and len(sys.modules) != self._modules:
            install_all(timer, self.patches)  # libraries that the dataset imported while running get their hooks too
            self._modules = len(sys.modules)
        timer.events = [] if experiment is TRACED and self.counter < TRACED_BATCHES else None
        timer.clear()

    # -- collating -----------------------------------------------------------------------------------------------------

    def _batch(self, made: list[Any], trace: BatchTrace, *, skipped: bool) -> Any:
        if skipped:
            return self._prebuilt(trace)
        self._collating = made
        self.lines.collating = True
        try:
            batch = self.task.collate(self._collatable(made))
        finally:
            self.lines.collating = False
        self._collating = None
        return batch

    def _collatable(self, made: list[Any]) -> Any:
        return made if self._auto_collation and self.task.kind != "batched" else made[0]

    def _prebuilt(self, trace: BatchTrace) -> Any:
        """A recorded batch, as a live one would be. A loader with memory of its own for batches takes one that is shared already
        for no concern of that."""
        recorded = self.recording.batches[0]
        if self.hand is None:  # for a consumer in this process, whatever it did to the one before
            begun = time.perf_counter_ns()
            batch = snapshot(recorded)
            trace.replay += time.perf_counter_ns() - begun
            return batch
        if self._places:
            return recorded
        if self._shared_anew is None:
            self._shared_anew = shared_anew(recorded)
        return self._shared_anew()

    def _asides(self, trace: BatchTrace, made: list[Any], batch: Any, experiment: Experiment) -> None:
        """Measurements beside the batch, in time that is told apart (`extra`)."""
        if experiment is RECORD and self.samples.discovered >= DISCOVERY_UNITS and len(self.recording.batches) < 1:
            self.recording.keep_batch(batch)
            self._kept_samples = trace.samples
        observe = self.task.options.observe
        if experiment is PLAIN and observe is not None and self.plain_batches % OBSERVE_EVERY == 0:
            # One recorded unit of a batched fetch stands for many samples.
            whole = len(self.recording.units[0]) if self.task.kind == "batched" and self.recording.units else 1
            trace.facts = {**observe(batch), "decoded_bytes": self.recording.decoded_bytes / whole}
        self.plain_batches += experiment is PLAIN
        as_it_is = experiment.timed and not experiment.replaces and self.hand is not None
        if as_it_is and made and self.batches % PLAIN_COLLATE_EVERY == 0:
            # Samples that a collate function has changed, taken a label out of each, say, it need not take once more. Where it does
            # it may have less to do with them: both ways are held against each other, and not against the first time.
            with suppress(Exception):
                trace.collate_again = self._collated_again(made)
                with torch_internals.not_a_worker():
                    trace.plain_collate = self._collated_again(made)

    def _collated_again(self, made: list[Any]) -> int:
        """Nanoseconds; what it gives is freed after the clock."""
        mark = time.perf_counter_ns()
        batch = self.task.collate(self._collatable(made))
        spent = time.perf_counter_ns() - mark
        del batch
        return spent

    # -- the trace -----------------------------------------------------------------------------------------------------

    def _fill(self, trace: BatchTrace, experiment: Experiment) -> None:
        timer = self.timer
        trace.bytes_read = timer.bytes_read
        trace.replay += timer.replay_ns
        names = timer.names
        if timer.active:
            # Another thread may be adding an operation, column by column.
            columns = zip(names, timer.wall, timer.cpu_time, timer.cpu_wall, timer.calls, timer.entered, strict=False)
            trace.charges = [Charge(stage and stage.value, op, wall, *figures) for (stage, op), wall, *figures in columns if wall]
            trace.foreign = [(str(names[key][0]), names[key][1], spent) for key, spent in list(timer.foreign.items())]
        if timer.events is not None:
            trace.events += [(str(names[key][0]), names[key][1], begun, ended) for key, begun, ended in timer.events]
            trace.events.append(("collate", "collate", trace.made, trace.ended))
        if self.hand is not None:
            counters = self.hand.take()
            trace.dumps, trace.send, trace.handed = counters.dumps_ns, counters.send_ns, counters.count
        if experiment is RECORD:
            self.samples.tell_recording(trace)
            trace.left_out = sorted(self.patches.left_out)
            trace.own_lines, trace.collate_lines = dict(self.lines.seen), dict(self.lines.seen_collating)
