"""Unmodified code reads its files from a ``source`` cache, whichever way it reads them, and gives the same samples without them."""

from __future__ import annotations

import builtins
import http.client
import json
import os
import pickle
import shutil
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image
from torch.utils.data import DataLoader

from pipefix.caches import replay
from pipefix.caches.convert import recipe_of
from pipefix.caches.dataset import CachedDataset
from pipefix.caches.survey import survey
from pipefix.vocabulary.errors import TargetError
from tests.caches.sources import WAYS, Files, ReadBy, Shard, draw

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def folder(tmp_path: Path) -> list[Path]:
    paths = []
    for index in range(10):
        path = draw(tmp_path / "data" / f"{index}.jpg", index)
        draw(path.with_suffix(".png"), index, mode="P")
        draw(path.with_suffix(".tiff"), index, compression="tiff_lzw")
        path.with_suffix(".json").write_text(json.dumps({"file": path.name, "label": index}))
        with h5py.File(path.with_suffix(".h5"), "w") as file:
            file["plain"] = np.arange(index + 9)
            file.create_dataset("packed", data=np.arange(index * 50), compression="gzip")
            file.create_group("group").attrs["label"] = index
        np.save(path.with_suffix(".npy"), np.arange(index + 5))
        paths.append(path)
    return paths


def equal(sample, expected):
    if isinstance(sample, tuple):
        return all(map(equal, sample, expected))
    return np.array_equal(sample, expected)


@pytest.fixture
def replayed(make, folder):
    """A source cache of a dataset, which gives the same samples once its files are gone, and misses nothing."""

    def run(dataset):
        expected = [dataset[index] for index in range(len(dataset))]
        done = make(dataset, "source")
        assert done.unseen_bytes == 0
        cached = CachedDataset(done.folder, dataset=dataset)
        shutil.rmtree(folder[0].parent)
        before = cached.misses
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            assert all(equal(cached[index], sample) for index, sample in enumerate(expected))
        assert cached.misses == before
        return cached

    return run


@pytest.mark.parametrize("reader", WAYS)
def test_the_same_without_the_files(folder, replayed, reader):
    replayed(ReadBy(folder, reader))


class Unpacking(Shard):
    """Writes what it unpacks to one and the same file, as for a library that opens files alone."""

    def __getitem__(self, index: int) -> bytes:
        unpacked = Path(self.path).with_suffix(".unpacked")
        unpacked.write_bytes(bytes([index]) * self.each)
        return unpacked.read_bytes()


def test_a_file_that_is_another_one_for_every_sample(tmp_path, make):
    """All samples of a part were given what the first one had read."""
    (tmp_path / "shard").write_bytes(bytes(40))
    dataset = Unpacking(tmp_path / "shard", 8)
    cached = CachedDataset(make(dataset, "source").folder, dataset=dataset)
    assert [cached[index][0] for index in range(5)] == [0, 1, 2, 3, 4]


class UnpackingTwice(Unpacking):
    """A picture and its mask, one after the other."""

    def __getitem__(self, index: int) -> bytes:
        return super().__getitem__(2 * index) + super().__getitem__(2 * index + 1)


def test_a_file_that_is_another_one_within_a_sample_is_told(tmp_path, make):
    """The second read was answered with what the first one had read."""
    (tmp_path / "shard").write_bytes(bytes(40))
    with pytest.raises(TargetError, match=r"A sample reads .*shard\.unpacked twice, with other bytes the second time"):
        make(UnpackingTwice(tmp_path / "shard", 8), "source")


@pytest.mark.parametrize("reader", ["pil", "cv2", "torchvision", "json, picture and mask"])
def test_samples_are_run_only_as_far_as_their_reading_goes(folder, reader):
    assert survey(ReadBy(folder, reader), recipe_of("lmdb", "source"), "").blueprint.stop_at is not None


class Uneven(ReadBy):
    """Samples that differ in what they read run to their end."""

    def __getitem__(self, index):
        return WAYS["pil" if index % 2 else "json, picture and mask"](self.paths[index])


class Two(ReadBy):
    """Compressed TIFF: the last decode is another picture's, so this one runs to its end, where libtiff reads by itself."""

    def __getitem__(self, index):
        return tuple(WAYS[way](self.paths[index]) for way in ("tiff", "pil")[: 1 + index % 2])


@pytest.mark.parametrize("kind", [Uneven, Two])
def test_samples_that_cannot_be_stopped_early(folder, replayed, kind):
    replayed(kind(folder, ""))


class Ranges(Shard):
    """By descriptor."""

    def __getitem__(self, index):
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            return os.pread(descriptor, self.each, index * self.each)
        finally:
            os.close(descriptor)


