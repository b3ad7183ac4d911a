"""The pool: whole rounds of its workers, nothing left over from the arm before, and no process left behind."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler, get_worker_info

from pipefix.loader.fast_loader import FastLoader
from pipefix.measurement import experiments, run_arms
from pipefix.measurement.consumer import Emulated, UserStep
from pipefix.measurement.experiments import POOL
from pipefix.measurement.measurement import Row
from pipefix.measurement.trace import BatchTrace
from pipefix.measurement.worker_probe import SampleOrders
from tests.doubles.ticks import Ticks
from tests.measurement import planted
from tests.measurement.planted import Mapped, loader, pool, subject

MS = 1_000_000


class Uneven(Mapped):
    """The second worker takes long for every sample."""

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        if info is not None and info.id == 1:
            time.sleep(0.005)
        return super().__getitem__(index)


class TestBlock:
    @pytest.mark.parametrize("workers", [0, 2])
    def test_whole_rounds_of_the_arm_alone(self, workers: int, paths: list[str]) -> None:
        with closing(pool(loader("map", paths, workers=workers))) as running:
            running.block(experiments.REAL, 0.01)
            block = running.block(experiments.PLAIN, 0.01)
        assert block.arm == "plain"
        assert len(block.rows) % max(1, workers) == 0
        assert len(block.rows) >= 2 * max(1, workers)
        assert {POOL[row.trace.arm] for row in block.rows} == {experiments.PLAIN}
        assert block.samples == 4 * len(block.rows)
        for worker in range(max(1, workers)):
            mine = [row for row in block.rows if row.trace.worker == worker]
            assert len(mine) == len(block.rows) / max(1, workers)

    @pytest.mark.parametrize("in_order", [True, False])
    def test_a_slow_workers_batch_of_the_arm_before_is_left_out(self, in_order: bool, paths: list[str]) -> None:
        built = DataLoader(Uneven(paths), batch_size=4, num_workers=2, collate_fn=planted.collate, in_order=in_order)
        with closing(pool(built)) as running:
            for arm in (experiments.PLAIN, experiments.REAL, experiments.PLAIN, experiments.REAL):
                block = running.block(arm, 0.02)
                assert {row.trace.epoch for row in block.rows} == {running.epoch}

    def test_it_lasts_as_long_as_asked(self, paths: list[str], ticks: Ticks) -> None:
        planted.WORK[0] = 0.001
        running = pool(loader("map", paths))
        block = running.block(experiments.PLAIN, 0.2)  # fake clock
        running.close()
        assert block.seconds == pytest.approx(0.2)
        assert len(block.rows) == 50, "4 ms each"
        assert block.rate == pytest.approx(1000)

    @pytest.mark.parametrize(("device", "batch"), [(3.0, 4.5), (10.0, 10.0)])
    @pytest.mark.parametrize(("seconds", "brief"), [(0.2, False), (0.02, False), (0.02, True), (0.0, True)])
    def test_batches_made_while_a_device_computes_take_the_longer_of_both(
        self, device: float, batch: float, seconds: float, brief: bool, paths: list[str], ticks: Ticks
    ) -> None:
        """Milliseconds, 4 to make a batch, 0.5 to launch its step. What the device still does after the last batch came is no time
        of few slow batches: a pipeline of 33 ms a batch was told as one of 42."""
        planted.WORK[0] = 0.001
        running = pool(loader("map", paths), Emulated(device / 1e3, name="of a device", launch=0.0005))
        for _ in range(2):
            block = running.block(experiments.PLAIN, seconds, brief=brief)  # fake clock
            assert block.seconds / len(block.rows) == pytest.approx(batch / 1e3)
        running.close()

    def test_a_limit_ends_it(self, paths: list[str], ticks: Ticks) -> None:
        planted.WORK[0] = 0.001
        running = pool(loader("map", paths))
        block = running.block(experiments.PLAIN, 90.0, most=0.1)
        running.close()
        assert 0.1 - 2 * 0.004 <= block.seconds <= 0.1 + 2 * 0.004, "the first batch of the arm counts too"

    def test_a_rest_is_over_when_the_batches_in_flight_are_made(self, paths: list[str]) -> None:
        with closing(pool(loader("map", paths, workers=2, prefetch_factor=2))) as running:
            for _ in range(6):
                running.next(consume=False)
            running._taken.extend([0, 1 << 62])  # a pace that would have it wait as long as it may
            running.rest()
            assert running.switch[2:].tolist() == [5, 5]

    def test_a_rest_ends_by_the_pace_where_fewer_batches_are_in_flight(self, paths: list[str], ticks: Ticks) -> None:
        with closing(pool(loader("map", paths, workers=2, prefetch_factor=2))) as running:
            running._taken.extend(round(each * 10 * MS) for each in range(3))
            running.rest()
        assert ticks.now >= 0.020 + 2 * 0.010 * 2 * (2 + 1)

    def test_what_the_loop_does_for_itself_is_charged_to_nobody(
        self, paths: list[str], ticks: Ticks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Reading the trace of a batch, noting when it came: neither the step's nor the loader's time, and told."""
        planted.WORK[0] = 0.001
        running = pool(loader("map", paths), Emulated(0.002, name="2 ms"))
        decode = run_arms.traces.decode

        def slow(written: bytes) -> BatchTrace:
            ticks.passes(0.010)
            return decode(written)

        monkeypatch.setattr(run_arms.traces, "decode", slow)
        monkeypatch.setattr(running, "_sampler_ns", lambda: (ticks.passes(0.001), 0)[1])
        block = running.block(experiments.PLAIN, 0.2)  # fake clock
        running.close()
        assert {row.done - row.got for row in block.rows} == {2 * MS}
        assert 0.010 < block.own_seconds / len(block.rows) <= 0.012, "the last one's trace is read too late to count"
        assert block.rate == pytest.approx(4 / 0.006, rel=0.1)

    def test_a_core_that_workers_had_meanwhile_is_no_time_of_the_loops_own(
        self, paths: list[str], ticks: Ticks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """More workers than cores came out faster than they are: all that they kept the loop from computing was left out."""
        planted.WORK[0] = 0.001
        running = pool(loader("map", paths))
        decode = run_arms.traces.decode

        def held_up(written: bytes) -> BatchTrace:
            ticks.passes_elsewhere(0.010)
            ticks.passes(0.002)
            return decode(written)

        monkeypatch.setattr(run_arms.traces, "decode", held_up)
        block = running.block(experiments.PLAIN, 0.2)  # fake clock
        running.close()
        assert block.own_seconds / len(block.rows) == pytest.approx(0.002, rel=0.1)
        assert block.rate == pytest.approx(4 / 0.014, rel=0.1)

    def test_the_cold_arm_ends_where_evicted_samples_end(self, paths: list[str]) -> None:
        """A second pass would read from the page cache what the first has brought there."""
        running = pool(loader("map", paths))
        running.record(12, 10.0)
        block = running.block(experiments.COLD, 30.0, least_rounds=1)
        running.close()
        assert [row.trace.wrapped for row in block.rows] == [False] * len(block.rows)
        assert len(block.rows) == 2  # of twelve samples in batches of four: the first batch is the warm-up, the fourth is left out

    def test_what_only_measuring_took_is_taken_off(self, paths: list[str]) -> None:
        running = pool(loader("map", paths))
        rows = [row(asked=place * 10 * MS, replay=2 * MS, extra=MS) for place in range(4)]
        block = running._block(experiments.SAMPLES, rows, 0, 0.0, warm=True)
        running.close()
        assert block.seconds == pytest.approx(0.040 - 4 * 0.003)

    def test_workers_delay_the_consumer_only_while_it_waits(self, paths: list[str]) -> None:
        running = pool(loader("map", paths, workers=2))
        rows = [row(asked=place * 10 * MS, replay=5 * MS, waited=MS, worker=place % 2) for place in range(4)]
        block = running._block(experiments.SAMPLES, rows, 0, 0.0, warm=True)
        running.close()
        assert block.seconds == pytest.approx(0.040 - 4 * 0.001)


def row(asked: int, replay: int = 0, extra: int = 0, waited: int = 0, worker: int = 0) -> Row:
    """A batch every ten milliseconds."""
    trace = BatchTrace(1, 1, worker, 1, 4, asked, asked, asked, 0, 0)
    trace.replay, trace.extra = replay, extra
    return Row(asked, asked + 10 * MS, asked + 10 * MS, waited, 0, trace)


class TestRows:
    def test_times_follow_one_another(self, paths: list[str]) -> None:
        running = pool(loader("map", paths, workers=2), Emulated(0.002, name="2 ms"))
        block = running.block(experiments.REAL, 0.05)
        running.close()
        for delivered, after in zip(block.rows, block.rows[1:], strict=False):
            assert delivered.asked <= delivered.got <= delivered.done <= after.asked
        for delivered in block.rows:
            assert 0 <= delivered.waited <= delivered.got - delivered.asked
            assert delivered.done - delivered.got >= 2 * MS
            assert delivered.trace.begun <= delivered.trace.made <= delivered.trace.ended

    def test_arms_without_a_consumer_leave_it_out(self, paths: list[str]) -> None:
        seen: list[Any] = []
        running = pool(loader("map", paths), UserStep(seen.append))
        running.block(experiments.SUPPLY, 0.01)
        assert seen == []
        running.block(experiments.REAL, 0.01)
        running.close()
        assert seen

    def test_where_nothing_crosses_the_consumer_gets_the_kept_batch(self, paths: list[str]) -> None:
        seen: list[Any] = []
        with closing(pool(loader("map", paths, workers=2), UserStep(seen.append))) as running:
            running.record(4, 10.0)
            running.turn_to(experiments.PLAIN)
            batch = running.keep_batch().value
            assert not batch[0].is_shared(), "it must outlive the worker that made it"
            running.block(experiments.NO_HANDOVER, 0.01)
        assert torch.equal(seen[-1][0], batch[0])
        assert seen[-1] is not batch, "steps may change what they are given"

    def test_the_kept_batch_is_not_what_was_left_of_an_epoch(self, paths: list[str]) -> None:
        """Of 24 samples in batches of 16 it was that of 8: a step of 25 ms "could take 320 samples/s" where 480 were delivered."""
        with closing(pool(loader("map", paths, batch=16))) as running:
            running.turn_to(experiments.PLAIN)
            for _ in range(2):
                running.keep_batch()
                assert running.last_samples == 16


class TestRecord:
    def test_every_process_holds_its_share_and_answers_from_it(self, paths: list[str]) -> None:
        running = pool(loader("map", paths, workers=2))
        rows = running.record(4, 20.0)
        running.block(experiments.PREBUILT, 0.0)
        before = planted.calls()
        running.block(experiments.PREBUILT, 0.0)
        running.close()
        assert planted.calls() == before
        held = {row.trace.worker: row.trace.recorded for row in rows}
        assert len(held) == 2
        assert all(count >= 4 for count in held.values())

    def test_time_ends_it(self, paths: list[str], ticks: Ticks) -> None:
        planted.WORK[0] = 0.001
        running = pool(loader("map", paths))
        rows = running.record(10_000_000, 0.1)
        running.close()
        assert rows[-1].trace.recorded > 0
        assert len(rows) in (25, 26), "4 ms each"


class Counted(SequentialSampler):  # type: ignore[type-arg]
    """Tells which samples it was asked for, as copies of it do."""

    def __init__(self, data: Any, tell: Callable[[int], None]) -> None:
        super().__init__(data)
        self.tell = tell

    def __iter__(self) -> Iterator[int]:
        for index in super().__iter__():
            self.tell(index)
            yield index


class TestOrders:
    def test_the_users_own_order_epoch_after_epoch(self, paths: list[str]) -> None:
        generator = torch.Generator().manual_seed(7)
        built = loader("map", paths, sampler=RandomSampler(paths, generator=generator))
        orders = iter(SampleOrders(subject(built)))
        indices = [index for _ in range(12) for index in next(orders)]
        generator.manual_seed(7)
        assert indices == [index for _ in range(2) for index in built.sampler]

    @pytest.mark.parametrize("kind", ["map", "single", "batched"])
    def test_samples_that_were_read_before_come_in_batches_of_the_users_size(self, kind: str, paths: list[str]) -> None:
        known = [(0, 1, 2, 3), (4, 5, 6, 7)] if kind == "batched" else [3, 1, 4, 1, 5]
        orders = iter(SampleOrders(subject(loader(kind, paths)), known))
        wanted = {"map": [[3, 1, 4, 1], [5, 3, 1, 4], [1, 5, 3, 1]], "single": [3, 1, 4], "batched": [*known, known[0]]}
        assert [next(orders) for _ in range(3)] == wanted[kind]

    @pytest.mark.parametrize("kind", ["map", "single", "batched"])
    def test_the_users_sampler_is_asked_for_samples_that_were_read_before_too(self, kind: str, paths: list[str]) -> None:
        """What it takes is part of the settings that are tried."""
        asked: list[int] = []
        built = loader(kind, paths, sampler=Counted(paths, asked.append))
        orders = iter(SampleOrders(subject(built), [(0, 1, 2, 3)] if kind == "batched" else [3, 1, 4]))
        for _ in range(2):
            next(orders)
        assert len(asked) >= 2

    @pytest.mark.parametrize("workers", [0, 2])
    def test_where_the_sampler_is_to_cost_nothing_it_is_not_asked(self, workers: int, paths: list[str]) -> None:
        """Neither while that arm runs nor for what it has in flight; the samples are of the order that it gave before."""
        asked: list[int] = []
        running = pool(loader("map", paths, workers=workers, sampler=Counted(paths, asked.append)))
        running.record(4, 1.0)
        running.block(experiments.REAL, 0.0)
        count = len(asked)
        block = running.block(experiments.NO_SAMPLER, 0.0, least_rounds=4)
        assert len(asked) == count and len(block.rows) == 4 * max(1, workers)
        running.block(experiments.REAL, 0.0)
        running.close()
        assert len(asked) > count


class TestSettings:
    def test_a_generator_of_a_device_has_its_copy_there(self, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """As loaders need it under ``torch.set_default_device("cuda")``: its state fits no other kind."""
        made: list[Any] = []
        kind = torch.Generator
        built = loader("map", paths, generator=kind())
        monkeypatch.setattr(torch, "Generator", lambda *device: (made.append(device), kind())[1])
        with closing(pool(built)):
            assert (built.generator.device,) in made

    def test_prefetching_is_the_users(self, paths: list[str]) -> None:
        running = [
            pool(loader("map", paths, workers=2, prefetch_factor=5)),
            pool(loader("map", paths, workers=1)),
            pool(loader("map", paths)),
        ]
        assert [opened.prefetch for opened in running] == [5, 2, 1]
        for opened in running:
            opened.close()

    def test_workers_that_have_no_part_of_a_stream_do_not_count(self, paths: list[str]) -> None:
        with closing(pool(loader("stream", paths[:1], workers=2, batch=1))) as running:
            rows = running.record(1, 10.0)
            assert running.serving == 1
            assert {row.trace.worker for row in rows} == {0}

    def test_a_first_block_does_not_wait_for_workers_that_have_no_part_of_a_stream(
        self, paths: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As a trial of other settings begins: nothing was recorded before."""
        running, asked = pool(loader("stream", paths[:1], workers=2, batch=1)), itertools.count()
        following = running.next

        def next_(*, consume: bool) -> Row:
            assert next(asked) < 500, "it waits for a worker that has left"
            return following(consume=consume)

        monkeypatch.setattr(running, "next", next_)
        try:
            assert {row.trace.worker for row in running.block(experiments.PLAIN, 0.0).rows} == {0}
        finally:
            running.close(at_once=True)


class TestEnds:
    def test_workers_in_the_middle_of_a_long_batch_are_not_waited_for(self, paths: list[str]) -> None:
        running = pool(loader("map", paths, workers=2))
        running.next(consume=False)
        planted.wait_for_calls("collate", 1 + 2 * 2)  # all that is made ahead lies ready
        planted.WORK[0] = 6 * planted.LONG
        running.next(consume=False)  # one of those, for which a worker is told to make another
        planted.wait_until_a_worker_is_at_long_work()
        processes = running.processes
        running.close(at_once=True)
        assert not any(process.is_alive() for process in processes)

    def test_a_pool_that_never_started_closes(self, paths: list[str]) -> None:
        running = pool(loader("map", paths, workers=2))
        running.close(at_once=True)
        assert running.processes == []


@pytest.fixture
def short_folder() -> Iterator[str]:
    """A socket's path may have a hundred characters."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


@pytest.mark.parametrize("killed", [False, True])
def test_workers_leave_no_sockets_even_where_they_are_killed(
    killed: bool, paths: list[str], short_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their batches cross through sockets in the temporary folder; where each has a folder of its own there, a kill leaves it."""
    folder = Path(short_folder)
    here = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setitem(here, "tempdir", None)
    running = pool(loader("map", paths, workers=2))
    running.turn_to(experiments.PLAIN)
    for _ in range(4):
        running.next(consume=False)
    assert [path.name[:5] for path in folder.iterdir()] == ["pymp-"]
    processes = running.processes
    if killed:
        for process in processes:
            os.kill(process.pid, SIGKILL)
    running.close(at_once=killed)
    assert not any(process.is_alive() for process in processes)
    assert list(folder.iterdir()) == []
    assert here["tempdir"] is None


class Large(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4096,), float(index))


def test_no_arm_changes_how_a_loader_hands_over() -> None:
    """Slots are looked for no more by workers whose batches have lain in shared memory a few times."""
    with closing(pool(FastLoader(Large(), batch_size=4, num_workers=2, engine="processes"))) as running:
        running.record(4, 5.0)
        for arm in POOL:
            if arm not in (experiments.RECORD, experiments.COLD):
                running.block(arm, 0.02)
        before = dict(running._iterator._work.handed)
        rows = running.block(experiments.PLAIN, 0.02).rows
        handed = running._iterator._work.handed
        assert handed["slots"] - before["slots"] >= len(rows)
        assert not handed["torch"]
