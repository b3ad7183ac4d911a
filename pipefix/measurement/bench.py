"""One process's share of the experiment: live or recorded samples made into batches, and what each batch cost.

Runs in a worker, or in the training process where there are no workers. It puts back what it patched when it is closed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from pipefix.measurement.own_lines import OwnLines
from pipefix.measurement.recorded_batch import RecordedBatch
from pipefix.measurement.recording_report import RecordingReport, write_charges, write_events
from pipefix.measurement.sample_keys import SampleKeys
from pipefix.measurement.stand_in_options import SWITCH_WORDS, Delivered, StandsIn
from pipefix.measurement.time_limit import BatchTimeLimit
from pipefix.measurement.trace import BatchTrace, encode
from pipefix.subject import failure, staging
from pipefix.subject.subject import length_of
from pipefix.subject.user_code import UserCodeHooks
from pipefix.system.run_queue import RunQueue
from pipefix.vocabulary import last_act
from pipefix.vocabulary.stage import IN_SAMPLE, Stage

CPU_EVERY = 8
"""One sample in so many also has its CPU time read at every hook: a reading costs a system call."""
DISCOVERY_UNITS = 2
"""Samples run before recording begins, to learn which of the user's functions do the work of several stages."""
FILLING = 8
"""Times the hooks of a sample that a stream's first one crosses, where it fills a buffer."""
PLAIN_COLLATE_EVERY = 5
OBSERVE_EVERY = 64
"""Batches between two looks at the worker's memory and threads."""
TRACED_BATCHES = 60
"""Batches a process traces: enough to look at, few enough to open quickly."""
LONGEST_NAME = 40
"""Characters of a sample's name in a trace."""

_WHOLE_SAMPLE = frozenset(IN_SAMPLE)


@dataclass
class _MadeSamples:
    samples: list[Any] = field(default_factory=list)
    unit_walls: list[int] = field(default_factory=list)
    marks: list[tuple[str, int, int]] = field(default_factory=list)
    """(unit, begun, ended) where a trace was asked for."""

    def add(self, unit: Any, sample: Any, begun: int, *, mark: bool) -> None:
        ended = time.perf_counter_ns()
        self.unit_walls.append(ended - begun)
        self.samples.append(sample)
        if mark:
            self.marks.append((str(unit)[:LONGEST_NAME], begun, ended))


