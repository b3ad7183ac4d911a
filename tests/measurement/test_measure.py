"""A whole measurement within a tiny budget: what runs, what is declined and why, and that the user's things are as before."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import RandomSampler

from pipefix.measurement import experiments, schedule, startup
from pipefix.measurement.consumer import Consumer, Emulated, UserStep
from pipefix.measurement.experiments import POOL
from pipefix.measurement.measure import Plan, measure
from pipefix.measurement.measurement import Measurement
from tests.measurement import planted
from tests.measurement.planted import KINDS, calls, loader, subject

TOLERATED = 1.5
"""Seconds that a measurement may overrun its budget: a block that has begun is finished."""


def measured(built: Any, consumer: Consumer | None = None, *, budget: float = 1.0, **plan: Any) -> Measurement:
    return measure(subject(built), consumer or Consumer(), Plan(budget=budget, **plan), cores=2.0)


def interrupt_at(phase: str) -> Callable[[str, float], None]:
    def progress(now: str, done: float) -> None:
        if now.startswith(phase):
            raise KeyboardInterrupt

    return progress


class TestArms:
    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("kind", KINDS)
    def test_each_arm_ran_or_says_why_not(self, kind: str, workers: int, paths: list[str]) -> None:
        planted.WORK[:] = torch.tensor([0.0002, 0.0002, 0.0])
        found = measured(loader(kind, paths, workers=workers), Emulated(0.001, name="1 ms"), budget=1.0)
        ran = {block.arm for block in found.blocks}
        assert {"real", "plain", experiments.ALONE} <= ran
        apart = {experiments.RECORD.name, experiments.TRACED.name}
        named = {arm.name for arm in POOL} - apart | {experiments.ALONE, experiments.BURNER}
        assert ran | found.declined.keys() >= named
        assert not ran & apart
        assert all(found.declined[name] for name in named - ran)
        assert not found.partial
        assert found.recorded_units > 0

    def test_arms_are_interleaved(self, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """Neighbouring blocks share whatever the machine was doing just then."""
        monkeypatch.setattr(schedule, "LONGEST", schedule.SHORTEST)
        found = measured(loader("map", paths), budget=20.0, enough=lambda found: True)
        order = [block.arm for block in found.blocks if block.arm in ("real", "plain")]
        assert len(order) >= 4
        assert order[:2] == ["real", "plain"]
        assert order[2:4] == ["plain", "real"], "the second round runs backwards"

    def test_a_recorded_decode_is_faster_by_its_planted_cost(self, paths: list[str]) -> None:
        planted.WORK[:2] = torch.tensor([0.002, 0.001])
        found = measured(loader("map", paths), budget=3.0)
        rates = {name: max(block.rate for block in found.of(name)) for name in ("real", "decode-recorded")}
        assert 0.5 < rates["decode-recorded"] / rates["real"] / 3 < 1.5

    def test_no_consumer_no_arms_about_it(self, paths: list[str]) -> None:
        found = measured(loader("map", paths))
        assert found.declined[experiments.ALONE] == "there is no consumer"
        assert found.declined["no-consumer"] == "there is no consumer to leave out"
        assert (found.consumer, found.has_consumer) == ("none", False)

    def test_enough_is_enough(self, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schedule, "LONGEST", schedule.SHORTEST)
        asked: list[int] = []

        def enough(found: Measurement) -> bool:
            asked.append(len(found.of("real")))
            return True

        found = measured(loader("map", paths), budget=20.0, enough=enough)
        assert asked == [3], "asked after the third round, and not again"
        assert found.seconds < 10

    def test_an_epoch_of_very_few_samples(self, paths: list[str]) -> None:
        found = measured(loader("map", paths[:2], batch=2), budget=1.0)
        assert found.of("real")


class TestTrials:
    def test_other_worker_counts_are_really_run(self, paths: list[str]) -> None:
        planted.WORK[0] = 0.0005
        found = measured(loader("map", paths), budget=4.0, trial_workers=(0, 1))
        assert found.trials.keys() == {"workers-1"}, "the count that is set is no trial"
        assert all(tried > 0 and base > 0 for pairs in found.trials.values() for tried, base in pairs)
        assert len(found.trials["workers-1"]) >= 2

    def test_none_are_run_unasked(self, paths: list[str]) -> None:
        assert measured(loader("map", paths), budget=1.0).trials == {}


class TestBudget:
    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("budget", [1.0, 2.5])
    def test_it_is_kept(self, budget: float, workers: int, paths: list[str]) -> None:
        planted.WORK[0] = 0.0005
        begun = time.perf_counter()
        found = measured(loader("map", paths, workers=workers), Emulated(0.002, name="2 ms"), budget=budget)
        assert time.perf_counter() - begun < budget + TOLERATED
        assert found.seconds < budget + TOLERATED

    def test_the_bytes_of_all_recordings_are_kept(self, paths: list[str]) -> None:
        found = measured(loader("map", paths, workers=2), recording_bytes=4_000, budget=1.0)
        assert 0 < found.recorded_bytes < 4_000 + 2 * 3_000

    def test_progress_rises_from_nothing_to_nearly_all(self, paths: list[str]) -> None:
        told: list[tuple[str, float]] = []
        measured(loader("map", paths), budget=1.0, progress=lambda phase, done: told.append((phase, done)))
        parts = [done for _, done in told]
        assert parts == sorted(parts)
        assert 0 <= parts[0] < 0.2
        assert 0.6 < parts[-1] <= 1.0
        assert told[0][0] == "recording samples"


class TestInterrupted:
    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("phase", ["recording", "round 1: plain", "round 2"])
    def test_what_is_known_by_then_is_kept(self, phase: str, workers: int, paths: list[str]) -> None:
        found = measured(loader("map", paths, workers=workers), budget=5.0, progress=interrupt_at(phase))
        assert found.partial
        assert bool(found.of("real")) == (phase != "recording")
        assert found.seconds < 4
        assert multiprocessing.active_children() == []

    def test_what_was_patched_is_put_back(self, paths: list[str]) -> None:
        before = planted.decode
        measured(loader("map", paths), budget=5.0, progress=interrupt_at("round 1: plain"))
        assert planted.decode is before


class TestApart:
    @pytest.mark.parametrize("options", [{}, {"workers": 2}, {"workers": 2, "persistent_workers": True}])
    def test_start_up_is_the_users_own_loader(self, options: dict[str, Any], paths: list[str]) -> None:
        planted.WORK[0] = 0.001
        built = subject(loader("map", paths, **options))
        found = Measurement(built.settings, built.settings.num_workers, 2.0)
        startup.measure(built, found, 10.0)
        assert found.first_batch is not None
        assert found.epoch_restart is not None
        assert 0.004 <= found.first_batch < 2
        assert 0.004 <= found.epoch_restart < 2

    def test_start_up_is_measured_where_time_is_left(self, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schedule, "LONGEST", schedule.SHORTEST)
        found = measured(loader("map", paths), budget=20.0, enough=lambda found: True)
        assert found.first_batch is not None

    def test_persistent_workers_restart_for_the_price_of_a_batch(self, paths: list[str]) -> None:
        planted.WORK[0] = 0.001
        built = loader("map", paths, workers=2, persistent_workers=True)
        found = Measurement(subject(built).settings, 2, 2.0)
        startup.measure(subject(built), found, 10.0)
        assert found.epoch_restart == found.first_batch, "with no batch measured it can be no more"

    def test_start_up_leaves_no_worker_and_no_iterator(self, paths: list[str]) -> None:
        built = loader("map", paths, workers=2, persistent_workers=True)
        found = Measurement(subject(built).settings, 2, 2.0)
        startup.measure(subject(built), found, 10.0)
        assert found.first_batch is not None
        assert multiprocessing.active_children() == []
        assert built._iterator is None

    def test_cold_is_proven_or_refused(self, paths: list[str]) -> None:
        found = measured(loader("map", paths), budget=1.5)
        if found.of("real-cold"):
            assert found.cold["cold"]
            assert found.cold["after"] <= 0.01
            assert found.cold["files"] == len(found.paths)
        else:
            assert found.declined["real-cold"]
            assert not found.cold.get("cold", False)

    def test_without_files_there_is_no_cold(self) -> None:
        data = torch.utils.data.TensorDataset(torch.randn(64, 4))
        found = measured(torch.utils.data.DataLoader(data, batch_size=4), budget=1.0)
        assert found.declined["real-cold"] == "no file was read through a seam, so there is nothing to evict"

    def test_files_that_were_read_are_known(self, paths: list[str]) -> None:
        found = measured(loader("map", paths), budget=1.0)
        assert found.paths
        assert set(found.paths) <= {os.path.realpath(path) for path in paths} | set(paths)

    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_look_into_every_process(self, workers: int, paths: list[str]) -> None:
        def look(batch: Any) -> dict[str, float]:
            return {"pid": float(os.getpid())}

        found = measured(loader("map", paths, workers=workers), observe=look, budget=1.0)
        assert len(found.looks) == max(1, workers)
        for pid, looks in found.looks.items():
            assert all(facts["pid"] == pid for _, facts in looks)
            made = [count for count, _ in looks]
            assert made == sorted(made)
        assert (os.getpid() in found.looks) == (workers == 0)

    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_trace_is_an_uninterrupted_run_of_its_own(self, workers: int, paths: list[str]) -> None:
        planted.WORK[0] = 0.001
        found = measured(loader("map", paths, workers=workers), events=True, budget=1.5)
        assert found.traced
        assert all(row.trace.events for row in found.traced)
        assert all(one.done <= after.asked for one, after in zip(found.traced, found.traced[1:], strict=False))
        assert not any(row.trace.events for block in found.blocks for row in block.rows)

    def test_no_trace_unasked(self, paths: list[str]) -> None:
        assert measured(loader("map", paths), budget=1.0).traced == []

    def test_a_step_is_split_where_there_is_time(self, paths: list[str]) -> None:
        model = torch.nn.Linear(planted.SIDE, 1)
        step = UserStep(lambda batch: model(batch[0]).sum().backward())
        found = measured(loader("map", paths), step, budget=10.0, progress=interrupt_at("round 1"))
        assert found.step_split.keys() == {"forward", "backward", "optimizer", "other"}
        assert found.of(experiments.BURNER)
        assert multiprocessing.active_children() == []


class TestLeftAsFound:
    def test_every_random_state(self, paths: list[str]) -> None:
        generator = torch.Generator().manual_seed(3)
        built = loader("map", paths, sampler=RandomSampler(paths, generator=generator), generator=torch.Generator().manual_seed(4))
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        before = self.states(generator, built.generator)
        measured(built, UserStep(lambda batch: (torch.rand(1), random.random(), np.random.rand())), budget=1.0)
        assert self.states(generator, built.generator) == before

    @staticmethod
    def states(*generators: Any) -> list[Any]:
        own = [tuple(one.get_state().tolist()) for one in generators]
        name, keys, *rest = np.random.get_state()
        return [random.getstate(), (name, tuple(keys), *rest), tuple(torch.get_rng_state().tolist()), *own]

    @pytest.mark.parametrize("workers", [0, 2])
    def test_the_loader_gives_the_same_batches_afterwards(self, workers: int, paths: list[str]) -> None:
        built = loader("map", paths, workers=workers, shuffle=True, generator=torch.Generator().manual_seed(5))
        measured(built, budget=1.0)
        names = [name for _, batch in built for name in batch]
        again = loader("map", paths, workers=workers, shuffle=True, generator=torch.Generator().manual_seed(5))
        assert names == [name for _, batch in again for name in batch]
        planted.forget_calls()
        assert len(list(built)) == 6
        assert calls() == {"decode": 24, "augment": 24, "collate": 6}


class TestGarbage:
    def test_collections_pass_over_what_was_there_before_and_the_users_setting_comes_back(self, paths: list[str]) -> None:
        seen: list[int] = []
        measured(loader("map", paths), budget=1.0, progress=lambda phase, done: seen.append(gc.get_freeze_count()))
        assert seen[0] > 1000
        assert gc.get_freeze_count() == 0

    def test_what_the_user_had_frozen_stays_frozen(self, paths: list[str]) -> None:
        gc.freeze()
        try:
            measured(loader("map", paths), budget=1.0)
            assert gc.get_freeze_count() > 1000
        finally:
            gc.unfreeze()
