"""The meter: sums that are right, steps of which the latest are kept, and pages that cross between processes."""

from __future__ import annotations

import itertools
import pickle
from struct import pack_into

import pytest

from pipefix.hooks.sample_timer import SampleTimer
from pipefix.loader.metering.cost_record import LENGTH, READY, CostRecord, TimedBatch, samples_in
from pipefix.loader.metering.meter import LENGTH as KEPT
from pipefix.loader.metering.meter import Meter, Metered
from pipefix.loader.metering.stage_clock import A_SAMPLE, FIRST, SHARE, StageClock, stages
from pipefix.system.run_queue import RunQueue
from pipefix.vocabulary.stage import Stage

MS = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def passes(self, ms: float) -> None:
        self.now += int(ms * MS)


def train(meter: Meter, clock: Clock, waits: list[float], step: float = 20.0, samples: int = 8) -> None:
    """One epoch."""
    for wait in waits:
        meter.asked()
        clock.passes(wait)
        meter.got(samples)
        clock.passes(step)
    meter.asked()
    meter.ended()


def test_waits_and_steps_are_told_apart():
    clock = Clock()
    meter = Meter(clock=clock)
    train(meter, clock, [500, 5, 7])
    assert meter.sums() == (3, 24, 12 * MS, 60 * MS, 500 * MS) and meter.epochs == 1
    assert [step.wait // MS for step in meter.steps(0)] == [500, 5, 7]
    assert [step.step // MS for step in meter.steps(0)] == [20, 20, 20]
    assert [step.first for step in meter.steps(0)] == [True, False, False]


def test_what_follows_an_epoch_is_no_step():
    clock = Clock()
    meter = Meter(clock=clock)
    train(meter, clock, [1, 1])
    clock.passes(60_000)  # validation
    train(meter, clock, [300, 1])
    assert meter.step_ns == 4 * 20 * MS
    assert meter.start_ns == 301 * MS
    assert meter.epochs == 2


def test_starting_the_workers_belongs_to_the_first_wait():
    clock = Clock()
    meter = Meter(clock=clock)
    meter.started(900 * MS)
    train(meter, clock, [100, 1])
    assert meter.start_ns == 1000 * MS
    assert meter.wait_ns == MS


def test_the_latest_steps_are_kept_and_the_sums_of_all():
    clock = Clock()
    meter = Meter(clock=clock)
    train(meter, clock, [2.0] * (KEPT + 90))
    train(meter, clock, [2.0] * 30)
    steps = meter.steps(0)
    assert len(steps) == KEPT and len(meter.steps(KEPT + 90)) == 30
    assert all(step.step == 20 * MS for step in steps)
    assert (meter.batches, meter.step_ns) == (KEPT + 120, 20 * MS * (KEPT + 120))


def test_a_step_that_runs_is_not_told():
    clock = Clock()
    meter = Meter(clock=clock)
    meter.asked()
    meter.got(4)
    assert meter.steps(0)[0].step == -1


def test_an_iterator_that_raises_ends_the_epoch():
    meter = Meter()

    def breaking():
        yield [1]
        raise ValueError("here")

    iterator = Metered(breaking(), meter)
    next(iterator)
    with pytest.raises(ValueError, match="here"):
        next(iterator)
    assert meter._running is None


class Shaped:
    def __init__(self, *shape: int) -> None:
        self.shape = shape


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (Shaped(8, 3, 4), 8),
        (Shaped(), 1),
        ((Shaped(8, 3), Shaped(8)), 8),
        ({"image": Shaped(5, 2), "label": [1]}, 5),
        (["a", "b", "c"], 3),
        ([{"image": Shaped(6, 2)}], 6),
        (None, 1),
        ([], 1),
    ],
)
def test_samples_are_counted_where_only_the_batch_can_tell(batch, samples):
    assert samples_in(batch) == samples


# -- books -----------------------------------------------------------------------------------------------------------------


def look(number: int = 0, **changes: int) -> TimedBatch:
    return TimedBatch(number, *range(1, len(TimedBatch._fields)))._replace(**changes)


def test_looks_come_back_once_and_in_order():
    record = CostRecord(2)
    first, second = record.page(0), record.page(1)
    for number in range(3):
        first.write(look(at=number))
    second.write(look(at=9))
    assert [timed.at for timed in record.looks()] == [0, 1, 2, 9]
    assert list(record.looks()) == []
    first.write(look(at=4))
    assert [(timed.number, timed.at) for timed in record.looks()] == [(4, 4)]


