"""A dataset that is read by its own code, while the decoding of the pictures that this opens is put off."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pipefix.vocabulary.random_state import RandomState

if TYPE_CHECKING:  # it imports Pillow
    from pipefix.loader.fusing.deferral import Deferral


class DeferredReads:
    """Stands for the dataset where samples are made."""

    def __init__(self, dataset: Any, deferral: Deferral) -> None:
        self.dataset, self.deferral = dataset, deferral

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self._made(self.dataset.__getitem__, index)

    def _made(self, read: Callable[[Any], Any], indices: Any) -> Any:
        """Once more without us where a file could not be decoded, so that the error is met where it belongs."""
        before = RandomState()
        try:
            with self.deferral:
                sample = read(indices)
            if not self.deferral.failed:
                return sample
        except Exception:
            if not self.deferral.failed:
                raise
        before.restore()
        return read(indices)


class DeferredBatchReads(DeferredReads):
    """The same where the dataset reads whole batches itself."""

    def __getitems__(self, indices: Any) -> Any:
        return self._made(self.dataset.__getitems__, indices)
