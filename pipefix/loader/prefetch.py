"""Batches on their way to a device: copied on a stream of their own, so that the copy runs beside the step before.

A batch is copied as soon as it has arrived; the step's stream waits for it, not the program. What is copied from stays held until
the device has read it, and each tensor's memory is known to be used on the step's stream (``record_stream``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import torch


def moved(batch: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The batch with each tensor moved: in tuples, lists and mappings, and in types that have ``to`` of their own by that."""
    if isinstance(batch, torch.Tensor):
        return move(batch)
    if isinstance(batch, (str, bytes)):
        return batch
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(one, move) for one in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(moved(one, move) for one in batch)
    if type(batch) is dict:
        return {key: moved(value, move) for key, value in batch.items()}
    if isinstance(batch, Mapping) and not hasattr(batch, "to"):
        return type(batch)({key: moved(value, move) for key, value in batch.items()})  # type: ignore[call-arg]
    return batch


class Carrier:
    """Moves batches to a device. Where the device is not there, batches stay where they are and ``why`` says so."""

    def __init__(self, device: Any) -> None:
        self.device = torch.device(device)
        self.why = self._absent()
        self.streams = self.device.type == "cuda" and not self.why
        self._stream: Any = torch.cuda.Stream(self.device) if self.streams else None
        self._held: deque[tuple[Any, Any]] = deque()

    def _absent(self) -> str:
        if self.device.type == "cpu":
            return "batches are there already"
        if self.device.type == "cuda" and not torch.cuda.is_available():
            return "there is no CUDA device here"
        if self.device.type == "cuda":
            return ""
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        if accelerator is None or accelerator.type != self.device.type:
            return f"there is no {self.device.type} device here"
        return ""

    def begin(self, batch: Any) -> tuple[Any, Any]:
        """Start the copy. The answer goes to `end`."""
        if self.why:
            return batch, None
        if not self.streams:
            return self._whole(batch, lambda tensor: tensor.to(self.device, non_blocking=True)), None
        with torch.cuda.stream(self._stream):
            there = self._whole(batch, self._copied)
            event = self._stream.record_event()
        self._held.append((batch, event))
        while self._held[0][1].query():
            self._held.popleft()
            if not self._held:
                break
        return there, event

    def end(self, begun: tuple[Any, Any]) -> Any:
        """The batch, for use on the current stream."""
        there, event = begun
        if event is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(event)
            moved(there, lambda tensor: self._used_on(tensor, current))
        return there

    def _whole(self, batch: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        own = getattr(batch, "to", None)
        if own is not None and not isinstance(batch, torch.Tensor):
            try:
                return own(self.device, non_blocking=True)
            except TypeError:
                return own(self.device)
        return moved(batch, move)

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type == "cpu" and not tensor.is_pinned() and tensor.layout is torch.strided:
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)

    @staticmethod
    def _used_on(tensor: torch.Tensor, stream: Any) -> torch.Tensor:
        if tensor.device.type == "cuda":
            tensor.record_stream(stream)
        return tensor
