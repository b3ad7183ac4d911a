"""A whole measurement within a tiny budget: what runs, what is declined and why, and that the user's things are as before."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, get_worker_info

from pipefix.diagnosis.diagnose import diagnose
from pipefix.loader.fast_loader import FastLoader
from pipefix.measurement import consumer_alone, experiments, residency, schedule, startup
from pipefix.measurement.budget import BudgetClock, MeasurementPlan
from pipefix.measurement.consumer import Consumer, Emulated, UserStep
from pipefix.measurement.consumer_alone import LATE_FIRST_STEP, ConsumerAlone
from pipefix.measurement.experiments import POOL
from pipefix.measurement.kept_batch import KeptBatch
from pipefix.measurement.measure import _Session, measure
from pipefix.measurement.measurement import Measurement
from pipefix.measurement.trace import Charge
from pipefix.measurement.worker_counts import Trials
from pipefix.vocabulary.stage import Stage
from tests.doubles.endless import Endless
from tests.doubles.measured import MS
from tests.doubles.measured import measured as made_up
from tests.doubles.ticks import MEASUREMENT, Ticks
from tests.measurement import planted
from tests.measurement.planted import KINDS, calls, loader, subject

AMPLE = 90.0
"""Seconds of budget that no test spends to the end."""
OVERRUN = 0.5
"""Seconds by which a measurement may overrun its budget: a block that has begun is finished."""


@pytest.fixture(autouse=True)
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    """Blocks and budgets end after so many batches."""
    clock = Ticks(2e-4).given_to(MEASUREMENT, monkeypatch)
    monkeypatch.setattr(planted, "burn", clock.passes)
    return clock


def measured(built: Any, consumer: Consumer | None = None, *, budget: float = 1.0, **plan: Any) -> Measurement:
    return measure(subject(built), consumer or Consumer(), MeasurementPlan(budget=budget, **plan), cores=2.0)


class Whole(planted.Mapped):
    """Makes a batch of the list of indices that it is asked for."""

    def __getitem__(self, indices: Any) -> Any:
        return planted.collate([planted.picture(self.paths[index]) for index in indices])


class Locked(Dataset[Any]):
    """Each sample opens a file that is empty, and takes a window out of a mapped array."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 2400

    def __getitem__(self, index: int) -> Any:
        with (self.folder / "lock").open("rb"):
            tokens = np.memmap(self.folder / "tokens.bin", dtype=np.uint16, mode="r")
            return torch.from_numpy(tokens[index : index + 64].astype(np.int64))


