"""What is noted of a process, by its parts: whose line, which rank, in which order, and which batches."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.metering.cost_record import CostRecord, TimedBatch
from pipefix.loader.metering.stage_clock import StageClock
from pipefix.programs.observing import batches, lines, loops, notes, patches, samples, timed_batches
from pipefix.programs.observing.device import DeviceWaits
from pipefix.programs.observing.loops import Epoch, Loop, cost_of_a_step
from pipefix.programs.observing.observer import Observer
from pipefix.system import forks


class Iterator:
    """Of persistent workers: one for all epochs."""

    def __init__(self, orders: list[list[int]]) -> None:
        self.left = [index for order in orders for index in order]

    def _next_index(self) -> list[int]:
        return [self.left.pop(0)]


@pytest.mark.parametrize("length", [5, 12])  # fewer and more batches than are looked at
def test_each_epoch_of_one_iterator_has_an_order_of_its_own(length: int) -> None:
    orders = samples.Orders()

    class Watched(Iterator):
        _next_index = Iterator._next_index

    orders.watch(Watched)
    shuffled = [[(times * index) % length for index in range(length)] for times in (1, 7, length - 1)]
    iterator = Watched([*shuffled, shuffled[2]])
    told = []
    for _ in range(4):
        for _ in range(length):
            iterator._next_index()
        told.append(orders.of(iterator)["order"])
    assert len(set(told[:3])) == 3
    assert told[2] == told[3]


def test_installed_packages_are_libraries_wherever_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, own = tmp_path / "target", tmp_path / "own"
    (target / "package").mkdir(parents=True)
    (target / "package-1.0.dist-info").mkdir()
    own.mkdir()
    monkeypatch.syspath_prepend(str(target))
    monkeypatch.syspath_prepend(str(own))
    assert lines._is_of_a_library(str(target / "package" / "data.py"))
    assert lines._is_of_a_library("/home/me/.local/lib/python3.11/site-packages/package/data.py")
    assert lines._is_of_a_library("/usr/lib/python3/dist-packages/package/data.py")
    assert not lines._is_of_a_library(str(own / "train.py"))
    assert not lines._is_of_a_library(str(tmp_path / "elsewhere" / "train.py"))


@pytest.mark.parametrize(
    ("file", "called"),
    [
        ("/kernel/ipykernel_7/3.py", "In[3]"),
        ("<ipython-input-12-a>", "In[12]"),
        ("/a/train.py", "train.py"),
        ("<string>", "<string>"),
    ],
)
def test_a_cell_of_a_notebook_is_called_as_its_tracebacks_call_it(file: str, called: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the number that its kernel makes of the cell's text, nobody finds it."""
    known = {"/kernel/ipykernel_7/3.py": ("Cell", "In[3]")}
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=known.get))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    space: dict[str, Any] = {"told": lines.users_line}
    exec(compile("\nline = told()", file, "exec"), space)
    assert space["line"] == f"{called}:2"


class TestChecksum:
    def test_batches_are_told_apart_by_what_they_hold(self) -> None:
        first, second = (torch.arange(96.0).reshape(2, 48) + number for number in range(2))
        same = batches.checksum
        assert same(first) == same(first.clone()) != same(second)
        assert same([first, torch.tensor([0])]) != same([first, torch.tensor([1])])
        assert same({"x": first, "name": ["a"]}) != same({"x": first, "name": ["b"]})
        assert same(np.ones(4)) != same(np.zeros(4))

    def test_of_what_tells_nothing_there_is_none(self) -> None:
        assert batches.checksum(object()) is None
        assert batches.checksum([]) is None
        assert batches.checksum(torch.ones(3, 4).t()) is None, "not in a row: looking would copy it"
        assert batches.checksum(torch.ones(4, device="meta")) is None, "on a device"
        assert batches.checksum(torch.ones(0)) is not None

    def test_samples_are_the_length_of_the_first_tensor(self) -> None:
        assert batches.samples_in([{"x": torch.ones(3, 2)}], 8) == 3
        assert batches.samples_in("text", 8) == batches.samples_in([], 8) == batches.samples_in(torch.tensor(1), 8) == 8

    @pytest.mark.parametrize("collate", [lambda samples: samples, lambda samples: tuple(zip(*samples, strict=True))])
    def test_images_that_differ_in_size_are_a_sample_each(self, collate: Any) -> None:
        """As torchvision's detection has them: the channels of the first one were told as the samples of the batch."""
        epoch = Epoch(Loop(0, "train.py:1"), batches, 4, 0.0)
        image = torch.ones(3, 8, 8), {"boxes": torch.ones(5, 4)}
        assert [epoch.count(collate([image] * size)) for size in (4, 4, 2)] == [4, 4, 2]

    @pytest.mark.parametrize("shape", [(2, 5), (2, 3, 8, 8)])
    def test_a_pair_in_batches_of_two_is_no_list_of_samples(self, shape: tuple[int, ...]) -> None:
        epoch = Epoch(Loop(0, "train.py:1"), batches, 2, 0.0)
        whole = torch.ones(shape), torch.ones(2)
        assert [epoch.count(batch) for batch in (whole, [part[:1] for part in whole])] == [2, 1]

    @pytest.mark.parametrize(
        ("shapes", "counts"),
        [([(7, 3, 2), (9, 2, 2)], [3, 2]), ([(2, 3), (2, 2)], [3, 2]), ([(15,), (12,)], [3, 3])],
        ids=["time first", "few steps", "words in a row"],
    )
    def test_rows_that_are_no_samples_are_not_counted_as_such(self, shapes: list[tuple[int, ...]], counts: list[int]) -> None:
        epoch = Epoch(Loop(0, "train.py:1"), batches, 3, 0.0)
        assert [epoch.count({"x": torch.ones(shape), "y": torch.ones(1)}) for shape in shapes] == counts


