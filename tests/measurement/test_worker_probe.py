"""The worker probe: untouched it gives what the user's loader gives, and each arm replaces just what it says."""

from __future__ import annotations

import builtins
import copy
import gc
import itertools
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Sampler

from pipefix.hooks.torch_internals import DatasetKind
from pipefix.measurement import experiments
from pipefix.measurement.consumer import Consumer, UserStep
from pipefix.measurement.experiments import POOL, RECORD, Experiment
from pipefix.measurement.failing import Failure
from pipefix.measurement.worker_probe import SampleOrders, _hear_once, _unless_left
from pipefix.vocabulary.stage import Stage
from tests.doubles.of_one_process import Collecting
from tests.doubles.ticks import MEASUREMENT, Ticks
from tests.measurement import planted
from tests.measurement.planted import KINDS, Alone, Mapped, Streamed, calls, collate, loader, pool

BYTES = planted.SIDE**2
ARMS = [arm for arm in POOL if arm not in (RECORD, experiments.COLD)]


def alone(kind: str, paths: list[str], **options: Any) -> Alone:
    built = loader(kind, paths)
    options = {"by": built.collate_fn, **options}
    return Alone(built.dataset, kind=kind, batch=built.batch_size if kind != "single" else None, **options)


def expected(arm: Experiment, batches: int, samples: int) -> dict[str, int]:
    """How often each planted function really runs."""
    live = {"decode": Stage.DECODE, "augment": Stage.AUGMENT}
    counted = {name: 0 if stage in arm.replaces else batches * samples for name, stage in live.items()}
    return {**counted, "collate": 0 if Stage.COLLATE in arm.replaces else batches}


