"""A trace for Perfetto or chrome://tracing: who did what when, in the JSON trace-event format.

Slices of one thread must nest there: one that begins inside another must end inside it, or viewers draw it wrong without a
word. Clocks read a moment apart can break that by nanoseconds, so ends are trimmed to the slice around them; slices that
really overlap go to a track of their own beside the thread's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pipefix.vocabulary import versioned

TRIMMED_NS = 1_000
"""An end that overshoots the slice around it by no more than this is trimmed; more is a true overlap."""


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """Something that took time, on one thread of one process. Times are of one clock, shared by all processes."""

    pid: int
    tid: int
    name: str
    stage: str
    """The category: a stage's name; or wait, sample or batch, which belong to none."""
    begin_ns: int
    end_ns: int
    sample: str | int | None = None
    """Which sample or batch it was done for."""


class CounterValue(msgspec.Struct, frozen=True, kw_only=True):
    """A counter's value from a moment on, such as the batches that stand ready."""

    pid: int
    name: str
    at_ns: int
    value: float


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """How a process is called in the viewer; they are listed in the order given."""

    pid: int
    name: str
    """main, worker 0, worker 1, …"""
    threads: dict[int, str] = {}


def chrome_trace(
    slices: Iterable[Slice], levels: Iterable[CounterValue] = (), processes: Sequence[Process] = (), *, target: str = ""
) -> dict[str, Any]:
    """The trace as plain data; `encode` makes the file. Times become microseconds from the first event on."""
    slices, levels = list(slices), list(levels)
    start = min([one.begin_ns for one in slices] + [one.at_ns for one in levels], default=0)
    known = list(processes)
    named = {process.pid for process in known}
    seen = {one.pid for one in slices} | {one.pid for one in levels}
    for pid in sorted(seen - named):
        known.append(Process(pid=pid, name=f"process {pid}"))
    drawn, beside = _nested(slices)
    events = [event for order, process in enumerate(known) for event in _names(process, order, beside)]
    timed = [(one.begin_ns, one.begin_ns - one.end_ns, _slice(one, tid, start)) for one, tid in drawn]
    timed += [(one.at_ns, 0, _level(one, start)) for one in levels]
    events += [event for _, _, event in sorted(timed, key=lambda entry: entry[:2])]
    return {"otherData": {"writer": "pipefix", "target": target}, "displayTimeUnit": "ms", "traceEvents": events}


def encode(trace: dict[str, Any]) -> bytes:
    return msgspec.json.encode(trace)


def write(
    slices: Iterable[Slice],
    path: Path,
    *,
    levels: Iterable[CounterValue] = (),
    processes: Sequence[Process] = (),
    target: str = "",
) -> None:
    versioned.write(encode(chrome_trace(slices, levels, processes, target=target)) + b"\n", path, what="trace")


def _microseconds(nanoseconds: int) -> float:
    return nanoseconds / 1000


def _slice(one: Slice, tid: int, start: int) -> dict[str, Any]:
    event = {
        "ph": "X",
        "pid": one.pid,
        "tid": tid,
        "name": one.name,
        "cat": one.stage,
        "ts": _microseconds(one.begin_ns - start),
        "dur": _microseconds(one.end_ns - one.begin_ns),
    }
    if one.sample is not None:
        event["args"] = {"sample": one.sample}
    return event


def _level(one: CounterValue, start: int) -> dict[str, Any]:
    ts = _microseconds(one.at_ns - start)
    return {"ph": "C", "pid": one.pid, "tid": 0, "name": one.name, "ts": ts, "args": {one.name: one.value}}


def _names(process: Process, order: int, beside: dict[tuple[int, int], tuple[int, int]]) -> list[dict[str, Any]]:
    """Metadata: the process's name and place in the list, and its threads' names."""
    events = [
        _meta(process.pid, 0, "process_name", {"name": process.name}),
        _meta(process.pid, 0, "process_sort_index", {"sort_index": order}),
    ]
    events += [_meta(process.pid, tid, "thread_name", {"name": name}) for tid, name in process.threads.items()]
    for (pid, tid), (thread, number) in beside.items():
        if pid == process.pid:
            name = process.threads.get(thread, f"thread {thread}")
            events.append(_meta(pid, tid, "thread_name", {"name": f"{name} (beside {number})"}))
    return events


def _meta(pid: int, tid: int, name: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args}


def _nested(slices: Sequence[Slice]) -> tuple[list[tuple[Slice, int]], dict[tuple[int, int], tuple[int, int]]]:
    """Each slice with the track it is drawn on, and the tracks that had to be added: (pid, track) -> (thread, number)."""
    open_ends: dict[tuple[int, int], list[list[int]]] = {}
    """For each thread its tracks, each a stack of the ends that are open."""
    free: dict[int, int] = {}
    for one in slices:
        free[one.pid] = max(free.get(one.pid, 0), one.tid + 1)
    ids: dict[tuple[int, int, int], int] = {}
    drawn: list[tuple[Slice, int]] = []
    for one in sorted(slices, key=lambda one: (one.begin_ns, -one.end_ns)):
        number, end = _place(open_ends.setdefault((one.pid, one.tid), []), one.begin_ns, max(one.end_ns, one.begin_ns))
        track = (one.pid, one.tid, number)
        if track not in ids:
            ids[track] = one.tid if number == 0 else free[one.pid]
            free[one.pid] += number > 0
        drawn.append((msgspec.structs.replace(one, end_ns=end), ids[track]))
    return drawn, {(pid, tid): (thread, number) for (pid, thread, number), tid in ids.items() if number}


def _place(tracks: list[list[int]], begin: int, end: int) -> tuple[int, int]:
    """The first track where the slice nests, and its end there; a new track where it nests in none."""
    for number, stack in enumerate(tracks):
        while stack and stack[-1] <= begin:
            stack.pop()
        if not stack or end <= stack[-1] + TRIMMED_NS:
            stack.append(min([end, *stack[-1:]]))
            return number, stack[-1]
    tracks.append([end])
    return len(tracks) - 1, end
