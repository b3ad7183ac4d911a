"""A cache whose dataset is not what it was made from is noticed: by `convert`, and when it is opened."""

from __future__ import annotations

import dataclasses
import functools
import re
import shutil
import tracemalloc
import weakref
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset
from torchvision.transforms import v2

from pipefix.caches import code_digest, fingerprint
from pipefix.caches import manifest as manifests
from pipefix.caches.cut import listed
from pipefix.caches.dataset import CachedDataset
from pipefix.caches.fingerprint import Fingerprint
from pipefix.vocabulary.errors import BadUsage, TargetError
from tests.caches.sources import Files, draw

CODE = """
import numpy as np
from torch.utils.data import Dataset

SIZE = 4
MORE, MEAN = [0, 1], np.array([0.5, 0.25])

def scaled(value):
    return value * 2 + MORE[0] - MEAN[0]

class Data(Dataset):
    '''Numbers.'''

    def __init__(self, transform=None):
        self.transform = transform
        self.labels = list(range(40))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return np.full(SIZE, scaled(index)), self.labels[index]
"""


def dataset_of(folder: Path, old: str = "", new: str = "", **settings: Any) -> Any:
    """The dataset of the code above, with an edit."""
    assert old in CODE
    path = folder / f"data_{abs(hash((old, new)))}.py"
    path.write_text(CODE.replace(old, new) if old else CODE)
    namespace: dict[str, Any] = {"__name__": "data"}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    return namespace["Data"](**settings)


EDITS = [
    ("value * 2", "value * 3"),
    ("SIZE = 4", "SIZE = 5"),
    ("[0, 1]", "[1, 0]"),
    ("[0.5, 0.25]", "[0.25, 0.5]"),
    ("list(range(40))", "list(range(40))[::-1]"),
]


@pytest.mark.parametrize(("old", "new"), EDITS)
def test_another_code_or_other_labels_are_noticed(tmp_path, make, old, new):
    folder = make(dataset_of(tmp_path), "sample").folder
    edited = dataset_of(tmp_path, old, new)
    assert make(edited, "sample").changed
    with pytest.raises(BadUsage, match=r"is not the one that .* was made from") as raised:
        CachedDataset(folder, dataset=edited)
    assert f"--to lmdb --store sample --out {folder} --update; or take" in raised.value.advice, "--out was left to be guessed"
    make(edited, "sample", update=True)
    assert repr(CachedDataset(folder, dataset=edited)[3]) == repr(edited[3])


@pytest.mark.parametrize(
    ("old", "new"), [("'''Numbers.'''", "'''Numbers of ours.'''"), ("    return value * 2", "    # twice\n    return value  *  2")]
)
def test_comments_and_layout_are_no_change(tmp_path, make, old, new):
    folder = make(dataset_of(tmp_path), "sample").folder
    edited = dataset_of(tmp_path, old, new)
    assert not make(edited, "sample").changed
    assert len(CachedDataset(folder, dataset=edited)) == 40


class Scale:
    def __init__(self, by: float) -> None:
        self._by = by

    def __call__(self, value: Any) -> Any:
        return value * self._by


NEAREST, LINEAR = v2.InterpolationMode.NEAREST, v2.InterpolationMode.BILINEAR
TRANSFORMS = {
    "mean": lambda changed: v2.Normalize([0.5 if changed else 0.4] * 3, [0.2] * 3),
    "interpolation": lambda changed: v2.Resize(20, interpolation=NEAREST if changed else LINEAR),
    "lambda": lambda changed: v2.Lambda((lambda value: value + 1) if changed else (lambda value: value + 2)),
    "private attribute": lambda changed: Scale(2) if changed else Scale(3),
}  # fmt: skip


def listing(kind: str, changed: bool) -> Any:
    to_float = v2.ToDtype(torch.float32, scale=True)
    return v2.Compose([v2.PILToTensor(), to_float, TRANSFORMS[kind](changed), v2.RandomHorizontalFlip()])


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_stored_transforms_are_compared_by_what_they_are(pictures, make, kind):
    folder = make(Files(pictures[:4], listing(kind, False)), "sample").folder
    same, changed = Files(pictures[:4], listing(kind, False)), Files(pictures[:4], listing(kind, True))
    assert not make(same, "sample").changed and len(CachedDataset(folder, dataset=same)) == 4
    with pytest.raises(BadUsage, match="of transform, which are stored, would give other samples today"):
        CachedDataset(folder, dataset=changed)
    assert make(changed, "sample").changed
    assert CachedDataset(folder, transform=torch.nn.Identity())[0][0].shape == same[0][0].shape


@pytest.mark.parametrize("store", ["sample", "decoded"])
def test_lists_of_other_settings_are_several_lists(pictures, make, store):
    """Samples of the second dataset were made by the transforms of the first: with its mean."""
    halves = [Files(pictures[:6], listing("mean", False)), Files(pictures[6:], listing("mean", True))]
    with pytest.raises(TargetError, match=r"several different lists of transforms, .*Normalize"):
        make(ConcatDataset(halves), store)
    halves[1].transform = listing("mean", False)
    assert len(make(ConcatDataset(halves), store).manifest.cut.live) == (1 if store == "sample" else 4)


