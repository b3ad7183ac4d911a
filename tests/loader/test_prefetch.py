"""What is done to a batch on its way: brought to a device, augmented. The device itself is in tests/gpu."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

from pipefix.loader.device import Carrier, moved, tensors_in
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.iterator import InProcessLoaderIterator
from tests.loader import pipelines
from tests.loader.pipelines import Point
from tests.loader.ways import made_by


def doubled(batch: Any) -> Any:
    return moved(batch, lambda tensor: tensor * 2)


def test_batches_are_moved_all_the_way_down() -> None:
    ones = torch.ones(2)
    batch = doubled({"a": ones, "b": [ones, "word"], "c": Point(ones, 3), "d": OrderedDict(x=(ones, b"raw"))})
    assert batch["b"][1] == "word" and batch["c"].y == 3 and batch["d"]["x"][1] == b"raw"
    assert type(batch["c"]) is Point and type(batch["d"]) is OrderedDict
    for tensor in (batch["a"], batch["b"][0], batch["c"].x, batch["d"]["x"][0]):
        assert tensor.tolist() == [2, 2]


@made_by(0, 2)
def test_augment_is_done_to_every_batch_in_this_process(by: dict[str, Any]) -> None:
    loader = FastLoader(pipelines.Tensors(16), batch_size=4, **by, augment=torch.nn.Flatten(0))
    assert [tuple(batch.shape) for batch in loader] == [(64,)] * 4


def test_options_that_are_set_later_act_from_the_next_epoch_on_also_where_workers_are_kept() -> None:
    loader = FastLoader(pipelines.Tensors(8), batch_size=4, num_workers=1, persistent_workers=True)
    before, kept = torch.cat(list(loader)), loader._iterator
    assert len(list(loader)) == 2 and loader._iterator is kept
    loader.augment = torch.neg
    assert torch.equal(torch.cat(list(loader)), -before)
    assert loader._iterator is not kept
    loader.on_bad = "never"
    with pytest.raises(ValueError, match="on_bad option should be one of"):
        iter(loader)


def test_an_augment_whose_own_source_has_ended_is_an_error() -> None:
    """The loop took it for the end of the epoch, and nobody was told."""
    others = iter([1.0, 2.0])
    loader = FastLoader(pipelines.Tensors(12), batch_size=4, augment=lambda batch: batch + next(others))
    with pytest.raises(RuntimeError, match="augment raised StopIteration"):
        list(loader)
    assert loader.stats().batches == 2


def test_augment_is_told_the_epoch() -> None:
    class Augment:
        told: list[int] = []

        def set_epoch(self, epoch: int) -> None:
            self.told.append(epoch)

        def __call__(self, batch: Any) -> Any:
            return batch

    loader = FastLoader(pipelines.Tensors(8), batch_size=4, augment=Augment())
    list(loader)
    list(loader)
    assert Augment.told == [0, 1]


class Slotted:
    __slots__ = ("inner",)

    def __init__(self, inner: Any) -> None:
        self.inner = inner


@dataclass(frozen=True)
class Pair:
    left: Any
    right: Any


def test_tensors_are_found_wherever_a_batch_holds_them() -> None:
    held = [torch.full((1,), float(number)) for number in range(6)]
    cycle: dict[str, Any] = {"slots": Slotted(held[0])}
    cycle["itself"] = cycle
    batch = [UserDict(ids=held[1]), SimpleNamespace(x=held[2]), Pair(held[3], [held[4]]), {held[5]: 1}.keys(), cycle, "word"]
    assert {float(tensor) for tensor in tensors_in(batch)} == {0.0, 1.0, 2.0, 3.0, 4.0}


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_a_sparse_tensor_is_the_tensors_that_hold_its_memory(layout: str) -> None:
    values = torch.eye(3).to_sparse(layout=getattr(torch, layout))
    parts = list(tensors_in({"graph": values}))
    assert len(parts) == (2 if layout == "sparse_coo" else 3)
    assert all(part.layout is torch.strided for part in parts)
    assert torch.equal(doubled([values])[0].to_dense(), torch.eye(3) * 2)


def test_each_of_several_sparse_tensors_is_seen_by_its_parts() -> None:
    """Parts are made when they are asked for. One that came to lie where another had been was passed over: on the device its memory
    could be given to the next batch while the step still read it."""
    graphs = [torch.eye(3).to_sparse() for _ in range(4)]
    assert sum(1 for _ in tensors_in(graphs)) == 8


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_the_device_batches_stay_and_it_is_told() -> None:
    loader = FastLoader(pipelines.Tensors(8), batch_size=4, device="cuda")
    assert [batch.device.type for batch in loader] == ["cpu", "cpu"]
    assert "Batches stay where they are: there is no CUDA device here." in loader.explain()


class Staged(Carrier):
    """A carrier with a device that is not there: what begins and ends is noted."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.streams = True
        self.noted: list[tuple[str, float]] = []

    def begin(self, batch: Any) -> tuple[Any, Any]:
        self.noted.append(("begin", float(batch[0, 0])))
        return batch, None

    def end(self, begun: tuple[Any, Any]) -> Any:
        self.noted.append(("end", float(begun[0][0, 0])))
        return begun[0]


def staged(loader: FastLoader[Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Staged]:
    carrier = Staged()
    monkeypatch.setattr(InProcessLoaderIterator, "_has_arrived", lambda self: True)
    iterator = iter(loader)
    iterator._work.carrier, iterator._plain = carrier, False
    return iterator, carrier


def test_the_copy_of_the_next_batch_begins_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    iterator, carrier = staged(FastLoader(pipelines.Tensors(12), batch_size=4), monkeypatch)
    assert float(next(iterator)[0, 0]) == 0.0
    assert carrier.noted == [("begin", 0.0), ("end", 0.0), ("begin", 4.0)]
    assert [float(batch[0, 0]) for batch in iterator] == [4.0, 8.0]


def test_an_error_keeps_its_place_in_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = FastLoader(pipelines.Faulty(16), batch_size=4)
    iterator, _ = staged(loader, monkeypatch)
    assert [float(next(iterator)[0, 0]) for _ in range(2)] == [0.0, 4.0]
    assert loader.state_dict()["batches"] == 2
    with pytest.raises(KeyError, match="sample nine"):
        next(iterator)
    assert float(next(iterator)[0, 0]) == 12.0


def test_types_with_a_way_of_their_own_are_moved_by_it() -> None:
    class Encoding:
        def __init__(self) -> None:
            self.asked: list[Any] = []

        def to(self, device: Any) -> Encoding:
            self.asked.append(device)
            return self

    carrier = Carrier("cpu")
    carrier.why = ""
    assert carrier.begin((Encoding(), 3))[0][0].asked == [torch.device("cpu")]
    assert default_collate([1, 2]).tolist() == [1, 2]