@pytest.mark.parametrize("kind", [Shard, Ranges])
def test_a_shard_is_stored_once(tmp_path, make, kind):
    path, held = tmp_path / "shard.bin", bytes(range(256)) * 40
    path.symlink_to(tmp_path / "real.bin")
    path.write_bytes(held)
    dataset = kind(path, 512)
    done = make(dataset, "source")
    assert (done.unseen_bytes, done.manifest.source.files, done.manifest.source.bytes) == (0, 1, len(held))
    path.write_bytes(bytes(len(held)))
    cached = CachedDataset(done.folder, dataset=dataset)
    before = cached.misses
    assert b"".join(cached[index] for index in range(20)) == held and cached.misses == before


def test_parts_of_a_large_shard_are_no_smaller_than_others(tmp_path):
    path = tmp_path / "shard.bin"
    path.write_bytes(bytes(40_000_000))
    assert survey(Shard(path, 4000), recipe_of("lmdb", "source"), "").blueprint.part_samples > 200


def test_a_file_that_every_sample_reads_is_stored_once_a_part(folder, replayed):
    class Shared(ReadBy):
        def __getitem__(self, index):
            return Path(self.paths[0]).read_bytes()[:4], Path(self.paths[index]).read_bytes()[:4]

    total = sum(path.stat().st_size for path in folder)
    cached = replayed(Shared(folder, ""))
    assert sum(len(cached.raw(index)) for index in range(10)) < total * 1.5
    assert set(cached.files(5)) == {"0.jpg", "5.jpg"}


def test_asking_whether_a_file_exists_is_no_read(folder, make):
    class Careful(ReadBy):
        def __getitem__(self, index):
            assert os.path.exists(self.paths[index]) and os.path.getsize(self.paths[index]) > 0
            return super().__getitem__(index)

    dataset = Careful(folder, "pil")
    cached = CachedDataset(make(dataset, "source").folder, dataset=dataset)
    before = cached.misses
    assert equal(cached[3], dataset[3]) and cached.misses == before


def test_pictures_that_a_sample_only_opens_are_kept(folder, make):
    """A collate function decodes them. Of each file its first bytes were kept, and the rest came from the file itself."""

    class Opened(ReadBy):
        def __getitem__(self, index):
            return Image.open(self.paths[index]), index

    for index, path in enumerate(folder):  # of more bytes than Python reads at once
        Image.fromarray(np.random.default_rng(index).integers(0, 256, (200, 200, 3), np.uint8)).save(path)
    dataset = Opened(folder, "pil")
    expected = [np.asarray(dataset[index][0]) for index in range(10)]
    cached = CachedDataset(make(dataset, "source").folder, dataset=dataset)
    for path in folder:
        path.unlink()
    opened = [cached[index][0] for index in range(10)]
    assert all(np.array_equal(np.asarray(image), own) for image, own in zip(opened, expected, strict=True))


def test_a_map_that_is_kept_for_other_samples_is_no_samples_own(folder, make):
    """Stored whole, it would be in whichever sample came first: parts would depend on the order in which they were made."""

    class Lazy(ReadBy):
        opened = None

        def __getitem__(self, index):
            if self.opened is None:
                self.opened = np.memmap(Path(self.paths[0]).with_suffix(".bin"), np.uint8, "r", shape=(10, 20_000))
            return super().__getitem__(index), self.opened[index].copy()

    np.arange(200_000, dtype=np.uint16).astype(np.uint8).tofile(folder[0].with_suffix(".bin"))
    dataset = Lazy(folder, "pil")
    done = make(dataset, "source")
    cached = CachedDataset(done.folder, dataset=Lazy(folder, "pil"))
    assert 15_000 < done.unseen_bytes < 30_000 and set(cached.files(0)) == {"0.jpg"}
    with pytest.warns(RuntimeWarning, match=r"Sample \d read what the cache does not hold"):
        assert all(np.array_equal(cached[index][1], dataset[index][1]) for index in range(10))
    assert cached.misses > 0


class MapOpenedBefore(ReadBy):
    def __init__(self, paths, how):
        super().__init__(paths, how)
        self.all = np.memmap(paths[0].with_suffix(".bin"), np.uint8, "w+", shape=(10, 20_000))

    def __getitem__(self, index):
        return super().__getitem__(index), self.all[index].copy()


class Hdf5OpenedBefore(ReadBy):
    def __init__(self, paths, how):
        super().__init__(paths, how)
        with h5py.File(paths[0].with_suffix(".all"), "w") as file:
            file["x"] = np.zeros((10, 100_000), np.uint8)
        self.all = h5py.File(paths[0].with_suffix(".all"))

    def __getitem__(self, index):
        return super().__getitem__(index), self.all["x"][index]


class ByItself(ReadBy):
    """A library that opens the file in C, in a way that no hook knows."""

    def __getitem__(self, index):
        with h5py.File(Path(self.paths[0]).with_suffix(".core"), driver="core", backing_store=False) as file:
            return super().__getitem__(index), file["x"][:]


