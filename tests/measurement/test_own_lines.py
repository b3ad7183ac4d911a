"""The line of the user's own code that runs where no hook times it."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace

from pipefix.diagnosis.diagnose import diagnose
from pipefix.hooks.charges import OWN_NAMES
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.measurement.own_lines import EVERY, MAKER, OwnLines, stack, users_line
from pipefix.measurement.trace import Charge
from tests.doubles.measured import charged, measured

NAME = Path(__file__).name


def test_the_innermost_line_of_the_user_is_told() -> None:
    frame = sys._getframe()
    assert users_line(frame) == f"test_the_innermost_line_of_the_user_is_told at {NAME}:{frame.f_lineno}"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="frames do not know their function's whole name")
def test_a_line_in_a_comprehension_is_that_of_the_function_around_it() -> None:
    (line,) = [users_line(sys._getframe()) for _ in range(1)]
    assert line is not None
    assert line.startswith("test_a_line_in_a_comprehension_is_that_of_the_function_around_it at ")


def test_lines_are_counted_while_a_sample_runs_and_the_thread_is_gone_after() -> None:
    timer = SampleTimer()
    timer.active = True
    lines = OwnLines(timer)
    lines.turn(on=True)
    here = "test_lines_are_counted_while_a_sample_runs_and_the_thread_is_gone_after"
    pause = threading.Event()
    timer.begin(0)
    line = sys._getframe().f_lineno + 2
    while lines.seen[f"{here} at {NAME}:{line}"] < 5:
        pause.wait(0.002)
    timer.end()
    lines.turn(on=False)
    assert not [thread for thread in threading.enumerate() if thread.name == "pipefix-own-lines"]


def test_no_garbage_is_collected_while_frames_are_followed() -> None:
    """It would free what lets the other thread run: workers that used sqlite3 were killed by signal 11."""
    started, ended, collected = threading.Event(), threading.Event(), []

    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
        else:
            started.set()
            ended.wait()

    def collecting(phase: str, _: dict[str, int]) -> None:
        if phase == "start" and (frame := sys._getframe(1)).f_code is stack.__code__:
            collected.append(frame.f_lineno)

    thread = threading.Thread(target=deep, args=(30,))
    thread.start()
    started.wait()
    thresholds = gc.get_threshold()
    gc.callbacks.append(collecting)
    gc.set_threshold(1)
    try:
        frames = stack(thread.ident or 0)
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(collecting)
        ended.set()
        thread.join()
    assert len(frames) > 30
    assert collected == []
    assert gc.isenabled()


def test_code_that_never_waits_is_looked_at_more_often_than_threads_change_by_themselves() -> None:
    before = sys.getswitchinterval()
    lines = OwnLines(SampleTimer())
    lines.turn(on=True)
    assert sys.getswitchinterval() < EVERY
    lines.turn(on=False)
    assert sys.getswitchinterval() == before


def test_a_line_that_stands_out_is_named_in_the_verdict() -> None:
    arms = {"storage-from-memory": 1.05, "decode-recorded": 1.04, "augment-recorded": 1.03, "collate-recorded": 1.0}
    measurement = measured({"storage": 0.5, "decode": 0.4, "augment": 0.3}, arms=arms)
    charged(measurement, Charge(None, OWN_NAMES[1], 36_000_000, 36_000_000, 36_000_000, 0))
    measurement.own_lines = {"Clips.__getitem__ at frames.py:41": 90, "Clips.__getitem__ at frames.py:42": 10}
    sentence = diagnose(measurement).verdict.sentence
    assert "own code between calls that pipefix knows, 90 % of it in Clips.__getitem__ at frames.py:41. Moved" in sentence
    measurement.own_lines = {"Clips.__getitem__ at frames.py:41": 9, "Clips.__getitem__ at frames.py:42": 5}
    assert "frames.py" not in diagnose(measurement).verdict.sentence


def test_the_line_of_a_function_that_takes_most_is_named() -> None:
    measurement = measured({"storage": 0.2, "decode": 2.0}, arms={"decode-recorded": 4.0, "storage-from-memory": 1.05})
    for row in measurement.rows("real"):
        row.trace.charges = [
            replace(charge, op="Clips.load") if charge.stage == "decode" else charge for charge in row.trace.charges
        ]
    assert "decode (Clips.load) takes" in diagnose(measurement).verdict.sentence
    measurement.own_lines = {"Clips.load at frames.py:7": 40, "Clips.load at frames.py:8": 20, "Clips.other at frames.py:12": 400}
    assert "decode (Clips.load at frames.py:7) takes" in diagnose(measurement).verdict.sentence
    measurement.own_lines = {"load at frames.py:7": 40}
    assert "decode (load at frames.py:7) takes" in diagnose(measurement).verdict.sentence


def test_a_line_that_stands_out_is_named_where_no_operation_takes_most_of_the_stage() -> None:
    measurement = measured({"storage": 0.2, "decode": 2.0}, arms={"decode-recorded": 4.0, "storage-from-memory": 1.05})
    parts = {"Clips.make": 3_000_000, "msgpack.unpackb at clips.py:26": 2_600_000, "np.ascontiguousarray at clips.py:27": 2_400_000}
    for row in measurement.rows("real"):
        decoding = [Charge("decode", op, wall, wall, wall, 4) for op, wall in parts.items()]
        row.trace.charges = [*(charge for charge in row.trace.charges if charge.stage != "decode"), *decoding]
    assert "decode takes" in diagnose(measurement).verdict.sentence
    measurement.own_lines = {"Clips.make at clips.py:26": 70, "Clips.make at clips.py:27": 20}
    assert "decode (Clips.make at clips.py:26) takes" in diagnose(measurement).verdict.sentence
    measurement.own_lines = {"Clips.make at clips.py:26": 30, "Clips.other at clips.py:40": 90}
    assert "decode takes" in diagnose(measurement).verdict.sentence


def test_lines_that_collate_are_counted_apart_and_named_in_the_verdict() -> None:
    timer = SampleTimer()
    lines = OwnLines(timer)
    timer.owner = threading.get_ident()
    lines.turn(on=True)
    lines.collating = True
    while not lines.seen_collating:
        sum(range(1000))
    lines.collating = False
    lines.turn(on=False)
    assert not lines.seen
    measurement = measured({"decode": 0.2, "collate": 2.0}, arms={"collate-recorded": 8.0, "decode-recorded": 1.05})
    measurement.own_lines = {"Texts.__getitem__ at texts.py:9": 400}
    assert "collate takes" in diagnose(measurement).verdict.sentence
    measurement.collate_lines = {"padded at texts.py:14": 30, "padded at texts.py:15": 5}
    assert "collate (padded at texts.py:14) takes" in diagnose(measurement).verdict.sentence


def test_the_program_that_asked_for_a_batch_is_no_line_of_it() -> None:
    lines = OwnLines(SampleTimer())
    lines.timer.owner = threading.get_ident()
    maker: dict[str, Any] = {"__name__": MAKER, "look": lines._look, "seen": lines.seen}
    exec(compile("look(seen)", "maker.py", "exec"), maker)
    assert not lines.seen
    lines._look(lines.seen)
    assert next(iter(lines.seen)).startswith("test_the_program_that_asked_for_a_batch_is_no_line_of_it at ")


def test_a_stack_is_whole_though_its_thread_runs_on() -> None:
    """Frame by frame, while generators give values in that thread, Python 3.11 finds the way cut short, or what is no frame."""
    over = threading.Event()

    def numbers() -> Iterator[int]:
        yield from range(50)

    def work() -> None:
        while not over.is_set():
            list(zip(numbers(), numbers(), strict=True))

    thread = threading.Thread(target=work, name="gives values")
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        for _ in range(20_000):
            frames = stack(thread.ident or 0)
            assert all(type(frame) is FrameType for frame in frames)
            assert frames[-1].f_code.co_name == "_bootstrap"
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(before)
    assert stack(thread.ident or 0) == []
    names = [frame.f_code.co_name for frame in stack(threading.get_ident())]
    assert names[:2] == ["stack", "test_a_stack_is_whole_though_its_thread_runs_on"]