def test_a_rank_that_no_launcher_told_is_asked_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, Any] = {"begun": False}
    distributed = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: known["begun"], get_rank=lambda: 1)
    monkeypatch.setitem(notes.sys.modules, "torch.distributed", distributed)
    monkeypatch.delenv("RANK", raising=False)
    noted = notes.Notes(str(tmp_path))
    for begun in (False, True, True):
        known["begun"] = begun
        noted.tell_rank()
    (file,) = tmp_path.iterdir()
    told = [event["rank"] for event in map(json.loads, file.read_text().splitlines()) if event["event"] == "rank"]
    assert told == ["1"]
    monkeypatch.setenv("RANK", "0")
    notes.Notes(str(tmp_path / "none")).tell_rank()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_device_that_failed_is_told_by_the_programs_own_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error (a device-side assert) was raised by events of pipefix: where a batch was asked for, and once more at exit."""
    monkeypatch.setattr("pipefix.programs.observing.device.compiles", lambda: False)
    state = ""

    class Event(SimpleNamespace):
        def query(self) -> bool:
            if state == "failed":
                raise RuntimeError("CUDA error: device-side assert triggered")
            return state == "idle"

        def elapsed_time(self, other: Any) -> float:
            return 1.0

        record = query

    waits, loop = DeviceWaits(SimpleNamespace(Event=Event, is_current_stream_capturing=lambda: False)), Loop(0, "train.py:1")
    for state in ("idle", "at work", "failed"):  # noqa: B007 - Event looks at it
        waits.asked(loop)
        waits.got(loop)
        waits.look_into_step(loop)
        assert waits.step is not None
        waits.step.reached("backward")
    waits.asked(loop)
    waits.collect()
    assert loop.device_steps == 1


def test_a_folder_that_is_called_like_pipefix_is_none(tmp_path: Path) -> None:
    """A checkout beside the program, where its Python has no pipefix: batches were not looked at, and `run --probe` failed."""
    (tmp_path / "pipefix").mkdir()
    programs = Path(lines.OURS, "programs")
    code = f"""if True:
        import sys
        sys.path[:0] = [{str(tmp_path)!r}, {str(programs)!r}]
        from observing import inside, timed_batches
        print(timed_batches.Looks({{}}).possible)
        inside.make_importable()
        from pipefix.vocabulary.version import VERSION
        print(timed_batches.Looks({{}}).possible)
    """
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\nTrue\n", "")


def test_nodes_are_those_that_cores_lie_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes.os, "listdir", lambda folder: ["possible", "node1", "node0", "nodes"])
    monkeypatch.setattr(notes.os.path, "exists", lambda path: path.endswith(("node0/cpu3", "node1/cpu8")))
    assert [notes._numa_nodes(cores) for cores in ({3}, {3, 8}, {5})] == ["0", "0, 1", None]


def test_storage_is_that_of_the_first_path_that_a_dataset_holds(tmp_path: Path) -> None:
    there = tmp_path / "a.bin"
    there.touch()
    kind = samples.storage_of(SimpleNamespace(name="train", files=[str(there)]))
    assert kind
    assert samples.storage_of(SimpleNamespace(root=tmp_path)) == kind
    assert samples.storage_of(SimpleNamespace(root="gone/away")) is None
    assert samples.storage_of(range(3)) is None


def test_a_batch_sampler_of_the_programs_own_tells_how_much_it_draws() -> None:
    """Torch makes a sampler of the whole dataset beside it, and ranks that had their shares were told to have all samples each."""
    part = SequentialSampler(range(6))
    given: list[dict[str, Any]] = [
        {"batch_sampler": [[0, 1], [2, 3]]}, {"batch_sampler": BatchSampler(part, 2, False)}, {"sampler": part}, {"shuffle": True},
        {"batch_size": None},
    ]  # fmt: skip
    lengths = [samples.share_of(DataLoader(range(12), **one))["sampler_length"] for one in given]  # type: ignore[arg-type]
    assert lengths == [None, 6, 6, 12, 12]


def test_of_pictures_and_texts_that_a_dataset_holds_a_few_values_are_looked_at() -> None:
    """Each epoch began with a list of millions of numbers where a dataset holds its pictures as one array."""
    pictures, corpus = np.arange(2 * 200 * 200 * 3).reshape(2, 200, 200, 3), "a b " * 100_000
    held = (pictures, pictures + 1, pictures[:1], corpus, "c " + corpus)
    outlines = [repr(samples._outline(SimpleNamespace(held=each))) for each in held]
    assert len(set(outlines)) == 5 and max(map(len, outlines)) < 10_000
    assert samples._outline(torch.arange(9)) == ((9,), [0, 1, 2, 3]) and samples._outline(np.float32(1)) == ((), None)


def test_time_without_a_cpu_is_counted_between_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the thread that goes through the loop, and of its workers; another thread's says nothing of it."""
    queued = {(): 1.0, (1, 2): 5.0}
    now = [10.0]
    monkeypatch.setattr(loops, "queued_seconds", lambda *of: queued[tuple(*of)])
    monkeypatch.setattr(loops, "cpu_seconds", lambda pids: 0.0)
    monkeypatch.setattr(loops, "clock", lambda: now[0])
    loop = Loop(0, "train.py:7")
    epoch = Epoch(loop, DataLoader([1]), 4, 0.0, (1, 2))
    queued |= {(): 1.25, (1, 2): 6.5}
    now[0] += 2.0
    epoch.look_at_cpu()
    assert (loop.queued_s, loop.watched_s, loop.workers_queued_s) == (0.25, 2.0, 1.5)
    queued[()] += 0.5
    now[0] += 2.0
    thread = threading.Thread(target=epoch.look_at_cpu)
    thread.start()
    thread.join()
    assert (loop.queued_s, loop.watched_s) == (0.25, 2.0)


