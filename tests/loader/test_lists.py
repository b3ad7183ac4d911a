"""Long lists of a dataset, which forked workers read without writing to them."""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch.utils.data import DataLoader, Dataset, Subset, get_worker_info
from torchvision.datasets import ImageFolder

from pipefix.loader import lists
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.lists import Shared, kinds_of, only_read, places
from tests.loader.likeness import assert_same

COUNT = 40


@pytest.fixture(autouse=True)
def _short_lists_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "LEAST", COUNT)


class Listed(Dataset[Any]):
    """And what its list is, where it is read."""

    def __init__(self) -> None:
        self.paths = [f"/data/train/n{number % 7}/{number}.jpg" for number in range(COUNT)]
        self.pairs = [(path, number) for number, path in enumerate(self.paths)]
        self.unused = list(range(COUNT))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        path, label = self.pairs[index]
        return self.paths[index], path, label, len(self.paths)


def held_by(dataset: Any) -> dict[str, str]:
    assert get_worker_info() is not None
    return {name: type(vars(dataset)[name]).__name__ for name in ("paths", "pairs", "unused")}


class Looking(Listed):
    def __getitem__(self, index: int) -> Any:
        return held_by(self)


class Sorting(Listed):
    def smallest(self) -> Any:
        self.paths.sort()
        return self.paths[0]


class Handing(Listed):
    def all(self) -> Any:
        return self.paths


class Hiding(Listed):
    def any(self, name: str) -> Any:
        return getattr(self, name)


class Setting(Listed):
    def put(self, path: str) -> None:
        self.paths[0] = path


class Going(Listed):
    def ends(self) -> list[str]:
        return [path[-3:] for path in self.paths if path] + [str(number) for number, _ in enumerate(self.paths)]


@dataclass
class Generated:
    paths: list[str]

    def __getitem__(self, index: int) -> str:
        return self.paths[index]


texts = some.text(max_size=20)
numbers = some.one_of(some.integers(-5, 5), some.integers())
lists_of = some.one_of(
    some.lists(texts, min_size=1),
    some.lists(some.text("/data.jpg0123456789", max_size=40), min_size=1),
    some.lists(some.text(some.characters(codec=None), max_size=4), min_size=1),
    some.lists(some.tuples(texts, numbers, some.floats(allow_nan=False)), min_size=1),
)


@given(lists_of, some.integers(-60, 60), some.slices(50))
def test_it_is_equal_to_the_list_in_every_way_it_is_read(values: list[Any], place: int, part: slice) -> None:
    kinds = kinds_of(values)
    assert kinds is not None
    made = Shared(values, kinds)
    assert list(made) == values
    assert made == values
    assert (len(made), repr(made), made[part]) == (len(values), repr(values), values[part])
    assert [type(one) for one in made] == [type(one) for one in values]
    assert values[0] in made
    assert made.index(values[-1]) == values.index(values[-1])
    assert copy.deepcopy(made) == values
    if -len(values) <= place < len(values):
        assert made[place] == made[np.int64(place)] == made[torch.tensor(place)] == values[place]
    else:
        with pytest.raises(IndexError, match="list index out of range"):
            made[place]


