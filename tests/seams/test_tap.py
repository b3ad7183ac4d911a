"""The tap: every nanosecond of a sample is charged once, and recordings are found again."""

from __future__ import annotations

import pytest

from pipefix.seams import charges as charges_module
from pipefix.seams import tap as tap_module
from pipefix.seams.charges import OWN_BEFORE, OWN_DECODED, OWN_RAW
from pipefix.seams.tap import Tap, UntimedTap
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
    made = Clock()
    for module in (tap_module, charges_module):
        monkeypatch.setattr(module, "perf_counter_ns", lambda: made.now)
        monkeypatch.setattr(module, "thread_time_ns", lambda: made.cpu)
    return made


@pytest.fixture
def tap():
    made = Tap()
    made.active = True
    return made


def charges(tap):
    return {name: wall for (_, name), wall in zip(tap.names, tap.wall, strict=True) if wall}


def test_charges_add_up_to_the_sample(tap, clock):
    def decode():
        clock.spend(5)
        tap.through(STORAGE, "read", clock.spend, (70,))
        clock.spend(10)
        tap.through(DECODE, "inner decode", clock.spend, (1,))

    tap.begin("unit")
    clock.spend(100)
    tap.through(DECODE, "decode", decode)
    clock.spend(3)
    tap.through(AUGMENT, "flip", clock.spend, (20,))
    clock.spend(4)
    tap.end()
    assert charges(tap) == {tap.names[OWN_BEFORE][1]: 100, "decode": 16, "read": 70, tap.names[OWN_DECODED][1]: 7, "flip": 20}
    assert sum(tap.wall) == clock.now - 1000


def test_a_call_is_counted_where_it_was_made(tap):
    """What its clocks take lies in the time of its caller: there it is taken off."""

    def decode():
        for _ in range(3):
            tap.through(STORAGE, "read", bytes)

    tap.begin("unit")
    tap.through(DECODE, "decode", decode)
    tap.through(AUGMENT, "flip", bytes)
    tap.end()
    entered = dict(zip((name for _, name in tap.names), tap.entered, strict=True))
    assert entered == {
        "own code before reading": 1,
        "own code on raw bytes": 0,
        "own code on decoded values": 1,
        "decode": 3,
        "read": 0,
        "flip": 0,
    }
    tap.clear()
    assert not any(tap.entered)


def test_own_code_after_a_read_works_on_raw_bytes(tap, clock):
    tap.begin(0)
    tap.through(STORAGE, "read", clock.spend, (1,))
    clock.spend(9)
    tap.end()
    assert tap.wall[OWN_RAW] == 9


def test_processor_time_is_charged_beside(tap, clock):
    tap.begin(0, cpu=True)
    tap.through(DECODE, "decode", clock.spend, (50, 40))
    clock.spend(7, 2)
    tap.end()
    key = tap.op_id(DECODE, "decode")
    assert (tap.cpu_time[key], tap.cpu_wall[key]) == (40, 50)
    assert tap.cpu_time[OWN_DECODED] == 2


def test_an_exception_leaves_the_clock_right(tap, clock):
    def fails():
        clock.spend(30)
        raise KeyError

    tap.begin(0)
    with pytest.raises(KeyError):
        tap.through(DECODE, "decode", fails)
    clock.spend(4)
    tap.end()
    assert charges(tap) == {"decode": 30, tap.names[OWN_DECODED][1]: 4}


def test_nothing_is_charged_between_samples(tap, clock):
    tap.begin(0)
    tap.end()
    clock.spend(1000)
    assert tap.through(DECODE, "tokenizer in collate", lambda: "value") == "value"
    tap.read(5)
    tap.begin(1)
    clock.spend(2)
    tap.end()
    assert sum(tap.wall) == 2
    assert tap.bytes_read == 0


def test_calls_between_samples_are_neither_recorded_nor_answered(seams):
    def collate():
        return seams.tap.through(DECODE, "tokenizer", lambda: "live")

    seams.run(lambda: seams.tap.through(DECODE, "tokenizer", lambda: "recorded"), record=True)
    seams.tap.active, seams.tap.recording, seams.tap.playing = True, seams.tape, seams.tape
    seams.tap.replaced = frozenset([DECODE])
    assert collate() == "live"
    assert len(seams.tape.values) == 1