class Sequential:
    """As that of albumentations: all of it is done, or none."""

    def __init__(self, transforms: list[Any], p: float) -> None:
        self.transforms, self.p = transforms, p


def test_a_list_that_is_run_by_chance_is_not_taken_apart():
    """What is fixed in it was stored, and the rest ran live, in every sample."""
    assert listed(Sequential([1, 2], 1.0)) == [1, 2]
    by_chance = Sequential([1, 2], 0.5)
    assert listed(Sequential([0, by_chance], 1.0)) == [0, by_chance]


class Changing(Files):
    """Its code works on what the transforms gave, so that they cannot be cut, and all of them are stored."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)[0].numpy().copy()


def test_transforms_that_are_stored_whole_are_compared_too(pictures, make):
    folder = make(Changing(pictures[:4], v2.Compose([v2.Resize(20), v2.PILToTensor()])), "sample").folder
    assert manifests.read(folder).cut.attribute is None
    changed = Changing(pictures[:4], v2.Compose([v2.Resize(20, interpolation=v2.InterpolationMode.NEAREST), v2.PILToTensor()]))
    assert make(changed, "sample").changed
    with pytest.raises(BadUsage, match="all of which are stored"):
        CachedDataset(folder, dataset=changed)


class Lazy(Files):
    """Opens and notes things while samples are made, as datasets do."""

    def __init__(self, paths: list[Path]) -> None:
        super().__init__(paths, v2.Compose([v2.PILToTensor()]))
        self.handle, self.count, self.memory = None, 0, [None] * len(paths)

    def __getitem__(self, index: int) -> Any:
        self.handle, self.count, self.memory[index] = object(), self.count + 1, index
        return super().__getitem__(index)


def test_what_samples_change_in_a_dataset_is_no_change_of_it(pictures, make):
    folder = make(Lazy(pictures), "sample").folder
    used = Lazy(pictures)
    used[3]
    assert len(CachedDataset(folder, dataset=used)) == len(pictures)
    assert not make(used, "sample").changed and manifests.read(folder).source.volatile == ["memory"]


def test_a_dataset_that_moved_is_the_same(tmp_path, pictures, make):
    folder = make(Files(pictures), "decoded").folder
    pictures[0].parent.rename(tmp_path / "elsewhere")
    moved = Files([tmp_path / "elsewhere" / path.name for path in pictures])
    assert len(CachedDataset(folder, dataset=moved, root=tmp_path / "elsewhere")) == len(pictures)
    with pytest.raises(BadUsage, match="files or labels of its samples"):
        CachedDataset(folder, dataset=Files(list(reversed(moved.paths))), root=tmp_path / "elsewhere")


def test_a_copy_of_the_dataset_is_held_against_its_own_files(tmp_path, pictures, make, small_parts):
    """What was mended in the copy stayed in the cache as it was: its files were compared with those that it was copied from."""
    for store in ("decoded", "source"):
        make(Files(pictures), store, name=store)
    shutil.copytree(pictures[0].parent, tmp_path / "copy")
    copied = Files([tmp_path / "copy" / path.name for path in pictures])
    assert make(copied, "decoded", name="decoded").changed == ()
    assert make(copied, "source", name="source").changed == (0, 1, 2), "it reads by the names of the files"
    draw(tmp_path / "copy" / "05.jpg", 40)
    assert make(copied, "decoded", name="decoded").changed == (1,)


def test_a_wrapped_dataset_is_looked_into(pictures, make):
    folder = make(Subset(Files(pictures), range(0, 12, 2)), "decoded").folder
    dataset = Files(pictures)
    dataset.convert = "L"
    assert len(CachedDataset(folder, dataset=Subset(Files(pictures), range(0, 12, 2)))) == 6
    with pytest.raises(BadUsage, match=re.escape("dataset.convert")):
        CachedDataset(folder, dataset=Subset(dataset, range(0, 12, 2)))


def test_a_label_of_a_sample_that_is_picked_by_its_index(pictures, make, small_parts):
    """The part at the label's own place was made anew, and that of its sample was said to be unchanged."""
    backwards = Subset(Files(pictures), range(11, -1, -1))
    make(backwards, "decoded")
    backwards.dataset.labels[0] = 99
    assert CachedDataset(make(backwards, "decoded", update=True).folder, dataset=backwards)[11][1] == 99


class Labelled:
    """A dataset that holds its labels so."""

    def __init__(self, labels: Any) -> None:
        self.labels = labels


SHARED = torch.eye(2).unbind()

