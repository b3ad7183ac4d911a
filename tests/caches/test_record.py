"""Samples become bytes and samples again; bytes that are no sample are refused, whatever they claim."""

from __future__ import annotations

import collections
import enum
import struct

import msgspec
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pipefix.caches import pictures, record
from pipefix.vocabulary.errors import CacheDamaged
from tests.loader.likeness import assert_same

Point = collections.namedtuple("Point", "x y")
DECODE = pictures.decoder_to("as-was")
PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
ARRAYS = arrays.arrays(
    st.sampled_from([np.uint8, np.int16, np.int64, np.float16, np.float32, np.complex64, np.bool_]),
    arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    elements={"allow_nan": False},
)
TREES = st.recursive(
    PLAIN | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=8,
)


def back(tree):
    return DECODE(memoryview(record.encode(tree)))


@given(TREES)
def test_what_goes_in_comes_out(tree):
    assert_same(back(tree), tree)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float64, torch.bool, torch.int32])
def test_tensors(dtype):
    value = (torch.rand(3, 0 if dtype is torch.float64 else 5) * 9).to(dtype)
    restored = back((value, 1))[0]
    assert restored.dtype == dtype and torch.equal(restored, value)


class Place(collections.namedtuple("Place", "x y")):
    """With something of its own."""


def test_named_tuples_and_numbers_of_numpy():
    assert type(back(Place(1, 2))) is Place
    restored = back(Point(np.float32(1.5), [np.int64(3)]))
    assert restored._fields == ("x", "y") and type(restored.x) is np.float32 and restored.y == [3]


def test_named_tuples_whose_fields_were_renamed():
    """Rows of pandas (``itertuples``), of columns such as "file name", could be written, and not read."""
    row = next(pd.DataFrame({"label": [3], "file name": ["a.jpg"]}).itertuples())
    restored = back((row, 1))[0]
    assert restored == row and restored._fields == row._fields == ("Index", "label", "_2")


class Split(str, enum.Enum):
    TRAIN = "train"


def test_a_text_of_an_enumeration_comes_back_as_its_value():
    """It was its name: Split.TRAIN, which equals nothing that the program knows."""
    assert back((Split.TRAIN, 1)) == ("train", 1)


@pytest.mark.parametrize("text", [np.str_(""), np.bytes_(b""), np.str_("ä")])
def test_texts_of_numpy(text):
    """An empty one could be written, and not read."""
    restored = back((text, 1))[0]
    assert type(restored) is type(text) and restored == text


def test_a_record_of_one_picture_begins_with_its_bytes():
    assert record.encode((record.Picture(b"\xff\xd8\xffpicture", "jpeg", 3, 2, "image"), 5)).startswith(b"\xff\xd8\xffpicture")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "builtins.object: records hold numbers"),
        (np.array([object()]), "array of object"),
        (2**70, "does not fit into 64 bits"),
        ({(1, 2): 3}, "dict's key of type tuple"),
        (torch.eye(3).to_sparse(), "layout torch.sparse_coo"),
        (np.ma.masked_array([1, 2], [0, 1]), "a numpy.ma.MaskedArray"),
        (bytearray(b"ab"), "a builtins.bytearray"),
        ("half a pair: \ud800", "surrogates not allowed"),
        ({2**70: 3}, "cannot be written"),
    ],
)
def test_what_has_no_place_in_a_record(value, message):
    with pytest.raises(record.Unstorable, match=message):
        record.encode((value, 1))


def test_no_endless_nesting():
    tree: list = []
    for _ in range(40):
        tree = [tree]
    with pytest.raises(record.Unstorable, match="more than 32 deep"):
        record.encode(tree)


def forged(description) -> memoryview:
    text = msgspec.msgpack.encode(description)
    return memoryview(b"0123456789abcdef" + text + struct.pack("<I4s", len(text), b"PFR1"))


@pytest.mark.parametrize(
    "description",
    [
        ["a", "|u1", [1 << 40], 0, 16],  # a terabyte
        ["a", "|u1", [16], 0, 1 << 50],
        ["a", "|u1", [16], -4, 16],
        ["a", "|O", [2], 0, 16],
        ["a", "<f4", [-1, -4], 0, 16],
        ["a", "V16", [1], 0, 16],
        ["a", "os.system", [1], 0, 16],
        ["T", "load", [2], 0, 16],
        ["T", "float32", [4, 10**9], 0, 16],
        ["s", "<f8", b"123"],
        ["b", 0, 10**12],
        ["n", "not a name", ["x"], 1],
        ["n", "P", ["__class__"], 1],
        ["?", 1],
        ["x", "|u1", [16], 0, 16, "RGB", None, "tensor"],
        ["p", 0, 16, "exe", 4, 4, "image"],
        ["p", 0, 16, "jpeg", 4, 4, "image"],
        ["p", 0, 16, "png", 10**9, 10**9, "tensor"],
        [],
        ["d", 7],
        ["t", ["a"]],
    ],
)
def test_forged_records_are_refused_and_nothing_is_allocated(description):
    with pytest.raises(CacheDamaged):
        DECODE(forged(description))


@given(st.binary(max_size=60))
def test_noise_is_no_record(noise):
    with pytest.raises(CacheDamaged):
        DECODE(memoryview(noise + struct.pack("<I4s", len(noise), b"PFR0")))
    try:
        DECODE(memoryview(noise + struct.pack("<I4s", len(noise), b"PFR1")))
    except CacheDamaged:
        pass
