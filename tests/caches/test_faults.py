"""Faults that were found in conversion once, each by the dataset that showed it."""

from __future__ import annotations

import collections
import errno
import io
import itertools
import os
import random
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import lmdb
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2

from pipefix.caches import building, estimate, pool, witness
from pipefix.caches.convert import convert, recipe_of
from pipefix.caches.dataset import CachedDataset
from pipefix.caches.estimate import forecast
from pipefix.caches.verify import verify
from pipefix.vocabulary.errors import BadUsage, Interrupted, TargetError, UnreadableFile
from tests.caches.killing import Killed, contents, interrupted_after
from tests.caches.mutating import plain
from tests.caches.sources import Files, Numbers, Shard, draw


class Seldom:
    """Acts now and then, by a generator that nobody else sees."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __call__(self, image: Any) -> Any:
        return image.rotate(90) if float(self.generator.random()) < 0.01 else image


HIDDEN = random.Random(1)


def by_a_global(image: Any) -> Any:
    return image.rotate(90) if HIDDEN.random() < 0.01 else image


@pytest.mark.parametrize("operation", [Seldom(random.Random(0)), Seldom(np.random.default_rng(0)), by_a_global])
def test_what_draws_from_a_generator_of_its_own_stays_live(pictures: list[Path], make: Any, operation: Any) -> None:
    cut = make(Files(pictures, operation), "sample").manifest.cut
    assert cut.kept == [] and len(cut.live) == 1


class Point(NamedTuple):
    image: Any
    number: int


class Pairs(Dataset[Any]):
    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return self.kind(image=Image.new("RGB", (8, 6), (index, 0, 0)), number=index)


@pytest.mark.parametrize(("kind", "store"), [(Point, "sample"), (collections.OrderedDict, "decoded"), (dict, "resized")])
def test_a_sample_comes_back_as_what_it_was(make: Any, kind: Any, store: str) -> None:
    cached = CachedDataset(make(Pairs(kind), store).folder)
    assert type(cached[2]) is kind
    if store == "sample":
        numbers = DataLoader(cached, batch_size=None, num_workers=1, multiprocessing_context="fork")
        assert [type(sample) for sample in numbers] == [kind] * 4


def test_a_dict_that_would_not_come_back_is_refused(make: Any) -> None:
    def kind(**fields: Any) -> Any:
        return collections.defaultdict(int, fields)

    with pytest.raises(TargetError, match=r"collections.defaultdict: it would come back as a dict"):
        make(Pairs(kind), "sample")


class Works(Files):
    """Its code works on what its transforms gave."""

    def __init__(self, pictures: list[Path], works: Any, *random_ones: Any) -> None:
        super().__init__(pictures, v2.Compose([v2.Resize(20), *random_ones, v2.PILToTensor()]))
        self.works = works

    def __getitem__(self, index: int) -> Any:
        return self.works(super().__getitem__(index)[0])


WORKS: list[Any] = [
    lambda image: (image, image),
    lambda image: {"image": image, "size": v2.functional.get_size(image)},
    lambda image: image.unsqueeze(0),
]


@pytest.mark.parametrize("works", WORKS)
def test_what_is_made_of_transformed_pictures_is_not_made_of_others(pictures: list[Path], make: Any, works: Any) -> None:
    """An autoencoder's second picture came back as it was read, and sizes were those before the transforms."""
    dataset = Works(pictures, works)
    done = make(dataset, "decoded")
    assert done.manifest.cut.live == []
    assert plain(CachedDataset(done.folder, dataset=dataset)[3]) == plain(dataset[3])
    with pytest.raises(TargetError, match=r"comes out different every time: .* works on what random ones give"):
        make(Works(pictures, works, v2.RandomHorizontalFlip()), "decoded", name="random")


def test_a_mask_of_torchvisions_does_not_come_back_as_a_picture(make: Any) -> None:
    """Beside a picture, transforms pass over a plain tensor."""
    sample = tv_tensors.Image(torch.zeros(3, 8, 9).byte()), tv_tensors.Mask(torch.zeros(1, 8, 9).byte())
    with pytest.raises(TargetError, match=r"cannot be stored as decoded: a torchvision.tv_tensors._mask.Mask"):
        make([sample] * 3, "decoded")


class Away(Numbers):
    def __len__(self) -> int:
        return len(os.listdir("/no/such/folder"))


def test_an_error_of_the_dataset_is_not_the_disks(make: Any) -> None:
    with pytest.raises(TargetError, match=r"The dataset cannot be looked at: FileNotFoundError.*/no/such/folder") as raised:
        make(Away(), "sample")
    assert "test_faults.py" in (raised.value.user_traceback or "")