def same(value: Any, wanted: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return torch.equal(value, wanted)
    if isinstance(value, (list, tuple)):
        return len(value) == len(wanted) and all(map(same, value, wanted))
    return bool(value == wanted)


class TestUntimed:
    """Without clocks a batch is the user's own, to the bit."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_in_this_process(self, kind: str, paths: list[str]) -> None:
        own_batches = list(loader(kind, paths))
        ours = alone(kind, paths)
        ours.turn_to(experiments.PLAIN)
        assert all(same(ours.ask(ours.order(number))[0], batch) for number, batch in enumerate(own_batches))

    @pytest.mark.parametrize("kind", ["map", "stream"])
    def test_in_two_workers(self, kind: str, paths: list[str]) -> None:
        own_batches = list(loader(kind, paths, workers=2))
        assert_same_batches(loader(kind, paths, workers=2), own_batches)


def kept_in(batches: list[Any]) -> Consumer:
    return UserStep(lambda batch: batches.append(copy.deepcopy(batch)))


def assert_same_batches(built: DataLoader[Any], own_batches: list[Any]) -> None:
    """The pool over a loader hands its consumer the batches that the loader itself gives."""
    batches: list[Any] = []
    with closing(pool(built, kept_in(batches))) as running:
        running.turn_to(experiments.PLAIN)
        for _ in own_batches:
            running.next(consume=True)
    assert all(same(batch, own) for batch, own in zip(batches, own_batches, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_an_arm_leaves_out_the_stages_it_names_and_nothing_else(kind: str, paths: list[str]) -> None:
    ours = alone(kind, paths)
    ours.record()
    samples = 1 if kind == "single" else 4
    for arm in ARMS:
        ours.turn_to(arm)
        before = calls()
        traces = [ours.ask(ours.order(number))[1] for number in range(3)]
        ran = {name: count - before[name] for name, count in calls().items()}
        assert ran == expected(arm, 3, samples), arm.name
        assert all(trace.samples == samples for trace in traces) and not ours.fetcher.timer.misses, arm.name
        reads = 0 if Stage.STORAGE in arm.replaces or not arm.timed else BYTES * samples
        assert all(trace.bytes_read == reads for trace in traces), arm.name


def test_collating_is_measured_apart_on_samples_as_the_first_time_left_them(paths: list[str], ticks: Ticks) -> None:
    """What it does to them in place is not taken for what shared memory costs."""

    def in_place(samples: list[Any]) -> Any:
        for number, sample in enumerate(samples):
            if isinstance(sample, tuple):
                samples[number] = list(sample)
                ticks.passes(0.010)
        ticks.passes(0.001)
        return collate(samples)

    ours = alone("map", paths, by=in_place)
    ours.fetcher.hand = SimpleNamespace(take=lambda: SimpleNamespace(dumps_ns=0, send_ns=0, count=0))
    ours.turn_to(experiments.REAL)
    _, trace = ours.ask(ours.order(0))
    assert (trace.collate_wall, trace.collate_again, trace.plain_collate) == pytest.approx((41e6, 1e6, 1e6), rel=0.1)
    assert trace.extra >= 2e6


def test_a_decoder_that_opens_its_file_by_itself_still_costs_its_read(photos: Path) -> None:
    """And a batch made of recordings is the real one."""
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import Compose, PILToTensor, Resize

    ours = Alone(ImageFolder(photos, transform=Compose([Resize((16, 16)), PILToTensor()])), by=torch.utils.data.default_collate)
    ours.record()
    reads, batches = {}, {}
    for arm in ARMS:
        if Stage.COLLATE not in arm.replaces:
            ours.turn_to(arm)
            batches[arm.name], trace = ours.ask([0, 1, 2, 3])
            reads[arm.name] = trace.bytes_read
            assert ours.fetcher.timer.misses == 0
    assert reads["real"] > 100_000
    assert reads["decode-recorded"] == pytest.approx(reads["real"], rel=0.02)
    assert reads["storage-from-memory"] == 0
    # Those that replay recorded samples begin with the first one recorded; all of these arms do.
    assert all(same(batch, batches["plain"]) for batch in batches.values())


def test_a_function_that_reads_decodes_and_augments_is_replayed_by_its_seams(paths: list[str]) -> None:
    ours = alone("map", paths)
    assert ours.record()[-1].mixed == ["picture"]
    ours.turn_to(experiments.NO_DECODE)
    before = calls()
    _, trace = ours.ask([0, 1, 2, 3])
    assert calls()["decode"] == before["decode"]
    assert {(charge.stage, charge.op) for charge in trace.charges} >= {("storage", "read"), ("augment", "augment")}


def test_a_library_whose_release_has_no_hooks_is_told(paths: list[str]) -> None:
    ours = alone("map", paths)
    ours.fetcher.patches.left_out.add("obstore 0.3.0")
    assert ours.record()[-1].left_out == ["obstore 0.3.0"]


@pytest.mark.usefixtures("ticks")
class TestCharges:
    @pytest.mark.parametrize("kind", ["map", "batched", "stream"])
    def test_they_add_up_to_the_samples_time(self, kind: str, paths: list[str]) -> None:
        ours = alone(kind, paths)
        ours.record()
        planted.WORK[:2] = torch.tensor([0.002, 0.001])
        ours.turn_to(experiments.REAL)
        traces = [ours.ask(ours.order(0))[1] for _ in range(5)]
        assert all(sum(charge.wall for charge in trace.charges) == sum(trace.unit_walls) > 0 for trace in traces)

    def test_each_goes_to_its_own_stage(self, paths: list[str]) -> None:
        ours = alone("map", paths)
        planted.WORK[:] = torch.tensor([0.002, 0.001, 0.003])
        ours.turn_to(experiments.REAL)
        traces = [ours.ask([0])[1] for _ in range(20)]

        def least(op: str) -> float:
            return float(min(charge.wall for trace in traces for charge in trace.charges if charge.op == op)) / 1e9

        assert least("decode") == pytest.approx(0.002)
        assert least("augment") == pytest.approx(0.001)
        assert all(trace.collate_wall / 1e9 == pytest.approx(0.003) for trace in traces)
        assert all(trace.made - trace.begun + trace.collate_wall == trace.ended - trace.begun for trace in traces)


class TestCycling:
    def test_recorded_samples_come_again_and_that_is_told(self, paths: list[str]) -> None:
        ours = alone("map", paths)
        ours.record()  # holds samples 2 to 15
        ours.turn_to(experiments.SAMPLES)
        answers = [ours.ask([0, 1, 2, 3]) for _ in range(5)]
        names = [name for batch, _ in answers for name in batch[1]]
        assert names == [f"{2 + place % 14:03d}.bin" for place in range(20)]
        assert [trace.wrapped for _, trace in answers] == [False, False, False, True, True]

    def test_another_switch_begins_at_the_first_one(self, paths: list[str]) -> None:
        ours = alone("map", paths)
        ours.record()
        for _ in range(2):
            ours.turn_to(experiments.REAL)
            batch, trace = ours.ask([20, 21])
            assert (list(batch[1]), trace.wrapped) == (["002.bin", "003.bin"], False)

    def test_a_stream_begins_anew(self, paths: list[str]) -> None:
        ours = alone("stream", paths)
        ours.record()
        for _ in range(2):
            ours.turn_to(experiments.REAL)
            answers = [ours.ask() for _ in range(4)]
            assert list(answers[0][0][1]) == ["000.bin", "001.bin", "002.bin", "003.bin"]
            assert [trace.wrapped for _, trace in answers] == [False, False, False, True]

    @pytest.mark.parametrize("batch", [None, 1, 5])
    def test_a_stream_that_ends_in_the_middle_of_a_batch_goes_on_with_its_next_epoch(
        self, batch: int | None, paths: list[str]
    ) -> None:
        by = planted.collate_nothing if batch is None else collate
        ours = Alone(Streamed(paths[:3]), kind="stream", batch=batch, by=by)
        ours.turn_to(RECORD)
        answers = [ours.ask() for _ in range(7)]
        assert all(trace.samples == (batch or 1) for _, trace in answers)

    def test_the_recording_ends_with_its_bytes(self, paths: list[str], ticks: Ticks) -> None:
        ours = alone("map", paths, budget=2_000)
        traces = ours.record(batches=5)
        assert traces[-1].full
        assert traces[-1].recorded < 6
        assert 2_000 <= traces[-1].recorded_bytes < 4_000

    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_loader_inside_the_dataset_fetches_as_torch_does(self, workers: int, paths: list[str]) -> None:
        own = DatasetKind.create_fetcher
        built = DataLoader(_HoldsALoader(paths), batch_size=4, num_workers=workers)
        own_batches = list(built)
        assert_same_batches(built, own_batches)
        assert DatasetKind.create_fetcher is own


class _HoldsALoader(Mapped):
    """Each sample is a batch of another loader."""

    def __getitem__(self, index: int) -> Any:
        (batch,) = DataLoader(Mapped(self.paths[index : index + 1]), batch_size=1)
        return batch[0]


class _Late(Mapped):
    """Imports its reader when the first sample is asked for, as plenty of datasets do."""

    def __getitem__(self, index: int) -> Any:
        import imageio

        assert imageio.__name__ == "imageio"
        return super().__getitem__(index)


def test_a_library_imported_while_a_sample_is_made_gets_its_seams(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "imageio" or name.startswith("imageio.")]:
        monkeypatch.delitem(sys.modules, name)
    ours = Alone(_Late(paths))
    ours.record(batches=1)
    original = sys.modules["imageio"].imread
    ours.turn_to(RECORD)
    ours.ask([0, 1])
    assert sys.modules["imageio"].imread is not original


class _Torn(Mapped):
    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise ValueError("torn")
        return super().__getitem__(index)


def test_after_a_torn_sample_the_next_batch_works_and_it_is_not_recorded(paths: list[str]) -> None:
    ours = Alone(_Torn(paths))
    ours.turn_to(RECORD)
    ours.ask([0, 1])
    failed = ours.ask([5])
    assert isinstance(failed, Failure)
    assert "dataset[5] raised ValueError: torn" in failed.what
    batch, trace = ours.ask([2, 3])
    assert list(batch[1]) == ["002.bin", "003.bin"]
    assert pickle.loads(trace.units) == [2, 3]


class _Turned(Mapped):
    """The arm is over before its last sample raises, as what is recorded makes it do."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__(paths)
        self.then: Callable[[], object] | None = None

    def __getitem__(self, index: int) -> Any:
        if self.then is not None:
            then, self.then = self.then, None
            then()
            raise ValueError("not as it was recorded")
        return super().__getitem__(index)


def test_an_arm_that_does_not_suit_is_told_so_though_another_is_on_by_then(paths: list[str]) -> None:
    """It looked as if the user's own code had raised, and ended the probe."""
    dataset = _Turned(paths)
    ours = Alone(dataset)
    ours.record()
    ours.turn_to(experiments.NO_DECODE)
    dataset.then = lambda: ours.turn_to(experiments.PLAIN)
    _, trace = ours.ask([0, 1])
    assert "not as it was recorded" in trace.unfit and POOL[trace.arm] is experiments.NO_DECODE


def _variable_of_caller(name: str) -> Any:
    """As DuckDB's ``execute`` finds a table."""
    return sys._getframe(1).f_locals[name]


_variable_of_caller.__module__ = "library"


class _Asking(Mapped):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(_variable_of_caller("index"))


def test_what_looks_for_its_caller_is_probed_though_expressions_are_looked_at(paths: list[str]) -> None:
    ours = Alone(_Asking(paths))
    assert ours.record()[-1].recorded and not ours.fetcher.sites.looks


def collate_labels(samples: list[dict[str, Any]]) -> Any:
    """As Hugging Face's example for multiple choice has it: the samples have no label afterwards."""
    labels = [sample.pop("label") for sample in samples]
    return torch.stack([sample["pixels"] for sample in samples]), torch.tensor(labels)


class _Labelled(Mapped):
    def __getitem__(self, index: int) -> Any:
        return {"pixels": super().__getitem__(index)[0], "label": index}


def test_a_collate_function_that_changes_its_samples_is_measured(paths: list[str]) -> None:
    built = DataLoader(_Labelled(paths), batch_size=4, num_workers=1, collate_fn=collate_labels)
    with closing(pool(built)) as running:
        assert len(running.block(experiments.REAL, 0.0, least_rounds=10).rows) == 10


class _Interrupted(Mapped):
    def __getitem__(self, index: int) -> Any:
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_passes_through(paths: list[str]) -> None:
    ours = Alone(_Interrupted(paths))
    ours.turn_to(experiments.REAL)
    with pytest.raises(KeyboardInterrupt):
        ours.ask([0])


def test_the_traced_arm_notes_operations_samples_and_collating(paths: list[str]) -> None:
    ours = alone("map", paths)
    ours.turn_to(experiments.TRACED)
    _, trace = ours.ask([3, 4])
    noted = [(stage, op) for stage, op, _, _ in trace.events]
    assert noted.count(("decode", "decode")) == noted.count(("storage", "read")) == 2
    assert [op for stage, op in noted if stage == "sample"] == ["3", "4"]
    assert noted[-1] == ("collate", "collate")
    assert all(trace.begun <= begun <= ended <= trace.ended for _, _, begun, ended in trace.events)


class TestObserving:
    def test_facts_come_with_untimed_batches_now_and_then(self, paths: list[str]) -> None:
        def facts(batch: Any) -> dict[str, float]:
            return {"rows": float(len(batch[0]))}

        ours = alone("map", paths, observe=facts)
        ours.turn_to(experiments.REAL)
        assert ours.ask([0, 1])[1].facts == {}
        ours.turn_to(experiments.PLAIN)
        traces = [ours.ask([0, 1, 2])[1] for _ in range(70)]
        assert [trace.facts["rows"] for trace in traces if trace.facts] == [3.0] * 2
        assert traces[0].samples_made == 2 + 3

    def test_what_measuring_takes_is_told_apart(self, paths: list[str]) -> None:
        at: list[int] = []

        def slow(batch: Any) -> dict[str, float]:
            at.append(time.perf_counter_ns())
            planted.burn(0.01)
            at.append(time.perf_counter_ns())
            return {"seen": 1.0}

        ours = alone("map", paths, observe=slow)
        ours.turn_to(experiments.PLAIN)
        _, trace = ours.ask([0, 1])
        begun, ended = at
        assert trace.ended <= begun
        assert trace.extra >= ended - begun


def test_samplers_may_name_samples_by_anything(paths: list[str]) -> None:
    class Pairs(Mapped):
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(int(index[0]))

    ours = Alone(Pairs(paths))
    ours.turn_to(RECORD)
    for number in range(3):
        _, trace = ours.ask([[number, "left"], torch.tensor([number, 1])])
    assert pickle.loads(trace.units)[0] == [2, "left"]
    ours.turn_to(experiments.SAMPLES)
    before = calls()
    batch, trace = ours.ask([[9, "left"], torch.tensor([9, 1])])
    assert calls()["decode"] == before["decode"]
    assert list(batch[1]) == ["001.bin", "001.bin"]


class _ByLength(Sampler[list[int]]):
    """Batches of two, three or four samples, none of which is of two of these."""

    BATCHES = ([0, 1], [5, 6, 7], [2, 3], [8, 9, 10, 11])

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.BATCHES)


