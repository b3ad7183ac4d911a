"""Makes the samples of a batch in one process, live or from the recording, as the experiment has it; tells what is recorded."""

from __future__ import annotations

import operator
import os
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from pipefix.hooks.recording import Recording
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.hooks.snapshot import snapshot
from pipefix.measurement import residency
from pipefix.measurement.experiments import RECORD, Experiment
from pipefix.measurement.failing import EmptyStream
from pipefix.measurement.probe_task import ProbeTask
from pipefix.measurement.trace import BatchTrace
from pipefix.subject.call_sites import CallSites
from pipefix.vocabulary.stage import IN_SAMPLE

CPU_EVERY = 8
"""One sample in so many also has its CPU time read at every hook: a reading costs a system call."""
DISCOVERY_UNITS = 2
"""Samples run before recording begins, to learn which of the user's functions do the work of several stages."""
FILLING = 8
"""Times the hooks of a sample that a stream's first one crosses, where it fills a buffer."""
LONGEST_NAME = 40
"""Characters of a sample's name in a trace."""

_WHOLE_SAMPLE = frozenset(IN_SAMPLE)


def _hashable(unit: Any) -> Any:
    """The unit itself where it can be a key; else an equal value that can."""
    if isinstance(unit, (list, tuple)):
        inner = tuple(_hashable(element) for element in unit)
        return unit if type(unit) is tuple and all(map(operator.is_, inner, unit)) else inner
    if hasattr(unit, "tolist"):
        return _hashable(unit.tolist())
    try:
        hash(unit)
    except TypeError:
        return repr(unit)
    return unit


def _readable(read: Callable[[list[Any]], Any], indices: list[Any]) -> Any:
    """A batch without samples that cannot be read: which these are is seen when they are read one after the other."""
    try:
        return read(indices)
    except Exception:
        samples: list[Any] = []
        for index in indices:
            with suppress(Exception):
                sample = read([index])
                samples += sample if isinstance(sample, (list, tuple)) else ()
        if not samples:  # a batch needs one
            raise
        return samples


