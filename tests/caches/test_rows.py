"""Rows as typed columns: read one by one or in batches, some columns, those that meet conditions, shuffled by row groups."""

from __future__ import annotations

import enum
import json
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from pipefix.caches.convert import recipe_of
from pipefix.caches.dataset import CachedDataset
from pipefix.caches.verify import verify
from pipefix.vocabulary.errors import BadUsage, TargetError
from pipefix.vocabulary.nested import leaves
from tests.caches.sources import Numbers, Texts
from tests.loader.likeness import assert_same


@pytest.fixture
def cache(make):
    return make(Texts(), "rows", "parquet").folder


def test_rows_come_back_as_they_were(cache):
    cached, source = CachedDataset(cache), Texts()
    for index in (0, 1023, 1024, 2999):
        sample, expected = cached[index], source[index]
        assert all(sample[key] == expected[key] for key in ("text", "label", "score"))
        assert np.array_equal(sample["ids"], expected["ids"]) and sample["ids"].dtype == np.int32
    assert [row["label"] for row in cached.__getitems__([5, 2000, 1])] == [5, 2000 % 7, 1]
    assert verify(cache).sound


def test_a_row_belongs_to_whoever_asked(cache):
    """A batch function that took labels out of samples found none in the second epoch; scaled arrays were scaled again."""
    cached = CachedDataset(cache)
    for sample in (cached[9], cached.__getitems__([9])[0]):
        sample["ids"] += 5
        del sample["label"]
    assert cached[9]["label"] == 9 % 7 and cached[9]["ids"].tolist() == [0, 1, 2, 3]


def test_columns_have_types_and_statistics(cache):
    file = pq.ParquetFile(cache / "parts" / "00000.parquet")
    assert {field.name: str(field.type) for field in file.schema_arrow} == {
        "sample": "int64", "text": "string", "label": "int64", "score": "double", "ids": "list<element: int32>",
    }  # fmt: skip
    assert [file.metadata.row_group(number).num_rows for number in range(3)] == [1024, 1024, 952]
    assert file.metadata.row_group(1).column(0).statistics.min == 1024


def test_tuples_and_tensors(make):
    class Pairs(Numbers):
        def __getitem__(self, index):
            return torch.arange(3) + index, index % 3, f"row {index}"

    cached = CachedDataset(make(Pairs(), "rows", "parquet").folder)
    ids, label, name = cached[9]
    assert torch.equal(ids, torch.arange(3) + 9) and (label, name) == (0, "row 9")


def test_a_label_beside_a_number_of_another_type_stays_an_integer(make):
    """Both were put into one column of floats, and a loss that takes class numbers was given 3.0."""
    cached = CachedDataset(make(Odd(lambda index: (index % 7, index / 2)), "rows", "parquet").folder)
    assert_same(cached[10], (3, 5.0))


def test_a_tuple_of_numbers_that_are_sometimes_of_one_type(make):
    """It was refused for a field_0 that only some samples had."""
    cached = CachedDataset(make(Odd(lambda index: (index % 7, index % 3 / 3 or 0)), "rows", "parquet").folder)
    assert_same([cached[index] for index in (9, 10, 399)], [(2, 0.0), (3, 1 / 3), (0, 0.0)])


def test_texts_are_tokenised_on_the_way(make, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "the": 1, "quick": 2, "fox": 3, "number": 4}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    done = make(Texts(), "rows", "parquet", tokenizer=str(tmp_path / "tokenizer.json"), text="text")
    sample = CachedDataset(done.folder)[5]
    assert sample["input_ids"].tolist() == [1, 2, 3, 4, 0] and "text" not in sample and sample["label"] == 5
    tokenizer.add_tokens(["5"])  # trained anew, under the same name
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    again = partial(make, Texts(), "rows", "parquet", tokenizer=str(tmp_path / "tokenizer.json"), text="text")
    assert again().changed == (0,) and again(update=True).made == 1, "tokens of the old one were said to be unchanged"
    assert CachedDataset(done.folder)[5]["input_ids"].tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(BadUsage, match="no field 'txt' to tokenise; a sample has text, label"):
        make(Texts(), "rows", "parquet", tokenizer=str(tmp_path / "tokenizer.json"), text="txt", name="other")
    has_ids = Odd(lambda index: {"text": "the fox", "input_ids": [1, 3]})
    with pytest.raises(BadUsage, match="has a field 'input_ids' already"):  # it was said not to be in the samples
        make(has_ids, "rows", "parquet", tokenizer=str(tmp_path / "tokenizer.json"), text="text", name="twice")
    with pytest.raises(BadUsage, match=r"There is no file 'absent/tokenizer.json'\."):
        make(Texts(), "rows", "parquet", tokenizer="absent/tokenizer.json", text="text", name="third")


