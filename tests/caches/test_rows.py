"""Rows as typed columns: read one by one or in batches, some columns, those that meet conditions, shuffled by row groups."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

from pipefix.caches.dataset import CachedDataset
from pipefix.caches.table import GroupSampler
from pipefix.caches.verify import verify
from pipefix.vocabulary.errors import BadUsage, TargetError
from tests.caches.sources import Numbers, Texts


@pytest.fixture
def cache(make):
    return make(Texts(), "rows", "parquet").folder


def test_rows_come_back_as_they_were(cache):
    cached, source = CachedDataset(cache), Texts()
    for index in (0, 1023, 1024, 2999):
        found, expected = cached[index], source[index]
        assert {key: found[key] for key in ("text", "label", "score")} == {key: expected[key] for key in ("text", "label", "score")}
        assert np.array_equal(found["ids"], expected["ids"]) and found["ids"].dtype == np.int32
    assert [row["label"] for row in cached.__getitems__([5, 2000, 1])] == [5, 2000 % 7, 1]
    assert verify(cache).sound


def test_columns_have_types_and_statistics(cache):
    file = pq.ParquetFile(cache / "parts" / "00000.parquet")
    assert {field.name: str(field.type) for field in file.schema_arrow} == {
        "sample": "int64", "text": "string", "label": "int64", "score": "double", "ids": "list<element: int32>",
    }  # fmt: skip
    assert [file.metadata.row_group(number).num_rows for number in range(3)] == [1024, 1024, 952]
    assert file.metadata.row_group(1).column(0).statistics.min == 1024


def test_some_columns_and_some_rows(cache):
    cached = CachedDataset(cache, columns=["label", "score"], where=[("label", "==", 3), ("score", ">", 900.0)])
    expected = [index for index in range(3000) if index % 7 == 3 and index / 3 > 900]
    assert [cached[index] for index in range(len(cached))] == [{"label": 3, "score": index / 3} for index in expected]
    assert cached.sample_number(0) == expected[0]


def test_row_groups_that_cannot_match_are_not_read(cache, monkeypatch):
    from pipefix.caches.parquet import ParquetReader

    read = []
    real = ParquetReader.group
    monkeypatch.setattr(
        ParquetReader, "group", lambda self, number, columns=None: (read.append(number), real(self, number, columns))[1]
    )
    assert len(CachedDataset(cache, where=[("score", "<", 100.0)])) == 300
    assert read == [0]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ([("labl", "==", 3)], "no column 'labl'; the cache has text, label"),
        ([("label", "~", 3)], "no condition '~'"),
        ([("label", "==", "x")], "cannot be compared"),
    ],
)
def test_conditions_that_make_no_sense(cache, where, said):
    with pytest.raises(BadUsage, match=said):
        CachedDataset(cache, where=where)


def test_shuffled_by_row_groups_every_row_comes_once_and_quality_is_stated(cache):
    cached = CachedDataset(cache, columns=["label"])
    sampler = GroupSampler(cached, window=2, seed=1)
    order = list(sampler)
    assert sorted(order) == list(range(3000)) and order == list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != order
    assert 0.3 < GroupSampler(cached, window=1).quality(64) < GroupSampler(cached, window=3).quality(64) <= 1.05
    assert sum(len(batch["label"]) for batch in DataLoader(cached, batch_size=100, sampler=sampler)) == 3000


def test_tuples_and_tensors(make):
    class Pairs(Numbers):
        def __getitem__(self, index):
            return torch.arange(3) + index, index % 3, f"row {index}"

    cached = CachedDataset(make(Pairs(), "rows", "parquet").folder)
    ids, label, name = cached[9]
    assert torch.equal(ids, torch.arange(3) + 9) and (label, name) == (0, "row 9")


def test_texts_are_tokenised_on_the_way(make, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "the": 1, "quick": 2, "fox": 3, "number": 4}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    done = make(Texts(), "rows", "parquet", tokenizer=str(tmp_path / "tokenizer.json"), text="text")
    found = CachedDataset(done.folder)[5]
    assert found["input_ids"].tolist() == [1, 2, 3, 4, 0] and "text" not in found and found["label"] == 5
    with pytest.raises(BadUsage, match="no field 'txt' to tokenise; a sample has text, label"):
        make(Texts(), "rows", "parquet", tokenizer=str(tmp_path / "tokenizer.json"), text="txt", name="other")


def test_a_row_that_does_not_fit_is_named(make):
    class Misfit(Texts):
        def __getitem__(self, index):
            row = super().__getitem__(index)
            return {**row, "label": "seven"} if index == 1501 else row

    with pytest.raises(TargetError, match="Sample 1501 cannot be stored as rows: field 'label' is str 'seven'"):
        make(Misfit(), "rows", "parquet")


def test_pictures_are_no_rows(files, make):
    with pytest.raises(TargetError, match="Sample 0 cannot be stored as rows") as raised:
        make(files, "rows", "parquet")
    assert "--store sample" in raised.value.advice
