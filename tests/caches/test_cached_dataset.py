"""The dataset over a cache: picklable, safe in every kind of process, and quick to refuse what it cannot do."""

from __future__ import annotations

import copy
import os
import pickle

import numpy as np
import psutil
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms import v2

from pipefix.caches.dataset import CachedDataset
from pipefix.caches.index import DataFile
from pipefix.caches.verify import verify
from pipefix.loader.fusing.child_process import in_child_process
from pipefix.vocabulary.errors import BadUsage, CacheDamaged, TargetError
from tests.caches.sources import Files, Numbers, Texts

TRANSFORM = v2.Compose([v2.RandomCrop(20), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


@pytest.mark.parametrize("method", ["fork", pytest.param("forkserver", marks=pytest.mark.system)])
def test_workers_of_every_kind(files, make, method):
    """A server's children get the dataset by pickle, as spawned workers do."""
    cached = CachedDataset(make(files, "resized", size=22).folder, images="tensor")
    first = cached[0][0]
    loader = DataLoader(cached, batch_size=4, num_workers=2, multiprocessing_context=method)
    batches = list(loader)
    assert torch.cat([labels for _, labels in batches]).tolist() == list(range(12))
    assert torch.equal(batches[0][0][0], first)


def test_pickled_and_copied(files, make):
    cached = CachedDataset(make(files, "decoded").folder)
    cached[0]
    for twin in (pickle.loads(pickle.dumps(cached)), copy.deepcopy(cached)):
        assert np.array_equal(np.asarray(twin[7][0]), np.asarray(cached[7][0]))
    assert len(pickle.dumps(cached)) < 4000


def test_the_index_of_a_large_cache_stays_in_its_file(files, make, monkeypatch):
    few = CachedDataset(make(files, "resized").folder)
    monkeypatch.setattr("pipefix.caches.index._FEW", 5)
    many = CachedDataset(few.path)
    assert [many.raw(index) == few.raw(index) for index in range(12)] == [True] * 12
    os.truncate(few.path / "index" / "00000.idx", 30)
    with pytest.raises(CacheDamaged, match="is not in its index"):
        many.raw(5)
    assert few.raw(5)


@pytest.mark.parametrize(("store", "to"), [("decoded", "lmdb"), ("rows", "parquet")])
def test_a_cache_of_many_parts_has_few_of_them_open(files, make, monkeypatch, small_parts, store, to):
    """Of ImageNet it has some 500, two files each, and a process may open 1,024: training ended there."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (8, 8))
    cached = CachedDataset(make(files, store, to).folder)
    assert [cached[index][1] for index in range(12)] == list(range(12)) and cached[0][1] == 0
    assert sum(file.path.startswith(f"{cached.path}/") for file in psutil.Process().open_files()) == 2


def test_a_file_system_that_gives_a_few_bytes_at_a_time(files, make, monkeypatch):
    """As those over a network may, and all of them beyond 2 GB: only what ends a file is missing."""
    folder = make(files, "resized").folder
    expected = CachedDataset(folder)
    real = os.preadv
    monkeypatch.setattr("pipefix.caches.index._preadv", lambda file, held, offset: real(file, [memoryview(held[0])[:100]], offset))
    assert CachedDataset(folder).raw(3) == expected.raw(3)


def test_indices(files, make):
    cached = CachedDataset(make(files, "decoded").folder)
    assert cached[-1][1] == 11 and cached[np.int64(3)][1] == 3 and cached[torch.tensor(4)][1] == 4
    for index in (12, -13):
        with pytest.raises(IndexError, match=f"sample {index} of 12"):
            cached[index]
    assert len(list(cached)) == 12


@pytest.mark.parametrize("store", ["resized", "decoded"])
def test_labels_and_classes_without_pictures(pictures, make, store):
    class Named(Files):
        classes = ("cat", "dog")

    done = make(torch.utils.data.Subset(Named(pictures, TRANSFORM), [3, 1, 2]), store)
    cached = CachedDataset(done.folder, images="none", transform=TRANSFORM)
    assert cached.classes == ["cat", "dog"]
    assert [cached[index] for index in range(3)] == [(None, 3), (None, 1), (None, 2)]


@pytest.mark.parametrize("store", ["resized", "decoded"])
def test_what_images_become(files, make, store):
    folder = make(files, store).folder
    kinds = {"as-was": Image.Image, "image": Image.Image, "tensor": torch.Tensor, "array": np.ndarray}
    became = {images: CachedDataset(folder, images=images)[2][0] for images in kinds}
    assert all(isinstance(became[images], kind) for images, kind in kinds.items()) and became["tensor"].shape == (3, 44, 60)


def test_samples_belong_to_whoever_asked(files, make):
    cached = CachedDataset(make(files, "decoded").folder, images="tensor")
    cached[1][0].zero_()
    assert cached[1][0].sum() > 0
    cached.raw(2)[:100] = bytes(100)
    assert cached[2][0].sum() > 0


def test_live_transforms_by_hand_and_from_the_dataset(pictures, make):
    dataset = Files(pictures, TRANSFORM)
    done = make(dataset, "decoded")
    assert done.manifest.cut.live == ["RandomCrop((20, 20))", "ToImage", "ToDtype"]
    for cached in (CachedDataset(done.folder, dataset=dataset), CachedDataset(done.folder, transform=TRANSFORM)):
        torch.manual_seed(3)
        expected = dataset[4]
        torch.manual_seed(3)
        sample = cached[4]
        assert torch.equal(sample[0], expected[0]) and sample[1] == 4


def test_a_transform_without_a_known_place(make):
    done = make(Numbers(), "sample")
    assert CachedDataset(done.folder, transform=lambda sample: sample["name"])[3] == "n3"


def test_another_transform_list_is_refused(pictures, make):
    done = make(Files(pictures, TRANSFORM), "decoded")
    with pytest.raises(BadUsage, match=r"was made with transform = RandomCrop.*this dataset has Resize\(\[9\]\)"):
        CachedDataset(done.folder, dataset=Files(pictures, v2.Resize(9)))


@pytest.mark.parametrize("how", [{"store": "decoded"}, {"store": "rows", "to": "parquet"}])
def test_transforms_that_the_cache_knows_nothing_of_are_refused(files, pictures, make, how):
    """It was made without any, and samples came without those that the dataset got since."""
    folder = make(files, **how).folder
    with pytest.raises(BadUsage, match="it had no transforms, and those of this one would give other samples") as raised:
        CachedDataset(folder, dataset=Files(pictures, v2.Resize(9)))
    assert "transform=" in raised.value.advice and len(CachedDataset(folder, dataset=files)) == 12


def test_a_cache_is_a_target(files, make):
    from pipefix.api.target import load_target

    for store in ("resized", "decoded"):
        picture, label = load_target(str(make(files, store, name=store).folder)).dataset[3]
        assert picture.shape == (3, 44, 60) and picture.dtype == torch.uint8 and label == 3
    assert load_target(str(make(Numbers(), "sample", name="numbers").folder)).dataset[2]["name"] == "n2"
    with pytest.raises(TargetError, match="keeps the files that samples read, and no samples"):
        load_target(str(make(files, "source", name="source").folder))


def test_it_tells_what_it_is_and_refuses_what_it_cannot_give(files, make):
    folder = make(files, "decoded").folder
    cached = CachedDataset(folder)
    assert repr(cached) == f"CachedDataset({str(folder)!r}: 12 records, decoded in lmdb)"
    assert cached.classes == [], "none are made up"
    with pytest.raises(BadUsage, match="no 'jpeg'"):
        CachedDataset(folder, images="jpeg")


@pytest.mark.parametrize(
    ("store", "how"),
    [("source", "raw"), ("decoded", "records"), ("decoded", "large index"), ("rows", "records"), ("rows", "verify")],
)
def test_a_part_that_is_cut_short_while_it_is_read_ends_no_process(files, make, monkeypatch, store, how):
    """In a process of its own: a file in memory that was made shorter ends it, without a word from Python."""
    folder = make(Texts(4000), "rows", "parquet").folder if store == "rows" else make(files, store).folder
    if how == "large index":
        monkeypatch.setattr("pipefix.caches.index._FEW", 5)

    def cut() -> None:
        for path in folder.glob("*/00000.*"):
            if path.suffix != ".facts":
                os.truncate(path, 0)

    def read() -> str:
        cached = CachedDataset(folder)
        cached[0]
        if how == "verify":
            real = DataFile.read
            monkeypatch.setattr(DataFile, "read", lambda self, number: (cut(), real(self, number))[1])
            return " ".join(verify(folder).damage[0])
        cut()
        try:
            for number in (0, 5, 11, len(cached) - 1):
                cached.raw(number) if how == "raw" else cached[number]
        except CacheDamaged as error:
            return str(error)
        return ""

    answer = in_child_process(read)
    assert isinstance(answer, str) and answer, answer