HELD = {
    "list": lambda labels: [[object(), torch.ones(3), {"a": (1, label)}, 2.5, b"\xff"] for label in labels],
    "array of objects": lambda labels: np.array(labels, dtype=object),
    "table": lambda labels: pd.DataFrame({"file": "x.jpg", "label": labels}),
    "arrow table": lambda labels: pa.table({"file": ["x.jpg"] * len(labels), "label": labels}),
    "arrow column": lambda labels: pa.chunked_array([labels[:100], labels[100:]]),
    "arrow strings": lambda labels: pa.array(map(str, labels)),
    "column": lambda labels: pd.Series(labels, index=range(0, 2 * len(labels), 2)),
    "column of times": lambda labels: pd.Series(pd.to_datetime(labels, utc=True)),
    "values of a column of texts": lambda labels: pd.Series([str(label) for label in labels], dtype="string").values,
    "values of a column of categories": lambda labels: pd.Categorical(labels, categories=range(len(labels))),
    "index": lambda labels: pd.Index(labels),
    "objects that samples share": lambda labels: [SHARED[label == 7] for label in labels],
    "bfloat16": lambda labels: torch.tensor(labels).remainder(100).to(torch.bfloat16),
}


@pytest.mark.parametrize("kind", HELD)
def test_one_label_of_many_is_noticed(kind: str) -> None:
    """NumPy and pandas leave the middle out of what they print."""
    labels = list(range(5000))
    before, mended = [Fingerprint(Labelled(HELD[kind](labels)), 5000) for labels in (labels, [*labels[:2500], 7, *labels[2501:]])]
    assert before.part(0, 5000) != mended.part(0, 5000)
    assert before.rows([3, 9]) == mended.rows([3, 9])


@dataclasses.dataclass(slots=True)
class Settings:
    """As attrs and msgspec make them, too: without a ``__dict__``."""

    size: int


SETTINGS = {
    "range": lambda by: range(by, 12 + by),
    "slots": lambda by: Settings(by),
    "partial": lambda by: functools.partial(int, base=10 + by),
    "pattern": lambda by: re.compile("a" * (1 + by)),
    "dtype": lambda by: torch.float16 if by else torch.float32,
    "slice": lambda by: slice(by, 3),
    "array": lambda by: array("i", [by] * 12),
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_settings_of_every_kind_are_noticed(kind: str) -> None:
    """Of the second half of a dataset, ``Subset(dataset, range(6, 12))``, the cache of the first was called up to date."""
    before, same, after = (Fingerprint(Labelled(SETTINGS[kind](by)), 12) for by in (0, 0, 1))
    told = [(fingerprint.attributes, fingerprint.part(0, 12)) for fingerprint in (before, same, after)]
    assert told[0] == told[1] != told[2]


def test_another_half_of_a_dataset_is_another_dataset(pictures, make):
    first, second = (Subset(Files(pictures), range(at, at + 6)) for at in (0, 6))
    folder = make(first, "decoded").folder
    assert make(second, "decoded").changed and not make(first, "decoded").changed
    with pytest.raises(BadUsage, match="is not the one that"):
        CachedDataset(folder, dataset=second)


def test_a_large_array_is_neither_copied_nor_read_whole() -> None:
    tokens = np.zeros(1 << 29, np.uint8)
    tracemalloc.start()
    before = Fingerprint(Labelled(tokens), 1000).attributes
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    tokens[:] = 1
    assert Fingerprint(Labelled(tokens), 1000).attributes != before


def test_of_a_large_arrow_column_rows_are_looked_at_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "_MOST_BYTES", 1 << 10)
    values = np.zeros(10_000, np.int64)
    before = Fingerprint(Labelled(pa.table({"label": values})), 10_000).attributes
    values[5_000:] = 1
    assert Fingerprint(Labelled(pa.table({"label": values})), 10_000).attributes != before


def test_rows_of_a_library_that_tells_them_by_a_fingerprint() -> None:
    """A dataset of Hugging Face's keeps its rows under private names, and a fingerprint of them beside."""
    before, after = (Fingerprint(Labelled(SimpleNamespace(_fingerprint=told, _data=[])), 4).attributes for told in ("a", "b"))
    assert before != after


def test_lists_in_lists_that_are_as_long_as_the_dataset() -> None:
    fingerprint = Fingerprint(Labelled([torch.ones(4) * index for index in range(4)]), 4)
    assert fingerprint.part(0, 2) == fingerprint.part(0, 2)


def test_a_weak_proxy_of_an_object_that_is_gone_is_looked_past() -> None:
    fingerprint = Fingerprint(Labelled(weakref.proxy(Labelled([]))), 4)
    assert fingerprint.attributes == Fingerprint(Labelled(weakref.proxy(Labelled([]))), 4).attributes


def reading(kinds: Any) -> Any:
    return lambda value, also=kinds: value in kinds or value in also


@pytest.mark.parametrize("within", [lambda kinds: kinds, lambda kinds: ({"kinds": kinds}, "a")], ids=["set", "set in a dict"])
def test_sets_have_no_order(within) -> None:
    """That of texts is another in every process: the dataset that a cache was made from was refused in the next one."""
    one, other = frozenset((0, 8)), frozenset((8, 0))
    assert list(one) != list(other), "as texts have it in two processes"
    assert code_digest.digest(reading(within(one))) == code_digest.digest(reading(within(other)))
    assert code_digest.digest(reading(within(one))) != code_digest.digest(reading(within(frozenset((0, 9)))))
    first, second = (Fingerprint(Labelled([within(kinds), {1}]), 2) for kinds in (one, other))
    assert first.part(0, 2) == second.part(0, 2)