def test_time_without_a_cpu_is_the_schedulers() -> None:
    here = samples.queued_seconds()
    assert 0.0 <= here <= samples.queued_seconds()
    assert samples.queued_seconds([os.getpid()]) > 0.0 or here == 0.0
    assert samples.queued_seconds([0]) == 0.0, "no such process"


def test_a_step_takes_as_long_as_on_the_device_where_there_is_one() -> None:
    """The first quarter is left out: what is compiled, or allocated, is so there."""
    loop = Loop(0, "train.py:1")
    loop.durations += [9.0, 1.0, 2.0, 3.0]
    assert loop.step_seconds() == (2.0, None)
    loop.on_device_durations += [9.0, 4.0, 5.0, 6.0]
    assert loop.step_seconds() == (5.0, 2.0)


def test_a_loop_of_weeks_is_noted_in_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lines a second were a million a week of each rank: reading them took more memory and time than the end of a job has."""
    now, lines = [0.0], 0
    monkeypatch.setattr(loops, "clock", lambda: now[0])
    loop = Loop(0, "train.py:7")
    while now[0] < 14 * 86_400 and lines < 5000:
        now[0] += loop.noted_after
        loop.noted()
        lines += 1
        assert loop.noted_after <= max(0.5, now[0] / 400)
    assert 300 < lines < 5000


def test_timing_a_step_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine so slow that it is time for a note, that lay in the folder where the program ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipefix.programs.observing.loops.FIRST_NOTE", -1.0)
    assert cost_of_a_step(Observer("")) > 0
    assert list(tmp_path.iterdir()) == []


def test_what_is_done_at_the_begin_and_end_of_an_epoch_is_told_as_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(notes, "clock", lambda: float(next(ticks)))
    noting = notes.Notes(str(tmp_path))
    with noting.counted():
        noting.write("epoch")  # asks twice, and is not counted twice
    assert noting.own_s == 3.0


def test_notes_are_written_where_standard_input_is_closed(tmp_path: Path, preloaded: str) -> None:
    """The file was number 0 then, which was taken for none, and the notes went to standard error."""
    code = (
        "import os; os.close(0); from pipefix.programs.observing.notes import Notes; import numpy; "
        "Notes(os.curdir).write('loop', workers=numpy.int64(2))"
    )
    done = subprocess.run([*preloaded.split(), "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (file,) = tmp_path.iterdir()
    assert json.loads(file.read_text().splitlines()[1])["workers"] == 2, "an integer of another kind"


def test_what_a_probe_of_the_programs_own_makes_is_not_looked_at() -> None:
    """Its fetcher is no torch's: ``import pipefix.auto`` and `pipefix.probe` in one notebook ended in an error."""
    looks, loader = timed_batches.Looks({"look_after": "-1"}), DataLoader([1, 2])
    iterator = iter(loader)
    assert looks.here(loader, iterator) is not None
    vars(iterator)["_dataset_fetcher"] = SimpleNamespace(fetch=None, dataset=[])
    assert looks.here(loader, iterator) is None


