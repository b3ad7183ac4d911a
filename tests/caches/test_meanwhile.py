"""A cache that was opened, and what happens to it, to the program and to its dataset before its samples are asked for."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import sysconfig
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import ConcatDataset, Subset

from pipefix.caches.convert import convert, recipe_of
from pipefix.caches.dataset import CachedDataset
from pipefix.caches.estimate import forecast
from pipefix.vocabulary.errors import BadUsage, CacheDamaged, UnreadableFile
from tests.caches.sources import Files, Numbers, ReadBy, Texts, draw

KINDS = ["sample", "rows"]


def made(store: str, folder: Path, dataset: Any = None) -> Path:
    dataset = dataset if dataset is not None else Texts(30) if store == "rows" else Numbers(30)
    to = "parquet" if store == "rows" else "lmdb"
    return convert(dataset, recipe_of(to, store), folder, workers=0).folder


@pytest.mark.parametrize("store", KINDS)
def test_a_path_is_of_the_directory_that_it_was_named_in(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra, for one, changes the working directory after the datasets were made."""
    made(store, tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    cached = CachedDataset("cache")
    for name in ("elsewhere", "elsewhere/cache"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    sent: CachedDataset = pickle.loads(pickle.dumps(cached))
    assert str(cached[3]) == str(sent[3]) and os.path.isabs(cached.path)


@pytest.mark.parametrize("store", KINDS)
def test_a_cache_that_is_another_by_now_is_not_called_damaged(store: str, tmp_path: Path) -> None:
    folder = made(store, tmp_path / "cache")
    cached = CachedDataset(folder)
    shutil.rmtree(folder)
    with pytest.raises(UnreadableFile, match=r"The cache was removed, or moved, after it was opened: There is no folder .*cache"):
        cached[0]
    made(store, folder, Texts(20) if store == "rows" else Numbers(20))
    with pytest.raises(UnreadableFile, match=r"cache was made anew after it was opened") as raised:
        cached[0]
    assert not isinstance(raised.value, CacheDamaged) and "Open it once more" in raised.value.advice


@pytest.mark.parametrize("index", ["3", 3.0, None, slice(0, 3)])
def test_an_index_that_is_no_integer_is_refused_as_a_list_would(index: Any, tmp_path: Path) -> None:
    cached = CachedDataset(made("sample", tmp_path / "cache"))
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        cached[index]
    assert cached[np.int64(3)]["index"] == 3


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_is_stored_while_another_cache_of_it_is_in_use(pictures: list[Path], tmp_path: Path, workers: int) -> None:
    """The functions that answer from the first cache hid every read from who makes the second."""
    files = Files(pictures)
    first = CachedDataset(convert(files, recipe_of("lmdb", "source"), tmp_path / "first", workers=0).folder, dataset=files)
    expected = first[2]
    second = convert(files, recipe_of("lmdb", "source"), tmp_path / "second", workers=workers)
    assert second.manifest.source.files == len(pictures)
    for path in pictures:
        path.unlink()
    assert np.array_equal(np.asarray(first[2][0]), np.asarray(expected[0])), "it answers again"
    assert np.array_equal(np.asarray(CachedDataset(second.folder, dataset=files)[2][0]), np.asarray(expected[0]))


def test_a_librarys_own_files_are_no_misses(pictures: list[Path], tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Pillow 13 imports the reader of a kind of picture with the first one: three files, each opened and read."""
    own = Path(sysconfig.get_path("stdlib"), "this.py")

    def read(path: str) -> tuple[bytes, bytes]:
        with open(own, "rb") as file:
            inside = file.read(100)
        return inside, Path(path).read_bytes()

    dataset = ReadBy(pictures, "")
    dataset.__class__ = type("Imports", (ReadBy,), {"__getitem__": lambda self, index: read(self.paths[index])})
    cached = CachedDataset(made("source", tmp_path / "cache", dataset), dataset=dataset)
    assert cached[0] == read(str(pictures[0])) and cached.misses == 0
    assert not [warning for warning in recwarn if "the cache does not hold" in str(warning.message)]


def test_a_place_that_may_not_be_looked_into_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To who makes a cache below another user's folder."""
    real = os.stat, os.lstat

    def refused(number: int) -> Any:
        def status(path: Any, *how: Any, **more: Any) -> os.stat_result:
            if not isinstance(path, int) and os.fspath(path).startswith(str(tmp_path / "theirs")):
                raise PermissionError(13, "Permission denied", str(path))
            return real[number](path, *how, **more)

        return status

    def mkdir(self: Path, *how: Any, **more: Any) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(os, "stat", refused(0))
    monkeypatch.setattr(os, "lstat", refused(1))
    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(UnreadableFile, match="cannot be written: Permission denied"):
        convert(Subset(Numbers(), range(3)), recipe_of("lmdb", "sample"), tmp_path / "theirs" / "cache", workers=0)


@pytest.mark.parametrize("store", KINDS)
def test_no_file_stays_open_without_its_dataset(store: str, tmp_path: Path) -> None:
    """A suite that takes warnings for errors would end there."""
    cached = CachedDataset(made(store, tmp_path / "cache"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        cached[0]
        del cached
        gc.collect()
    assert not [warning for warning in told if issubclass(warning.category, ResourceWarning) and "FileIO" in str(warning.message)]


class Classes(Files):
    """As `ImageFolder`: each folder in its root is a class."""

    def __init__(self, root: Path, paths: list[Path]) -> None:
        super().__init__(paths)
        self.root, self.class_to_idx = str(root), {"cats": 0}


@pytest.mark.parametrize("run", [convert, forecast])
def test_a_cache_does_not_become_a_class(run: Any, tmp_path: Path) -> None:
    """`cd images; pipefix convert .` left a dataset that could not be loaded any more."""
    root = tmp_path / "images"
    dataset = Classes(root, [draw(root / "cats" / f"{index}.jpg", index) for index in range(8)])
    wrapped = {root / "cache": Subset(dataset, range(6)), root / "more" / "cache": ConcatDataset([dataset, dataset])}
    for place, wrapper in wrapped.items():
        with pytest.raises(BadUsage, match="would be taken for one more class"):
            run(wrapper, recipe_of("lmdb", "sample"), place, workers=0)
    assert os.listdir(root) == ["cats"]
    for place in (tmp_path / "cache", root / "cats" / "cache"):
        run(dataset, recipe_of("lmdb", "sample"), place, workers=0)