def test_tokens_of_a_text_do_not_hang_on_its_neighbours(make, tmp_path):
    """A tokenizer that was saved with its padding filled each row up to the longest of its group."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.enable_padding()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    texts = Odd(lambda index: {"text": "a " * (index % 9)})
    cached = CachedDataset(make(texts, "rows", "parquet", tokenizer=str(tmp_path / "tokenizer.json"), text="text").folder)
    assert [len(cached[index]["input_ids"]) for index in (1, 7, 3)] == [1, 7, 3]


def test_a_tokenizer_is_found_from_another_directory_and_in_a_folder_that_moved(tmp_path, monkeypatch):
    """Code of the target may change the working directory: the file was said not to be there."""
    recipes = []
    for name in ("here", "moved"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        Path("tokenizer.json").touch()
        recipes.append(recipe_of("parquet", "rows", tokenizer="tokenizer.json", text="text"))
    assert recipes[0].tokenizer == str(tmp_path / "here" / "tokenizer.json") and recipes[0].is_same_work(recipes[1])


@pytest.mark.parametrize(
    ("at", "name", "value", "said"),
    [
        (1501, "label", "seven", "1501 cannot be stored as rows: field 'label' is str 'seven'"),
        (1501, "text", "\udcff", "1501 cannot be stored as rows: field 'text' is str"),
        (None, "text", "\udcff", "field 'text' has no one type, or none that a column has"),
        (None, "label", 2**64, "field 'label' has no one type, or none that a column has"),
        (None, "label", torch.ones(2, dtype=torch.bfloat16), "field 'label' is a tensor of bfloat16"),
    ],
)
def test_what_no_column_holds_is_named(make, at, name, value, said):
    class Misfit(Texts):
        def __getitem__(self, index):
            row = super().__getitem__(index)
            return {**row, name: value} if at in (index, None) else row

    with pytest.raises(TargetError, match=said):
        make(Misfit(2000), "rows", "parquet")


def test_pictures_are_columns_that_other_libraries_open(files, make):
    """Each as the file that it was read from, where that gives its pixels; else as PNG. The names are Hugging Face's."""

    class Turned(type(files)):
        def __getitem__(self, index):
            picture, label = super().__getitem__(index)
            return {"picture": picture.rotate(90) if index % 2 else picture, "label": label}

    dataset = Turned(files.paths)
    folder = make(dataset, "rows", "parquet").folder
    table = pq.read_table(folder / "parts" / "00000.parquet")
    assert str(table.schema.field("picture").type) == "struct<bytes: binary, path: string>"
    assert json.loads(table.schema.metadata[b"huggingface"]) == {"info": {"features": {"picture": {"_type": "Image"}}}}
    held = [row["bytes"] for row in table.column("picture").to_pylist()]
    assert held[4] == Path(files.paths[4]).read_bytes() and held[5].startswith(b"\x89PNG")
    for index in (4, 5):
        sample = CachedDataset(folder)[index]
        assert np.array_equal(np.asarray(sample["picture"]), np.asarray(dataset[index]["picture"])) and sample["label"] == index
    assert CachedDataset(folder, images="tensor")[4]["picture"].shape == (3, 44, 60)
    assert CachedDataset(folder, images="none")[5] == {"picture": None, "label": 5}
    assert verify(folder).sound


@pytest.mark.parametrize(
    "made",
    [lambda sample: {"picture": sample[0]}, lambda sample: sample, lambda sample: sample[0]],
    ids=["dict", "tuple", "picture"],
)
def test_of_a_row_group_the_picture_that_is_asked_for_is_decoded(files, make, made):
    """All 1,024 were, and eight row groups of them filled the memory of each worker."""

    class Shaped(type(files)):
        def __getitem__(self, index):
            return made(super().__getitem__(index))

    dataset = Shaped(files.paths)
    cached = CachedDataset(make(dataset, "rows", "parquet").folder)
    decoded, decode = [], cached._rows._picture
    cached._rows._picture = lambda picture: decoded.append(picture) or decode(picture)
    for index in (4, 5):
        for leaf, expected in zip(leaves(cached[index]), leaves(dataset[index]), strict=True):
            assert np.array_equal(np.asarray(leaf), np.asarray(expected))
    assert len(decoded) == 2


def test_threads_share_a_cache(cache):
    cached, source = CachedDataset(cache), Texts()
    with ThreadPoolExecutor(8) as pool:
        labels = list(pool.map(lambda index: cached[index * 7 % 3000]["label"], range(600)))
    assert labels == [source[index * 7 % 3000]["label"] for index in range(600)]


