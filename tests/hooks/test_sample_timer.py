"""The timer: every nanosecond of a sample is charged once, and recordings are found again."""

from __future__ import annotations

import os
import threading

import pytest

from pipefix.hooks import charges as charges_module
from pipefix.hooks import sample_timer as timer_module
from pipefix.hooks.charges import OWN_BEFORE, OWN_DECODED, OWN_RAW
from pipefix.hooks.sample_timer import SampleTimer, UntimedTimer
from pipefix.vocabulary.stage import Stage

STORAGE, DECODE, AUGMENT = Stage.STORAGE, Stage.DECODE, Stage.AUGMENT


class Clock:
    """Time passes when a test says so."""

    def __init__(self):
        self.now = 1000
        self.cpu = 0

    def spend(self, wall, cpu=0):
        self.now += wall
        self.cpu += cpu


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (timer_module, charges_module):
        monkeypatch.setattr(module, "perf_counter_ns", lambda: clock.now)
        monkeypatch.setattr(module, "thread_time_ns", lambda: clock.cpu)
    return clock


@pytest.fixture
def timer():
    timer = SampleTimer()
    timer.active = True
    return timer


def charges(timer):
    return {name: wall for (_, name), wall in zip(timer.names, timer.wall, strict=True) if wall}


def test_charges_add_up_to_the_sample(timer, clock):
    def decode():
        clock.spend(5)
        timer.timed_call(STORAGE, "read", clock.spend, (70,))
        clock.spend(10)
        timer.timed_call(DECODE, "inner decode", clock.spend, (1,))

    timer.begin("unit")
    clock.spend(100)
    timer.timed_call(STORAGE, "read", clock.spend, (2,))
    clock.spend(9)
    timer.timed_call(DECODE, "decode", decode)
    clock.spend(3)
    timer.timed_call(AUGMENT, "flip", clock.spend, (20,))
    clock.spend(4)
    timer.end()
    own = {timer.names[key][1]: spent for key, spent in ((OWN_BEFORE, 100), (OWN_RAW, 9), (OWN_DECODED, 7))}
    assert charges(timer) == {**own, "decode": 16, "read": 72, "flip": 20}
    assert sum(timer.wall) == clock.now - 1000


def test_a_call_is_counted_where_it_was_made(timer):
    """What its clocks take lies in the time of its caller: there it is taken off."""

    def decode():
        for _ in range(3):
            timer.timed_call(STORAGE, "read", bytes)

    timer.begin("unit")
    timer.timed_call(DECODE, "decode", decode)
    timer.timed_call(AUGMENT, "flip", bytes)
    timer.end()
    entered = dict(zip((name for _, name in timer.names), timer.entered, strict=True))
    assert entered == {
        "own code before reading": 1,
        "own code on raw bytes": 0,
        "own code on decoded values": 1,
        "decode": 3,
        "read": 0,
        "flip": 0,
    }
    timer.clear()
    assert not any(timer.entered)


def test_processor_time_is_charged_beside(timer, clock):
    timer.begin(0, cpu=True)
    timer.timed_call(DECODE, "decode", clock.spend, (50, 40))
    clock.spend(7, 2)
    timer.end()
    key = timer.op_id(DECODE, "decode")
    assert (timer.cpu_time[key], timer.cpu_wall[key]) == (40, 50)
    assert timer.cpu_time[OWN_DECODED] == 2


def test_an_exception_leaves_the_clock_right(timer, clock):
    def fails():
        clock.spend(30)
        raise KeyError

    timer.begin(0)
    with pytest.raises(KeyError):
        timer.timed_call(DECODE, "decode", fails)
    clock.spend(4)
    timer.end()
    assert charges(timer) == {"decode": 30, timer.names[OWN_DECODED][1]: 4}


def test_calls_between_samples_are_neither_charged_nor_recorded_nor_answered(hooks, clock):
    timer = hooks.timer

    def collate():
        return timer.timed_call(DECODE, "tokenizer", lambda: (clock.spend(3), "live")[1])

    hooks.run(lambda: timer.timed_call(DECODE, "tokenizer", lambda: "recorded"), record=True)
    timer.active, timer.recording, timer.playing, timer.replaced = True, hooks.store, hooks.store, frozenset([DECODE])
    assert collate() == "live"
    assert len(hooks.store._values) == 1 and sum(timer.wall) == 0


