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
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, Subset
from torch.utils.data._utils.signal_handling import _error_if_any_worker_fails
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder

import pipefix
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.metering.meter import Meter
from pipefix.vocabulary.errors import BadUsage
from pipefix.watching import exporter as exporters
from pipefix.watching.watch import Watch, _exit_code, watch
from pipefix.watching.window import Notice, Window
from tests.watching.pipelines import Breaking, Endless, Files, Mine, Stream, note_worker


def hung(loader: Any, **options: Any) -> Watch:
    """A watch whose windows end when the test says so."""
    return Watch(loader, **options).start(thread=False)


def same(value: Any, expected: Any) -> bool:
    return len(value) == len(expected) and all(torch.equal(first, second) for first, second in zip(value, expected, strict=True))


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


@pytest.mark.parametrize("settings", [{}, {"num_workers": 1, "persistent_workers": True}])
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
        for copied in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
            assert type(copied) is DataLoader
            assert len(list(copied)) == 4
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


@pytest.mark.parametrize("workers", [0, 1])
def test_the_last_batch_of_an_epoch_counts_as_many_samples_as_it_has(tmp_path: Path, workers: int):
    """Nine samples in batches of eight were sixteen, and so was the rate."""
    loader = DataLoader(Files(tmp_path, 9), batch_size=8, num_workers=workers, persistent_workers=bool(workers))
    with hung(loader) as watched:
        for _ in range(2):
            list(loader)
            assert watched.pulse().samples == 9


@pytest.mark.parametrize("workers", [0, 2])
def test_streams(workers: int):
    with hung(DataLoader(Stream(), batch_size=3, num_workers=workers)) as watched:
        batches = list(watched)
        window = watched.pulse()
    assert sorted(float(value) for batch in batches for value in batch) == [float(value) for value in range(20)]
    assert (window.batches, window.samples) == (len(batches), 20)


@pytest.mark.parametrize(("settings", "samples"), [({"batch_size": None}, 8), ({"batch_size": None, "sampler": "lists"}, 8)])
def test_loaders_without_batches_of_their_own(tmp_path: Path, settings: dict[str, Any], samples: int):
    data = torch.zeros(8, 3)
    if settings.get("sampler"):
        settings = {**settings, "sampler": BatchSampler(SequentialSampler(data), 4, False)}  # type: ignore[arg-type]
    with hung(DataLoader(data, **settings)) as watched:  # type: ignore[arg-type]
        list(watched)
        assert watched.pulse().samples == samples


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_of_the_dataset_reach_the_training(workers: int, children: Callable[[], list[Any]]):
    with hung(DataLoader(Breaking(), batch_size=4, num_workers=workers)) as watched:
        iterator = iter(watched)
        next(iterator)
        with pytest.raises(ValueError, match="sample 5 is broken") as raised:
            next(iterator)
        assert watched.pulse().batches == 1
        # The error's frames hold the iterator: what the garbage collection finds of it waits for its worker, in some later test.
        raised.value.__traceback__ = None
        del raised, iterator
    assert not children()


class Wrapper:
    """As timm's PrefetchLoader and Fabric's loaders are."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Any:
        for batch in self.loader:
            yield batch + 1


class Graph:
    """As torchdata's nodes are: no DataLoader anywhere."""

    def __iter__(self) -> Any:
        return iter([torch.zeros(4)] * 5)


@pytest.mark.parametrize(("workers", "through_the_watch"), [(0, True), (1, False)])
def test_a_wrapper_around_a_loader_is_looked_through(tmp_path: Path, workers: int, through_the_watch: bool):
    inner = DataLoader(Files(tmp_path, 16), batch_size=4, num_workers=workers)
    expected = [batch + 1 for batch in inner]
    wrapper = Wrapper(inner)
    with hung(wrapper) as watched:
        assert same(list(watched if through_the_watch else wrapper), expected)
        window = watched.pulse()
    assert (window.batches, window.samples) == (4, 16)
    assert {"storage", "decode"} <= window.stages.keys()
    assert type(inner) is DataLoader