def test_no_process_to_be_had_is_told(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("multiprocessing.context.ForkProcess.start", full)
    with pytest.raises(TargetError, match="process cannot be started: Resource temporarily unavailable"):
        make(Numbers(), "sample", workers=2)


def test_where_no_more_files_can_be_opened_it_is_told_so(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a part's first moment that was an error of pipefix's own, and of a cache its permissions were to be looked at."""
    folder, no_more = make(Numbers(), "sample").folder, os.strerror(errno.EMFILE)
    cached = CachedDataset(folder)
    with monkeypatch.context() as patched:
        failing = SimpleNamespace(Error=lmdb.Error, open=mock.Mock(side_effect=lmdb.Error(f"x: {no_more}")))
        patched.setattr("pipefix.caches.lmdb.lmdb", failing)  # hooks put a stand-in in the place of lmdb.open
        with pytest.raises(UnreadableFile, match=f"cannot be written: {no_more}") as raised:
            make(Numbers(), "sample", name="other", workers=2)
        assert "ulimit -n" in raised.value.advice
    monkeypatch.setattr("pipefix.caches.index.open_regular", mock.Mock(side_effect=OSError(errno.EMFILE, no_more)))
    with pytest.raises(UnreadableFile, match=f"cannot be read: {no_more}") as raised:
        cached[0]
    assert "ulimit -n" in raised.value.advice


class Held(Shard):
    """Its file is opened once and for all."""

    def __init__(self, path: Path, each: int) -> None:
        super().__init__(path, each)
        self.file = path.open("rb")

    def __getitem__(self, index: int) -> bytes:
        self.file.seek(index * self.each)
        return self.file.read(self.each)


def test_what_a_dataset_holds_open_is_not_shared_by_processes(tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each moved the position of the others, and records held other bytes than the samples."""
    (tmp_path / "shard").write_bytes(bytes(range(200)))
    monkeypatch.setattr("pipefix.caches.pool.can_fork", lambda: True)
    monkeypatch.setattr("multiprocessing.context.ForkProcess.start", lambda _: pytest.fail("a process is forked"))
    dataset = Held(tmp_path / "shard", 10)
    with pytest.warns(RuntimeWarning, match=r"One process reads the samples.*: dataset.file \(file\)\. To use all cores, open it"):
        done = make(dataset, "sample", workers=2)
    assert list(CachedDataset(done.folder)) == [bytes(range(at, at + 10)) for at in range(0, 200, 10)]
    with pytest.warns(RuntimeWarning, match=r"dataset.file \(file\)"):
        assert forecast(dataset, recipe_of("lmdb", "sample"), tmp_path / "other", workers=2).samples == 20
    dataset.file.close()


class Scattered(Shard):
    """Pictures in one large file, each read from its place and decoded."""

    def __getitem__(self, index: int) -> Any:
        return Image.open(io.BytesIO(super().__getitem__(index))).convert("RGB"), index


def test_a_shard_is_not_read_whole_for_a_part_of_it(tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = draw(tmp_path / "one.png", 1).read_bytes()
    each = len(data) + 1000
    (tmp_path / "shard").write_bytes(data.ljust(each, b"\0") * 6)
    monkeypatch.setattr(witness, "read_regular", lambda path: pytest.fail(f"{path} is read whole"))
    dataset = Scattered(tmp_path / "shard", each)
    cached = CachedDataset(make(dataset, "source").folder, dataset=dataset)
    assert cached[3][1] == 3


def test_an_interrupted_update_goes_on_where_it_was(files: Files, make: Any, small_parts: None) -> None:
    make(files, "decoded")
    for path in files.paths:
        os.utime(path, (5, 5))
    with interrupted_after(1), pytest.raises(Interrupted, match="keeps 1 finished part"):
        make(files, "decoded", update=True)
    done = make(files, "decoded", update=True)
    assert (done.made, done.found) == (2, 1) and verify(done.folder).sound
    assert not list(done.folder.glob("plan.json")) and len(list((done.folder / "parts").iterdir())) == 3
    os.utime(files.paths[0], (6, 6))
    assert make(files, "decoded", update=True).made == 1


def test_a_look_at_the_cache_takes_nothing_from_an_update_that_was_interrupted(files: Files, make: Any, small_parts: None) -> None:
    """What it had made stayed on the disk, in no manifest, and was made once more."""
    folder = make(files, "decoded").folder
    before, changed_at = contents(folder), [os.stat(path).st_mtime_ns for path in files.paths]
    for path in files.paths:
        os.utime(path, (5, 5))
    with interrupted_after(1), pytest.raises(Interrupted):
        make(files, "decoded", update=True)
    assert make(files, "decoded").changed == (0, 1, 2)
    with interrupted_after(1), pytest.raises(Interrupted, match="keeps 2 finished parts"):
        make(files, "decoded", update=True)
    for path, when in zip(files.paths, changed_at, strict=True):
        os.utime(path, ns=(when, when))
    assert make(files, "decoded").changed == () and contents(folder) == before, "nothing is to be made anew any more"


def test_no_more_processes_than_a_quota_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipefix.caches.convert.cores", lambda: 1.5)
    indices: list[int] = []
    real = pool.run
    monkeypatch.setattr(pool, "run", lambda numbers, make, workers: (indices.append(workers), real(numbers, make, 0))[1])
    convert(Numbers(), recipe_of("lmdb", "sample"), tmp_path / "cache")
    assert indices == [1]


def test_without_workers_the_end_of_the_parent_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversion that a shell began goes on after the shell; a worker's parent is the conversion, and it ends with that."""
    parents = itertools.chain([os.getppid()], itertools.repeat(1))
    monkeypatch.setattr("os.getppid", lambda: next(parents))
    assert convert(Numbers(), recipe_of("lmdb", "sample"), tmp_path / "cache", workers=0).manifest.length == len(Numbers())


def test_what_a_killed_forecast_left_goes_with_the_next(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(tmp_path.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(building.Building, "settle", mock.Mock(side_effect=Killed))
        patched.setattr(estimate.folders, "remove", lambda folder: None)
        with pytest.raises(Killed):
            forecast(files, recipe_of("lmdb", "source"), tmp_path / "cache", workers=0)
    assert [path.name for path in sorted(tmp_path.iterdir()) if path not in before] == [".cache.pipefix-trial.building"]
    assert forecast(files, recipe_of("lmdb", "source"), tmp_path / "cache", workers=0).samples == 12
    assert sorted(tmp_path.iterdir()) == before


def test_a_forecast_whose_last_round_makes_fewer_parts_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the round before stayed, and because of it the next forecast was refused."""
    ticks = itertools.count()
    monkeypatch.setattr(estimate, "time", SimpleNamespace(perf_counter=lambda: next(ticks) / 8))
    for _ in range(2):  # of 24 parts and then 23
        assert forecast(Numbers(959), recipe_of("lmdb", "sample"), tmp_path / "cache", workers=0).tried == 23 * 39
        assert not list(tmp_path.iterdir())


def test_a_forecast_leaves_a_cache_of_theirs_alone(tmp_path: Path, make: Any) -> None:
    """One that is called `cache.trial` was written into, and then removed."""
    for name in ("cache.trial", ".cache.pipefix-trial"):
        before = contents(make(Numbers(), "sample", name=name).folder)
        with suppress(BadUsage):
            forecast(Numbers(), recipe_of("lmdb", "sample"), tmp_path / "cache", workers=0)
        assert contents(tmp_path / name) == before


class Noted(Numbers):
    """Writes down which processes ran its samples."""

    def __init__(self, note: Path) -> None:
        super().__init__(40)
        self.note = note

    def __getitem__(self, index: int) -> Any:
        with self.note.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return super().__getitem__(index)


@pytest.mark.parametrize("action", ["convert", "forecast"])
def test_samples_are_not_run_where_workers_are_forked(tmp_path: Path, action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "_ENOUGH_S", 0.0)  # of a forecast the first round is enough, which leaves some samples out
    dataset = Noted(tmp_path / "note")
    run: Any = convert if action == "convert" else forecast
    run(dataset, recipe_of("lmdb", "sample"), tmp_path / "cache", workers=2)
    assert str(os.getpid()) not in set((tmp_path / "note").read_text().split())


class OnDevice(Noted):
    """As PyTorch has it, whose CUDA was begun when the file was imported."""

    def __getitem__(self, index: int) -> Any:
        if str(os.getpid()) != self.note.name:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing ...")
        return super().__getitem__(index)


def test_samples_that_use_cuda_are_made_without_workers(tmp_path: Path) -> None:
    """The advice was to run one by itself, which works."""
    dataset = OnDevice(tmp_path / str(os.getpid()))
    with pytest.raises(TargetError, match="None of the samples that were looked at could be read: RuntimeError") as raised:
        convert(dataset, recipe_of("lmdb", "sample"), tmp_path / "cache", workers=2)
    assert raised.value.advice is not None and raised.value.advice.endswith("--workers 0")
    assert convert(dataset, recipe_of("lmdb", "sample"), tmp_path / "cache", workers=0).manifest.length == 40
