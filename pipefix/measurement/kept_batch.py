"""A batch that is handed to the step again and again, each time as new: steps may change what they are given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from pipefix.hooks.snapshot import is_unchangeable, snapshot
from pipefix.vocabulary.nested import leaves, renewer

MOST_BYTES = 256_000_000
"""Of copies that are held at once."""


class KeptBatch:
    """Call it for a batch to hand over. Containers are new each time: after ``batch.pop("labels")`` the next has labels again;
    tensors and arrays are copied too, unless `learn` has seen that the step leaves them as they are."""

    def __init__(self, value: Any, *, pinned: bool = False, changed: bool = True) -> None:
        self.value, self.pinned, self.changed = value, pinned, changed
        self._renew = renewer(lambda leaf: None if is_unchangeable(leaf) else partial(self._copied, leaf), value, containers=True)

    def __call__(self) -> Any:
        return self._renew() if self._renew is not None else self.value

    def learn(self, step: Callable[[Any], object]) -> None:
        """Run ``step`` and see whether it writes into what it is given."""
        batch = self()
        before = list(leaves(batch))
        step(batch)
        self.changed = not all(map(_alike, before, leaves(self.value)))

    @property
    def most(self) -> int:
        """How many copies may be held at once."""
        held = sum(leaf.nbytes for leaf in leaves(self.value) if _is_array(leaf)) if self.changed else 0
        return max(1, MOST_BYTES // max(1, held))

    def _copied(self, leaf: Any) -> Any:
        if _is_array(leaf):
            return copy_of(leaf, pinned=self.pinned) if self.changed else leaf
        try:
            return snapshot(leaf)
        except Exception:  # noqa: BLE001 - objects of the user's may forbid copies in any way
            return leaf


def copy_of(leaf: Any, *, pinned: bool = False) -> Any:
    """A tensor that outlives the worker that made it, pinned where it was (a copy of pinned memory is not); a copy of an array."""
    if not isinstance(leaf, torch.Tensor):
        return leaf.copy() if _is_array(leaf) else leaf
    cloned = leaf.clone()
    return cloned.pin_memory() if pinned and leaf.is_pinned() else cloned


def shared_anew(batch: Any) -> Callable[[], Any]:
    """What gives a batch again and again with its tensors in fresh shared memory, as every live batch of a worker's lies: that is
    the hand-over's cost."""
    return renewer(lambda leaf: partial(_to_shared, leaf) if isinstance(leaf, torch.Tensor) else None, batch) or (lambda: batch)


def _to_shared(value: torch.Tensor) -> torch.Tensor:
    storage = value.untyped_storage()._new_shared(value.numel() * value.element_size(), device=value.device)
    empty = torch.empty(0, dtype=value.dtype, device=value.device)
    shared: torch.Tensor = empty.set_(storage, 0, value.shape)  # type: ignore[call-overload]
    shared.copy_(value)
    return shared


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (torch.Tensor, np.ndarray))


def _alike(leaf: Any, original: Any) -> bool:
    """Whether a tensor or an array is what it was; other leaves are copied each time anyhow."""
    if not _is_array(leaf):
        return True
    try:
        if isinstance(leaf, torch.Tensor):
            return torch.equal(leaf, original) and leaf.requires_grad == original.requires_grad
        return leaf.shape == original.shape and bool((leaf == original).all())
    except (RuntimeError, TypeError, NotImplementedError):  # of a kind that cannot be compared
        return False