@pytest.mark.parametrize("through_the_watch", [True, False])
def test_what_is_no_loader_at_all_is_counted_under_its_own_name_too(through_the_watch: bool):
    graph = Graph()
    with hung(graph) as watched:
        assert len(list(watched if through_the_watch else graph)) == 5
        window = watched.pulse()
    assert (window.batches, window.samples) == (5, 20)
    assert window.declined == "only a DataLoader lets its workers be looked into"
    assert type(graph) is Graph and vars(graph) == {}


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


def test_samples_that_are_read_under_rules_are_counted(tmp_path: Path):
    """By them looks are rationed: of workers that start with each epoch, those after the first epoch's were not looked into."""
    with hung(FastLoader(Files(tmp_path, 32), batch_size=4, num_workers=1, rng="sample")) as watched:
        list(watched)
        assert watched.meter.makers().samples == 32


def test_batches_of_text_are_sent_from_a_look(tmp_path: Path):
    """What opens them is named in the message, and the hook that stood in its place could not be sent."""
    loader: FastLoader[Any] = FastLoader(["a", "b", "c", "d"], batch_size=1, num_workers=1)  # type: ignore[arg-type]
    with hung(loader) as watched:
        assert list(watched) == [["a"], ["b"], ["c"], ["d"]]


def test_threads_that_make_batches_are_no_idle_workers_and_have_no_stages(photos: Path):
    dataset = Subset(ImageFolder(str(photos), v1.Compose([v1.RandomResizedCrop(32), v1.ToTensor()])), range(8))
    loader: FastLoader[Any] = FastLoader(dataset, batch_size=4, num_workers=1, persistent_workers=True, fuse="exact")
    with hung(loader) as watched:
        for _ in range(2):
            assert len(list(loader)) == 2
            window = watched.pulse()
            assert (window.batches, window.busy) == (2, None)
            assert window.declined == "threads make batches by fused calls, which have no stages"


def test_an_abandoned_iterator_ends_its_workers_at_once(tmp_path: Path):
    with hung(DataLoader(Files(tmp_path), batch_size=4, num_workers=1)) as watched:
        iterator = iter(watched.loader)
        next(iterator)
        (process,) = watched._attachment.processes
        reference = weakref.ref(iterator)
        gc.disable()
        try:
            del iterator
            assert reference() is None
        finally:
            gc.enable()
        process.join()  # where the machine is busy torch has waited long enough, and told it to end, before it is gone
        assert not process.is_alive()


def test_a_killed_worker_is_named(tmp_path: Path):
    watched = hung(DataLoader(Files(tmp_path, 640), batch_size=4, num_workers=1))
    iterator = iter(watched)
    next(iterator)
    (process,) = watched._attachment.processes
    of_torch = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # it raises between any two lines, those of pytest too
    try:
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(RuntimeError, match="killed by signal"):
            _error_if_any_worker_fails()  # as torch's handler does
    finally:
        signal.signal(signal.SIGCHLD, of_torch)
    del iterator
    notices = watched.pulse().notices
    watched.close()
    assert [notice.kind for notice in notices] == ["died"]
    assert f"worker 0 (pid {process.pid}) was killed by signal 9" in notices[0].sentence


@pytest.mark.system
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
        assert len(watched.meter._records) == 1
        assert watched.meter.makers().batches == 4


# -- the verb --------------------------------------------------------------------------------------------------------------------


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_verb_is_a_function_and_its_room_a_package(tmp_path: Path):
    import pipefix.watching.window as window

    assert window.Window is Window
    loader = DataLoader(Files(tmp_path, 16), batch_size=4)
    with pipefix.watch(loader, jsonl=tmp_path / "watch.jsonl", every=60) as watched:
        assert len(list(watched)) == 4
    (line,) = lines(tmp_path / "watch.jsonl")
    assert (line["format"], line["batches"], line["ended"]) == ("pipefix.watch/1", 4, True)