class Members(Dataset[Any]):
    """Each sample is 6 kB of one of 24 members that lie one behind the other in a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __len__(self) -> int:
        return 2400

    def __getitem__(self, index: int) -> Any:
        with self.file.open("rb") as shard:
            shard.seek(index % 24 * 6000)
            return torch.frombuffer(bytearray(shard.read(6000)), dtype=torch.uint8).float().mean()


def interrupt_at(phase: str) -> Callable[[str, float], None]:
    def progress(now: str, done: float) -> None:
        if now.startswith(phase):
            raise KeyboardInterrupt

    return progress


class TestArms:
    @pytest.mark.parametrize(("kind", "workers"), [*((kind, 0) for kind in KINDS), ("map", 2), ("stream", 2)])
    def test_each_arm_ran_or_says_why_not(self, kind: str, workers: int, paths: list[str]) -> None:
        planted.WORK[:] = torch.tensor([0.0002, 0.0002, 0.0])
        measurement = measured(loader(kind, paths, workers=workers), Emulated(0.001, name="1 ms"), budget=1.0)  # fake clock
        ran = {block.arm for block in measurement.blocks}
        assert {"real", "plain", experiments.ALONE} <= ran
        apart = {experiments.RECORD.name, experiments.TRACED.name}
        named = {arm.name for arm in POOL} - apart | {experiments.ALONE}
        assert ran | measurement.declined.keys() >= named
        assert not ran & apart
        assert all(measurement.declined[name] for name in named - ran)
        assert not measurement.partial

    def test_arms_are_interleaved(self, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """Neighbouring blocks share whatever the machine was doing just then."""
        monkeypatch.setattr(schedule, "LONGEST", schedule.SHORTEST)
        measurement = measured(loader("map", paths), budget=AMPLE, enough=lambda measurement: True)  # fake clock
        order = [block.arm for block in measurement.blocks if block.arm in ("real", "plain")]
        assert len(order) >= 4
        assert order[:2] == ["real", "plain"]
        assert order[2:4] == ["plain", "real"], "the second round runs backwards"

    @pytest.mark.parametrize("argument", ["batch_sampler", "sampler"])
    def test_batches_of_a_batch_sampler_are_of_many_samples(self, argument: str, paths: list[str]) -> None:
        """The step alone takes 6 samples each time, as it does beside the loader."""
        settings: dict[str, Any] = {argument: BatchSampler(range(24), 6, False)}
        dataset: Any = planted.Mapped(paths)
        if argument == "sampler":
            dataset, settings["batch_size"] = Whole(paths), None
        built: Any = DataLoader(
            dataset, collate_fn=planted.collate_nothing if argument == "sampler" else planted.collate, **settings
        )
        measurement = measured(built, Emulated(0.002, name="2 ms"))
        assert {block.samples % 6 for block in measurement.of(experiments.ALONE)} == {0}
        assert {row.trace.samples for row in measurement.rows("real")} == {6}
        step = diagnose(measurement).stages[Stage.STEP].wall.value
        assert step * measurement.settings.samples_a_batch >= 0.002, "what a batch's step sleeps"

    def test_enough_is_enough(self, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schedule, "LONGEST", schedule.SHORTEST)
        blocks_so_far: list[int] = []

        def enough(measurement: Measurement) -> bool:
            blocks_so_far.append(len(measurement.of("real")))
            return True

        measured(loader("map", paths), budget=AMPLE, enough=enough)  # fake clock
        assert blocks_so_far == [3], "asked after the third round, and not again"

    def test_arms_with_too_few_blocks_run_once_more(self, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schedule, "LONGEST", schedule.SHORTEST)
        monkeypatch.setattr(sys.modules[measure.__module__], "FEWEST_FOR_INTERVAL", 5)
        planted.WORK[:2] = torch.tensor([0.002, 0.001])

        def wanting(measurement: Measurement) -> tuple[str, ...]:
            return ("decode-recorded", "an arm that is not scheduled")

        measurement = measured(loader("map", paths), budget=AMPLE, enough=lambda measurement: True, wanting=wanting)  # fake clock
        assert len(measurement.of("decode-recorded")) == 5
        assert len(measurement.of("plain")) == 3, "after the three rounds only what was asked for"

    def test_an_open_verdict_gets_the_time_that_is_left(self, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schedule, "LONGEST", schedule.SHORTEST)
        planted.WORK[:2] = torch.tensor([0.002, 0.001])

        def wanting(measurement: Measurement) -> tuple[str, ...]:
            return ("real", "decode-recorded") if len(measurement.of("decode-recorded")) < 6 else ()

        def enough(measurement: Measurement) -> bool:
            return len(measurement.of("plain")) == 4

        measurement = measured(loader("map", paths), budget=AMPLE, enough=enough, wanting=wanting)  # fake clock
        assert {name: len(measurement.of(name)) for name in ("real", "decode-recorded", "plain", "collate-recorded")} == {
            "real": 7, "decode-recorded": 7, "plain": 4, "collate-recorded": 4
        }, "three rounds of all, three of what was open, and one of all once it was not"  # fmt: skip


def test_other_worker_counts_are_really_run(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    planted.WORK[0] = 0.0005
    monkeypatch.setattr(schedule, "LONGEST", schedule.SHORTEST)
    tried = {"trial_workers": (0, 1), "enough": lambda measurement: len(measurement.trials.get("workers-1", ())) >= 2}
    measurement = measured(loader("map", paths), budget=60.0, **tried)  # fake clock
    assert measurement.trials.keys() == {"workers-1"}, "the count that is set is no trial"
    assert all(tried > 0 and base > 0 for pairs in measurement.trials.values() for tried, base in pairs)
    assert len(measurement.trials["workers-1"]) >= 2


@pytest.mark.parametrize(("doubted", "pairs"), [("workers-1", 8), (None, 4)])
def test_once_the_verdict_stands_the_best_trial_follows_each_round(
    doubted: str | None, pairs: int, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "LONGEST", schedule.SHORTEST)
    monkeypatch.setattr(Trials, "doubted", lambda trials: doubted if len(trials._found.of("real")) < 6 else None)
    tried = {"trial_workers": (1,), "enough": lambda measurement: len(measurement.of("real")) == 6}
    measurement = measured(loader("map", paths), budget=AMPLE, **tried)  # fake clock
    assert len(measurement.trials["workers-1"]) == pairs, (
        "two pairs in the second and the sixth round, and in those from the fourth on"
    )


class TestBudget:
    def test_it_is_kept(self, paths: list[str], ticks: Ticks) -> None:
        planted.WORK[0] = 0.0005
        begun, budget = ticks.now, 2.0  # fake clock
        measurement = measured(loader("map", paths), Emulated(0.002, name="2 ms"), budget=budget)
        assert 0.5 * budget < ticks.now - begun < budget + OVERRUN
        assert measurement.seconds < budget + OVERRUN

    @pytest.mark.parametrize(("compiling", "more"), [(0.3, True), (0.0, False)])
    def test_what_only_the_first_step_takes_is_not_taken_off(
        self, compiling: float, more: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[None] = []
        now = [100.0]

        def train_step(batch: Any) -> None:
            now[0] += 0 if calls else compiling
            calls.append(None)

        # A clock that only the step moves: by a real one, a pause of the machine looks like compiling.
        monkeypatch.setattr(
            "pipefix.measurement.consumer.time", SimpleNamespace(perf_counter=lambda: now[0], perf_counter_ns=lambda: 0)
        )
        assert (UserStep(train_step).first_seconds(KeptBatch(None), LATE_FIRST_STEP) > 0.1) is more

    def test_on_an_accelerator_of_another_kind_steps_are_waited_for_and_copies_declined_by_name(
        self, paths: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waited: list[None] = []
        monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
        monkeypatch.setattr("torch.accelerator.current_accelerator", lambda: torch.device("mps"))
        monkeypatch.setattr("torch.accelerator.synchronize", lambda: waited.append(None))
        measurement = measured(loader("map", paths), consumer=UserStep(lambda batch: None), budget=1.0)  # fake clock
        assert waited
        assert measurement.declined["transfer"].startswith("the device here is mps: steps are waited for")

    def test_copies_that_would_wake_cuda_wait_until_all_workers_are_forked(
        self, paths: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those of a loader whose workers use the device could not, afterwards."""
        done: list[str] = []
        monkeypatch.setattr(consumer_alone, "would_wake_cuda", lambda: True)
        monkeypatch.setattr(consumer_alone, "copy_seconds", lambda batch: (done.append("copies"), {})[1])
        rounds = _Session.rounds
        monkeypatch.setattr(_Session, "rounds", lambda session: (done.append("rounds"), rounds(session))[1])
        measured(loader("map", paths))
        assert done == ["rounds", "copies"]

    def test_a_batch_without_a_tensor_in_the_hosts_memory_is_not_told_as_a_lack_of_cuda(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = made_up({"decode": 1.0})
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        ConsumerAlone(Consumer(), MeasurementPlan(), BudgetClock(1.0), found).copies(KeptBatch(["text"]))
        assert diagnose(found).declined[Stage.TRANSFER] == "no tensor of a batch lies in the host's memory"

    def test_a_steps_own_copy_is_told_apart_where_the_step_is_the_first_to_use_cuda(
        self, paths: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        steps: list[None] = []
        monkeypatch.setattr(consumer_alone, "would_wake_cuda", lambda: not steps)
        monkeypatch.setattr(
            consumer_alone, "copy_seconds", lambda batch: {"pinned": 1e-3, "pageable": 2e-3, "pinning": 1e-3, "bytes": 1.0}
        )
        monkeypatch.setattr(consumer_alone, "on_device", lambda batch: batch)
        consumer = UserStep(lambda batch: steps.append(None))
        measurement = measured(loader("map", paths), consumer=consumer, budget=1.0)  # fake clock
        assert "exposed" in measurement.transfer and measurement.of(experiments.RESIDENT)

    def test_batches_of_arms_that_nobody_looks_at_one_by_one_keep_their_sums(self, paths: list[str]) -> None:
        measurement = measured(loader("map", paths))
        assert all(row.trace.charges and row.trace.unit_walls for row in measurement.rows("real"))
        for block in measurement.of("storage-from-memory"):
            first, *others = [row.trace for row in block.rows]
            assert others and not any(trace.charges or trace.unit_walls for trace in others)
            (decoding,) = [charge for charge in first.charges if charge.op.endswith("decode")]
            assert decoding.calls == block.samples

    def test_the_bytes_of_all_recordings_are_kept(self, paths: list[str]) -> None:
        measurement = measured(loader("map", paths, workers=2), recording_bytes=4_000, budget=1.0)  # fake clock
        assert 0 < measurement.recorded_bytes < 4_000 + 2 * 3_000

    def test_progress_never_falls_and_begins_with_the_recording(self, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schedule, "LONGEST", schedule.SHORTEST)
        for budget in (0.1, AMPLE):
            reports: list[tuple[str, float]] = []
            told = lambda phase, done, reports=reports: reports.append((phase, done))  # noqa: E731
            measured(loader("map", paths), budget=budget, enough=lambda measurement: True, progress=told)
            shares = [share for _, share in reports]
            assert shares == sorted(shares)
            assert 0 <= shares[0] <= shares[-1] <= 1.0
            assert reports[0][0] == "recording samples"
        assert shares[0] < shares[-1], "of a budget that is not spent already when the recording begins"


def test_an_interrupt_before_anything_is_known_leaves_nothing(paths: list[str], children: Callable[[], list[Any]]) -> None:
    decode = planted.decode
    measurement = measured(loader("map", paths, workers=2), budget=60.0, progress=interrupt_at("recording"))  # fake clock
    assert measurement.partial
    assert planted.decode is decode
    assert not measurement.blocks
    assert children() == []


class TestApart:
    @pytest.mark.parametrize("options", [{}, {"workers": 2}, {"workers": 2, "persistent_workers": True}])
    def test_start_up_is_the_users_own_loader(
        self, options: dict[str, Any], paths: list[str], children: Callable[[], list[Any]]
    ) -> None:
        planted.WORK[0] = 0.001
        built = loader("map", paths, **options)
        measurement = Measurement(subject(built).settings, built.num_workers, 2.0)
        startup.measure(subject(built), measurement, AMPLE)
        assert measurement.first_batch is not None and measurement.first_batch >= 0.004
        assert measurement.epoch_restart is not None and measurement.epoch_restart >= 0.004
        if built.persistent_workers:
            assert measurement.epoch_restart == measurement.first_batch, "with no batch measured it can be no more"
        assert children() == []
        assert built._iterator is None

    @pytest.mark.parametrize(("work", "timed"), [(0.01, True), (0.6, False)])
    def test_a_quick_first_batch_is_timed_where_the_budget_is_spent(
        self, work: float, timed: bool, paths: list[str], ticks: Ticks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Now and then nothing was left: caches were not tried then, and the model promised twice what they bring."""
        planted.WORK[0] = work  # of each of four samples
        monkeypatch.setattr(_Session, "cold", lambda session: ticks.passes(AMPLE))
        measurement = measured(loader("map", paths), budget=AMPLE, enough=lambda measurement: True)  # fake clock
        assert (measurement.first_batch is not None) is timed

    def test_a_sample_that_raises_in_another_epoch_costs_no_figure(self, paths: list[str]) -> None:
        """Start-up comes last: all that was measured before was lost with it."""
        begun: list[None] = []

        class Torn(planted.Mapped):
            def __getitem__(self, index: int) -> Any:
                begun.append(None)
                if len(begun) > 4:
                    raise ValueError("torn")
                return super().__getitem__(index)

        built = DataLoader(Torn(paths), batch_size=4, collate_fn=planted.collate)
        measurement = Measurement(subject(built).settings, 0, 2.0)
        startup.measure(subject(built), measurement, AMPLE)
        assert measurement.first_batch is not None and measurement.epoch_restart is None
        assert measurement.declined[experiments.START_UP] == "an epoch's first batch raised ValueError: torn"

    @pytest.mark.parametrize("size", [4, 1, None])
    @pytest.mark.parametrize(("kind", "workers"), [(planted.Mapped, 0), (planted.Mapped, 1), (planted.Batched, 0)])
    def test_a_sample_that_training_leaves_out_ends_no_probe(
        self, kind: Any, workers: int, size: int | None, paths: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(schedule, "LONGEST", schedule.SHORTEST)

        Path(paths[5]).unlink()
        by = planted.collate if size else planted.collate_nothing
        built: Any = FastLoader(kind(paths), batch_size=size, collate_fn=by, num_workers=workers, on_bad="skip")
        measurement = measured(built, budget=AMPLE, enough=lambda measurement: True)  # fake clock
        assert measurement.of("real") and measurement.reuses_memory and not measurement.partial

    def test_an_endless_loader_is_probed_and_keeps_its_place(self, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """As ultralytics makes it: one iterator, begun with the loader, for all epochs."""
        monkeypatch.setattr(schedule, "LONGEST", schedule.SHORTEST)
        built: Any = Endless(planted.Mapped(paths), batch_size=4, collate_fn=planted.collate)
        measurement = measured(built, budget=AMPLE, enough=lambda measurement: True)  # fake clock
        assert measurement.of("real") and not measurement.reuses_memory
        assert measurement.first_batch is None
        assert "hands batches out of one iterator" in measurement.declined[experiments.START_UP]
        assert [name for _, names in built for name in names] == [f"{index:03d}.bin" for index in range(24)]

    def test_a_cold_block_has_a_proof_of_its_own_and_the_last_proof_is_told(
        self, paths: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proofs: list[residency.ColdProof] = []

        def proven(files: list[str]) -> residency.ColdProof:
            proofs.append(residency.ColdProof(files=len(files), before=1.0, after=0.001 * (1 + len(proofs)), cold=True))
            return proofs[-1]

        monkeypatch.setattr(residency, "cold", proven)
        measurement = measured(loader("map", paths), budget=5.0)  # fake clock
        assert len(measurement.of("real-cold")) == len(proofs) > 0
        assert measurement.cold["cold"]
        assert measurement.cold["after"] == proofs[-1].after
        assert measurement.cold["files"] == len(measurement.paths)

    @pytest.mark.parametrize(("before", "again"), [(1.0, True), (0.4, False), (None, False)])
    def test_what_was_in_memory_is_read_in_again_after_cold_reads(
        self, before: float | None, again: bool, paths: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The loader as it is read its files from the disk, in the first blocks beside a remedy: a cache was promised too much."""
        happened: list[tuple[str, list[str]]] = []
        found = iter((before, 0.1, 0.1, 0.1))

        def evicted(read: dict[str, Any]) -> residency.ColdProof:
            happened.append(("evicted", sorted(read)))
            return residency.ColdProof(before=next(found), after=0.0, cold=True)

        def warmed(read: dict[str, Any], seconds: float) -> bool:
            happened.append(("read in", sorted(read)))
            assert seconds == 0.05 * 5.0
            return True

        monkeypatch.setattr(residency, "cold", evicted)
        monkeypatch.setattr(residency, "warm", warmed)
        measurement = measured(loader("map", paths), budget=5.0)  # fake clock
        blocks = len(measurement.of("real-cold"))
        assert blocks and measurement.cold["before"] == before, "as it was before the first of them"
        assert happened == [("evicted", measurement.paths)] * blocks + [("read in", measurement.paths)] * again

    def test_what_was_cold_stays_so_though_pages_stay_in_memory_later(
        self, paths: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proofs = iter(
            [residency.ColdProof(before=1.0, after=0.0, cold=True), residency.ColdProof(after=0.5, why="somebody maps it")]
        )
        monkeypatch.setattr(residency, "cold", lambda files: next(proofs))
        measurement = measured(loader("map", paths), budget=5.0)  # fake clock
        assert len(measurement.of("real-cold")) == 1 and next(proofs, None) is None
        assert (measurement.cold["after"], "real-cold" in measurement.declined) == (0.0, False)

    @pytest.mark.parametrize("dataset_class", [planted.Mapped, planted.Batched])
    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_file_that_several_samples_read_counts_once(self, dataset_class: Any, workers: int, paths: list[str]) -> None:
        built: Any = DataLoader(
            dataset_class(paths[:3] * 30), batch_size=4, num_workers=workers, collate_fn=planted.collate
        )  # fmt: skip
        *halfway, whole = measured(built).read_once  # fake clock
        assert whole.distinct_bytes == sum(map(os.path.getsize, paths[:3]))
        assert whole.samples >= 4 and all(half.samples < whole.samples for half in halfway), "samples are counted, not batches"
        assert whole.bytes == pytest.approx(whole.samples * whole.distinct_bytes / 3, rel=0.3)

    @pytest.mark.parametrize("workers", [0, 1])
    def test_stretches_that_overlap_are_counted_as_a_cache_keeps_them(self, workers: int, tmp_path: Path) -> None:
        """Of members of an archive, smaller than what Python reads at a time, two thirds were told of what a cache takes."""
        file = tmp_path / "shard.bin"
        file.write_bytes(bytes(200 * 1024))
        *_, whole = measured(DataLoader(Members(file), batch_size=4, num_workers=workers)).read_once  # fake clock
        assert whole.distinct_bytes == min(24, whole.samples) * 8192

    def test_a_file_that_is_opened_and_not_read_is_nothing_to_count(self, tmp_path: Path) -> None:
        """Its bytes come from elsewhere, of a mapped array or a network: a division by zero ended the probe."""
        np.arange(4096, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
        (tmp_path / "lock").touch()
        assert measured(DataLoader(Locked(tmp_path), batch_size=4)).read_once == []  # fake clock

    def test_pages_that_stay_are_not_called_cold(self, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        stays = residency.ColdProof(files=24, before=1.0, after=0.5, why="another process maps them")
        monkeypatch.setattr(residency, "cold", lambda files: stays)
        measurement = measured(loader("map", paths), budget=5.0)  # fake clock
        assert not measurement.of("real-cold")
        assert measurement.declined["real-cold"] == "another process maps them"
        assert not measurement.cold["cold"]

    def test_what_was_read_a_moment_ago_is_not_called_cold(self, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """Of large, slow samples a probe records hardly more than the batch that warms the arm up."""
        monkeypatch.setattr(residency, "cold", lambda files: residency.ColdProof(before=1.0, after=0.0, cold=True))
        monkeypatch.setattr("pipefix.measurement.measure.MOST_UNITS", 1)
        measurement = measured(loader("map", paths), budget=5.0)  # fake clock
        assert not measurement.of("real-cold")
        assert "some were read again, from memory" in measurement.declined["real-cold"]
        assert not measurement.cold["cold"]

    def test_without_files_there_is_no_cold(self) -> None:
        data = torch.utils.data.TensorDataset(torch.randn(64, 4))
        measurement = measured(torch.utils.data.DataLoader(data, batch_size=4), budget=1.0)  # fake clock
        assert measurement.declined["real-cold"] == "no file was read through a hook, so there is nothing to evict"

    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_look_into_every_process(self, workers: int, paths: list[str]) -> None:
        def look(batch: Any) -> dict[str, float]:
            return {"pid": float(os.getpid())}

        measurement = measured(loader("map", paths, workers=workers), observe=look, budget=1.0)  # fake clock
        assert len(measurement.looks) == max(1, workers)
        for pid, looks in measurement.looks.items():
            assert all(facts["pid"] == pid for _, facts in looks)
            counts = [count for count, _ in looks]
            assert counts == sorted(counts)
        assert (os.getpid() in measurement.looks) == (workers == 0)

    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_trace_is_an_uninterrupted_run_of_its_own(self, workers: int, paths: list[str]) -> None:
        planted.WORK[0] = 0.001
        measurement = measured(loader("map", paths, workers=workers), events=True, budget=1.5)  # fake clock
        assert measurement.traced
        assert all(row.trace.events for row in measurement.traced)
        assert all(row.done <= after.asked for row, after in zip(measurement.traced, measurement.traced[1:], strict=False))
        assert not any(row.trace.events for block in measurement.blocks for row in block.rows)

    def test_a_step_is_split_where_there_is_time(self, paths: list[str], children: Callable[[], list[Any]]) -> None:
        model = torch.nn.Linear(planted.SIDE, 1)
        step = UserStep(lambda batch: model(batch[0]).sum().backward())
        measurement = measured(loader("map", paths), step, budget=10.0, progress=interrupt_at("round 1"))  # fake clock
        assert measurement.step_split.keys() == {"forward", "backward", "optimizer", "other"}
        assert children() == []


@pytest.mark.parametrize("workers", [0, 2])
def test_every_random_state_is_left_as_it_was(workers: int, paths: list[str]) -> None:
    generator = torch.Generator().manual_seed(3)
    settings: Any = {"sampler": RandomSampler(paths, generator=generator), "generator": torch.Generator().manual_seed(4)}
    built = loader("map", paths, workers=workers, **settings)

    def states() -> list[Any]:
        own = [tuple(each.get_state().tolist()) for each in (generator, built.generator)]
        name, keys, *rest = np.random.get_state()
        return [random.getstate(), (name, tuple(keys), *rest), tuple(torch.get_rng_state().tolist()), *own]

    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    before = states()
    measured(built, UserStep(lambda batch: (torch.rand(1), random.random(), np.random.rand())), budget=1.0)  # fake clock
    assert states() == before
    planted.forget_calls()
    assert len(list(built)) == 6
    assert calls() == {"decode": 24, "augment": 24, "collate": 6}


def test_collections_pass_over_what_was_there_before_and_the_users_setting_comes_back(paths: list[str]) -> None:
    counts: list[int] = []
    measured(loader("map", paths), budget=1.0, progress=lambda phase, done: counts.append(gc.get_freeze_count()))  # fake clock
    assert counts[0] > 1000
    assert gc.get_freeze_count() == 0


class Keeping(planted.Mapped):
    """Keeps what it has read: pixels, or the samples whole."""

    def __init__(self, paths: list[str], keeps: str) -> None:
        super().__init__(paths)
        self.what, self.kept = keeps, dict[int, Any]()

    def __getitem__(self, index: int) -> Any:
        if index not in self.kept:
            with open(self.paths[index], "rb") as file:
                data = file.read()
            self.kept[index] = {"bytes": lambda: data, "pixels": lambda: planted.decode(data), "nothing": str}[self.what]()
            if self.what == "nothing":
                self.kept.pop(index)
                return planted.picture(self.paths[index])
        held = self.kept[index]
        return planted.augment(planted.decode(held) if self.what == "bytes" else held), str(index)


@pytest.mark.parametrize(("keeps", "stages"), [("nothing", []), ("bytes", ["storage"]), ("pixels", ["storage", "decode"])])
def test_a_dataset_that_keeps_what_it_has_read_is_told_of(keeps: str, stages: list[str], paths: list[str], ticks: Ticks) -> None:
    measurement = measured(DataLoader(Keeping(paths, keeps), batch_size=4, collate_fn=planted.collate), budget=2.0)  # fake clock
    assert measurement.kept_by_dataset == stages
    caveats = {caveat for caveat, _ in diagnose(measurement).caveats}
    assert ("own-cache" in caveats) == bool(stages)


def test_what_a_dataset_keeps_is_lost_with_workers_that_start_anew() -> None:
    found = made_up({"augment": 4.0}, workers=2)
    found.first_calls = {"decode": 1.0}
    told = dict(diagnose(found).caveats)
    assert "own-cache" not in told
    assert "persistent_workers=True" in told["own-cache-lost"]
    found.settings = msgspec.structs.replace(found.settings, persistent_workers=True)
    assert "own-cache-lost" not in dict(diagnose(found).caveats)


def test_operations_of_one_stage_count_together_as_read_again() -> None:
    """Of two that decode, the last may be called seldom: the dataset keeps nothing for that."""
    found = made_up({"decode": 4.0})
    for row in found.rows("real"):
        row.trace.charges = [Charge("decode", "often", MS, MS, MS, 40), Charge("decode", "once", MS, MS, MS, 4)]
    found.first_calls = {"decode": 11.0}
    assert found.kept_by_dataset == []
    found.first_calls = {"decode": 100.0}
    assert found.kept_by_dataset == ["decode"]


def test_what_a_library_keeps_of_samples_read_before_is_known_by_its_cpu_time() -> None:
    """HDF5 keeps its latest chunks unpacked: a probe that asks for the same samples again would see no decoding at all."""
    found = made_up({"decode": 0.1, "ipc": 2.0}, workers=2)
    for row in found.rows("real"):
        row.trace.unit_walls = [MS // 10] * row.trace.samples
    assert found.kept_by_library == {}
    assert diagnose(found).verdict.stage == "ipc"
    found.first_cpu = {"decode": 5.0 * MS}
    first, again = found.kept_by_library["decode"]
    assert (first, again) == pytest.approx((5e-3, 1e-4))
    verdict = diagnose(found).verdict
    assert verdict.kind == "inconclusive"
    assert "decode took 5.00 ms of CPU time a sample when samples were first read and 100 µs when" in verdict.sentence


class HangsInWorkers(planted.Mapped):
    """As code does whose library had threads before the fork."""

    def __getitem__(self, index: int) -> Any:
        if get_worker_info() is not None:
            threading.Event().wait()
        return super().__getitem__(index)


def test_a_trial_that_hangs_is_left_and_told(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipefix.measurement.worker_counts.TRIAL_LIMIT", 0.2)
    monkeypatch.setattr("pipefix.measurement.worker_counts.SLOWER", 0.0)
    built = DataLoader(HangsInWorkers(paths), batch_size=4, collate_fn=planted.collate)
    found = measured(built, budget=60.0, trial_workers=(1,), enough=lambda found: "workers-1" in found.declined)  # fake clock
    assert found.trials == {}
    assert found.declined["workers-1"].startswith("it failed when tried: ")
    assert found.of("plain"), "and the pipeline itself was measured"


def test_a_trial_that_was_lost_while_another_ran_is_not_begun_again(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory is short the kernel kills workers that rest, too."""

    def killed(trials: Trials, name: str, seconds: float) -> None:
        raise RuntimeError("DataLoader worker (pid 1) is killed by signal: Killed.")

    monkeypatch.setattr(Trials, "run", killed)
    monkeypatch.setattr(Trials, "lost", lambda trials: list(trials.pools))
    monkeypatch.setattr(schedule, "LONGEST", schedule.SHORTEST)
    found = measured(loader("map", paths), budget=60.0, trial_workers=(1, 2), enough=lambda found: True)  # fake clock
    assert {"workers-1", "workers-2"} <= found.declined.keys()


class SetsUp(planted.Mapped):
    """Each process reads many files with its first sample, as an import does; the samples themselves are in memory."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__(paths)
        self.pixels: Any = None

    def __getitem__(self, index: int) -> Any:
        if self.pixels is None:
            for path in self.paths * 20:
                with open(path, "rb") as file:
                    self.pixels = planted.decode(file.read())
        return planted.augment(self.pixels), str(index)


def test_what_is_set_up_with_the_first_sample_is_not_taken_for_a_cache(paths: list[str], ticks: Ticks) -> None:
    built = DataLoader(SetsUp(paths), batch_size=4, collate_fn=planted.collate)
    assert measured(built, budget=5.0).kept_by_dataset == []  # fake clock
