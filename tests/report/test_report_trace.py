"""The trace holds to the rules of the trace-event format: microseconds, names, order, and slices that nest."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipefix.measurement.measurement import Row
from pipefix.measurement.trace import BatchTrace
from pipefix.report.trace import Slice, chrome_trace, processes, ready, slices

MAIN = 10


def piece(name: str, begin: int, end: int, pid: int = 10) -> Slice:
    return Slice(pid=pid, name=name, stage="decode", begin_ns=begin, end_ns=end, sample=7)


def drawn(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_a_trace_in_full() -> None:
    trace = chrome_trace(
        [piece("load", 5_000, 9_500), piece("open", 2_000, 3_000)],
        [(4_000, 2)],
        {1: ("main", "loop"), 10: ("worker 0", "making")},
        target="data.py",
    )
    assert json.loads(json.dumps(trace)) == {
        "otherData": {"writer": "pipefix", "target": "data.py"},
        "displayTimeUnit": "ms",
        "traceEvents": [
            {"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": "main"}},
            {"ph": "M", "pid": 1, "tid": 0, "name": "process_sort_index", "args": {"sort_index": 0}},
            {"ph": "M", "pid": 1, "tid": 0, "name": "thread_name", "args": {"name": "loop"}},
            {"ph": "M", "pid": 10, "tid": 0, "name": "process_name", "args": {"name": "worker 0"}},
            {"ph": "M", "pid": 10, "tid": 0, "name": "process_sort_index", "args": {"sort_index": 1}},
            {"ph": "M", "pid": 10, "tid": 0, "name": "thread_name", "args": {"name": "making"}},
            {"ph": "X", "pid": 10, "tid": 0, "name": "open", "cat": "decode", "ts": 0.0, "dur": 1.0, "args": {"sample": 7}},
            {"ph": "C", "pid": 1, "tid": 0, "name": "batches ready", "ts": 2.0, "args": {"batches ready": 2}},
            {"ph": "X", "pid": 10, "tid": 0, "name": "load", "cat": "decode", "ts": 3.0, "dur": 4.5, "args": {"sample": 7}},
        ],
    }


def test_an_end_that_overshoots_by_a_clock_reading_is_trimmed() -> None:
    outer, inner = drawn(chrome_trace([piece("outer", 0, 10_000), piece("inner", 4_000, 10_400)]))
    assert (inner["tid"], inner["ts"] + inner["dur"]) == (outer["tid"], 10.0)


def test_a_true_overlap_gets_a_track_of_its_own() -> None:
    trace = chrome_trace([piece("one", 0, 10_000), piece("two", 5_000, 20_000), piece("three", 12_000, 13_000)])
    tracks = {event["name"]: event["tid"] for event in drawn(trace)}
    assert tracks == {"one": 0, "two": 1, "three": 0}
    named = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert named == {0: "thread", 1: "thread (beside 1)"}


def test_a_clock_that_went_backwards_is_no_negative_duration() -> None:
    assert drawn(chrome_trace([piece("back", 100, 50)]))[0]["dur"] == 0.0


times = st.integers(min_value=0, max_value=40_000)


@given(st.lists(st.tuples(st.integers(1, 2), times, times), max_size=40))
def test_whatever_was_recorded_the_rules_hold(recorded: list[tuple[int, int, int]]) -> None:
    trace = chrome_trace([piece("x", min(a, b), max(a, b), pid) for pid, a, b in recorded])
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
    named = {event["pid"] for event in trace["traceEvents"] if event["name"] == "process_name"}
    assert named == {event["pid"] for event in events}


# -- what the batches tell ------------------------------------------------------------------------------------------


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


def test_the_training_process_waits_takes_over_and_steps() -> None:
    mine = [(each.name, each.stage, each.begin_ns, each.end_ns, each.sample) for each in slices(TWO, MAIN) if each.pid == MAIN]
    assert mine == [
        ("next batch", "wait", 0, 100, "batch 0"),
        ("take over", "ipc", 95, 100, "batch 0"),
        ("step", "step", 100, 130, "batch 0"),
        ("next batch", "wait", 130, 150, "batch 1"),
        ("step", "step", 150, 180, "batch 1"),
    ]


def test_each_operation_says_for_which_sample() -> None:
    made = {(each.name, each.stage): each.sample for each in slices(TWO[:1], MAIN) if each.pid == 20}
    assert made == {
        ("batch 0", "batch"): "batch 0",
        ("sample 7", "sample"): "7",
        ("sample 9", "sample"): "9",
        ("read", "storage"): "7",
        ("load", "decode"): "9",
        ("collate", "collate"): "batch 0",
    }


def test_ready_batches_are_those_made_and_not_yet_taken() -> None:
    late = row(180, 190, 200, begun=30, ended=145, worker=0)
    assert ready([*TWO, late], MAIN) == [
        (90, 1), (100, 0), (140, 1), (145, 2), (150, 1), (190, 0),
    ]  # fmt: skip


def test_without_workers_no_batch_lies_ready() -> None:
    assert ready([row(0, 100, 130, begun=10, ended=90, pid=MAIN)], MAIN) == []


def test_the_training_process_comes_first_and_workers_by_their_number() -> None:
    assert [(pid, name) for pid, (name, _) in processes(TWO[::-1], MAIN).items()] == [
        (10, "main"),
        (20, "worker 0"),
        (21, "worker 1"),
    ]


def test_without_workers_the_making_nests_in_the_wait() -> None:
    alone = [row(0, 100, 130, begun=10, ended=90, pid=MAIN)]
    drawn = chrome_trace(slices(alone, MAIN), ready(alone, MAIN), processes(alone, MAIN))["traceEvents"]
    assert {event["tid"] for event in drawn if event["ph"] == "X"} == {0}, "no slice had to go to a track of its own"


def test_nothing_traced_is_an_empty_timeline() -> None:
    assert (slices([], MAIN), ready([], MAIN)) == ([], [])
    assert list(processes([], MAIN)) == [MAIN]