def test_a_thread_writes_windows_and_ends_with_the_watch(tmp_path: Path):
    path = tmp_path / "watch.jsonl"
    with watch([1, 2], jsonl=path, every=0.02) as watched:
        until = time.monotonic() + 60
        while not path.exists() or path.read_bytes().count(b"\n") < 2:
            assert time.monotonic() < until
            list(watched)
    assert not [thread for thread in threading.enumerate() if thread.name == "pipefix-watch"]
    assert lines(path)[-1]["ended"]
    watched.close()
    assert sum(line["ended"] for line in lines(path)) == 1


@pytest.mark.parametrize("error", [RuntimeError("no such channel"), SystemExit(3)])
def test_a_callback_that_fails_is_told_and_training_goes_on(error: BaseException, caplog: pytest.LogCaptureFixture):
    def failing(notice: Notice) -> None:
        raise error

    watched = Watch([1, 2], on_drift=failing)
    watched._gatherer.window = lambda *_, **__: Window(time=0, number=1, seconds=1, died=["worker 0 ended"])  # type: ignore[method-assign]
    with watched:
        assert list(watched) == [1, 2]
    assert f"{type(error).__name__}: {error}" in caplog.text


def test_a_watch_that_fails_says_so_once_and_training_goes_on(caplog: pytest.LogCaptureFixture):
    watched = Watch([1, 2])
    watched._gatherer.window = lambda *_, **__: 1 / 0  # type: ignore[method-assign]
    with watched:
        assert list(watched) == [1, 2]
    assert caplog.text.count("ZeroDivisionError") == 1


def test_a_job_that_drifts_is_told_and_logged(caplog: pytest.LogCaptureFixture):
    messages: list[str] = []
    watched = Watch([1], on_drift=lambda notice: messages.append(notice.sentence))
    watched._gatherer.window = lambda *_, **__: Window(  # type: ignore[method-assign]
        time=0, number=1, seconds=1, died=["worker 0 (pid 1) was killed by signal 9"]
    )
    with caplog.at_level(logging.WARNING, logger="pipefix.watch"):
        watched.pulse()
    assert messages == ["A worker process ended by itself: worker 0 (pid 1) was killed by signal 9."]
    assert messages[0] in caplog.text


def test_a_loader_made_anew_from_a_watched_ones_class_is_a_plain_one(tmp_path: Path):
    """Lightning does so for DDP and for overfit_batches, and hands the callback the new one when training begins."""
    loader = DataLoader(Files(tmp_path, 16), batch_size=4)
    with hung(loader) as watched:
        another = type(loader)(loader.dataset, batch_size=2)
        assert len(list(another)) == 8
        assert type(another) is DataLoader
        again = type(loader)(loader.dataset, batch_size=2)
        watched.turn_to(again)
        assert len(list(again)) == 8
        assert watched.pulse().batches == 8
    assert type(loader) is DataLoader and type(again) is DataLoader


@pytest.mark.parametrize(
    ("environment", "files", "port"),
    [
        ({}, ["watch.jsonl", "pipefix.prom", "rank1.jsonl"], 9400),
        ({"RANK": "1", "LOCAL_RANK": "1"}, ["watch.rank1.jsonl", "pipefix.rank1.prom", "rank1.jsonl"], 9401),
        ({"RANK": "9", "LOCAL_RANK": "1"}, ["watch.rank9.jsonl", "pipefix.rank9.prom", "rank1.rank9.jsonl"], 9401),
        ({"LOCAL_RANK": "2"}, ["watch.rank2.jsonl", "pipefix.rank2.prom", "rank1.rank2.jsonl"], 9402),
    ],
)
def test_each_rank_has_files_and_a_port_of_its_own(
    environment: dict[str, str], files: list[str], port: int, monkeypatch: pytest.MonkeyPatch
):
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert [exporters.own_file(name).name for name in ("watch.jsonl", "pipefix.prom", "rank1.jsonl")] == files
    assert str(exporters.own_port(9400)) == str(port)
    assert str(exporters.own_port("0.0.0.0:9400")) == f"0.0.0.0:{port}"
    assert exporters.own_port("nonsense") == "nonsense"
    writer = object()
    assert exporters.own_folder(writer) is writer