def test_loops_of_pipefix_itself_are_none_of_the_programs() -> None:
    names = {"__name__": "pipefix.api.probe", "lines": lines}
    exec("def probe(): return lines.is_within_pipefix()", names)
    assert names["probe"]()  # type: ignore[operator]
    assert not lines.is_within_pipefix()


class TestLooksInWorkers:
    @pytest.fixture
    def looks(self, monkeypatch: pytest.MonkeyPatch) -> timed_batches.Looks:
        monkeypatch.setattr(forks, "start_method_of", lambda loader: "fork")
        return timed_batches.Looks({})

    def test_they_go_on_from_what_looks_cost_those_before_them(self, looks: timed_batches.Looks) -> None:
        loader, iterator = DataLoader([1, 2], num_workers=1), Iterator([])

        def record() -> Any:
            return looks.after(loader, looks.before(loader))

        first = record()
        looks.follow(loader, iterator, first)
        assert record() is not first, "its workers may still write there"
        del iterator
        assert record() is first
        looks.follow(loader, Iterator([]), first)
        looks.forget()
        assert record() is not first, "in a forked process, beside the parent's"

    def test_those_of_the_programs_own_watch_serve_both(self, looks: timed_batches.Looks) -> None:
        """Its loop was seen without stages."""
        watched = DataLoader([1, 2], num_workers=1, worker_init_fn=StageClock(CostRecord(1)))
        vars(watched)["_pipefix_watch"] = None
        record = looks.after(watched, looks.before(watched))
        looks.follow(watched, Iterator([]), record)
        own = watched.worker_init_fn.record  # type: ignore[union-attr]
        own.page(0).write(TimedBatch(*range(len(TimedBatch._fields))))
        assert [len(list(reader.looks())) for reader in (record, record, own)] == [1, 0, 1]
        assert looks.after(watched, looks.before(watched)) is record, "a look counts once"

    def test_workers_that_are_forked_only_where_that_is_pythons_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As it is no longer from Python 3.14 on: shared memory cannot be sent to others, and the program ended with that error."""
        monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: None)
        looks, loader = timed_batches.Looks({}), DataLoader([1, 2], num_workers=1)
        for methods in (["fork", "spawn"], ["forkserver", "spawn", "fork"]):
            monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda methods=methods: methods)
            before = looks.before(loader)
            assert (before is not None) == (methods[0] == "fork")
            if before is not None:
                looks.after(loader, before)


@pytest.mark.parametrize(
    ("asked", "looked_at"),
    [(["inner"], "inner"), (["inner", "other"], "outer"), ([], "outer")],
    ids=["asks another loader", "asks two", "makes them"],
)
def test_where_batches_are_looked_at(asked: list[str], looked_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the loader that a wrapper asks, if there is one alone; and getting ready for it is no time of the loop's."""
    now = 100.0
    for module in ("observer", "loops", "training"):
        monkeypatch.setattr(f"pipefix.programs.observing.{module}.clock", lambda: now)
    observer, looks = Observer(str(tmp_path)), []

    def here(loader: Any, iterator: Any) -> None:
        nonlocal now
        now += 0.5
        looks.append(iterator.place)

    monkeypatch.setattr(observer.looks, "here", here)
    loaders = {place: Loader(place=place) for place in ("outer", "inner", "other")}
    epochs = {place: Epoch(Loop(number, place), loader, 1, 0.0) for number, (place, loader) in enumerate(loaders.items())}
    epochs["outer"].makers = {epochs[place].loop: (weakref.ref(loaders[place]), epochs[place]) for place in asked}
    record = SimpleNamespace(looks=lambda: ())  # that its workers write to
    epochs["inner"].loop.add(record)
    for _ in range(10):
        requested, now = now, now + 0.25
        observer.took(loaders["outer"], epochs["outer"], requested, now, None, False)
        now += 0.75
    assert set(looks) == {looked_at}
    assert (record in epochs["outer"].loop.records) == (looked_at == "inner")
    (file,) = tmp_path.iterdir()
    noted = [event for event in map(json.loads, file.read_text().splitlines()) if event["event"] == "steps"]
    assert sum(event["wait_s"] for event in noted) == pytest.approx(10 * 0.25)
    assert sum(event["step_s"] for event in noted) == pytest.approx(9 * 0.75)


