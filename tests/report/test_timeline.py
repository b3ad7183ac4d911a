"""Traced batches as slices: who made what when, for which sample, and how many batches stood ready."""

from __future__ import annotations

from pipefix.measurement.measurement import Row
from pipefix.measurement.trace import BatchTrace
from pipefix.report.timeline import levels, processes, slices
from pipefix.report.trace import chrome_trace

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


def test_the_training_process_waits_takes_over_and_steps() -> None:
    mine = [(one.name, one.stage, one.begin_ns, one.end_ns, one.sample) for one in slices(TWO, MAIN) if one.pid == MAIN]
    assert mine == [
        ("next batch", "wait", 0, 100, "batch 0"),
        ("take over", "ipc", 95, 100, "batch 0"),
        ("step", "step", 100, 130, "batch 0"),
        ("next batch", "wait", 130, 150, "batch 1"),
        ("step", "step", 150, 180, "batch 1"),
    ]


def test_each_operation_says_for_which_sample() -> None:
    made = {(one.name, one.stage): one.sample for one in slices(TWO[:1], MAIN) if one.pid == 20}
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
    assert [(one.at_ns, one.value) for one in levels([*TWO, late], MAIN)] == [
        (90, 1), (100, 0), (140, 1), (145, 2), (150, 1), (190, 0),
    ]  # fmt: skip


def test_without_workers_no_batch_lies_ready() -> None:
    assert levels([row(0, 100, 130, begun=10, ended=90, pid=MAIN)], MAIN) == []


def test_the_training_process_comes_first_and_workers_by_their_number() -> None:
    assert [(one.pid, one.name) for one in processes(TWO[::-1], MAIN)] == [(10, "main"), (20, "worker 0"), (21, "worker 1")]


def test_without_workers_the_making_nests_in_the_wait() -> None:
    alone = [row(0, 100, 130, begun=10, ended=90, pid=MAIN)]
    drawn = chrome_trace(slices(alone, MAIN), levels(alone, MAIN), processes(alone, MAIN))["traceEvents"]
    assert {event["tid"] for event in drawn if event["ph"] == "X"} == {0}, "no slice had to go to a track of its own"


def test_nothing_traced_is_an_empty_timeline() -> None:
    assert (slices([], MAIN), levels([], MAIN)) == ([], [])
    assert [one.name for one in processes([], MAIN)] == ["main"]
