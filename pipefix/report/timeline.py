"""The batches that were traced, as the slices, levels and processes of a trace: who made what, when, and who waited for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipefix.measurement.measurement import Row
from pipefix.report import trace
from pipefix.report.trace import CounterValue, Process, Slice
from pipefix.vocabulary.stage import Stage

SAMPLE, BATCH, WAIT = "sample", "batch", "wait"
"""Categories of slices that belong to no stage."""
READY = "batches ready"


def write(rows: Sequence[Row], path: Path, *, main: int, target: str) -> None:
    """The trace of ``rows``, an uninterrupted run of batches; ``main`` is the training process's id."""
    trace.write(slices(rows, main), path, levels=levels(rows, main), processes=processes(rows, main), target=target)


def slices(rows: Sequence[Row], main: int) -> list[Slice]:
    return [one for number, row in enumerate(rows) for one in (*_taken(row, number, main), *_made(row, number))]


def levels(rows: Sequence[Row], main: int) -> list[CounterValue]:
    """How many of these batches lay ready for the training process. Without workers none ever does."""
    if all(row.trace.pid == main for row in rows):
        return []
    changes = sorted([(row.trace.ended, 1) for row in rows] + [(max(row.got, row.trace.ended), -1) for row in rows])
    told = []
    ready = 0
    for at, change in changes:
        ready += change
        told.append(CounterValue(pid=main, name=READY, at_ns=at, value=ready))
    return told


def processes(rows: Sequence[Row], main: int) -> list[Process]:
    """The training process first, then its workers by their number."""
    workers = sorted({(row.trace.worker, row.trace.pid) for row in rows if row.trace.pid != main})
    known = [Process(pid=main, name="main", threads={0: "training loop"})]
    return known + [Process(pid=pid, name=f"worker {number}", threads={0: "making batches"}) for number, pid in workers]


def _taken(row: Row, number: int, main: int) -> Iterator[Slice]:
    """What the training process did for a batch: wait for it, take it over, use it."""

    def slice_of(name: str, stage: str, begun: int, ended: int) -> Slice:
        return Slice(pid=main, tid=0, name=name, stage=stage, begin_ns=begun, end_ns=ended, sample=_batch(number))

    yield slice_of("next batch", WAIT, row.asked, row.got)
    if row.received:
        yield slice_of("take over", Stage.IPC.value, max(row.asked, row.got - row.received), row.got)
    yield slice_of("step", Stage.STEP.value, row.got, row.done)


def _made(row: Row, number: int) -> Iterator[Slice]:
    """What its maker did for a batch: every sample, and every operation with the sample that it was done for."""
    made, pid = row.trace, row.trace.pid
    yield Slice(pid=pid, tid=0, name=_batch(number), stage=BATCH, begin_ns=made.begun, end_ns=made.ended, sample=_batch(number))
    samples = [(begun, ended, name) for stage, name, begun, ended in made.events if stage == SAMPLE]
    for stage, op, begun, ended in made.events:
        if stage == SAMPLE:
            yield Slice(pid=pid, tid=0, name=f"sample {op}", stage=SAMPLE, begin_ns=begun, end_ns=ended, sample=op)
        else:
            of = next((name for first, last, name in samples if first <= begun < last), _batch(number))
            yield Slice(pid=pid, tid=0, name=op, stage=stage, begin_ns=begun, end_ns=ended, sample=of)


def _batch(number: int) -> str:
    return f"batch {number}"
