"""Caches of past versions stay readable. They are never made again: were one missing, this would fail."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from pipefix.caches.dataset import CachedDataset
from pipefix.caches.verify import verify

V1 = ("lmdb-source-v1", "lmdb-resized-v1", "lmdb-sample-v1", "parquet-rows-v1")


@pytest.fixture
def golden(root):
    return root / "fixtures" / "caches"


@pytest.mark.parametrize("name", V1)
def test_they_are_sound(golden, name):
    checked = verify(golden / name)
    assert checked.sound and checked.manifest.format == "pipefix.cache/1"


def test_source(golden, root):
    cached = CachedDataset(golden / "lmdb-source-v1")
    good = root / "fixtures" / "datasets" / "good"
    for index in range(3):
        ((name, data),) = cached[index].items()
        assert data == (good / name).read_bytes()


def test_images(golden, root):
    image, label = CachedDataset(golden / "lmdb-resized-v1")[2]
    ((_, data),) = CachedDataset(golden / "lmdb-source-v1")[2].items()
    original = Image.open(io.BytesIO(data)).convert("RGB").resize(image.size, Image.Resampling.BILINEAR)
    assert label == 2 and min(image.size) == 32
    assert np.abs(np.asarray(image, float) - np.asarray(original, float)).mean() < 6


def test_every_kind_of_value(golden):
    sample = CachedDataset(golden / "lmdb-sample-v1")[2]
    assert {key: sample[key] for key in ("number", "float", "text", "none", "bytes", "list")} == {
        "number": 2, "float": 0.5, "text": "üü", "none": None, "bytes": b"\0\1", "list": [1, (2, True)],
    }  # fmt: skip
    assert sample["array"].dtype == np.int16 and sample["array"].tolist() == [0, 2, 4, 6]
    assert torch.equal(sample["tensor"], torch.ones(2, 2)) and type(sample["scalar"]) is np.float32


def test_rows(golden):
    row = CachedDataset(golden / "parquet-rows-v1")[7]
    assert (row["text"], row["label"], row["ids"].tolist()) == ("row 7", 1, [0, 1, 2])
