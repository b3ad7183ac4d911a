"""Writes into a batch's trace what the timer charged for it, and what the process has recorded by now, under which names."""

from __future__ import annotations

import operator
import os
import pickle
from typing import Any

from pipefix.hooks.recording import Recording
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.measurement.own_lines import OwnLines
from pipefix.measurement.trace import BatchTrace, Charge


def write_charges(timer: SampleTimer, trace: BatchTrace) -> None:
    """Each operation's part of the batch, and what other threads did meanwhile."""
    columns = zip(timer.names, timer.wall, timer.cpu_time, timer.cpu_wall, timer.calls, timer.entered, strict=True)
    trace.charges = [
        Charge(stage.value if stage is not None else None, op, wall, *figures) for (stage, op), wall, *figures in columns if wall
    ]
    trace.foreign = [(str(timer.names[key][0]), timer.names[key][1], spent) for key, spent in timer.foreign.items()]


def write_events(timer: SampleTimer, marks: list[tuple[str, int, int]], trace: BatchTrace) -> None:
    """Begin and end of every operation, of every sample (``marks``) and of collating."""
    trace.events = [(str(timer.names[key][0]), timer.names[key][1], begun, ended) for key, begun, ended in timer.events or ()]
    trace.events += [("sample", *mark) for mark in marks]
    trace.events.append(("collate", "collate", trace.made, trace.ended))


class SampleKeys:
    """What samples are kept under, and what the sampler said where that is something else: samplers also ask for lists, tensors and
    whatever else their dataset understands."""

    def __init__(self) -> None:
        self._originals: dict[Any, Any] = {}

    def of(self, unit: Any) -> Any:
        key = _hashable(unit)
        if key is not unit:
            self._originals[key] = unit
        return key

    def originals(self, keys: list[Any]) -> list[Any]:
        """What the dataset is to be asked for, key by key."""
        return [key if isinstance(key, list) else self._originals.get(key, key) for key in keys] if self._originals else keys


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


class RecordingReport:
    """What is said of a recording: once, or again where it has changed."""

    def __init__(self, recording: Recording, keys: SampleKeys, timer: SampleTimer, lines: OwnLines) -> None:
        self._recording, self._keys = recording, keys
        self._timer, self._lines = timer, lines
        self._told = 0
        """Recorded units (or whole batches of them) that the training process knows."""
        self._told_ranges: dict[str, list[tuple[int, int]]] = {}

    def write(self, trace: BatchTrace, orders: list[list[Any]] | None) -> None:
        """``orders``: whole batches that were recorded, where the user's own batch sampler makes them."""
        recording = self._recording
        trace.recorded, trace.recorded_bytes, trace.full = len(recording.units), recording.nbytes, recording.full
        known = recording.units if orders is None else orders
        trace.units = pickle.dumps(self._keys.originals(known[self._told :]))
        self._told = len(known)
        trace.refused = recording.refused
        trace.mixed = sorted(self._timer.mixed)
        trace.own_lines, trace.collate_lines = dict(self._lines.seen), dict(self._lines.seen_collating)
        trace.chunk_reads = [(name, reads.chunk, reads.asked, reads.unpacked) for name, reads in self._timer.chunk_reads.items()]
        for path in recording.files:
            ranges = recording.files.ranges(path)
            if self._told_ranges.get(path) != ranges:
                self._told_ranges[path] = ranges
                trace.paths.append((os.fsencode(path), ranges))