class Named(dict):
    """Its values are attributes; what is none raises KeyError, and not AttributeError."""

    __getattr__ = dict.__getitem__


class Odd(Numbers):
    """Samples of other types than Python's own."""

    def __init__(self, make) -> None:
        super().__init__(400)
        self.make = make

    def __getitem__(self, index):
        return self.make(index)


def test_numbers_of_numpy_tuples_and_maps_come_back_as_what_they_were(make, tmp_path):
    """A float32 that came back as Python's float made batches of float64."""
    np.arange(500, dtype=np.int32).tofile(tmp_path / "tokens")
    source = Odd(
        lambda index: {
            "score": np.float32(index / 3),
            "kind": np.uint8(index % 256),
            "known": np.bool_(index % 2),
            "size": (index, 3),
            "tokens": np.memmap(tmp_path / "tokens", np.int32)[index : index + 3],
        }
    )
    for sample, expected in zip(CachedDataset(make(source, "rows", "parquet").folder), map(source.make, range(400)), strict=True):
        expected["tokens"] = np.asarray(expected["tokens"])
        assert_same(sample, expected)


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (lambda index: {"a": 1, "b": 2} if index != 151 else {"a": 1}, "field 'b' is missing, and would come back as None"),
        (lambda index: (1, "x", 2.5) if index < 200 else (1, "x"), "only some samples have a field 'field_2'"),
        (
            lambda index: {"a": 0.5 if index != 151 else 2**60 + 1},
            "field 'a' is int '1152921504606846977'",
        ),
        (lambda index: {"a": np.float32(0.5) if index != 151 else 0.1}, "field 'a' is float '0.1', and its column holds float"),
        (lambda index: {1: 2, "1": 3}, "a field's name is 1: columns are named by text"),
        (lambda index: {"a": torch.eye(3).to_sparse()}, "field 'a' is a tensor of float32, sparse_coo, which columns do not have"),
        (lambda index: {"a": torch.ones(2).to(torch.float8_e5m2)}, "a tensor of float8_e5m2, which columns do not have"),
        (lambda index: {"a": np.longdouble(1)}, "field 'a' holds float128, which columns do not have"),
        (lambda index: {"a": np.arange(3, dtype=">f4")}, "field 'a' holds >f4, which columns do not have"),
        (lambda index: {"a": np.float32(1) if index != 151 else np.float64(1)}, "field 'a' is a float64, and in other"),
        (lambda index: {"a": [1] if index != 151 else (1,)}, "field 'a' is a tuple, and in other samples of another type"),
        (lambda index: {"a": torch.ones(2) if index != 151 else [1.0]}, "field 'a' is a list, and in other samples of"),
        (lambda index: {}, "a sample without fields"),
        (lambda index: {"a": Named(b=1)}, "field 'a' is a Named: columns hold"),
        (lambda index: {"a": Image.frombytes("I;16B", (4, 3), bytes(24))}, "a picture of mode I;16B: PNG gives it back as"),
    ],
)
def test_what_would_come_back_as_something_else_is_refused(make, sample, said):
    with pytest.raises(TargetError, match=re.escape(said)):
        make(Odd(sample), "rows", "parquet")


def test_no_row_group_is_larger_than_may_be_read_again(make, monkeypatch):
    """A conversion of large pictures ended well, and its rows were then called damaged, for they would fill the memory."""
    monkeypatch.setattr("pipefix.caches.parquet._LARGEST_GROUP", 1 << 16)
    monkeypatch.setattr("pipefix.caches.rows._LARGEST_ROW", 1 << 15)
    source = Odd(lambda index: {"data": bytes([index % 256]) * 4000, "numbers": [index] * 100})
    folder = make(source, "rows", "parquet").folder
    assert CachedDataset(folder)[399] == source.make(399) and verify(folder).sound
    with pytest.raises(TargetError, match="Sample 301 cannot be stored as rows: its fields hold 40,000 bytes"):
        make(Odd(lambda index: {"data": bytes(4000 if index != 301 else 40_000)}), "rows", "parquet", name="other")


class Split(str, enum.Enum):
    TRAIN = "train"


def test_texts_of_enumerations_and_what_is_missing_keep_their_values(make):
    """A weight that was None was a tensor of nan, a flag that was None was False, and a text was the name of its member."""
    source = Odd(lambda index: {"split": Split.TRAIN, "weight": torch.tensor(0.5) if index % 2 else None})
    cached = CachedDataset(make(source, "rows", "parquet").folder)
    assert cached[2] == {"split": "train", "weight": None} and torch.equal(cached[3]["weight"], torch.tensor(0.5))