def test_of_loaders_in_turn_the_one_that_is_waited_for_is_worked_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its step is the program's, without the waits for the other; and what the work takes is no loop's time."""
    now = 100.0
    monkeypatch.setattr("pipefix.programs.observing.observer.clock", lambda: now)
    monkeypatch.setattr("pipefix.programs.observing.loops.clock", lambda: now)
    monkeypatch.setattr("pipefix.programs.observing.training.clock", lambda: now)
    observer, asked = Observer(str(tmp_path)), []

    class Work:
        job: dict[str, Any] = {"ends": False}

        def claim(self) -> bool:
            return True

        def due(self, steps: int, seconds: float) -> bool:
            return steps == 10

        def do(self, loader: Any, place: str, step: tuple[float, float | None], iterators: Any) -> None:
            nonlocal now
            now += 40.0
            asked.append((loader, place, step))

    observer.inside = Work()  # type: ignore[assignment]
    loaders = [Loader(place=place, wait=wait) for place, wait in (("slow", 0.5), ("quick", 0.125))]
    loops = [Loop(number, loader.place) for number, loader in enumerate(loaders)]
    for loop, loader in zip(loops, loaders, strict=True):
        observer.epochs[loader] = Epoch(loop, loader, 1, 0.0)
    for _ in range(20):
        for loader in loaders:
            requested, now = now, now + loader.wait
            observer.took(loader, observer.epochs[loader], requested, now, None, False)
        now += 0.25
        observer.training.optimizer_begins()
        observer.training.optimizer_stepped()
    assert asked == [(loaders[0], "slow", (0.25, None))]
    for loop in loops:
        observer.flush(loop)
    (file,) = tmp_path.iterdir()
    notes = [event for event in map(json.loads, file.read_text().splitlines()) if event["event"] == "steps"]
    assert sum(note["wait_s"] for note in notes) == pytest.approx(20 * 0.625)
    assert sum(note["step_s"] - note["inner_s"] for note in notes) == pytest.approx(19 * 0.25, abs=0.25), "the last one is not over"


def test_threads_that_go_through_loops_beside_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation in a thread was taken to be inside the training loop: its time came off, and 39 % were told as 100 %."""
    now = 100.0
    for module in ("observer", "loops", "training"):
        monkeypatch.setattr(f"pipefix.programs.observing.{module}.clock", lambda: now)
    observer = Observer(str(tmp_path))
    trains, checks = (Loader(place=place, wait=wait) for place, wait in (("trains", 0.25), ("checks", 0.5)))
    loops = [Loop(number, loader.place) for number, loader in enumerate((trains, checks))]
    for loop, loader in zip(loops, (trains, checks), strict=True):
        observer.epochs[loader] = Epoch(loop, loader, 1, 0.0)

    def take(loader: Any, no_gradients: bool = False) -> None:
        nonlocal now
        requested, now = now, now + loader.wait
        observer.took(loader, observer.epochs[loader], requested, now, None, no_gradients)

    def beside() -> None:
        for _ in range(3):
            take(checks, no_gradients=True)

    for _ in range(4):
        take(trains)
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        now += 0.25
        observer.training.optimizer_begins()
        observer.training.optimizer_stepped()
    for loop in loops:
        observer.flush(loop)
    (file,) = tmp_path.iterdir()
    events = [json.loads(line) for line in file.read_text().splitlines()]
    by_loop = [[event for event in events if event["event"] == "steps" and event["loop"] == loop.number] for loop in loops]
    assert [sum(note["optimizer_steps"] for note in notes) for notes in by_loop] == [4, 0]
    assert [sum(note["inner_s"] for note in notes) for notes in by_loop] == [0, 0]
    assert sum(note["step_s"] for note in by_loop[0]) == pytest.approx(3 * (3 * 0.5 + 0.25)), "the last one is not over"


