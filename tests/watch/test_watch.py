"""A watched loader gives what it gave, its figures are right, and afterwards it is as it was found."""

from __future__ import annotations

import builtins
import copy
import gc
import json
import logging
import multiprocessing
import os
import pickle
import signal
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

import pipefix
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.meter import Meter
from pipefix.vocabulary.errors import BadUsage
from pipefix.watch.watch import Watch, _exit_code, watch
from pipefix.watch.window import Window
from tests.watch.pipelines import Breaking, Endless, Files, Mine, Stream, note_worker


def hung(loader: Any, **options: Any) -> Watch:
    """A watch whose windows end when the test says so."""
    return Watch(loader, **options).start(thread=False)


def same(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(torch.equal(first, second) for first, second in zip(one, other, strict=True))


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_the_same_and_every_stage_has_its_figure(tmp_path: Path, workers: int):
    settings: dict[str, Any] = {"batch_size": 8, "shuffle": True, "num_workers": workers}
    plain = list(DataLoader(Files(tmp_path), generator=torch.Generator().manual_seed(3), **settings))
    loader = DataLoader(Files(tmp_path), generator=torch.Generator().manual_seed(3), **settings)
    with hung(loader) as watched:
        assert same(list(watched), plain)
        window = watched.pulse()
    assert (window.batches, window.samples, window.epochs) == (8, 64, 1)
    assert {"storage", "decode", "collate", "step"} <= window.stages.keys()
    assert ("ipc" in window.stages) == bool(workers)
    assert all(cost.s > 0 for cost in window.stages.values())
    assert window.bytes == (tmp_path / "sample.json").stat().st_size
    assert window.starts and window.wait is not None and window.declined is None
    assert window.busy is None if workers == 0 else 0 < window.busy <= 1


@pytest.mark.parametrize("settings", [{}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}])
def test_the_loader_is_left_as_found(tmp_path: Path, settings: dict[str, Any]):
    loader = DataLoader(Files(tmp_path, 16), batch_size=4, **settings)
    before, opened, kind = dict(vars(loader)), builtins.open, type(loader)
    with hung(loader):
        assert isinstance(loader, kind) and type(loader).__qualname__ == kind.__qualname__
        list(loader)
    assert type(loader) is kind
    assert {name: value for name, value in vars(loader).items() if name != "_iterator"} == {
        name: value for name, value in before.items() if name != "_iterator"
    }
    assert builtins.open is opened
    if loader._iterator is not None:
        assert "_next_data" not in vars(loader._iterator)
    assert len(list(loader)) == 4


def test_a_loader_used_under_its_own_name_is_watched_too(tmp_path: Path):
    loader = DataLoader(Files(tmp_path, 16), batch_size=4)
    with hung(loader) as watched:
        list(loader)
        assert watched.pulse().batches == 4
    assert len(list(loader)) == 4
    assert watched.meter.batches == 4


def test_an_iterator_that_outlives_the_watch_goes_on(tmp_path: Path):
    loader = DataLoader(Files(tmp_path, 16), batch_size=4)
    watched = hung(loader)
    iterator = iter(watched)
    next(iterator)
    watched.close()
    assert len(list(iterator)) == 3
    assert watched.meter.batches == 1


def test_copies_and_pickles_of_a_watched_loader_are_not_watched(tmp_path: Path):
    loader = DataLoader(Files(tmp_path, 16), batch_size=4)
    with hung(loader) as watched:
        for other in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
            assert type(other) is DataLoader
            assert len(list(other)) == 4
        assert watched.meter.batches == 0


def test_the_users_worker_init_fn_runs_and_sees_its_own_dataset(tmp_path: Path):
    loader = DataLoader(Files(tmp_path, 16), batch_size=4, num_workers=2, worker_init_fn=note_worker)
    with hung(loader) as watched:
        iterator = iter(loader)
        assert loader.worker_init_fn is note_worker
        list(iterator)
        assert watched.pulse().stages["decode"].batches >= 2


def test_a_loader_class_of_the_users_own(tmp_path: Path):
    loader = Mine(Files(tmp_path, 16), batch_size=4)
    with hung(loader) as watched:
        assert isinstance(loader, Mine)
        list(watched)
        assert loader.begun == 1
        assert watched.pulse().stages["decode"].s > 0


def test_a_loader_that_makes_iterators_of_its_own_is_metered_from_outside(tmp_path: Path):
    loader = Endless(Files(tmp_path, 16), batch_size=4)
    with hung(loader) as watched:
        assert len(list(watched)) == 2
        window = watched.pulse()
    assert (window.batches, window.samples) == (2, 8)
    assert window.declined == "its class makes iterators of its own"


