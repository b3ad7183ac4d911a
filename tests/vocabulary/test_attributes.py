"""Looking at an object finds all that it holds, runs none of its code, and leaves it as quick as it was."""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import pipefix
from pipefix.vocabulary.attributes import attributes, has_any, own

slower_once_asked = pytest.mark.skipif(
    not (3, 11) <= sys.version_info < (3, 13), reason="instances have their dictionary from the start, or are as quick with it"
)


class Plain:
    kind = "of the class"
    shared: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.path, self.count, self.table = "here", 3, {"a": 1}
        self.later = None

    def method(self) -> int:
        return self.count


class Heir(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.kind = "of the instance"
        self.function = len


class Lazy(Plain):
    @property
    def costly(self) -> int:
        raise AssertionError("looked at by running it")

    @functools.cached_property
    def once(self) -> int:
        raise AssertionError("looked at by running it")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("looked at by running it")


class Slotted:
    __slots__ = ("filled", "never")

    def __init__(self) -> None:
        self.filled = 1


class Both(Slotted):
    def __init__(self) -> None:
        super().__init__()
        self.more = 2


@dataclass
class Record:
    x: int = 1
    y: Any = None


def set_from_outside() -> Plain:
    value = Plain()
    value.unheard_of = object()  # type: ignore[attr-defined]
    return value


class Folded(dict[str, int]):
    def __init__(self) -> None:
        super().__init__(a=1)
        self.note = "x"


MADE = [Plain, Heir, Lazy, Record, set_from_outside, Folded, lambda: SimpleNamespace(a=1), lambda: torch.nn.Linear(1, 1)]


@pytest.mark.parametrize("make", MADE)
def test_all_that_its_dictionary_holds_is_found(make: Any) -> None:
    value = make()
    seen = attributes(value)
    held = object.__getattribute__(value, "__dict__")
    # What is the class's own object, held by the instance too, need not be told twice.
    assert seen == {name: member for name, member in held.items() if name in seen}
    assert all(vars(type(value)).get(name) is held[name] for name in held.keys() - seen.keys())
    assert attributes(value) == held


def test_slots_are_found_where_they_are_filled() -> None:
    assert attributes(Slotted()) == {"filled": 1}
    assert attributes(Both()) == {"filled": 1, "more": 2}
    assert attributes(3) == attributes("words") == {}
    assert has_any(Plain()) and has_any(Both()) and not has_any(Slotted()) and not has_any(3)


def test_weak_proxies_are_left_out() -> None:
    """A dataset that held one of an object that was gone, its trainer say, ended the probe with a ReferenceError."""
    value = Plain()
    kept = attributes(value)
    value.count = weakref.proxy(Plain())
    del kept["count"]
    assert attributes(value) == kept


def test_one_attribute_of_the_instance_itself() -> None:
    assert own(Heir(), "kind") == "of the instance"
    assert own(Plain(), "kind", "none") == "none"
    assert own(Plain(), "method", "none") == "none"


def asked_for(value: Any) -> bool:
    """Whether its dictionary has been made."""
    return any(type(referent) is dict and referent.keys() >= {"path", "count"} for referent in gc.get_referents(value))


@slower_once_asked
@pytest.mark.parametrize("make", [Plain, Heir])
def test_looking_makes_no_dictionary(make: Any) -> None:
    value = make()
    attributes(value), own(value, "count")
    assert not asked_for(value)
    assert vars(value) is not None and asked_for(value), "the test would not notice"


class Scaled:
    def __init__(self) -> None:
        self.path, self.count = "somewhere", 7

    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        return value * self.count


class Held(Dataset[Any]):
    def __init__(self) -> None:
        self.path, self.count = "here", 256
        self.transform = Scaled()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.transform(torch.full((64,), float(index)))


@slower_once_asked
def test_a_probe_leaves_a_pipelines_objects_as_quick_as_they_were() -> None:
    data = Held()
    pipefix.probe(DataLoader(data, batch_size=8, num_workers=0), budget=1.5)
    assert not asked_for(data)
    assert not asked_for(data.transform)


class Incomparable:
    """As a table of Arrow's is: comparing it with something else raises."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise TypeError("cannot compare")

    def take(self, index: int) -> int:
        return index


class HoldsMethods:
    def __init__(self, table: Incomparable) -> None:
        self.fetch = table.take
        self.own = self.get

    def get(self, index: int) -> Any:
        return self.own(index) if index < 0 else self.fetch(index)


def test_methods_of_objects_that_cannot_be_compared() -> None:
    assert attributes(HoldsMethods(Incomparable()))["fetch"](3) == 3


def test_what_the_class_holds_is_not_the_objects_also_once_it_is_another() -> None:
    class Reader:
        made = 0

        def __init__(self) -> None:
            self.path = "a"

        @staticmethod
        def parse(text: str) -> str:
            return text

        def read(self) -> str:
            type(self).made += 1
            return self.parse(self.path)

    reader = Reader()
    assert attributes(reader) == {"path": "a"}
    reader.read()
    Reader.parse = staticmethod(str.upper)  # type: ignore[method-assign, assignment]
    assert attributes(reader) == {"path": "a"}