def test_batches_of_the_users_own_batch_sampler_are_replayed_whole(paths: list[str]) -> None:
    batches: list[Any] = []
    built: DataLoader[Any] = DataLoader(Mapped(paths), batch_sampler=_ByLength(), collate_fn=collate)
    running = pool(built, kept_in(batches))
    rows = running.record(9, 60.0)
    known = [order for row in rows for order in pickle.loads(row.trace.units)]
    for arm in (experiments.REAL, experiments.PLAIN, experiments.SAMPLES):
        running.turn_to(arm)
        rows = [running.next(consume=True) for _ in range(8)]
        assert [row.trace.samples for row in rows] == [len(batch[1]) for batch in batches[-8:]]
    whole = [[f"{index:03d}.bin" for index in batch] for batch in _ByLength.BATCHES]
    assert all(list(batch[1]) in whole for batch in batches)
    assert all(order in _ByLength.BATCHES for order in known)
    running.turn_to(experiments.PREBUILT)
    assert [running.next(consume=False).trace.samples for _ in range(4)] == [2] * 4  # the first batch, again and again
    running.close()
    orders = SampleOrders(planted.subject(built), known)
    assert all(order in known for order in itertools.islice(iter(orders), 12))


@pytest.mark.parametrize(
    ("error", "beside", "shown"),
    [
        (ConnectionResetError(104, "reset"), True, False),
        (EOFError(), True, False),
        (ValueError("odd"), True, True),
        (ConnectionResetError(104, "reset"), False, True),
    ],
)
def test_a_worker_that_hands_tensors_to_nobody_is_silent(error: Exception, beside: bool, shown: bool) -> None:
    errors: list[object] = []
    hook = partial(_unless_left, lambda kind, error, trace: errors.append(error))
    if beside:
        thread = threading.Thread(target=hook, args=(type(error), error, None))
        thread.start()
        thread.join()
    else:
        hook(type(error), error, None)
    assert errors == ([error] if shown else [])