@given(some.lists(some.tuples(some.text(some.characters(codec="utf-8")), some.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_reading_it_leaves_the_counts_of_references_as_they_are(drawn: list[Any]) -> None:
    values = [(f"{place} {text}", number) for place, (text, number) in enumerate(drawn)]
    made, texts = Shared(values, (str, int)), [text for text, _ in values]
    before = [sys.getrefcount(one) for one in (*values, *texts)]
    kept = list(made)
    assert [sys.getrefcount(one) for one in (*values, *texts)] == before
    assert kept == values


def test_a_list_that_was_cut_short_by_others_ends_where_it_ends() -> None:
    values = ["one", "two", "three"]
    made = Shared(values, str)
    del values[1:]
    assert made[0] == "one"
    with pytest.raises(IndexError):
        made[2]


@pytest.mark.parametrize(
    "values",
    [[1, 2], [1, "two"], [None], [True, False], [("a", 1), ("b",)], [()], [["a"]], [("a", None)], [("a", 1), ("a", "b")], [b"raw"]],
)
def test_other_elements_stay_in_their_list(values: list[Any]) -> None:
    assert kinds_of(values) is None


@pytest.mark.parametrize(
    ("kind", "seen"),
    [(Listed, True), (Going, True), (Sorting, False), (Handing, False), (Hiding, False), (Setting, False), (Generated, False)],
)
def test_only_a_list_that_is_only_read_is_shared(kind: type, seen: bool) -> None:
    assert only_read(kind, "paths") is seen


def test_a_list_that_no_code_of_the_class_reads_is_left_as_it_is() -> None:
    assert not only_read(Listed, "unused")


def test_image_folders_are_among_them() -> None:
    assert only_read(ImageFolder, "samples")


def test_code_that_was_put_into_the_class_later_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Patched(Listed):
        def __len__(self) -> int:
            return len(self.paths)

    assert only_read(Patched, "paths")
    only_read.cache_clear()
    monkeypatch.setattr(Patched, "all", lambda self: self.paths, raising=False)
    assert not only_read(Patched, "paths")
    only_read.cache_clear()


@pytest.mark.parametrize("options", [{}, {"rng": "sample"}, {"engine": "torch"}, {"persistent_workers": True}])
def test_batches_are_those_of_torch(options: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"batch_size": 4, "num_workers": 2, "multiprocessing_context": "fork"}
    loader = FastLoader(Listed(), **settings, **options)
    for _ in range(2):
        assert_same(list(loader), list(DataLoader(Listed(), **settings)))
    assert "All workers read paths, pairs without copying pages of it." in loader.explain()


def test_workers_have_them_and_this_process_keeps_its_own() -> None:
    dataset = Looking()
    before = dict(vars(dataset))
    options: dict[str, Any] = {"batch_size": None, "num_workers": 2, "multiprocessing_context": "fork"}
    assert next(iter(FastLoader(dataset, **options))) == {"paths": "Shared", "pairs": "Shared", "unused": "list"}
    assert next(iter(DataLoader(dataset, **options))) == {"paths": "list", "pairs": "list", "unused": "list"}
    assert all(vars(dataset)[name] is value for name, value in before.items())


def test_a_subset_reads_its_datasets() -> None:
    loader = FastLoader(Subset(Listed(), [3, 4]), batch_size=2, num_workers=2, multiprocessing_context="fork")
    assert [batch[2].tolist() for batch in loader] == [[3, 4]]
    assert "All workers read paths, pairs without copying pages of it." in loader.explain()


def test_what_is_changed_between_epochs_is_seen() -> None:
    dataset = Listed()
    loader = FastLoader(dataset, batch_size=COUNT, num_workers=2, multiprocessing_context="fork")
    (first,) = loader
    dataset.paths[3] = "another"
    (second,) = loader
    assert first[0][3] != second[0][3] == "another"


def test_what_the_users_own_function_puts_in_its_place_counts() -> None:
    dataset = Listed()
    loader = FastLoader(dataset, batch_size=COUNT, num_workers=2, multiprocessing_context="fork", worker_init_fn=shortened)
    with pytest.raises(IndexError, match="list index out of range"):
        list(loader)


def shortened(_: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.paths.pop()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_are_not_forked_have_lists_of_their_own(method: str) -> None:
    loader = FastLoader(Listed(), batch_size=COUNT, num_workers=2, multiprocessing_context=method)
    assert [batch[3][0].item() for batch in loader] == [COUNT]
    assert "All workers read" not in loader.explain()


def test_few_elements_stay_in_their_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "LEAST", COUNT + 1)
    assert places(Listed()) == []
