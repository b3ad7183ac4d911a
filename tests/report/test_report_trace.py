"""The trace holds to the rules of the trace-event format: microseconds, names, order, and slices that nest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipefix.measurement.measurement import Row
from pipefix.measurement.trace import BatchTrace
from pipefix.report.trace import Slice, chrome_trace, nested, ready

MAIN = 10


def row(asked: int, got: int, done: int, *, begun: int, ended: int, worker: int = 0, pid: int = 20, received: int = 0) -> Row:
    trace = BatchTrace(1, 1, worker, pid, 2, begun, ended - 1, ended, 0, 0)
    middle = (begun + ended) // 2
    trace.events = [
        ("storage", "read", begun, begun + 1),
        ("decode", "load", middle, middle + 1),
        ("sample", "7", begun, middle - 1),
        ("sample", "9", middle, ended - 1),
        ("collate", "collate", ended - 1, ended),
    ]
    return Row(asked, got, done, got - asked - received, received, trace)


TWO = [
    row(0, 100, 130, begun=10, ended=90, received=5),
    row(130, 150, 180, begun=20, ended=140, worker=1, pid=21),
]


def drawn(trace: dict[str, Any], pid: int) -> list[tuple[str, str, float, float, str]]:
    """Name, category, begin, length and sample of a process's slices; times in nanoseconds."""
    events = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["pid"] == pid]
    times = [(round(1000 * event["ts"]), round(1000 * event["dur"])) for event in events]
    return [(event["name"], event["cat"], *time, event["args"]["sample"]) for event, time in zip(events, times, strict=True)]


def test_a_trace_in_full() -> None:
    trace = chrome_trace(TWO, MAIN, "data.py")
    assert json.loads(json.dumps(trace)) == trace
    assert trace["otherData"] == {"writer": "pipefix", "target": "data.py"}
    assert drawn(trace, MAIN) == [
        ("next batch", "wait", 0, 100, "batch 0"),
        ("take over", "ipc", 95, 5, "batch 0"),
        ("step", "step", 100, 30, "batch 0"),
        ("next batch", "wait", 130, 20, "batch 1"),
        ("step", "step", 150, 30, "batch 1"),
    ]
    assert drawn(trace, 20) == [
        ("batch 0", "batch", 10, 80, "batch 0"),
        ("sample 7", "sample", 10, 39, "7"),
        ("read", "storage", 10, 1, "7"),
        ("sample 9", "sample", 50, 39, "9"),
        ("load", "decode", 50, 1, "9"),
        ("collate", "collate", 89, 1, "batch 0"),
    ]
    names = [(event["pid"], event["args"]) for event in trace["traceEvents"] if event["name"] == "process_name"]
    assert names == [(10, {"name": "main"}), (20, {"name": "worker 0"}), (21, {"name": "worker 1"})]


def test_without_workers_the_making_nests_in_the_wait_and_no_batch_lies_ready() -> None:
    trace = chrome_trace([row(0, 100, 130, begun=10, ended=90, pid=MAIN)], MAIN, "")
    assert len(drawn(trace, MAIN)) == 8
    assert not [event for event in trace["traceEvents"] if event["ph"] == "C"]
    assert [event["ph"] for event in chrome_trace([], MAIN, "")["traceEvents"]] == ["M"] * 3


def test_ready_batches_are_those_made_and_not_yet_taken() -> None:
    late = row(180, 190, 200, begun=30, ended=145, worker=0)
    levels = [(90, 1), (100, 0), (140, 1), (145, 2), (150, 1), (190, 0)]
    assert ready([*TWO, late], MAIN) == levels
    counted = [event for event in chrome_trace([*TWO, late], MAIN, "")["traceEvents"] if event["ph"] == "C"]
    assert [(round(1000 * event["ts"]), event["args"]["batches ready"]) for event in counted] == levels


def piece(name: str, begin: int, end: int, pid: int = 10) -> Slice:
    return Slice(pid, name, "decode", begin, end, 7)


@pytest.mark.parametrize(
    ("pieces", "ends"),
    [([("outer", 0, 10_000), ("inner", 4_000, 10_400)], [10_000, 10_000]), ([("back", 100, 50)], [100])],
    ids=["an end that overshoots by a clock reading", "a clock that went backwards"],
)
def test_slices_nest(pieces: list[tuple[str, int, int]], ends: list[int]) -> None:
    assert [each.end_ns for each in nested([piece(*each) for each in pieces])] == ends


times = st.integers(min_value=0, max_value=40_000)


@given(st.lists(st.tuples(st.integers(1, 2), times, times), max_size=40))
def test_whatever_was_recorded_the_rules_hold(recorded: list[tuple[int, int, int]]) -> None:
    open_ends: dict[int, list[int]] = {}
    placed = nested([piece("x", min(a, b), max(a, b), pid) for pid, a, b in recorded])
    assert len(placed) == len(recorded)
    assert [each.begin_ns for each in placed] == sorted(each.begin_ns for each in placed)
    for each in placed:
        stack = open_ends.setdefault(each.pid, [])
        while stack and stack[-1] <= each.begin_ns:
            stack.pop()
        assert each.end_ns >= each.begin_ns and (not stack or each.end_ns <= stack[-1])
        stack.append(each.end_ns)
