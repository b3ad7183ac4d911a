"""The trace holds to the rules of the trace-event format: microseconds, names, order, and slices that nest."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipefix.report.trace import CounterValue, Process, Slice, chrome_trace, encode


def piece(name: str, begin: int, end: int, pid: int = 10, tid: int = 10) -> Slice:
    return Slice(pid=pid, tid=tid, name=name, stage="decode", begin_ns=begin, end_ns=end, sample=7)


def drawn(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_a_trace_in_full() -> None:
    trace = chrome_trace(
        [piece("load", 5_000, 9_500), piece("open", 2_000, 3_000)],
        [CounterValue(pid=1, name="batches ready", at_ns=4_000, value=2)],
        [Process(pid=1, name="main", threads={1: "loop"}), Process(pid=10, name="worker 0")],
        target="data.py",
    )
    assert json.loads(encode(trace)) == {
        "otherData": {"writer": "pipefix", "target": "data.py"},
        "displayTimeUnit": "ms",
        "traceEvents": [
            {"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": "main"}},
            {"ph": "M", "pid": 1, "tid": 0, "name": "process_sort_index", "args": {"sort_index": 0}},
            {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "loop"}},
            {"ph": "M", "pid": 10, "tid": 0, "name": "process_name", "args": {"name": "worker 0"}},
            {"ph": "M", "pid": 10, "tid": 0, "name": "process_sort_index", "args": {"sort_index": 1}},
            {"ph": "X", "pid": 10, "tid": 10, "name": "open", "cat": "decode", "ts": 0.0, "dur": 1.0, "args": {"sample": 7}},
            {"ph": "C", "pid": 1, "tid": 0, "name": "batches ready", "ts": 2.0, "args": {"batches ready": 2.0}},
            {"ph": "X", "pid": 10, "tid": 10, "name": "load", "cat": "decode", "ts": 3.0, "dur": 4.5, "args": {"sample": 7}},
        ],
    }


def test_nothing_at_all_is_a_trace_too() -> None:
    assert chrome_trace([])["traceEvents"] == []


def test_the_outer_slice_comes_first() -> None:
    names = [event["name"] for event in drawn(chrome_trace([piece("inner", 0, 50), piece("outer", 0, 100)]))]
    assert names == ["outer", "inner"]


def test_an_end_that_overshoots_by_a_clock_reading_is_trimmed() -> None:
    outer, inner = drawn(chrome_trace([piece("outer", 0, 10_000), piece("inner", 4_000, 10_400)]))
    assert (inner["tid"], inner["ts"] + inner["dur"]) == (outer["tid"], 10.0)


def test_a_true_overlap_gets_a_track_of_its_own() -> None:
    trace = chrome_trace([piece("one", 0, 10_000), piece("two", 5_000, 20_000), piece("three", 12_000, 13_000)])
    tracks = {event["name"]: event["tid"] for event in drawn(trace)}
    assert tracks == {"one": 10, "two": 11, "three": 10}
    named = [event for event in trace["traceEvents"] if event["name"] == "thread_name"]
    assert named == [{"ph": "M", "pid": 10, "tid": 11, "name": "thread_name", "args": {"name": "thread 10 (beside 1)"}}]


def test_a_clock_that_went_backwards_is_no_negative_duration() -> None:
    assert drawn(chrome_trace([piece("back", 100, 50)]))[0]["dur"] == 0.0


times = st.integers(min_value=0, max_value=40_000)


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 3), times, times), max_size=40))
def test_whatever_was_recorded_the_rules_hold(recorded: list[tuple[int, int, int, int]]) -> None:
    trace = chrome_trace([piece("x", min(a, b), max(a, b), pid, tid) for pid, tid, a, b in recorded])
    events = drawn(trace)
    assert len(events) == len(recorded)
    assert [event["ts"] for event in events] == sorted(event["ts"] for event in events)
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in events)
    open_ends: dict[tuple[int, int], list[int]] = {}
    for event in events:
        begin, end = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)
        stack = open_ends.setdefault((event["pid"], event["tid"]), [])
        while stack and stack[-1] <= begin:
            stack.pop()
        assert not stack or end <= stack[-1]
        stack.append(end)
    processes = {event["pid"] for event in trace["traceEvents"] if event["name"] == "process_name"}
    assert processes == {event["pid"] for event in events}