class SampleMaker:
    """One process's samples. A unit is what the dataset is asked for at once: a sample, or a batch where it has `__getitems__`."""

    def __init__(self, dataset: Any, task: ProbeTask, timer: SampleTimer, recording: Recording, sites: CallSites) -> None:
        self.dataset, self.kind = dataset, task.kind
        self.timer, self.recording, self.sites = timer, recording, sites
        self._originals: dict[Any, Any] = {}
        """By the key that a sample is kept under: what the sampler said, where that is something else. Samplers also ask for lists,
        tensors and whatever else their dataset understands."""
        self.stream: Iterator[Any] | None = None
        self.position = 0
        """Of the stream's next sample."""
        self.drawn = 0
        """Samples of the stream so far, over all its epochs."""
        self.fills = False
        """Whether the stream's first sample fills a buffer."""
        self.discovered = 0
        self.recorded_orders: list[list[Any]] = []
        """Batches of the user's own batch sampler of which every sample is recorded."""
        self.doing: Any = None
        """The unit that is being made."""
        self.asked_for: list[Any] = []
        """The units of the batch."""
        self._whole_batches, self._leaves_out = task.whole_batches, task.leaves_out
        self._readable_unit: Any = None
        """The latest that could be read."""
        self._told = 0
        """Recorded units (or whole batches of them) that the training process knows."""
        self._pieces: set[tuple[str, int, int]] = set()
        """Path, offset and length of every stretch of a file that a recorded sample read."""
        self._told_ranges: dict[str, list[tuple[int, int]]] = {}
        self._first_crossings = 0
        self._timed = 0

    def make(self, order: Any, experiment: Experiment, trace: BatchTrace, place: int) -> list[Any]:
        """The samples of a batch, the ``place``-th of its arm in this process."""
        samples: list[Any] = []
        if self.kind == "stream":
            self._draw(order, experiment, samples, trace, place)
        else:
            units = self._units(order, experiment, trace, place)
            self.asked_for = list(units[0]) if self.kind == "batched" else units
            for unit in units:
                try:
                    self._run(unit, experiment, samples, trace)
                except Exception:
                    none_is_left = unit is units[-1] and not samples
                    if not self._leaves_out or (none_is_left and self._readable_unit is None):
                        raise
                    self.recording.files.reads.clear()
                    if none_is_left:  # a batch needs one, where training goes on with the next batch
                        self._run(self._readable_unit, experiment, samples, trace)
                else:
                    self._readable_unit = unit
            recorded = self.recording.samples
            if experiment is RECORD and self._whole_batches and all(self._key(unit) in recorded for unit in units):
                self.recorded_orders.append(units)
            order = units[0] if self.kind != "map" else order
        trace.samples = len(samples)
        if self.kind == "batched" or (isinstance(order, list) and self.kind == "single"):
            told = samples[0] if self.kind == "batched" and self._leaves_out and isinstance(samples[0], list) else order
            trace.samples = len(told)  # without auto-collation a list is a batch that the dataset makes itself
        return samples

    def _units(self, order: Any, experiment: Experiment, trace: BatchTrace, place: int) -> list[Any]:
        """Which samples to make: the order as asked, or recorded ones in its place."""
        asked_units = [tuple(order)] if self.kind == "batched" else [order] if self.kind == "single" else list(order)
        known = self.recording.units
        if experiment.source == "new" or not known:
            return asked_units
        if self.recorded_orders:
            trace.wrapped = place >= len(self.recorded_orders)
            return self.recorded_orders[place % len(self.recorded_orders)]
        first = place * len(asked_units)
        trace.wrapped = first + len(asked_units) > len(known)
        return self._to_ask_for([known[(first + offset) % len(known)] for offset in range(len(asked_units))])

    def _key(self, unit: Any) -> Any:
        key = _hashable(unit)
        if key is not unit:
            self._originals[key] = unit
        return key

    def _to_ask_for(self, keys: list[Any]) -> list[Any]:
        return [key if isinstance(key, list) else self._originals.get(key, key) for key in keys] if self._originals else keys

    def _run(self, unit: Any, experiment: Experiment, samples: list[Any], trace: BatchTrace) -> None:
        """One sample (or one batched fetch), live or recorded."""
        key = unit if type(unit) is int else self._key(unit)
        if experiment.replaces >= _WHOLE_SAMPLE and self._recorded_sample(key, samples):
            return
        make = partial(operator.getitem, self.dataset, unit)
        if self.kind == "batched":
            read = self.dataset.__getitems__
            make = partial(_readable, read, list(unit)) if self._leaves_out else partial(read, list(unit))
        sample = self._clocked(unit, key, experiment, trace, make)
        samples.append(sample)
        if experiment is RECORD:
            self._recorded(key, sample)

    def _clocked(self, unit: Any, key: Any, experiment: Experiment, trace: BatchTrace, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, between the clocks."""
        timer = self.timer
        self.doing = unit
        begun = time.perf_counter_ns()
        if experiment is RECORD:
            timer.recording = self.recording if self.discovered >= DISCOVERY_UNITS and not self.recording.full else None
        if timer.active:
            self._timed += 1
            timer.begin(key, cpu=self._timed % CPU_EVERY == 1)
        self.sites.begin()
        try:
            sample = make()
        finally:
            self.sites.end()
            if timer.active:
                timer.end()
        ended = time.perf_counter_ns()
        trace.unit_walls.append(ended - begun)
        if timer.events is not None:
            trace.events.append(("sample", str(unit)[:LONGEST_NAME], begun, ended))
        return sample

    # -- streams -----------------------------------------------------------------------------------------------------------

    def _draw(self, count: int | None, experiment: Experiment, samples: list[Any], trace: BatchTrace, place: int) -> None:
        """Samples of a stream. Recorded arms begin it anew, so that they pass the same positions. One with a buffer to fill, which
        takes long, goes on where it is, unless what lies in the buffer was read before its files were evicted."""
        timer, known = self.timer, self.recording.units
        new = experiment.source == "new" or not known
        goes_on = self.fills and self.stream is not None and experiment.source != "cold"
        if place == 0 and not new and not goes_on:
            self.stream, self.position = None, known[0]
        while len(samples) < (count or 1):
            if not new and self.position >= known[0] + len(known):
                self.stream, self.position, trace.wrapped = None, known[0], True
            if experiment.replaces >= _WHOLE_SAMPLE and self._recorded_sample(self.position, samples):
                self.stream, self.position = None, self.position + 1
                continue
            if self.stream is None:
                self._begin_stream(trace)
            assert self.stream is not None
            crossed = sum(timer.calls)
            try:
                sample = self._clocked(self.position, self.position, experiment, trace, partial(next, self.stream))
            except StopIteration:
                self.stream = None
                if self.position == 0:
                    raise EmptyStream from None
                self.fills = self.fills and self.position > 1  # else its first sample is all that it gives this time
                continue
            samples.append(sample)
            self._see_filling(sum(timer.calls) - crossed)
            self.position += 1
            self.drawn += 1
            if experiment is RECORD:
                self._recorded(self.position - 1, sample)

    def _begin_stream(self, trace: BatchTrace) -> None:
        """Where the first sample fills a buffer (of a shuffle, say), it is drawn outside the clock: an epoch fills it once, the
        laps of a recording again and again."""
        self.doing = self.position = 0
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

    # -- recorded samples --------------------------------------------------------------------------------------------------

    def _recorded_sample(self, unit: Any, samples: list[Any]) -> bool:
        if (sample := self.recording.samples.get(unit)) is None:
            return False
        begun = time.perf_counter_ns()
        samples.append(snapshot(sample))
        self.timer.replay_ns += time.perf_counter_ns() - begun
        return True

    def _recorded(self, unit: Any, sample: Any) -> None:
        """A unit ran under the recording arm: the first few only teach which functions are mixed."""
        if self.timer.recording is not None:
            self.recording.complete(unit, sample)
            ranges: dict[str, list[tuple[int, int]]] = {}
            for path, offset, length in self.recording.files.reads:
                ranges.setdefault(path, []).append((offset, length))
            self._pieces |= {(path, *piece) for path, read in ranges.items() for piece in residency.merged(read)}
            self.recording.files.reads.clear()
        elif self.discovered < DISCOVERY_UNITS:
            self.discovered = DISCOVERY_UNITS if self.kind == "batched" else self.discovered + 1
            if self.discovered == DISCOVERY_UNITS:
                self.sites.choose()
                self.stream = self.stream if self.kind != "stream" else None

    def tell_recording(self, trace: BatchTrace) -> None:
        """Write into ``trace`` what the recording holds: units and files once, or again where more of a file was read."""
        recording = self.recording
        trace.recorded, trace.recorded_bytes, trace.full = len(recording.units), recording.nbytes, recording.full
        known: list[Any] = self.recorded_orders if self._whole_batches else recording.units
        trace.units = pickle.dumps(self._to_ask_for(known[self._told :]))
        self._told = len(known)
        trace.pieces_bytes = sum(length for _, _, length in self._pieces)
        trace.refused = recording.refused
        trace.mixed = sorted(self.timer.mixed)
        trace.chunk_reads = [(name, reads.chunk, reads.asked, reads.unpacked) for name, reads in self.timer.chunk_reads.items()]
        for path in recording.files:
            ranges = recording.files.ranges(path)
            if self._told_ranges.get(path) != ranges:
                self._told_ranges[path] = ranges
                trace.paths.append((os.fsencode(path), ranges))
