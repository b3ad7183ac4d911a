"""Long lists of a dataset, which forked workers read from one copy."""

from __future__ import annotations

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
from pipefix.loader.lists import Lists, only_read, shared
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


def kinds_of(dataset: Any) -> dict[str, str]:
    assert get_worker_info() is not None
    return {name: type(vars(dataset)[name]).__name__ for name in ("paths", "pairs", "unused")}


class Looking(Listed):
    def __getitem__(self, index: int) -> Any:
        return kinds_of(self)


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
kinds = some.one_of(
    some.lists(texts, min_size=1),
    some.lists(texts.map("/data/日本/{}.JPEG".format), min_size=1),
    some.lists(some.integers(-(2**63), 2**63 - 1), min_size=1),
    some.lists(some.floats(allow_nan=False), min_size=1),
    some.lists(some.tuples(texts, some.integers(-5, 5), some.floats(allow_nan=False)), min_size=1),
)


@given(kinds, some.integers(-60, 60), some.slices(50))
def test_it_is_equal_to_the_list_in_every_way_it_is_read(values: list[Any], place: int, part: slice) -> None:
    made = shared(values)
    assert made is not None
    assert list(made) == values
    assert made == values
    assert (len(made), repr(made), made[part]) == (len(values), repr(values), values[part])
    assert [type(one) for one in made] == [type(one) for one in values]
    assert values[0] in made
    assert made.index(values[-1]) == values.index(values[-1])
    if -len(values) <= place < len(values):
        assert made[place] == made[np.int64(place)] == made[torch.tensor(place)] == values[place]
    else:
        with pytest.raises(IndexError, match="list index out of range"):
            made[place]


@pytest.mark.parametrize(
    "values", [[1, "two"], [None], [True, False], [2**63], [("a", 1), ("b",)], [()], [["a"]], [("a", None)], [b"raw"]]
)
def test_other_elements_stay_in_their_list(values: list[Any]) -> None:
    assert shared(values) is None


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
    assert "All workers read paths, pairs from one copy." in loader.explain()


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
    assert "All workers read paths, pairs from one copy." in loader.explain()


def test_what_is_changed_between_epochs_is_seen() -> None:
    dataset = Listed()
    loader = FastLoader(dataset, batch_size=COUNT, num_workers=2, multiprocessing_context="fork")
    (first,) = loader
    dataset.paths[3] = "another"
    (second,) = loader
    assert first[0][3] != second[0][3] == "another"


def test_a_list_is_gone_through_once_for_all_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, known = Listed(), Lists()
    before = known.of(dataset)
    assert {place.name for place in before} == {"paths", "pairs"}
    monkeypatch.setattr(lists, "shared", lambda _: pytest.fail("it was made again"))
    assert [place.shared is then.shared for place, then in zip(known.of(dataset), before, strict=True)] == [True, True]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_are_not_forked_have_lists_of_their_own(method: str) -> None:
    loader = FastLoader(Listed(), batch_size=COUNT, num_workers=2, multiprocessing_context=method)
    assert [batch[3][0].item() for batch in loader] == [COUNT]
    assert "from one copy" not in loader.explain()


def test_few_elements_stay_in_their_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "LEAST", COUNT + 1)
    assert Lists().of(Listed()) == []