def test_workers_that_ran_before_are_said_to_be_out_of_sight(tmp_path: Path):
    loader = DataLoader(Files(tmp_path, 16), batch_size=4, num_workers=1, persistent_workers=True)
    list(loader)
    with hung(loader) as watched:
        assert len(list(loader)) == 4
        window = watched.pulse()
    assert window.batches == 4
    assert window.declined == "its workers were running before the watch began"


def test_persistent_workers_are_seen_in_every_epoch(tmp_path: Path):
    loader = DataLoader(Files(tmp_path, 16), batch_size=4, num_workers=1, persistent_workers=True)
    with hung(loader) as watched:
        for epoch in (1, 2, 3):
            assert len(list(loader)) == 4
            assert watched.pulse().epochs == epoch


@pytest.mark.parametrize("workers", [0, 2])
def test_streams(workers: int):
    with hung(DataLoader(Stream(), batch_size=3, num_workers=workers)) as watched:
        batches = list(watched)
        window = watched.pulse()
    assert sorted(float(value) for batch in batches for value in batch) == [float(value) for value in range(20)]
    assert window.batches == len(batches)


@pytest.mark.parametrize(("settings", "samples"), [({"batch_size": None}, 8), ({"batch_size": None, "sampler": "lists"}, 8)])
def test_loaders_without_batches_of_their_own(tmp_path: Path, settings: dict[str, Any], samples: int):
    data = torch.zeros(8, 3)
    if settings.get("sampler"):
        settings = {**settings, "sampler": BatchSampler(SequentialSampler(data), 4, False)}  # type: ignore[arg-type]
    with hung(DataLoader(data, **settings)) as watched:  # type: ignore[arg-type]
        list(watched)
        assert watched.pulse().samples == samples


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_of_the_dataset_reach_the_training(workers: int):
    with hung(DataLoader(Breaking(), batch_size=4, num_workers=workers)) as watched:
        iterator = iter(watched)
        next(iterator)
        with pytest.raises(ValueError, match="sample 5 is broken"):
            next(iterator)
        assert watched.pulse().batches == 1


def test_anything_that_can_be_iterated():
    with hung([torch.zeros(4, 2), torch.zeros(4, 2)]) as watched:
        assert len(list(watched)) == len(watched) == 2
        window = watched.pulse()
    assert (window.batches, window.samples) == (2, 8)
    assert window.declined == "only a DataLoader lets its workers be looked into"


def test_a_loader_that_carries_a_meter_is_read_as_it_is():
    class Carrying(list):  # type: ignore[type-arg]
        meter = Meter()

    loader = Carrying([1, 2])
    with hung(loader) as watched:
        assert watched.meter is Carrying.meter
        assert list(watched) == [1, 2]
    assert type(loader) is Carrying


@pytest.mark.parametrize("workers", [0, 1])
def test_a_fast_loaders_own_meter_is_the_one_that_is_read(tmp_path: Path, workers: int):
    loader: FastLoader[Any] = FastLoader(Files(tmp_path, 16), batch_size=4, num_workers=workers)
    with hung(loader) as watched:
        assert watched.meter is loader.meter
        assert len(list(loader)) == len(list(watched)) == 4
        window = watched.pulse()
        assert (window.batches, window.samples, window.epochs) == (8, 32, 2)
        assert window.stages["storage"].s > 0 and window.declined is None
    assert type(loader) is FastLoader and len(list(loader)) == 4
    assert loader.meter.batches == 12


def test_an_abandoned_iterator_ends_its_workers_at_once(tmp_path: Path):
    with hung(DataLoader(Files(tmp_path), batch_size=4, num_workers=1)) as watched:
        iterator = iter(watched.loader)
        next(iterator)
        (process,) = watched._attachment.processes()
        reference = weakref.ref(iterator)
        gc.disable()
        try:
            del iterator
            assert reference() is None
        finally:
            gc.enable()
        assert not process.is_alive()


def test_a_killed_worker_is_named(tmp_path: Path):
    watched = hung(DataLoader(Files(tmp_path, 640), batch_size=4, num_workers=1))
    iterator = iter(watched)
    next(iterator)
    (process,) = watched._attachment.processes()
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises((RuntimeError, EOFError, ConnectionError)):
        list(iterator)
    del iterator
    notices = watched.pulse().notices
    watched.close()
    assert [notice.kind for notice in notices] == ["died"]
    assert f"worker 0 (pid {process.pid}) was killed by signal 9" in notices[0].sentence


@pytest.mark.slow
def test_spawned_workers(tmp_path: Path):
    loader = DataLoader(
        Files(tmp_path, 16), batch_size=4, num_workers=1, multiprocessing_context="spawn", worker_init_fn=note_worker
    )
    with hung(loader) as watched:
        assert len(list(watched)) == 4
        assert watched.pulse().stages["storage"].s > 0


