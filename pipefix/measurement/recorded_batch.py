"""A recorded batch, handed over again and again as live batches are: with its tensors in fresh shared memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from pipefix.hooks.recording import Recording
from pipefix.hooks.snapshot import snapshot
from pipefix.vocabulary.nested import renewer


class RecordedBatch:
    """The batch that a process recorded."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._renew: Callable[[], Any] | None = None

    @property
    def as_it_is(self) -> Any:
        return self._recording.batches[0]

    def as_it_was(self) -> Any:
        """For a consumer in this process, whatever it did to the one before."""
        return snapshot(self.as_it_is)

    def in_shared_memory(self) -> Any:
        """Every live batch of a worker lies in fresh shared memory: that is the hand-over's cost."""
        if self._renew is None:
            recorded = self.as_it_is
            self._renew = renewer(_shared_anew, recorded) or (lambda: recorded)
        return self._renew()


def _shared_anew(leaf: Any) -> Callable[[], torch.Tensor] | None:
    return partial(_to_shared, leaf) if isinstance(leaf, torch.Tensor) else None


def _to_shared(value: torch.Tensor) -> torch.Tensor:
    storage = value.untyped_storage()._new_shared(value.numel() * value.element_size(), device=value.device)
    shared: torch.Tensor = torch.empty(0, dtype=value.dtype).set_(storage, 0, value.shape)  # type: ignore[call-overload]
    shared.copy_(value)
    return shared
