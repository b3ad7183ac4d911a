"""Batches of every kind that a loader may make, each filled with its number: what a step reads tells whose bytes they are."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from pipefix.loader.device import moved, tensors_in

ELEMENTS = 4096


def full(number: int, *shape: int) -> torch.Tensor:
    return torch.full(shape or (ELEMENTS,), number, dtype=torch.int32)


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@dataclass
class Record:
    words: str
    values: torch.Tensor


@dataclass(frozen=True)
class Frozen:
    values: torch.Tensor
    more: Any


class Encoding(UserDict):  # type: ignore[type-arg]
    """As transformers' BatchEncoding: a mapping that moves itself."""

    def to(self, device: Any, non_blocking: bool = False) -> Encoding:
        self.data = {name: value.to(device, non_blocking=non_blocking) for name, value in self.data.items()}
        return self


class Graph:
    """As torch_geometric's Data: an object that moves itself, its tensors in attributes, some of them in a store of its own."""

    def __init__(self, number: int) -> None:
        self.x = full(number)
        self._store = {"edges": full(number, 2, ELEMENTS // 2), "name": "graph"}

    def apply(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Graph:
        self.x = change(self.x)
        self._store["edges"] = change(self._store["edges"])  # type: ignore[arg-type]
        return self

    def to(self, device: Any, non_blocking: bool = False) -> Graph:
        return self.apply(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Graph:
        return self.apply(torch.Tensor.pin_memory)


class Slotted:
    """Moves itself, has no ``__dict__``, and takes no ``non_blocking``."""

    __slots__ = ("values",)

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    def to(self, device: Any) -> Slotted:
        return Slotted(self.values.to(device))


class Image(torch.Tensor):
    """A subclass of tensor, as torchvision's are."""


def _sparse(number: int) -> torch.Tensor:
    places = torch.arange(ELEMENTS).unsqueeze(0)
    return torch.sparse_coo_tensor(places, full(number), (ELEMENTS,), check_invariants=False)


def _compressed(number: int) -> torch.Tensor:
    rows = torch.tensor([0, ELEMENTS // 2, ELEMENTS])
    columns = torch.arange(ELEMENTS // 2).repeat(2)
    return torch.sparse_csr_tensor(rows, columns, full(number), (2, ELEMENTS // 2), check_invariants=False)


def _jagged(number: int) -> torch.Tensor:
    return torch.nested.nested_tensor([full(number, 1000), full(number, 3096)], layout=torch.jagged)


KINDS: dict[str, Callable[[int], Any]] = {
    "tensor": full,
    "tuple": lambda n: (full(n), full(n, 64)),
    "list with strings between": lambda n: [f"name {n}", full(n), b"raw", full(n, 64), None],
    "dict": lambda n: {"image": full(n), "label": full(n, 64)},
    "nested": lambda n: {"a": [full(n), {"b": (full(n, 64), "word")}], "c": OrderedDict(d=full(n, 8, 8))},
    "defaultdict": lambda n: defaultdict(list, values=full(n)),
    "named tuple": lambda n: Pair(full(n), full(n, 64)),
    "dataclass": lambda n: Record("word", full(n)),
    "frozen dataclass": lambda n: Frozen(full(n), [full(n, 64)]),
    "encoding": lambda n: Encoding(ids=full(n), mask=full(n, 64)),
    "encoding and labels": lambda n: (Encoding(ids=full(n)), full(n, 64)),
    "graph": Graph,
    "graphs in a list": lambda n: [Graph(n), Graph(n)],
    "object with slots": lambda n: Slotted(full(n)),
    "sparse": _sparse,
    "compressed sparse": _compressed,
    "jagged": _jagged,
    "subclass of tensor": lambda n: full(n).as_subclass(Image),
    "bytes of a picture": lambda n: torch.full((4, 3, 32, 32), n % 256, dtype=torch.uint8),
    "views of one tensor": lambda n: list(full(n).split(ELEMENTS // 4)),
}
UNSHARED = ("compressed sparse", "jagged")
"""Kinds that torch does not send from worker processes (it does not share their memory)."""


def values_of(batch: Any) -> Iterator[torch.Tensor]:
    """The tensors that hold what a batch was filled with."""
    for tensor in tensors_in(batch):
        if tensor.dtype in (torch.int32, torch.uint8):
            yield tensor


def by_hand(batch: Any) -> Any:
    """To the device as a careful user brings it there, on the stream that the step runs on."""

    def own(value: Any) -> Any:
        try:
            return value.to("cuda", non_blocking=True)
        except TypeError:
            return value.to("cuda")

    return moved(batch, lambda tensor: tensor.to("cuda", non_blocking=True), own)