def test_an_interrupt_that_a_finaliser_swallows_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is lost there anyway, and a user who pressed Ctrl-C wants no traces of it."""
    shown: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt):
            _hear_once()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN, "a second one must not disturb one that is leaving already"
    finally:
        signal.signal(signal.SIGINT, before)
    for kind in (KeyboardInterrupt, ValueError):
        sys.unraisablehook(SimpleNamespace(exc_type=kind))  # type: ignore[arg-type]
    assert [lost.exc_type for lost in shown] == [ValueError]


SHUFFLED = 12


class Shuffled(Streamed):
    """With a buffer, as ``.shuffle(12)`` of most libraries has it. A picture takes a millisecond."""

    def __iter__(self) -> Iterator[Any]:
        waiting: list[Any] = []
        for path in self.paths:
            waiting.append(planted.picture(path))
            CLOCK[0].passes(0.001)
            if len(waiting) > SHUFFLED:
                yield waiting.pop(0)
        yield from waiting


CLOCK = [Ticks(0.0)]


class TestBufferedStreams:
    def test_the_buffer_is_filled_outside_the_clock(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        CLOCK[0] = Ticks(0.0).given_to(MEASUREMENT, monkeypatch)
        ours = Alone(Shuffled(planted.files(tmp_path, 60)), kind="stream")
        ours.record(4)
        planted.forget_calls()
        for _ in range(2):
            ours.turn_to(experiments.REAL)
            traces = [ours.ask()[1] for _ in range(6)]
            walls = [wall for trace in traces for wall in trace.unit_walls]
            assert walls == pytest.approx([1e6] * 24), "nanoseconds of a picture each"
            spent = sum(trace.ended - trace.begun - trace.replay for trace in traces)
            assert spent == pytest.approx(24e6)
            filled = sum(trace.replay for trace in traces) / ((SHUFFLED + 1) * 1e6)
            assert filled == pytest.approx(round(filled)) and filled > 0
        assert any(trace.wrapped for trace in traces)

    def test_an_eviction_empties_the_buffer_too(self, tmp_path: Path) -> None:
        """What lies in it was read before the files were evicted."""
        ours = Alone(Shuffled(planted.files(tmp_path, 60)), kind="stream")
        ours.record(4)
        ours.turn_to(experiments.REAL)
        ours.ask()
        planted.forget_calls()
        ours.turn_to(experiments.COLD)
        ours.ask()
        assert calls()["decode"] == SHUFFLED + 1 + 4

    def test_a_stream_without_a_buffer_gives_every_sample(self, paths: list[str]) -> None:
        ours = alone("stream", paths)
        ours.record(2)
        planted.forget_calls()
        ours.turn_to(experiments.REAL)
        ours.ask()
        assert calls()["decode"] == 4


@pytest.mark.parametrize("where", [builtins, Image])
def test_the_plain_arm_is_plain(where: Any, paths: list[str]) -> None:
    """Nothing stands in the place of any function, and all of it is back in the next arm."""
    original = where.open
    ours = Alone(Mapped(paths))
    ours.record()
    assert where.open is not original
    ours.turn_to(experiments.PLAIN)
    ours.ask([0, 1])
    assert where.open is original
    ours.turn_to(experiments.REAL)
    _, trace = ours.ask([0, 1])
    assert where.open is not original
    assert trace.bytes_read == 2 * BYTES


def test_a_worker_does_not_free_what_was_garbage_when_it_was_forked() -> None:
    with closing(Collecting()) as dataset, closing(pool(DataLoader(dataset, num_workers=1))) as running:
        assert running.next(consume=False)


class Unfrozen(Mapped):
    def __getitem__(self, index: int) -> Any:
        assert gc.get_freeze_count() == 0
        return torch.zeros(1)


def test_a_worker_that_was_not_forked_frees_all_at_its_end() -> None:
    """Native libraries print what is left then."""
    settings: Any = {"num_workers": 1, "multiprocessing_context": "forkserver"}
    with closing(pool(DataLoader(Unfrozen([""] * 8), **settings))) as running:
        assert running.next(consume=False)