def test_inactive_is_transparent():
    tap = Tap()
    tap.begin(0)
    assert tap.through(DECODE, "decode", int, ("7",)) == 7
    tap.end()
    assert sum(tap.calls) == 0


def test_replacing_the_outer_call_does_not_shift_later_ones(seams):
    """Inner calls that no longer happen must not lend their numbers to later ones of the same name."""
    through = seams.tap.through

    def sample():
        first = through(DECODE, "load", lambda: through(STORAGE, "get", lambda: "inner").upper())
        return first, through(STORAGE, "get", lambda: "second"), through(STORAGE, "get", lambda: "third")

    assert seams.run(sample, record=True) == ("INNER", "second", "third")
    for replace in ([DECODE, STORAGE], [DECODE], [STORAGE]):
        assert seams.run(sample, replace=replace) == ("INNER", "second", "third")
    assert seams.run(sample, replace=[DECODE, STORAGE]) == ("INNER", "second", "third")
    assert seams.charged() == {}


def test_a_value_that_was_not_recorded_is_made_live(seams):
    through = seams.tap.through
    seams.run(lambda: None, record=True)
    assert seams.run(lambda: through(DECODE, "new", lambda: 3), replace=[DECODE]) == 3
    assert seams.tap.misses == 1


def test_entries_are_recorded_whole_unless_mixed(seams):
    tap = seams.tap

    def whole():
        return tap.through(AUGMENT, "jitter", lambda: tap.through(AUGMENT, "flip", lambda: [1]), force=lambda *_: None, leaf=False)

    def mixed():
        return tap.through(DECODE, "load", lambda: [tap.through(STORAGE, "get", lambda: 2)], force=lambda *_: None, leaf=False)

    seams.run(mixed)
    assert tap.mixed == {"load"}
    assert seams.run(lambda: (whole(), mixed()), record=True) == ([1], [2])
    assert {op for _, op, _ in seams.tape.values} == {"jitter", "get"}
    assert seams.run(lambda: (whole(), mixed()), replace=[AUGMENT]) == ([1], [2])
    assert "flip" not in seams.charged()


def test_answering_is_the_instruments_own_time(seams, clock, monkeypatch):
    seams.run(lambda: seams.tap.through(DECODE, "decode", clock.spend, (50,)), record=True)
    find = seams.tape.find
    monkeypatch.setattr(seams.tape, "find", lambda *place: (clock.spend(11), find(*place))[1])
    seams.run(lambda: seams.tap.through(DECODE, "decode", clock.spend, (50,)), replace=[DECODE])
    assert seams.tap.replay_ns == 11
    assert sum(seams.tap.wall) == 0


def test_events_are_kept_when_asked_for(tap, clock):
    tap.events = []
    tap.begin(0)
    clock.spend(3)
    tap.through(DECODE, "decode", clock.spend, (5,))
    tap.end()
    assert tap.events == [(tap.op_id(DECODE, "decode"), 1003, 1008)]


def test_a_tap_without_a_clock_answers_and_reads_no_clock(seams, monkeypatch, tmp_path):
    """A training program that reads from a cache of sources pays for no measuring."""
    path = tmp_path / "file"
    path.write_bytes(b"recorded")
    seams.install("files", "os_calls")
    seams.run(lambda: open(path, "rb").read(), record=True)  # noqa: SIM115
    seams.undo()
    path.unlink()
    for module in (tap_module, charges_module):
        monkeypatch.delattr(module, "perf_counter_ns")
        monkeypatch.delattr(module, "thread_time_ns")
    seams.tap = UntimedTap()
    seams.install("files", "os_calls")
    (tmp_path / "other").write_bytes(b"from the file itself")

    def both():
        return open(path, "rb").read(), open(tmp_path / "other", "rb").read()

    assert seams.run(both, replace=[STORAGE]) == (b"recorded", b"from the file itself")
    assert seams.tap.misses >= 1 and seams.tap.bytes_read == 20