class Bench:
    """One process's share of the experiment: its timer, its recording, and the making of batches."""

    def __init__(self, stand_in: StandsIn) -> None:
        self.of = stand_in
        self.dataset = stand_in.dataset
        self.stream: Iterator[Any] | None = None
        self.position = 0
        info = get_worker_info()
        self.worker = info.id if info is not None else 0
        self.queue = RunQueue()
        self._time_limit = BatchTimeLimit(stand_in.options.limit)
        self._in_view = info is None and last_act.kept()
        """Whether somebody watches what this process dies of; of workers the training process tells."""
        staging.count_as_users(stand_in.options.package)
        self.timer = SampleTimer()
        self.lines = OwnLines(self.timer)
        self.patches = Patches()
        self.recording = Recording(stand_in.options.recording_bytes)
        self.user_code = UserCodeHooks(self.timer, self.patches)
        self.hooks: list[str] = []
        self.hand = ipc_timer.attach() if info is not None and stand_in.options.cut else None
        if stand_in.options.cut:
            self.hooks = install_all(self.timer, self.patches)
            self.user_code.dataset(self.dataset)
        self.epoch = -1
        self.counter = 0
        self.recorded_orders: list[list[Any]] = []
        """Batches of the user's own batch sampler of which every sample is recorded."""
        self.batches = self.plain_batches = self.samples_made = 0
        self.discovered = 0
        self._modules = 0
        self._hooks_out = False
        self._entered = self._writing = 0
        self._token: Any = torch.zeros(1)
        self._recorded_batch = RecordedBatch(self.recording)
        self._kept_samples = 0
        """How many samples it holds."""
        self._keys = SampleKeys()
        self._report = RecordingReport(self.recording, self._keys, self.timer, self.user_code, self.lines)
        self._doing: Any = None
        self._collating: _MadeSamples | None = None
        self._asked_for: list[Any] = []
        self.drawn = 0
        self.fills = False
        """Whether the stream's first sample fills a buffer."""
        self._first_crossings = 0
        self.timed = 0

    def close(self) -> None:
        self.timer.active = False
        self.lines.turn(on=False)
        self.patches.undo()
        self.queue.close()
        self._time_limit.close()

    def failure(self, error: BaseException) -> Failure:
        """What the user's code was doing when it raised."""
        kind = self.of.kind
        collating, self._collating = self._collating, None
        if collating is not None:
            return failing.of_batch(error, self._asked_for, collating.samples if kind != "batched" else ())
        return failing.of_sample(error, self._doing, kind=kind, length=length_of(self.dataset))

    # -- a batch -----------------------------------------------------------------------------------------------------

    def attempt(self, order: Any) -> Delivered | Failure:
        self._entered = time.perf_counter_ns()
        made = self._attempt(order)
        if len(self.of.switch) > SWITCH_WORDS + self.worker:
            self.of.switch[SWITCH_WORDS + self.worker] += 1
        return made

    def _attempt(self, order: Any) -> Delivered | Failure:
        """A batch, or what is to be said in its place.

        Where the user's code raises while something is replaced, the replacement may be to blame: the same batch is made live, and
        if that succeeds, the arm does not suit this pipeline.
        """
        made = self._guarded(order)
        if isinstance(made, Delivered) or self._time_limit.fired or not POOL[int(self.of.switch[0])].replaces:
            return made
        self._collating, self.stream, self.position = None, None, 0
        return self._guarded(order, unfit=made.what)

    def _guarded(self, order: Any, *, unfit: str = "") -> Delivered | Failure:
        """`make`; whatever the user's code raises becomes a failure that says so, and so does what takes too long."""
        self._time_limit.begin()
        if self._in_view:
            last_act.note(failing.making(order, self.of.kind))
        try:
            return self.make(order, unfit=unfit)
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
            self._time_limit.end()
            if self._in_view:
                last_act.note("")

    def make(self, order: Any, *, unfit: str = "") -> Delivered:
        """``unfit``: why the arm that is on does not suit; the batch is made with nothing replaced."""
        switch = self.of.switch
        arm, epoch = int(switch[0]), int(switch[1])
        if epoch != self.epoch:
            self.epoch, self.counter = epoch, 0
        experiment = POOL[arm] if not unfit else PLAIN
        self._mode(experiment)
        starved = self.queue.waited()
        process_begun = time.process_time_ns()
        begun, cpu_begun = time.perf_counter_ns(), time.thread_time_ns()
        trace = BatchTrace(arm, epoch, self.worker, os.getpid(), 0, begun, 0, 0, 0, 0, unfit=unfit)
        skipped = Stage.COLLATE in experiment.replaces and bool(self.recording.batches)
        if skipped and Stage.AUGMENT in experiment.replaces:
            made = _MadeSamples()
            trace.samples = self._kept_samples
        else:
            made = self._samples(order, experiment, trace)
        trace.made = time.perf_counter_ns()
        cpu_made = time.thread_time_ns()
        batch = self._batch(made, experiment, trace, skipped=skipped)
        trace.ended = time.perf_counter_ns()
        cpu_ended = time.thread_time_ns()
        trace.cpu = cpu_ended - cpu_begun
        trace.collate_wall = trace.ended - trace.made if not skipped else 0
        trace.collate_cpu = cpu_ended - cpu_made if not skipped else 0
        trace.process_cpu = time.process_time_ns()
        trace.process_made = trace.process_cpu - process_begun
        trace.starved = self.queue.waited() - starved
        self._fill(trace, made, experiment)
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
        timer.active = self.of.options.cut and (experiment.timed or experiment is RECORD)
        if timer.active is self._hooks_out:  # the plain arm is plain: nothing of ours stands in any function's place
            (self.patches.resume if timer.active else self.patches.pause)()
            self._hooks_out = not timer.active
        self.lines.turn(on=timer.active and experiment is RECORD)
        if timer.active:
            self._late_imports()
        timer.events = [] if experiment is TRACED and self.counter < TRACED_BATCHES else None
        timer.clear()

    def _late_imports(self) -> None:
        """Libraries that the dataset imported while running get their hooks too."""
        import sys

        if len(sys.modules) != self._modules:
            self.hooks += install_all(self.timer, self.patches)
            self._modules = len(sys.modules)

    def _samples(self, order: Any, experiment: Experiment, trace: BatchTrace) -> _MadeSamples:
        made = _MadeSamples()
        if self.of.kind == "stream":
            self._draw(order, experiment, made, trace)
        else:
            units = self._units(order, experiment, trace)
            for unit in units:
                self._run(unit, experiment, made)
            if (
                experiment is RECORD
                and self.of.whole_batches
                and all(self._keys.of(unit) in self.recording.samples for unit in units)
            ):
                self.recorded_orders.append(units)
            order = units[0] if self.of.kind != "map" else order
        trace.samples = self._asked(order) if self.of.kind in ("batched", "single") else len(made.samples)
        return made

    def _asked(self, order: Any) -> int:
        """How many samples an order stands for. Without auto-collation a list is a batch that the dataset makes itself."""
        kind = self.of.kind
        if kind == "single":
            return len(order) if isinstance(order, list) else 1
        return (order or 1) if kind == "stream" else len(order)

    def _units(self, order: Any, experiment: Experiment, trace: BatchTrace) -> list[Any]:
        """Which samples to make: the order as asked, or recorded ones in its place."""
        whole = self.of.kind == "batched"
        asked = [tuple(order)] if whole else [order] if self.of.kind == "single" else list(order)
        self._asked_for = list(order) if whole else asked
        known = self.recording.units
        if experiment.source == "new" or not known:
            return asked
        if self.recorded_orders:
            trace.wrapped = self.counter >= len(self.recorded_orders)
            self._asked_for = self.recorded_orders[self.counter % len(self.recorded_orders)]
            return self._asked_for
        first = self.counter * len(asked)
        trace.wrapped = first + len(asked) > len(known)
        units = self._keys.originals([known[(first + offset) % len(known)] for offset in range(len(asked))])
        self._asked_for = list(units[0]) if whole else units
        return units

    def _run(self, unit: Any, experiment: Experiment, made: _MadeSamples) -> None:
        """One sample (or one batched fetch), live or recorded."""
        timer = self.timer
        key = unit if type(unit) is int else self._keys.of(unit)
        if experiment.replaces >= _WHOLE_SAMPLE and self._recorded_sample(key, made):
            return
        self._doing = unit
        begun = time.perf_counter_ns()
        if experiment is RECORD:
            timer.recording = self._recorder()
        if timer.active:
            timer.begin(key, cpu=self._cpu_turn())
        try:
            sample = self.dataset.__getitems__(list(unit)) if self.of.kind == "batched" else self.dataset[unit]
        finally:
            if timer.active:
                timer.end()
        made.add(unit, sample, begun, mark=timer.events is not None)
        if experiment is RECORD:
            self._recorded(key, sample)

    def _cpu_turn(self) -> bool:
        """Whether the next sample has its CPU time read."""
        self.timed += 1
        return self.timed % CPU_EVERY == 1

    def _draw(self, count: int | None, experiment: Experiment, made: _MadeSamples, trace: BatchTrace) -> None:
        """Samples of a stream. Recorded arms begin it anew, so that they pass the same positions. One with a buffer to fill, which
        takes long, goes on where it is, unless what lies in the buffer was read before its files were evicted."""
        timer, known = self.timer, self.recording.units
        new = experiment.source == "new" or not known
        goes_on = self.fills and self.stream is not None and experiment.source != "cold"
        if self.counter == 0 and not new and not goes_on:
            self.stream, self.position = None, known[0]
        while len(made.samples) < (count or 1):
            if not new and self.position >= known[0] + len(known):
                self.stream, self.position, trace.wrapped = None, known[0], True
            if experiment.replaces >= _WHOLE_SAMPLE and self._recorded_sample(self.position, made):
                self.stream, self.position = None, self.position + 1
                continue
            if self.stream is None:
                self._begin_stream(trace)
            assert self.stream is not None
            self._doing, crossed = self.position, sum(timer.calls)
            begun = time.perf_counter_ns()
            if experiment is RECORD:
                timer.recording = self._recorder()
            if timer.active:
                timer.begin(self.position, cpu=self._cpu_turn())
            try:
                sample = next(self.stream)
            except StopIteration:
                self.stream = None
                if self.position == 0:
                    raise EmptyStream from None
                self.fills = self.fills and self.position > 1  # else its first sample is all that it gives this time
                continue
            finally:
                if timer.active:
                    timer.end()
            made.add(self.position, sample, begun, mark=timer.events is not None)
            self._see_filling(sum(timer.calls) - crossed)
            self.position += 1
            self.drawn += 1
            if experiment is RECORD:
                self._recorded(self.position - 1, sample)

    def _begin_stream(self, trace: BatchTrace) -> None:
        """Where the first sample fills a buffer (of a shuffle, say), it is drawn outside the clock: an epoch fills it once, the
        laps of a recording again and again."""
        self._doing = self.position = 0
        begun = time.perf_counter_ns()
        self.stream = iter(self.dataset)
        if self.fills:
            try:
                next(self.stream)
            except StopIteration:
                self.stream = iter(())  # said where the next sample is asked for
            else:
                self.position = 1
            trace.replay += time.perf_counter_ns() - begun

    def _see_filling(self, crossings: int) -> None:
        """Before the recording: whether the first sample crosses many times as many hooks as the second."""
        if self.discovered < DISCOVERY_UNITS:
            first, self._first_crossings = self._first_crossings, crossings
            self.fills = self.position > 0 and first > FILLING * max(1, crossings)

    def _recorded_sample(self, unit: Any, made: _MadeSamples) -> bool:
        sample = self.recording.samples.get(unit)
        if sample is None:
            return False
        begun = time.perf_counter_ns()
        made.samples.append(snapshot(sample))
        self.timer.replay_ns += time.perf_counter_ns() - begun
        return True

    def _recorder(self) -> Recording | None:
        return self.recording if self.discovered >= DISCOVERY_UNITS and not self.recording.full else None

    def _recorded(self, unit: Any, sample: Any) -> None:
        """A unit ran under the recording arm: the first few only teach which functions are mixed."""
        if self.timer.recording is not None:
            self.recording.complete(unit, sample)
        elif self.discovered < DISCOVERY_UNITS:
            self.discovered = DISCOVERY_UNITS if self.of.kind == "batched" else self.discovered + 1
            if self.discovered == DISCOVERY_UNITS and self.of.kind == "stream":
                self.stream = None

    # -- collating -----------------------------------------------------------------------------------------------------

    def _batch(self, made: _MadeSamples, experiment: Experiment, trace: BatchTrace, *, skipped: bool) -> Any:
        if skipped:
            return self._prebuilt(trace)
        self._collating = made
        batch = self.of.collate(self._collatable(made))
        self._collating = None
        return batch

    def _collatable(self, made: _MadeSamples) -> Any:
        if self.of.kind == "batched":
            return made.samples[0]
        if self.of.kind == "single" or (self.of.kind == "stream" and self.of.batch_size is None):
            return made.samples[0]
        return made.samples

    def _prebuilt(self, trace: BatchTrace) -> Any:
        """A recorded batch. A loader with memory of its own for batches takes one that is shared already for no concern of that."""
        if self.hand is None or self.of.places_batches:
            begun = time.perf_counter_ns()
            batch = self._recorded_batch.as_it_was() if self.hand is None else self._recorded_batch.as_it_is
            trace.replay += time.perf_counter_ns() - begun
            return batch
        return self._recorded_batch.in_shared_memory()

    def _whole(self) -> int:
        """Samples that one recorded unit stands for."""
        return len(self.recording.units[0]) if self.of.kind == "batched" and self.recording.units else 1

    def _asides(self, trace: BatchTrace, made: _MadeSamples, batch: Any, experiment: Experiment) -> None:
        """Measurements beside the batch, in time that is told apart (`extra`)."""
        if experiment is RECORD and self.discovered >= DISCOVERY_UNITS and len(self.recording.batches) < 1:
            self.recording.keep_batch(batch)
            self._kept_samples = trace.samples
        if experiment is PLAIN and self.of.options.observe is not None and self.plain_batches % OBSERVE_EVERY == 0:
            trace.facts = {**self.of.options.observe(batch), "decoded_bytes": self.recording.decoded_bytes / self._whole()}
        self.plain_batches += experiment is PLAIN
        if (
            experiment.timed
            and not experiment.replaces
            and self.hand is not None
            and self.batches % PLAIN_COLLATE_EVERY == 0
            and made.samples
        ):
            with torch_internals.not_a_worker():
                mark = time.perf_counter_ns()
                self.of.collate(self._collatable(made))
                trace.plain_collate = time.perf_counter_ns() - mark

    # -- the trace -----------------------------------------------------------------------------------------------------

    def _fill(self, trace: BatchTrace, made: _MadeSamples, experiment: Experiment) -> None:
        timer = self.timer
        trace.unit_walls = made.unit_walls
        trace.bytes_read = timer.bytes_read
        trace.replay += timer.replay_ns
        trace.misses = timer.misses
        if timer.active:
            write_charges(timer, trace)
        if timer.events is not None:
            write_events(timer, made.marks, trace)
        if self.hand is not None:
            counters = self.hand.take()
            trace.dumps, trace.send, trace.handed = counters.dumps_ns, counters.send_ns, counters.count
        if experiment is RECORD:
            trace.hooks = self.hooks
            self._report.write(trace, self.recorded_orders if self.of.whole_batches else None)