def test_a_full_page_keeps_the_latest():
    record = CostRecord(1, memory=bytearray)
    page = record.page(0)
    for number in range(3 * LENGTH + 1):
        page.write(look(at=number))
    assert [timed.at for timed in record.looks()] == list(range(2 * LENGTH + 1, 3 * LENGTH + 1))


def test_a_slot_that_is_being_written_is_passed_over():
    record = CostRecord(1, memory=bytearray)
    page = record.page(0)
    page.write(look(at=1))
    page.write(look(at=2))
    pack_into("q", record._memory, 5 * 8, 0)  # the first slot's number, behind five totals: its writer is at work
    assert [timed.at for timed in record.looks()] == [2]


def test_who_writes_on_a_page_after_another_goes_on_counting():
    record = CostRecord(1, memory=bytearray)
    page = record.page(0)
    page.count(3, 24, 30, 1, READY)
    page.write(look())
    again = record.page(0)
    again.write(look())
    assert again.totals.batches == 3
    assert [timed.number for timed in record.looks()] == [1, 2]


# -- looking -----------------------------------------------------------------------------------------------------------------


class Fetcher:
    """What torch calls a fetcher: an order in, a batch out."""

    auto_collation = True

    def __init__(self, make) -> None:
        self.make = make
        self.collate_fn = list

    def fetch(self, order):
        return self.collate_fn([self.make(index) for index in order])


def clocked(make, **options) -> tuple[StageClock, CostRecord, Fetcher]:
    record = CostRecord(1, memory=bytearray)
    clock = StageClock(record, **options)
    clock.begin()
    fetcher = Fetcher(make)
    timed = clock.timed(Fetcher.fetch)
    fetcher.fetch = lambda order: timed(fetcher, order)  # type: ignore[method-assign]
    return clock, record, fetcher


def test_libraries_and_fetchers_are_left_as_found():
    import builtins
    import json

    before = builtins.open, json.loads
    clock, _, fetcher = clocked(lambda index: index)
    collate = fetcher.collate_fn
    for _ in range(5):
        fetcher.fetch([1])
    between = builtins.open
    clock.close()
    assert between is before[0], "between looks the hooks are out"
    assert (builtins.open, json.loads) == before
    assert fetcher.collate_fn is collate


def test_a_loader_inside_the_dataset_is_part_of_its_sample():
    """In a worker all fetchers are timed; only those of the loader that is watched count."""
    inner = Fetcher(lambda index: index)
    clock, record, fetcher = clocked(lambda index: timed(inner, [index])[0])
    timed = clock.timed(Fetcher.fetch)
    try:
        assert [fetcher.fetch([1, 2]) for _ in range(5)] == [[1, 2]] * 5
    finally:
        clock.close()
    totals = record.totals()
    assert (totals.batches, totals.samples) == (5, 10)
    assert {look.samples for look in record.looks()} == {2}


def test_few_batches_are_looked_at():
    """So few that what looks cost stays within the share of the time, and of a sample, that they may take."""
    clock, _record, _ = clocked(lambda index: index)
    try:
        clock._looks = FIRST
        clock._plan(64, 20 * MS, cost=2 * MS)
        assert clock._next == int(2 * MS / min(20 * MS * SHARE, 64 * A_SAMPLE))
        clock._looks += 1
        clock._plan(64, 2000 * MS, cost=2 * MS)
        assert clock._next == int(2 * MS / (64 * A_SAMPLE))
    finally:
        clock.close()


def test_slow_samples_are_looked_at_by_their_share_alone_where_a_sample_has_no_limit():
    clock = StageClock(CostRecord(1, memory=bytearray), a_sample=float("inf"))
    clock._looks = FIRST
    clock._plan(64, 2000 * MS, cost=30 * MS)
    assert clock._next == int(30 * MS / (2000 * MS * SHARE))


def test_epochs_shorter_than_a_look_is_worth_keep_the_share(monkeypatch):
    """Workers that start anew each epoch owe what the looks of those before them cost."""
    from pipefix.loader.metering import stage_clock

    now = Clock()
    monkeypatch.setattr(stage_clock, "perf_counter_ns", now)
    monkeypatch.setattr(stage_clock, "install_all", lambda *_: now.passes(15))
    record, costs = CostRecord(1, memory=bytearray), []
    for _ in range(200):  # epochs of 0.8 s
        clock = StageClock(record, a_sample=float("inf"))
        clock.begin()
        fetcher, timed = Fetcher(lambda _: now.passes(10)), clock.timed(Fetcher.fetch)
        for _ in range(10):
            timed(fetcher, range(8))
        clock.close()
        costs.append(record.totals().cost_ns)
    assert costs[0] == FIRST * 15 * MS, "the first are at once: a short job shall see its stages"
    assert costs[0] < costs[-1] <= SHARE * record.totals().made_ns + 15 * MS, "later ones look too, and within the share"