def test_no_training_waits_for_what_is_saved_after_its_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop was left by ``break``, and the model saved for longer than it had trained: training was told to have taken no time."""
    now = 100.0
    for module in ("observer", "loops", "training"):
        monkeypatch.setattr(f"pipefix.programs.observing.{module}.clock", lambda: now)
    observer, loader = Observer(str(tmp_path)), Loader(place="trains")
    loop = Loop(0, loader.place)
    observer.loops.all.append(loop)
    epoch = observer.epochs[loader] = Epoch(loop, loader, 1, 0.0)
    observer.notes.write("begun")
    for _ in range(3):
        observer.took(loader, epoch, now, now, None, False)
        observer.saved(now, now + 0.5)
        now += 0.5
        observer.training.optimizer_begins()
        observer.training.optimizer_stepped()
    observer.saved(now, now + 20.0)
    now += 20.0
    observer.ended()
    (file,) = tmp_path.iterdir()
    notes = [event for event in map(json.loads, file.read_text().splitlines()) if event["event"] == "steps"]
    sums = [sum(note[name] for note in notes) for name in ("step_s", "saved_s", "saved_outside_s")]
    assert sums == pytest.approx([1.5, 21.5, 20.0])


def test_optimizers_that_take_turns_are_told_from_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two, and gradients of eight batches, a step was told to be over four of them."""
    monkeypatch.setattr("pipefix.programs.observing.loops.clock", lambda: 100.0)
    observer, loader = Observer(str(tmp_path)), Loader(place="trains")
    loop = Loop(0, loader.place)
    observer.epochs[loader] = Epoch(loop, loader, 1, 0.0)
    observer.took(loader, observer.epochs[loader], 100.0, 100.0, None, False)
    first, second = object(), object()
    for optimizer, changed in ((first, 0), (first, 0), (second, 1), (first, 2)):
        observer.training.optimizer_begins(optimizer)
        observer.training.optimizer_stepped(optimizer)
        assert loop.optimizers_changed == changed


def test_the_parts_of_steps_without_a_loader_are_no_more_than_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the first one began is not known: of two slow steps the backward passes were told as 160 %."""
    now = 100.0
    for module in ("loops", "training"):
        monkeypatch.setattr(f"pipefix.programs.observing.{module}.clock", lambda: now)
    observer = Observer(str(tmp_path))
    monkeypatch.setattr(observer, "flush", lambda loop: None)
    monkeypatch.setattr("pipefix.programs.observing.training.compiles", lambda: True)  # no hooks
    for _ in range(2):
        now += 9.0
        observer.training.went_back(now - 8.0, now)
        observer.training.optimizer_begins()
        now += 1.0
        observer.training.optimizer_stepped()
    loop = observer.training.program
    assert loop is not None
    assert (loop.steps, loop.step_s, loop.backward_s, loop.optimizer_s) == (2, 11.0, 8.0, 2.0)


class Loader(SimpleNamespace):
    """Stands for its iterator as well: it can be a key."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __len__(self) -> int:
        raise TypeError("a loader of a stream has no length")


