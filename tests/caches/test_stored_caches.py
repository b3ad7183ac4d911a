"""Caches in a store: brought there, read by ranges or from a tier, verified; the samples of a disk, with every byte checked."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from torch.utils.data import DataLoader

import pipefix
from pipefix.caches import publish
from pipefix.caches.convert import recipe_of
from pipefix.caches.dataset import CachedDataset
from pipefix.caches.publish import staging_of
from pipefix.caches.verify import verify
from pipefix.stores.folder import FolderStore
from pipefix.stores.opening import open_store
from pipefix.tier.client import TieredCache
from pipefix.tier.fetcher import Fetcher
from pipefix.vocabulary.errors import BadUsage, CacheDamaged, UnreadableFile
from tests.caches.mutating import flip
from tests.caches.sources import Acting, Numbers, Texts

KINDS = {"sample in lmdb": ("lmdb", "sample"), "rows": ("parquet", "rows")}


@pytest.fixture
def url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipefix.caches.survey._part_samples", lambda samples, record_bytes: 16)
    return f"file://{tmp_path}/bucket/cache"


def convert_to_store(dataset, recipe, url, **how):
    return publish.convert_to_store(dataset, recipe, url, staging_of(url), **how)


def folder_of(url) -> Path:
    return Path(url.removeprefix("file://"))


def plain(sample):
    return {key: value.tolist() if hasattr(value, "tolist") else value for key, value in sample.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_samples_as_from_a_disk(url, make, kind):
    dataset = Texts(60) if kind == "rows" else Numbers(60)
    local = CachedDataset(make(dataset, KINDS[kind][1], KINDS[kind][0]).folder)
    done = convert_to_store(dataset, recipe_of(*KINDS[kind]), url, workers=0)
    assert (done.made, done.url) == (4, url) and not staging_of(url).exists()
    far = CachedDataset(url)
    order = [3, 59, 17, 0, 17, 33]
    assert [plain(sample) for sample in far.__getitems__(order)] == [plain(local[index]) for index in order]
    assert [plain(far[index]) for index in order] == [plain(local[index]) for index in order]
    assert plain(pickle.loads(pickle.dumps(far))[5]) == plain(local[5])
    checked = verify(url)
    assert checked.sound and checked.records == 60
    assert far.ledger is not None and local.ledger is None


def test_records_of_a_batch_are_ranges_and_nothing_else_is_read(url):
    convert_to_store(Numbers(60), recipe_of("lmdb", "sample"), url, workers=0)
    far = CachedDataset(url)
    ledger = far.ledger
    assert ledger is not None and ledger.requests == {"get": 1}
    far.__getitems__([1, 2, 20, 21])
    assert ledger.requests == {"get": 3, "range": 4}
    far.__getitems__([1, 3])
    assert ledger.requests == {"get": 3, "range": 6} and ledger.received < 10_000


def test_in_worker_processes(url):
    convert_to_store(Numbers(60), recipe_of("lmdb", "sample"), url, workers=0)
    loader = DataLoader(CachedDataset(url), batch_size=10, num_workers=2, multiprocessing_context="fork")
    assert [int(index) for batch in loader for index in batch["index"]] == list(range(60))


class Stops(FolderStore):
    """Fails after so many puts."""

    left = 0

    def put(self, name, data, *, if_absent=False):
        if if_absent:
            return super().put(name, data, if_absent=True)
        if not self.left:
            raise UnreadableFile("the network is gone")
        self.left -= 1
        return super().put(name, data)


@pytest.mark.system
def test_stopped_at_any_put_the_same_command_goes_on(url, monkeypatch):
    plain_url = f"{url}-uninterrupted"
    convert_to_store(Numbers(60), recipe_of("lmdb", "sample"), plain_url, workers=0)
    store, puts = Stops(folder_of(url)), []
    monkeypatch.setattr(publish, "open_store", lambda _: store)
    for _ in range(30):
        store.left = 2
        try:
            convert_to_store(Numbers(60), recipe_of("lmdb", "sample"), url, workers=0)
            break
        except UnreadableFile:
            assert not (folder_of(url) / "manifest.json").exists()
            puts.append(store.ledger.requests.get("put", 0))
    else:
        store.left = 100
        convert_to_store(Numbers(60), recipe_of("lmdb", "sample"), url, workers=0)
    names = sorted(open_store(plain_url).list())
    assert names == sorted(open_store(url).list()) and puts
    assert all((folder_of(url) / name).read_bytes() == (folder_of(plain_url) / name).read_bytes() for name in names)
    again = convert_to_store(Numbers(60), recipe_of("lmdb", "sample"), url, workers=0)
    assert (again.made, again.found) == (0, 4)


def test_another_cache_is_not_overwritten(url):
    convert_to_store(Numbers(60), recipe_of("lmdb", "sample"), url, workers=0)
    with pytest.raises(BadUsage, match="finished cache already, of another recipe"):
        convert_to_store(Numbers(60), recipe_of("lmdb", "decoded"), url, workers=0)
    with pytest.raises(BadUsage, match="The dataset has 61 samples") as raised:
        CachedDataset(url, dataset=Numbers(61))
    assert raised.value.advice.startswith("Make it anew elsewhere"), "an update was advised, which caches in a store refuse"


def test_the_list_of_damaged_samples_is_brought_too(url, monkeypatch):
    """It was removed with the folder that the cache was made in, and said to lie in the store."""
    act = partial(convert_to_store, Acting(20, lambda: 1 / 0), recipe_of("lmdb", "sample", on_bad="quarantine"), url, workers=0)
    with monkeypatch.context() as patched:
        patched.setattr("pipefix.stores.folder.write_new", mock.Mock(side_effect=OSError(5, "gone")))
        with pytest.raises(UnreadableFile, match="gone"):  # all but the manifest is there
            act()
    done = act()
    assert (done.manifest.bad, done.made, done.finished) == (1, 0, True), "nothing was done, it said"
    assert json.loads((folder_of(url) / "quarantine.jsonl").read_text())["index"] == 20


def test_what_changed_since_an_upload_was_stopped_is_brought_as_it_is_now(url, monkeypatch):
    """The cache of the old labels was brought, and could not be changed there any more."""
    dataset = Numbers(60)
    dataset.labels = [0] * 60
    act = partial(convert_to_store, dataset, recipe_of("lmdb", "sample"), url, workers=0)
    with monkeypatch.context() as patched:
        patched.setattr(FolderStore, "put", mock.Mock(side_effect=UnreadableFile("gone")))
        with pytest.raises(UnreadableFile, match="gone"):
            act()
    dataset.labels[20] = 1
    done = act()
    assert (done.made, done.found, done.changed) == (1, 3, ()) and CachedDataset(url, dataset=dataset)[20]["index"] == 20


def test_of_two_that_finish_at_once_one_is_told(url, monkeypatch):
    class Late(FolderStore):
        def put(self, name, data, *, if_absent=False):
            if if_absent:
                super().put(name, data.replace(b'"length": 60', b'"length": 61'), if_absent=True)
            return super().put(name, data, if_absent=if_absent)

    monkeypatch.setattr(publish, "open_store", lambda _: Late(folder_of(url)))
    with pytest.raises(BadUsage, match="holds another finished cache by now"):
        convert_to_store(Numbers(60), recipe_of("lmdb", "sample"), url, workers=0)


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_told_before_it_is_used(url, kind):
    convert_to_store(Texts(60) if kind == "rows" else Numbers(60), recipe_of(*KINDS[kind]), url, workers=0)
    data = next((folder_of(url) / "parts").glob("00001.*"))
    whole = data.read_bytes()
    for at in range(0, len(whole), max(1, len(whole) // 50)):
        flip(data, at)
    far = CachedDataset(url)
    assert plain(far[3])
    with pytest.raises(CacheDamaged, match=rf"{url}/parts/00001\.\w+ is damaged: .* do not fit their checksum"):
        far.__getitems__(list(range(16, 32)))
    assert list(verify(url).damage) == [1]
    data.unlink()
    with pytest.raises(CacheDamaged, match="is missing"):
        CachedDataset(url).__getitems__([20])
    assert list(verify(url).damage) == [1]
    (folder_of(url) / "index" / "00002.idx").write_bytes(b"short")
    with pytest.raises(CacheDamaged, match=f"{url}/index/00002.idx was changed after"):
        CachedDataset(url)[40]
    assert list(verify(url).damage) == [1, 2]


def test_a_byte_that_the_network_flipped_is_fetched_again(url, monkeypatch):
    convert_to_store(Numbers(60), recipe_of("lmdb", "sample"), url, workers=0)
    real, flipped = FolderStore.ranges, []

    def ranges(self, spans):
        contents = real(self, spans)
        if not flipped:
            flipped.append(True)
            contents[0] = bytes([contents[0][0] ^ 1]) + contents[0][1:]
        return contents

    monkeypatch.setattr(FolderStore, "ranges", ranges)
    assert CachedDataset(url).__getitems__([7])[0]["index"] == 7 and flipped


def test_what_is_no_cache_says_so(url, tmp_path):
    with pytest.raises(UnreadableFile, match=r"is not a pipefix cache: it has no manifest\.json"):
        CachedDataset(url)
    with pytest.raises(BadUsage, match="is a directory, which needs no tier"):
        CachedDataset(tmp_path, tier=f"{tmp_path}/tier:1MB")


def test_a_tier_without_room_for_any_part_is_told(url, tmp_path):
    """It stayed empty, and every record was read in the store for as long as the training ran."""
    convert_to_store(Numbers(60), recipe_of("lmdb", "sample"), url, workers=0)
    with pytest.raises(BadUsage, match=r"tier may take 1.00 kB, and a part of file://.* or more"):
        CachedDataset(url, tier=f"{tmp_path}/tier:1kB")


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_parts_come_to_lie_in_the_tier_and_are_read_there(url, tmp_path, kind, batched):
    """A dataset that asks for one sample at a time, and rows, went on reading in the store whatever had been opened there."""
    convert_to_store(Texts(60) if kind == "rows" else Numbers(60), recipe_of(*KINDS[kind]), url, workers=0)
    tiered = CachedDataset(url, tier=f"{tmp_path}/tier:10MB")
    indices = list(range(0, 60, 5))

    def read():
        if kind == "rows":
            tiered._rows._kept.clear()
        return [plain(sample) for sample in (tiered.__getitems__(indices) if batched else map(tiered.__getitem__, indices))]

    expected = read()
    while len(list((tmp_path / "tier").glob("*/parts/0*"))) < 4:
        time.sleep(0.02)
    before = dict(tiered._parts.store.ledger.requests)
    read()  # opens what has arrived: indices are read once more
    ranges = tiered._parts.store.ledger.requests["range"]
    for path in folder_of(url).glob("parts/*"):
        path.unlink()
    assert read() == expected
    assert tiered._parts.store.ledger.requests["range"] == ranges == before["range"]


@pytest.mark.parametrize("damage", [lambda data: bytes(len(data)), lambda data: data[:-1]], ids=["zeros", "cut short"])
def test_what_is_damaged_in_the_tier_is_read_in_the_store(url, tmp_path, monkeypatch, damage):
    """The training ended, although the store held all of it."""
    monkeypatch.setattr(TieredCache, "_start", lambda self: None)
    convert_to_store(Numbers(60), recipe_of("lmdb", "sample"), url, workers=0)
    far, fetcher = partial(CachedDataset, url, tier=f"{tmp_path}/tier:10MB"), Fetcher(tmp_path / "tier", 10_000_000)
    expected = list(map(plain, far().__getitems__(range(60))))
    while fetcher.serve():
        pass
    parts = sorted((tmp_path / "tier").glob("*/parts/*"))
    parts[1].write_bytes(damage(parts[1].read_bytes()))
    with pytest.warns(RuntimeWarning, match=r"00001.mdb .*: this copy in the tier is removed, and read in the store\."):
        assert list(map(plain, far().__getitems__(range(60)))) == expected
    assert len(parts) == 4 and [path.exists() for path in parts] == [True, False, True, True]


def test_it_goes_on_where_a_dataset_changes_the_working_directory(url, tmp_path, monkeypatch):
    """Hydra makes a new one for each run: each time the cache was made from its beginning, and what was made stayed behind."""
    subject = SimpleNamespace(dataset=Numbers(60), target="data.py")
    monkeypatch.setattr("pipefix.api.convert.loaded", lambda *_, **__: os.chdir(tempfile.mkdtemp(dir=tmp_path)) or subject)
    with monkeypatch.context() as patched:
        patched.setattr(FolderStore, "put", mock.Mock(side_effect=UnreadableFile("gone")))
        with pytest.raises(UnreadableFile, match="gone"):
            pipefix.convert("data.py", store="sample", out=url, workers=0)
    monkeypatch.chdir(tmp_path)
    assert pipefix.convert("data.py", store="sample", out=url, workers=0).made == 0
    assert not list(tmp_path.rglob("pipefix-staging-*"))
