"""Samples that differ anywhere are told apart; samples that are equal are equal, whatever they are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pipefix.fixes.same_samples import differences, fingerprint


def in_colours(value: int) -> Image.Image:
    made = Image.new("P", (2, 2))
    made.putpalette([value] * 768)
    return made


def sparse(value: float) -> torch.Tensor:
    return torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([value]), (2,), check_invariants=True)


NAN, INF = float("nan"), float("inf")
UNLIKE: dict[str, tuple[Any, Any]] = {
    "an infinity for a number": (torch.tensor([INF, 1.0]), torch.tensor([2.0, 1.0])),
    "a NaN for a number": (torch.tensor([NAN, 1.0]), torch.tensor([2.0, 1.0])),
    "an infinity of another sign": (np.array([INF, 1.0]), np.array([-INF, 1.0])),
    "numbers beyond 53 bits": (np.array([2**62 + 1, 5]), np.array([2**62, 5])),
    "unsigned numbers": (np.array([2**64 - 1], np.uint64), np.array([2**64 - 2], np.uint64)),
    "flags": (np.array([True, False]), np.array([True, True])),
    "complex numbers": (torch.tensor([1 + 2j]), torch.tensor([1 + 3j])),
    "sparse tensors": (sparse(1.0), sparse(2.0)),
    "a sparse tensor for a dense one": (sparse(1.0), torch.tensor([1.0, 0.0])),
    "another palette": (in_colours(0), in_colours(9)),
    "another mode": (Image.new("RGB", (2, 2)), Image.new("HSV", (2, 2))),
    "half a number": (torch.tensor([1.0], dtype=torch.bfloat16), torch.tensor([1.5], dtype=torch.bfloat16)),
    "an eighth of a number": (torch.tensor([1.0]).to(torch.float8_e5m2), torch.tensor([2.0]).to(torch.float8_e5m2)),
    "conjugated numbers": (torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 3j]).conj()),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_what_differs_is_told_apart(name: str) -> None:
    one, other = UNLIKE[name]
    assert list(differences({"x": one}, {"x": other}))
    assert not list(differences({"x": one}, {"x": one}))
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(one)


def test_nothing_of_a_number_is_another() -> None:
    assert not list(differences([np.array([0.0, NAN]), float("nan")], [np.array([-0.0, -NAN]), float("nan")]))


class Closed:
    """Neither compared nor pickled."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("cannot compare")

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle")


def test_what_cannot_be_compared_is_not_called_equal() -> None:
    assert list(differences(Closed(), Closed()))


PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=5))
TREES = st.recursive(
    PLAIN, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3))
)


@given(TREES)
def test_a_value_equals_itself(tree):
    assert not list(differences(tree, tree))
    assert fingerprint(tree) == fingerprint(tree)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (torch.zeros(2), torch.zeros(3), "is float32 3 instead of float32 2"),
        (torch.zeros(2), torch.ones(2), "holds other values"),
        ([1, 2], [1], "has 1 part instead of 2"),
        ({"a": 1}, {"b": 1}, "has other keys"),
        ({"a": 1}, {"a": 2}, "['a'] is 2 instead of 1"),
        (1, "1", "is a str instead of a int"),
        (np.array(["a"]), np.array(["b"]), "holds other values"),
    ],
)
def test_differences_are_named(one, other, said):
    assert said in next(differences(one, other)).what


def test_pictures_are_compared_by_their_pixels():
    black, grey = (Image.new("L", (4, 4), value) for value in (0, 3))
    assert next(differences(black, grey)).mean == 3
    assert not list(differences(black, Image.new("L", (4, 4), 0)))