def test_many_epochs_keep_the_same_memory(tmp_path: Path):
    loader = DataLoader(Files(tmp_path, 4), batch_size=4, num_workers=1)
    with hung(loader) as watched:
        for _ in range(4):
            list(loader)
        assert len(watched.meter._books) == 1
        assert watched.meter.makers().batches == 4


# -- the verb --------------------------------------------------------------------------------------------------------------------


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_verb_and_the_room_bear_one_name(tmp_path: Path):
    from pipefix.watch import drift  # noqa: F401

    loader = DataLoader(Files(tmp_path, 16), batch_size=4)
    with pipefix.watch(loader, jsonl=tmp_path / "watch.jsonl", every=60) as watched:
        assert len(list(watched)) == 4
    (line,) = lines(tmp_path / "watch.jsonl")
    assert (line["format"], line["batches"], line["ended"]) == ("pipefix.watch/1", 4, True)


def test_a_thread_writes_windows_and_ends_with_the_watch(tmp_path: Path):
    path = tmp_path / "watch.jsonl"
    with watch([1, 2], jsonl=path, every=0.02) as watched:
        until = time.monotonic() + 20
        while not path.exists() or path.read_bytes().count(b"\n") < 2:
            assert time.monotonic() < until
            list(watched)
    assert not [thread for thread in threading.enumerate() if thread.name == "pipefix-watch"]
    assert lines(path)[-1]["ended"]
    watched.close()
    assert sum(line["ended"] for line in lines(path)) == 1


def test_a_job_that_drifts_is_told_and_logged(caplog: pytest.LogCaptureFixture):
    told: list[str] = []
    watched = Watch([1], on_drift=lambda notice: told.append(notice.sentence))
    watched._gatherer.window = lambda *_, **__: Window(  # type: ignore[method-assign]
        time=0, number=1, seconds=1, died=["worker 0 (pid 1) was killed by signal 9"]
    )
    with caplog.at_level(logging.WARNING, logger="pipefix.watch"):
        watched.pulse()
    assert told == ["A worker process ended by itself: worker 0 (pid 1) was killed by signal 9."]
    assert told[0] in caplog.text


def test_an_exporter_that_fails_is_left_out_and_the_training_goes_on(caplog: pytest.LogCaptureFixture):
    class Full:
        def write(self, window: Window) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    watched = Watch([1, 2], exporters=[Full()]).start(thread=False)
    watched.pulse()
    watched.pulse()
    assert caplog.text.count("No space left on device") == 1
    assert list(watched) == [1, 2]
    watched.close()


def test_ranks_label_themselves(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "3")
    with watch([1], every=60) as watched:
        assert watched.pulse().labels == {"rank": "3"}


@pytest.mark.parametrize(("loader", "options", "says"), [(7, {}, "can be iterated"), ([1], {"every": 0}, "above zero")])
def test_wrong_use(loader: Any, options: dict[str, Any], says: str):
    with pytest.raises(BadUsage, match=says):
        watch(loader, **options)


def test_two_watches_of_one_loader(tmp_path: Path):
    loader = DataLoader(Files(tmp_path, 16), batch_size=4)
    with hung(loader) as first, hung(loader) as second:
        assert len(list(second)) == 4
        assert (first.pulse().batches, second.pulse().batches) == (4, 4)
        assert second.pulse().declined == "another watch looks into its workers"
    assert type(loader) is DataLoader


def test_without_shared_memory_workers_are_not_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Meter, "book", full)
    with hung(DataLoader(Files(tmp_path, 16), batch_size=4, num_workers=1)) as watched:
        assert len(list(watched)) == 4
        window = watched.pulse()
    assert window.declined == "there is no shared memory for its workers' figures: No space left on device"


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterator_that_runs_already_can_be_taken_over(tmp_path: Path, workers: int):
    loader = DataLoader(Files(tmp_path, 16), batch_size=4, num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    with hung([1]) as watched:
        watched.turn_to(loader, [iterator])
        assert len(list(iterator)) == 3
        window = watched.pulse()
        assert window.batches == 3
        assert ("decode" in window.stages) == (workers == 0)
        assert len(list(watched)) == 4
        assert workers == 0 or "decode" in watched.pulse().stages
    assert type(loader) is DataLoader
    assert "_next_data" not in vars(iterator)


def test_asking_how_a_worker_ended_leaves_the_answer_for_torch():
    process = multiprocessing.get_context("fork").Process(target=os._exit, args=(3,))
    process.start()
    until = time.monotonic() + 20
    while _exit_code(process) is None:
        assert time.monotonic() < until
    assert _exit_code(process) == 3
    assert process._popen.returncode is None  # type: ignore[attr-defined]
    process.join()
    assert process.exitcode == _exit_code(process) == 3