def test_every_batch_is_counted_looked_at_or_not(monkeypatch):
    clock, record, fetcher = clocked(lambda index: index)
    plan = clock._plan  # a look costs as much as may be spent on it in some 25 batches, whatever this machine takes
    monkeypatch.setattr(clock, "_plan", lambda samples, _batch, _cost: plan(samples, 20 * MS, int(500 * MS * SHARE)))
    try:
        for _ in range(20):
            fetcher.fetch([1, 2, 3])
    finally:
        clock.close()
    totals = record.totals()
    assert (totals.batches, totals.samples, totals.state) == (20, 60, READY)
    assert len(list(record.looks())) < 20


def test_without_stages_nothing_is_looked_at():
    _clock, record, fetcher = clocked(lambda index: index, stages=False)
    for _ in range(5):
        fetcher.fetch([1])
    assert not list(record.looks())
    assert record.totals().batches == 5


def test_own_code_is_charged_by_what_it_works_on():
    def charged(**walls: int) -> SampleTimer:
        timer = SampleTimer()
        for stage in (Stage.STORAGE, Stage.DECODE, Stage.AUGMENT):
            timer.wall[timer.op_id(stage, stage.value)] = walls.get(stage.value, 0)
        timer.wall[0], timer.wall[1], timer.wall[2] = (walls.get(name, 0) for name in ("before", "raw", "decoded"))
        return timer

    read = charged(storage=10, decode=20, augment=5, raw=3, decoded=4, before=7)
    assert stages(read, 100, 0.0) == {Stage.STORAGE: 10, Stage.DECODE: 23, Stage.AUGMENT: 9, None: 7}
    in_memory = charged(before=50)
    assert stages(in_memory, 50, 0.0)[Stage.AUGMENT] == 50
    waiting = charged(before=50)
    assert stages(waiting, 5, 0.0)[Stage.STORAGE] == 50


def test_own_code_that_is_ready_and_has_no_cpu_does_not_wait_for_storage(monkeypatch):
    """On a machine with busy neighbours, computing was told as *reading, or waiting in the dataset's own code*."""
    clock, record, fetcher = clocked(lambda index: sum(range(1000)))
    monkeypatch.setattr(f"{StageClock.__module__}.thread_time_ns", lambda: 0)
    queued = itertools.count(0, 10**12)
    monkeypatch.setattr(RunQueue, "waited", lambda self: next(queued))
    try:
        fetcher.fetch([0, 1])
    finally:
        clock.close()
    (look,) = record.looks()
    assert look.storage == 0 < look.augment


def test_what_other_threads_read_is_what_the_batch_waited_for():
    timer = SampleTimer()
    timer.wall[0] = 100
    timer.foreign = {timer.op_id(Stage.STORAGE, "read"): 30, timer.op_id(Stage.DECODE, "load"): 90}

    class Names(list):
        """Another thread charges its first call of a kind whenever these are looked at."""

        def __getitem__(self, key):
            timer.foreign[len(timer.foreign)] = 1
            return super().__getitem__(key)

    timer.names = Names(timer.names)
    sums = stages(timer, 5, 0.0)
    assert (sums[Stage.STORAGE], sums[Stage.DECODE]) == (25, 75)


def test_a_clock_travels_to_a_worker_that_is_spawned():
    clock = StageClock(CostRecord(1, memory=bytearray), len, stages=True)
    assert isinstance(pickle.loads(pickle.dumps(clock)), StageClock)


def test_a_library_that_cannot_be_patched_costs_the_figures_and_not_the_training(monkeypatch):
    from pipefix.loader.metering import stage_clock
    from pipefix.loader.metering.cost_record import FAILED

    def failing(*_):
        raise TypeError("cannot set attribute of immutable type")

    monkeypatch.setattr(stage_clock, "install_all", failing)
    meter = Meter()
    clock, record, fetcher = clocked(lambda index: index)
    meter.follow(record, None)
    for _ in range(3):
        assert fetcher.fetch([1, 2]) == [1, 2]
    clock.close()
    assert record.totals().state == meter.makers().state == FAILED
