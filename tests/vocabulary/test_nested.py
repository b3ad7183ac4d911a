"""The walk over nested values keeps what containers are."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipefix.vocabulary.nested import DEEPEST, leaves, map_leaves, members, renewer


class Pair(NamedTuple):
    image: Any
    label: Any


class Row(tuple[Any, ...]):
    __slots__ = ()


class Stack(list[Any]):
    note = "kept"


class Fields(dict[str, Any]):
    note = "kept"


class Frozen(Mapping[str, Any]):
    def __init__(self, held: Mapping[str, Any]) -> None:
        self._held = dict(held)

    def __getitem__(self, key: str) -> Any:
        return self._held[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


@dataclass(frozen=True)
class Sample:
    image: Any
    label: Any
    drawn: Any = field(default=0, init=False)


INTEGERS = st.integers()
NESTED = st.recursive(
    INTEGERS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(Row),
        st.lists(inner, max_size=3).map(Stack),
        st.builds(Pair, inner, inner),
        st.builds(Sample, inner, inner),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.dictionaries(st.text(max_size=2), inner, max_size=3).map(Fields),
        st.dictionaries(st.text(max_size=2), inner, max_size=3).map(collections.OrderedDict),
    ),
    max_leaves=8,
)


def shape(value: Any) -> Any:
    inner = members(value)
    return type(value) if inner is None else (type(value), [(key, shape(member)) for key, member in inner])


@given(NESTED)
def test_mapping_changes_the_leaves_and_nothing_else(value: Any) -> None:
    before = list(leaves(value))
    made = map_leaves(lambda leaf: leaf + 1, value)
    assert shape(made) == shape(value)
    assert list(leaves(made)) == [leaf + 1 for leaf in before]
    assert list(leaves(value)) == before, "the value handed in is left as it is"


def test_what_containers_carry_besides_is_kept() -> None:
    stack, fields = Stack([1]), Fields(a=1)
    stack.note = fields.note = "changed"
    grouped: Any = collections.defaultdict(list, {"a": 1})
    made = map_leaves(str, [stack, fields, grouped])
    assert [made[0].note, made[1].note, made[2].default_factory] == ["changed", "changed", list]


def test_mappings_that_cannot_be_written() -> None:
    made = map_leaves(str, [Frozen({"a": 1}), MappingProxyType({"b": 2})])
    assert type(made[0]) is Frozen and type(made[1]) is MappingProxyType
    assert [dict(mapping) for mapping in made] == [{"a": "1"}, {"b": "2"}]


def test_a_size_of_tensors_is_a_plain_tuple() -> None:
    assert type(map_leaves(int, torch.Size([2, 3]))) is torch.Size
    assert map_leaves(str, torch.Size([2, 3])) == ("2", "3")
    assert isinstance(map_leaves(torch.clone, torch.ones(2, 3).max(dim=1)), torch.return_types.max)


@pytest.mark.parametrize("leaf", ["text", b"bytes", None, 3, {1, 2}, Sample, torch.ones(2)])
def test_leaves_are_handed_over_as_they_are(leaf: Any) -> None:
    assert [id(inner) for inner in leaves(leaf)] == [id(leaf)]


def test_a_value_that_holds_itself_has_an_end() -> None:
    circular: list[Any] = []
    circular.append(circular)
    assert len(list(leaves(circular))) == 1
    depth, made = 0, map_leaves(lambda leaf: "end", circular)
    while made != "end":
        depth, made = depth + 1, made[0]
    assert depth == DEEPEST


def test_only_what_holds_a_tensor_is_made_again() -> None:
    texts = [{"name": "a"}, {"name": "b"}]
    batch = {"texts": texts, "pair": Pair(torch.ones(2), "label"), "none": None}
    made = renewer(lambda leaf: leaf.clone if isinstance(leaf, torch.Tensor) else None, batch)
    assert made is not None
    first, second = made(), made()
    assert first["texts"] is second["texts"] is texts
    assert isinstance(first["pair"], Pair)
    assert first["pair"].image is not second["pair"].image
    assert torch.equal(first["pair"].image, batch["pair"].image)


@given(NESTED, st.booleans())
def test_a_renewed_value_equals_it(value: Any, containers: bool) -> None:
    made = renewer(lambda leaf: (lambda: leaf) if isinstance(leaf, int) else None, value, containers=containers)
    assert made is None or made() == value


def test_containers_are_new_each_time_where_that_is_asked_for() -> None:
    boxes = [{"name": "a", "box": (1, 2.0)}, {"name": "b", "box": (3, 4.0)}]
    made = renewer(lambda leaf: None, {"boxes": boxes}, containers=True)
    assert made is not None
    first = made()
    first["boxes"].pop()
    first["boxes"][0].clear()
    assert made() == {"boxes": boxes} == {"boxes": [{"name": "a", "box": (1, 2.0)}, {"name": "b", "box": (3, 4.0)}]}
    assert made()["boxes"][0]["box"] is boxes[0]["box"], "what cannot be changed is shared"