def test_replacing_the_outer_call_does_not_shift_later_ones(hooks):
    """Inner calls that no longer happen must not lend their numbers to later ones of the same name."""
    through = hooks.timer.timed_call

    def sample():
        first = through(DECODE, "load", lambda: through(STORAGE, "get", lambda: "inner").upper())
        return first, through(STORAGE, "get", lambda: "second"), through(STORAGE, "get", lambda: "third")

    assert hooks.run(sample, record=True) == ("INNER", "second", "third")
    for replace in ([DECODE, STORAGE], [DECODE], [STORAGE]):
        assert hooks.run(sample, replace=replace) == ("INNER", "second", "third")
        assert not set(hooks.charged().values()) & {str(stage) for stage in replace}


def test_a_value_that_was_not_recorded_is_made_live(hooks):
    through = hooks.timer.timed_call
    hooks.run(lambda: None, record=True)
    assert hooks.run(lambda: through(DECODE, "new", lambda: 3), replace=[DECODE]) == 3
    assert hooks.timer.misses == 1


def test_entries_are_recorded_whole_unless_mixed(hooks):
    timer = hooks.timer

    def whole():
        return timer.timed_call(AUGMENT, "jitter", lambda: timer.timed_call(AUGMENT, "flip", lambda: [1]), own=True, leaf=False)

    def mixed():
        return timer.timed_call(DECODE, "load", lambda: [timer.timed_call(STORAGE, "get", lambda: 2)], own=True, leaf=False)

    hooks.run(mixed)
    assert timer.mixed == {"load"}
    assert hooks.run(lambda: (whole(), mixed()), record=True) == ([1], [2])
    assert {op for _, op, _ in hooks.store._values} == {"jitter", "get"}
    assert hooks.run(lambda: (whole(), mixed()), replace=[AUGMENT]) == ([1], [2])
    assert "flip" not in hooks.charged()


def in_a_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_what_another_thread_calls_inside_a_call_is_charged_once(timer, clock):
    def decode():
        timer.timed_call(STORAGE, "read", clock.spend, (80,))
        clock.spend(15)
        timer.timed_call(DECODE, "inner decode", clock.spend, (5,))

    timer.begin(0)
    for _ in range(2):
        in_a_thread(lambda: timer.timed_call(DECODE, "decode", decode))
    timer.end()
    assert {timer.names[key][1]: spent for key, spent in timer.foreign.items()} == {"decode": 30, "read": 160, "inner decode": 10}


def test_threads_that_add_operations_at_the_same_time_get_one_each(timer):
    class Interrupted(list):
        """Another thread adds one as well, and is done, while this one does."""

        def append(self, operation):
            if operation[1] == "first":
                in_a_thread(lambda: timer.op_id(DECODE, "second"))
            super().append(operation)

    timer.names = Interrupted(timer.names)
    timer.op_id(DECODE, "first")
    for op in ("first", "second"):
        key = timer.op_id(DECODE, op)
        assert timer.names[key] == (DECODE, op) and key < len(timer.wall)


def test_answering_is_the_instruments_own_time(hooks, clock, monkeypatch):
    hooks.run(lambda: hooks.timer.timed_call(DECODE, "decode", clock.spend, (50,)), record=True)
    find = hooks.store.find
    monkeypatch.setattr(hooks.store, "find", lambda *place: (clock.spend(11), find(*place))[1])
    hooks.run(lambda: hooks.timer.timed_call(DECODE, "decode", clock.spend, (50,)), replace=[DECODE])
    assert hooks.timer.replay_ns == 11
    assert sum(hooks.timer.wall) == 0


def test_a_tap_without_a_clock_answers_and_reads_no_clock(hooks, monkeypatch, tmp_path):
    """A training program that reads from a cache of sources pays for no measuring."""
    path = tmp_path / "file"
    path.write_bytes(b"recorded")
    hooks.install("files", "os_calls")
    hooks.run(lambda: open(path, "rb").read(), record=True)  # noqa: SIM115
    hooks.undo()
    path.unlink()
    for module in (timer_module, charges_module):
        monkeypatch.delattr(module, "perf_counter_ns")
        monkeypatch.delattr(module, "thread_time_ns")
    hooks.timer = UntimedTimer()
    hooks.install("files", "os_calls")
    (tmp_path / "other").write_bytes(b"from the file itself")

    def both():
        return open(path, "rb").read(), open(tmp_path / "other", "rb").read()

    assert hooks.run(both, replace=[STORAGE]) == (b"recorded", b"from the file itself")
    assert hooks.timer.misses >= 1 and hooks.timer.bytes_read == 20


def test_a_process_that_a_sample_forks_is_not_under_the_clock(timer):
    timer.begin("unit")
    child = os.fork()
    if child == 0:
        os._exit(timer.live or timer.active)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert timer.live
    timer.end()