@pytest.mark.parametrize(("kind", "each"), [(MapOpenedBefore, 20_000), (Hdf5OpenedBefore, 100_000), (ByItself, 100_000)])
def test_what_goes_past_the_seams_is_told(folder, make, kind, each):
    with h5py.File(folder[0].with_suffix(".core"), "w") as file:
        file["x"] = np.zeros(100_000, np.uint8)
    dataset = kind(folder, "pil")
    done = make(dataset, "source")
    assert each * 0.9 < done.unseen_bytes < each * 1.5
    cached = CachedDataset(done.folder, dataset=dataset)
    before = cached.misses
    with pytest.warns(RuntimeWarning, match=r"Sample 2 read what the cache does not hold"):
        assert equal(cached[2][0], dataset[2][0])
    assert cached.misses > before


@pytest.mark.parametrize("method", ["fork", pytest.param("forkserver", marks=pytest.mark.system)])
def test_in_worker_processes(folder, make, method):
    dataset = Files(folder)
    cached = CachedDataset(make(dataset, "source").folder, dataset=dataset)
    cached[0]  # what this process opened is no worker's
    labels = [sample[1] for sample in DataLoader(cached, batch_size=None, num_workers=2, multiprocessing_context=method)]
    assert labels == list(range(10))


def test_what_the_cache_lacks_is_read_and_counted(folder, make):
    dataset = ReadBy(folder, "pil")
    cached = CachedDataset(make(dataset, "source").folder, dataset=dataset)
    cached[0]
    assert cached.misses == 0
    reversed_dataset = ReadBy(folder[::-1], "pil")
    over = CachedDataset(cached.path, dataset=reversed_dataset)
    with pytest.warns(RuntimeWarning, match=r"Sample 1 read what the cache does not hold"):
        assert equal(over[1], reversed_dataset[1])
    assert over.misses > 0


def test_a_dataset_that_moved(folder, make, tmp_path):
    dataset = ReadBy(folder, "pil")
    done = make(dataset, "source")
    moved = ReadBy([tmp_path / "elsewhere" / path.name for path in folder], "pil")
    cached = CachedDataset(done.folder, dataset=moved, root=tmp_path / "elsewhere")
    assert equal(cached[3], dataset[3]) and cached.misses == 0


def test_a_dataset_of_several_folders_that_moved(make, tmp_path):
    """Its first samples all lay in one of them, which was taken for the root of all."""
    paths = [draw(tmp_path / "data" / name / f"{index}.jpg", index) for name in ("cats", "dogs") for index in range(20)]
    done = make(ReadBy(paths, "pil"), "source")
    moved = ReadBy([tmp_path / "elsewhere" / path.parent.name / path.name for path in paths], "pil")
    cached = CachedDataset(done.folder, dataset=moved, root=tmp_path / "elsewhere")
    assert equal(cached[3], ReadBy(paths, "pil")[3]) and equal(cached[33], ReadBy(paths, "pil")[33]) and cached.misses == 0


def test_another_dataset_is_refused(folder, make):
    from pipefix.vocabulary.errors import BadUsage

    done = make(ReadBy(folder, "pil"), "source")
    with pytest.raises(BadUsage, match=r"The dataset has 9 samples, and .* was made from one of 10"):
        CachedDataset(done.folder, dataset=ReadBy(folder[1:], "pil"))


def test_a_damaged_picture_stays_what_it_was(folder, make):
    """``source`` is faithful: training meets the error that it met before."""
    folder[4].write_bytes(folder[4].read_bytes()[:300])
    dataset = ReadBy(folder, "pil")
    cached = CachedDataset(make(dataset, "source").folder, dataset=dataset)
    with pytest.raises(OSError, match=r"(?i)truncated"):
        cached[4]
    assert cached.files(4)["4.jpg"] == folder[4].read_bytes()


@pytest.fixture
def untouched():
    replay.stop()
    names = [
        (builtins, "open"),
        (os, "read"),
        (json, "loads"),
        (pickle, "loads"),
        (http.client.HTTPConnection, "request"),
        (Image, "open"),
    ]
    return {(owner.__name__, name): getattr(owner, name) for owner, name in names}, names


def now(names):
    return {(owner.__name__, name): getattr(owner, name) for owner, name in names}


def test_only_what_reads_files_is_replaced_and_not_for_ever(folder, make, untouched):
    before, names = untouched
    dataset = ReadBy(folder, "pil")
    done = make(dataset, "source")
    assert now(names) == before
    cached, second_cached = CachedDataset(done.folder, dataset=dataset), CachedDataset(done.folder, dataset=dataset)
    assert equal(cached[0], dataset[0]) and equal(second_cached[1], dataset[1])
    assert {name for name, value in now(names).items() if value is not before[name]} == {("builtins", "open"), ("os", "read")}
    del cached
    assert builtins.open is not before["builtins", "open"]
    second_cached.close()
    assert now(names) == before
    assert equal(second_cached[2], dataset[2]) and builtins.open is not before["builtins", "open"]
    del second_cached
    assert now(names) == before