class WithAnotherInside(torch.optim.SGD):
    """As `ZeroRedundancyOptimizer` and SAM are: its step is that of an optimizer that it holds."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.base = torch.optim.SGD(self.param_groups[0]["params"], lr=0.1)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if closure is not None:
            closure()
        self.base.step()


def test_a_step_of_an_optimizer_inside_another_is_a_part_of_it(tmp_path: Path) -> None:
    """They were counted as two: `--steps 100` ended the program after 50, and batches of a step were told as half of them."""
    training = Observer(str(tmp_path)).training
    optimizer = WithAnotherInside([torch.nn.Parameter(torch.ones(1))])
    handles = [
        register_optimizer_step_pre_hook(training.optimizer_begins),
        register_optimizer_step_post_hook(training.optimizer_stepped),
    ]
    try:
        optimizer.step()
        with pytest.raises(ZeroDivisionError):
            optimizer.step(lambda: 1 / 0)
        optimizer.base.step()
    finally:
        for handle in handles:
            handle.remove()
    assert training.count == 2


def test_a_program_that_took_its_steps_waits_to_be_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C came while an evaluation's workers were forked, where it is lost: the program went on for 10 s, and was killed."""

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pipefix.programs.observing.training.sleep", interrupted)
    training = Observer(str(tmp_path), {"steps": "2"}).training
    training.optimizer_stepped()
    with pytest.raises(KeyboardInterrupt):
        training.optimizer_stepped()
    assert (tmp_path / ".pipefix-enough").exists()


def test_a_clock_that_is_set_while_a_program_runs_moves_no_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that had just booted set its clock 100 s on: all of a short program was told as its start-up."""
    wall, own = 1000.0, 5.0
    monkeypatch.setattr(notes, "time", SimpleNamespace(time=lambda: wall, monotonic=lambda: own))
    noted = notes.Notes(str(tmp_path))
    noted.write("first")
    wall, own = 1102.0, 7.0
    noted.write("second")
    (file,) = tmp_path.iterdir()
    assert [event["at"] for event in map(json.loads, file.read_text().splitlines())] == [1000.0, 1000.0, 1002.0]


def test_other_base_classes_of_a_loader_are_told_of_it(tmp_path: Path) -> None:
    """From Python 3.12 on a registry behind DataLoader was not, and a class with options of its own could not be defined."""
    told: list[tuple[str, str]] = []

    class Loader:
        pass

    class Registry:
        def __init_subclass__(cls, name: str, **options: Any) -> None:
            super().__init_subclass__(**options)
            told.append((cls.__name__, name))

    patches._patch_loader(Loader, Observer(str(tmp_path)))

    class Mine(Loader, Registry, name="mine"):
        pass

    assert told == [("Mine", "mine")]


def test_a_batch_of_a_fast_loader_is_not_told_as_many_pieces(tmp_path: Path) -> None:
    class Fast(Loader):
        explain = FastLoader.explain

    observer = Observer(str(tmp_path))
    for loader in (Loader(), Fast()):
        epoch = Epoch(Loop(0, "train.py:1"), loader, 4, 0.0)
        epoch.batches = 1
        observer._first_batches(None, epoch, [torch.zeros(2)] * 70)
    (file,) = tmp_path.iterdir()
    noted = [event["tensors"] for event in map(json.loads, file.read_text().splitlines()) if event["event"] == "batch"]
    assert noted == [70]


def test_ranks_on_another_machine_than_the_job_are_seen(tmp_path: Path) -> None:
    """`pipefix run --probe srun python train.py`: others were not seen, and told a FileNotFoundError."""
    observer = Observer(str(tmp_path), {"job": str(tmp_path / "gone" / "job.json")})
    assert observer.inside is not None
    loader, loop = Loader(place="train.py:1"), Loop(0, "train.py:1")
    loop.durations.append(0.1)
    observer._work_inside(observer.inside, Epoch(loop, loader, 1, 0.0))
    (file,) = tmp_path.iterdir()
    (error,) = [event["error"] for event in map(json.loads, file.read_text().splitlines()) if event["event"] == "error"]
    assert error.startswith("Not probed: the program trains on another machine")


@pytest.mark.parametrize(
    ("module", "command"),
    [
        (None, ["package/train.py"]), ("__main__", ["package/train.py"]), ("package.train", ["-m", "package.train"]),
        ("package.__main__", ["-m", "package"]),
    ],
)  # fmt: skip
def test_a_module_is_noted_as_it_was_started(
    module: str | None, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m package.train` with `import pipefix.auto` was told to go on by its file, whose relative imports fail then."""
    spec = SimpleNamespace(name=module) if module is not None else None
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=spec))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "argv", ["package/train.py", "--lr", "1"])
    notes.Notes(str(tmp_path)).write("first")
    (file,) = tmp_path.iterdir()
    assert json.loads(file.read_text().splitlines()[0])["argv"] == [*command, "--lr", "1"]
