"""Batches that go another way than through a slot, and batches that outlive the iterator that made them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing import util
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from pipefix.loader.fast_loader import FastLoader
from tests.loader import pipelines

BOTH = pytest.mark.parametrize("kind", [DataLoader, FastLoader])
needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are counted in /proc")


def open_files(process: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


class Learnt(Dataset[torch.Tensor]):
    """Tensors that only torch can send, and how many files their maker has open."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), float(index)).requires_grad_(), open_files()


@needs_proc
def test_a_worker_keeps_no_file_open_for_tensors_that_went_torchs_way() -> None:
    counts = []
    for number, (tensor, opened) in enumerate(FastLoader(Learnt(), batch_size=None, num_workers=1, prefetch_factor=1)):
        assert torch.equal(tensor, torch.full((4,), float(number))) and tensor.requires_grad
        counts.append(opened)
        del tensor
    assert counts[-1] < counts[2] + 15  # those under way come and go


class Unequal(IterableDataset[Any]):
    """One shard begins when the worker of the other has ended. A sample is in part for a slot, and in part for torch."""

    def __init__(self) -> None:
        self.ended = multiprocessing.Event()

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        if info.id:
            util.Finalize(None, self.ended.set, exitpriority=-200)  # the last of all that a process does
        else:
            self.ended.wait(60)
        for index in range(1 if info.id else 3):
            yield torch.full((50,), 10.0 * info.id + index), torch.full((30,), 10.0 * info.id + index).requires_grad_()


@BOTH
def test_what_a_worker_sent_is_there_when_that_worker_has_ended(kind: Any) -> None:
    batches = kind(Unequal(), batch_size=None, num_workers=2)
    numbers = [(float(first[0]), float(second.detach()[0])) for first, second in batches]
    assert numbers == [(number, number) for number in (0.0, 10.0, 1.0, 2.0)]


def whole_and_corner(samples: list[torch.Tensor]) -> Any:
    whole = torch.zeros(40, 100)
    return whole, whole[:1, :2]


@BOTH
def test_a_small_view_of_what_is_sent_as_well_is_a_view_of_it(kind: Any) -> None:
    whole, corner = next(iter(kind(pipelines.Tensors(4), batch_size=4, num_workers=1, collate_fn=whole_and_corner)))
    whole.fill_(3.0)
    assert corner.tolist() == [[3.0, 3.0]]


def beginning_and_whole(samples: list[torch.Tensor]) -> Any:
    array = np.arange(9000, dtype=np.float32)
    return torch.from_numpy(array[:3000]), torch.from_numpy(array), torch.from_numpy(array)


@BOTH
def test_tensors_that_begin_at_one_address_are_each_whole_and_by_themselves(kind: Any) -> None:
    """What an array's beginning took in the slot was read for the whole array, too."""
    first, whole, another = next(iter(kind(pipelines.Tensors(4), batch_size=4, num_workers=1, collate_fn=beginning_and_whole)))
    another.fill_(3.0)
    assert torch.equal(whole, torch.arange(9000.0)) and torch.equal(first, whole[:3000])


def making_others_elsewhere(worker: int) -> None:
    torch.set_default_device("meta")


@BOTH
def test_batches_come_also_where_another_device_is_the_default(kind: Any) -> None:
    """As after ``torch.set_default_device("cuda")``: what the program makes is made there, and not what is handed over."""
    options = {"batch_size": 4, "num_workers": 1, "collate_fn": beginning_and_whole, "worker_init_fn": making_others_elsewhere}
    batches, expected = iter(kind(pipelines.Tensors(4), **options)), torch.arange(9000.0)
    with torch.device("meta"):
        first, whole, _ = next(batches)
    assert torch.equal(whole, expected) and torch.equal(first, expected[:3000])


class Foreign(Dataset[Any]):
    """Numbers in the order of bytes of another machine."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return np.arange(3000, dtype=np.dtype(np.float64).newbyteorder())


@BOTH
def test_arrays_come_in_this_machines_order_of_bytes(kind: Any) -> None:
    array = next(iter(kind(Foreign(), batch_size=None, num_workers=1, collate_fn=pipelines.itself)))
    assert torch.equal(torch.from_numpy(array), torch.arange(3000, dtype=torch.float64))


class Fragile:
    """Can be sent, and of some not be made again."""

    def __init__(self, first: float) -> None:
        self.first = first

    def __reduce__(self) -> Any:
        return fragile, (self.first,)


def fragile(first: float) -> Fragile:
    if first == 4:
        raise ValueError("four cannot be made")
    return Fragile(first)


def with_fragile(samples: list[torch.Tensor]) -> Any:
    return torch.stack(samples), Fragile(float(samples[0][0]))


def test_what_cannot_be_made_again_is_an_error_in_its_place() -> None:
    batches = iter(FastLoader(pipelines.Tensors(12), batch_size=4, num_workers=2, collate_fn=with_fragile))
    assert next(batches)[1].first == 0
    with pytest.raises(ValueError, match="four cannot be made"):
        next(batches)
    tensor, last = next(batches)
    assert last.first == float(tensor[0, 0]) == 8


class Jagged(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])])


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_batch_whose_shape_is_an_error_is_a_batch(workers: int) -> None:
    (batch,) = FastLoader(Jagged(), batch_size=None, num_workers=workers)
    assert [len(part) for part in batch.unbind()] == [2, 3]


# -- a forked process that looks at a batch ----------------------------------------------------------------------------------


def forked(look: Callable[[], float]) -> tuple[Callable[[], object], Callable[[], float]]:
    """A child that looks when it is told to. What tells it, and what gives what it saw."""
    (told, tell), (read, write) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            os.read(told, 1)
            os.write(write, repr(look()).encode())
        finally:
            os._exit(0)

    def seen() -> float:
        os.waitpid(child, 0)
        found = float(os.read(read, 100))
        for file in (told, tell, read, write):
            os.close(file)
        return found

    return lambda: os.write(tell, b"!"), seen


@BOTH
def test_a_forked_process_sees_a_batch_that_was_dropped_here_after_its_epoch(kind: Any) -> None:
    kept = list(kind(pipelines.Tensors(8, (5000,)), batch_size=4, num_workers=1))
    expected = float(kept[1].sum())
    tell, seen = forked(lambda: float(kept[1].sum()))
    kept.clear()
    tell()
    assert seen() == expected


@needs_proc
def test_a_batch_that_is_kept_while_processes_come_and_go_costs_no_files() -> None:
    iterator = iter(FastLoader(pipelines.Tensors(8, (5000,)), batch_size=4, num_workers=1))
    batch = next(iterator)
    counts = []
    for _ in range(6):
        tell, seen = forked(lambda: float(batch.sum()))
        tell()
        seen()
        counts.append(open_files())
    assert counts[-1] == counts[1]