def test_the_rank_of_a_process_group_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 3)
    assert exporters.rank() == 3


def test_ranks_label_themselves(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "3")
    with watch([1], every=60) as watched:
        assert watched.pulse().labels == {"rank": "3"}


@pytest.mark.parametrize(
    ("loader", "options", "says"),
    [
        (7, {}, "can be iterated"),
        ([1], {"every": 0}, "above zero"),
        ([1], {"every": None}, "every=None is not a number of seconds above zero"),
        ([1], {"every": "30s"}, "every='30s' is not a number of seconds"),
        ([1], {"jsonl": True}, "jsonl=True is not the path of a file"),
        ([1], {"textfile": 9100}, "textfile=9100 is not the path of a file"),
        ([1], {"tensorboard": True}, "tensorboard=True is not a folder"),
        ([1], {"baseline": {"decode": 0.1}}, "baseline={'decode': 0.1} is not the path of a file"),
        ([1], {"on_drift": "slack"}, "on_drift='slack' is not a function"),
        ([1], {"labels": "rank=1"}, "labels='rank=1' is not a dict"),
    ],
)
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

    monkeypatch.setattr(Meter, "record", full)
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
    until = time.monotonic() + 60
    while _exit_code(process) is None:
        assert time.monotonic() < until
    assert _exit_code(process) == 3
    assert process._popen.returncode is None  # type: ignore[attr-defined]
    process.join()
    assert process.exitcode == _exit_code(process) == 3


def test_an_output_that_hangs_does_not_hang_the_end_of_the_job(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    """Such as a file on a network share whose server is gone."""
    monkeypatch.setattr("pipefix.watching.watch.PATIENCE", 0.01)
    loader = DataLoader(Numbers(), batch_size=2)
    watched = Watch(loader, exporters=[Hanging()]).start(thread=False)
    with watched._lock:  # a window is being written
        watched.close()
    assert "one of its outputs hangs" in caplog.text
    assert "Traceback" not in caplog.text
    assert type(loader) is DataLoader


class Hanging:
    def write(self, window: Window) -> None: ...

    def close(self) -> None:
        raise AssertionError("it would wait for the same server")


class Numbers(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


def test_an_output_whose_library_raises_is_told_of_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def broken(place: Any) -> Any:
        raise RuntimeError("descriptors cannot be created directly")

    monkeypatch.setattr("pipefix.watching.exporter.JsonLines", broken)
    with watch([1, 2], jsonl=tmp_path / "watch.jsonl", every=60) as watched:
        assert list(watched) == [1, 2]
    assert "without one of its outputs: RuntimeError: descriptors cannot be created directly" in caplog.text


def test_a_loader_whose_class_lets_nobody_inherit_is_counted_all_the_same():
    class Final(DataLoader[int]):
        def __init_subclass__(cls) -> None:
            raise TypeError("it is final")

    with watch(Final(Numbers(), batch_size=2), every=60) as watched:
        assert len(list(watched)) == 4
        window = watched.pulse()
    assert (window.batches, window.declined) == (4, "its class lets nobody inherit")


OF_FILES = """
import sys, torch
from torch.utils.data import DataLoader, Dataset
from pipefix.watching.watch import watch

class Files(Dataset):
    def __len__(self): return 96
    def __getitem__(self, index):
        with open(sys.argv[1], "rb") as file: return torch.tensor(len(file.read()))

if __name__ == "__main__":
    with watch(DataLoader(Files(), batch_size=8, num_workers=1, multiprocessing_context="fork"), every=600) as batches:
        for batch in batches: pass
        print(sorted({look.bytes // look.samples for look in batches.meter.looks()}))
"""


def test_what_torch_imports_beside_a_batch_is_not_read_by_its_samples(tmp_path: Path, root: Path):
    """Torch imports a module when a worker packs its first batch, which is while its second one is looked at."""
    (tmp_path / "sample").write_bytes(bytes(1000))
    (tmp_path / "job.py").write_text(OF_FILES)
    done = subprocess.run(
        [sys.executable, "job.py", "sample"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("[1000]\n", 0), done.stderr
