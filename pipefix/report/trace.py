"""Writes traced batches as trace-event JSON for Perfetto or chrome://tracing: who made what when, and who waited for it.

Slices of one thread must nest there: one that begins inside another must end inside it, or viewers draw it wrong without a
word. Clocks read a moment apart can break that by nanoseconds, so ends are trimmed to the slice around them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pipefix.measurement.measurement import Row
from pipefix.vocabulary import versioned
from pipefix.vocabulary.stage import Stage

SAMPLE, BATCH, WAIT = "sample", "batch", "wait"
"""Categories of slices that belong to no stage."""
READY = "batches ready"


class Slice(NamedTuple):
    """Something that took time in one process, for a sample or a batch. Times are of one clock, shared by all processes."""

    pid: int
    name: str
    category: str
    """The stage."""
    begin_ns: int
    end_ns: int
    sample: str | int


def write(rows: Sequence[Row], path: Path, *, main: int, target: str) -> None:
    """The trace of ``rows``, an uninterrupted run of batches; ``main`` is the training process's id."""
    versioned.write(msgspec.json.encode(chrome_trace(rows, main, target)) + b"\n", path, what="trace")


def chrome_trace(rows: Sequence[Row], main: int, target: str) -> dict[str, Any]:
    """The trace as plain data, in microseconds from the first event on: the training process first, then its workers."""
    slices = [piece for number, row in enumerate(rows) for piece in (*_taken(row, f"batch {number}", main), *_made(row, number))]
    start = min((piece.begin_ns for piece in slices), default=0)
    workers = sorted({(row.trace.worker, row.trace.pid) for row in rows if row.trace.pid != main})
    names = {main: ("main", "training loop")} | {pid: (f"worker {number}", "making batches") for number, pid in workers}
    timed = [(piece.begin_ns, piece.begin_ns - piece.end_ns, _event(piece, start)) for piece in nested(slices)]
    for at, count in ready(rows, main):
        counter = {"ph": "C", "pid": main, "tid": 0, "name": READY, "ts": (at - start) / 1000, "args": {READY: count}}
        timed.append((at, 0, counter))
    events = [event for order, pid in enumerate(names) for event in _names(pid, order, names[pid])]
    events += [event for _, _, event in sorted(timed, key=lambda entry: entry[:2])]
    return {"otherData": {"writer": "pipefix", "target": target}, "displayTimeUnit": "ms", "traceEvents": events}


def ready(rows: Sequence[Row], main: int) -> list[tuple[int, int]]:
    """From when on (ns) how many of these batches lay ready for the training process. Without workers none ever does."""
    if all(row.trace.pid == main for row in rows):
        return []
    changes = sorted([(row.trace.ended, 1) for row in rows] + [(max(row.got, row.trace.ended), -1) for row in rows])
    levels, level = [], 0
    for at, change in changes:
        level += change
        levels.append((at, level))
    return levels


def _taken(row: Row, batch: str, main: int) -> Iterator[Slice]:
    """What the training process did for a batch: wait for it, take it over, use it."""
    yield Slice(main, "next batch", WAIT, row.asked, row.got, batch)
    if row.received:
        yield Slice(main, "take over", Stage.IPC.value, max(row.asked, row.got - row.received), row.got, batch)
    yield Slice(main, "step", Stage.STEP.value, row.got, row.done, batch)


def _made(row: Row, number: int) -> Iterator[Slice]:
    """What its maker did for a batch: every sample, and every operation with the sample that it was done for."""
    batch, pid = f"batch {number}", row.trace.pid
    yield Slice(pid, batch, BATCH, row.trace.begun, row.trace.ended, batch)
    samples = [(begun, ended, name) for stage, name, begun, ended in row.trace.events if stage == SAMPLE]
    for stage, op, begun, ended in row.trace.events:
        sample = op if stage == SAMPLE else next((name for first, last, name in samples if first <= begun < last), batch)
        yield Slice(pid, f"sample {op}" if stage == SAMPLE else op, stage, begun, ended, sample)


def _event(piece: Slice, start: int) -> dict[str, Any]:
    begin, length = (piece.begin_ns - start) / 1000, (piece.end_ns - piece.begin_ns) / 1000
    return {
        "ph": "X", "pid": piece.pid, "tid": 0, "name": piece.name, "cat": piece.category, "ts": begin, "dur": length,
        "args": {"sample": piece.sample},
    }  # fmt: skip


def _names(pid: int, order: int, names: tuple[str, str]) -> list[dict[str, Any]]:
    """Metadata: a process's name and place in the list, and its thread's name."""
    named = {"process_name": {"name": names[0]}, "process_sort_index": {"sort_index": order}, "thread_name": {"name": names[1]}}
    return [{"ph": "M", "pid": pid, "tid": 0, "name": name, "args": args} for name, args in named.items()]


def nested(slices: Sequence[Slice]) -> list[Slice]:
    """In the order in which they begin, each ending within those of its process that it begins in."""
    open_ends: dict[int, list[int]] = {}
    drawn = []
    for piece in sorted(slices, key=lambda piece: (piece.begin_ns, -piece.end_ns)):
        ends = open_ends.setdefault(piece.pid, [])
        while ends and ends[-1] <= piece.begin_ns:
            ends.pop()
        ends.append(min([max(piece.begin_ns, piece.end_ns), *ends[-1:]]))
        drawn.append(piece._replace(end_ns=ends[-1]))
    return drawn
