"""Copies batches to a device on a stream of their own, so that the copy runs beside the step before.

A batch is copied as soon as it has arrived; the step's stream waits for it, not the program. What is copied from stays held until
the device has read it, and each tensor's memory is known to be used on the step's stream (``record_stream``). Memory that was
allocated for the copies' stream and is not known to be used on another is given to the next batch while the step still reads it:
so an object in which no tensor can be found is copied on the step's own stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from pipefix.vocabulary.nested import DEEPEST, members, with_members

Move = Callable[[Any], Any]
_BY_ROWS, _BY_COLUMNS = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")
_PARTS = {
    torch.sparse_coo: ("_indices", "_values"), torch.sparse_csr: _BY_ROWS, torch.sparse_bsr: _BY_ROWS,
    torch.sparse_csc: _BY_COLUMNS, torch.sparse_bsc: _BY_COLUMNS,
}  # fmt: skip
_WITHOUT_TENSORS = (str, bytes, bytearray, int, float, complex, type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def moved(batch: Any, move: Move, own: Move = lambda value: value, depth: int = 0) -> Any:
    """A copy of the batch with each tensor moved: in mappings, sequences, named tuples and dataclasses.

    Args:
        batch: what the loader made.
        move: called with each tensor.
        own: called with each object that has a method ``to`` of its own, at any depth.
    """
    if isinstance(batch, torch.Tensor):
        return move(batch)
    if not isinstance(batch, type) and callable(getattr(batch, "to", None)):
        return own(batch)
    inner = members(batch) if depth < DEEPEST else None
    if inner is None:
        return batch
    return with_members(batch, [(key, moved(member, move, own, depth + 1)) for key, member in inner])


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor that ``value`` holds, also in attributes of objects; of one made of several, those that hold the memory."""
    visited: dict[int, Any] = {}  # held: a part that was made here and is gone would leave its id to the next
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if id(value) in visited or isinstance(value, _WITHOUT_TENSORS):
            continue
        visited[id(value)] = value
        if isinstance(value, torch.Tensor):
            parts = _parts(value)
            waiting += parts
            if not parts:
                yield value
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, (list, tuple, set, frozenset, deque)):
            waiting += value
        if not isinstance(value, torch.Tensor):
            waiting += vars(value).values() if hasattr(value, "__dict__") else ()
            for kind in type(value).__mro__:
                slots = getattr(kind, "__slots__", ())
                names = (slots,) if isinstance(slots, str) else slots
                waiting += (getattr(value, name) for name in names if hasattr(value, name))


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that a sparse or jagged one, or a subclass that wraps others, is made of; none for memory of its own."""
    if tensor.layout in _PARTS:
        return [getattr(tensor, name)() for name in _PARTS[tensor.layout]]
    return [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]] if hasattr(tensor, "__tensor_flatten__") else []


class Carrier:
    """Moves batches to a device. Where the device is not there, batches stay where they are and ``why`` says so."""

    def __init__(self, device: Any) -> None:
        self.device = torch.device(device)
        self.why = "batches are there already" if self.device.type == "cpu" else ""
        if not self.why:
            accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
            if accelerator is None or accelerator.type != self.device.type:
                self.why = f"there is no {'CUDA' if self.device.type == 'cuda' else self.device.type} device here"
        self._stream: Any = None
        if not self.why:
            with suppress(RuntimeError, NotImplementedError):  # it has no streams: copies are queued before the step
                self._stream = torch.Stream(self.device)
        self.streams = self._stream is not None
        self._held: deque[tuple[Any, Any]] = deque()

    def begin(self, batch: Any) -> tuple[Any, Any]:
        """Start the copy. The answer goes to `end`."""
        if self.why:
            return batch, None
        if not self.streams:
            return moved(batch, lambda tensor: tensor.to(self.device, non_blocking=True), self._by_its_own), None
        # What is copied from, also where an object lets go of it when it moves itself.
        source = list(tensors_in(batch))
        with _queued_on(self._stream):
            there = moved(batch, self._copied, lambda value: self._by_its_own(value) if _seen_into(value) else value)
            event = self._stream.record_event()
        self._held.append((source, event))
        while self._held and self._held[0][1].query():
            self._held.popleft()
        return there, event

    def end(self, begun: tuple[Any, Any]) -> Any:
        """The batch, for use on the current stream."""
        there, event = begun
        if event is None:
            return there
        current = torch.accelerator.current_stream(self.device)
        current.wait_event(event)
        there = moved(there, lambda tensor: tensor, lambda value: value if _seen_into(value) else self._by_its_own(value))
        for tensor in tensors_in(there):
            if tensor.device.type == self.device.type:
                tensor.record_stream(current)
        return there

    def _by_its_own(self, value: Any) -> Any:
        with suppress(TypeError):
            return value.to(self.device, non_blocking=True)
        return value.to(self.device)

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_pinned():
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)


@contextmanager
def _queued_on(stream: Any) -> Iterator[None]:
    """What is queued inside is queued on ``stream``; the current device and its stream are afterwards as before."""
    # Setting a stream sets the device as well.
    before, there = torch.accelerator.current_stream(), torch.accelerator.current_stream(stream.device)
    torch.accelerator.set_stream(stream)
    try:
        yield
    finally:
        torch.accelerator.set_stream(there)
        torch.accelerator.set_stream(before)


class OnItsWay:
    """What a loader does to batches between collating and the caller, for who makes them otherwise: to a device, augmented."""

    def __init__(self, device: Any, augment: Move | None) -> None:
        self._device, self._augment = device, augment
        self._carrier: Carrier | None = None
        self.copies = device is not None and torch.device(device).type == "cuda"
        """Whether it brings batches to a CUDA device."""

    def __call__(self, batch: Any) -> Any:
        if self._device is not None:
            self._carrier = self._carrier or Carrier(self._device)  # in the process that takes batches, and no other
            batch = self._carrier.end(self._carrier.begin(batch))
        return batch if self._augment is None else self._augment(batch)


def _seen_into(value: Any) -> bool:
    return next(tensors_in(value), None) is not None
