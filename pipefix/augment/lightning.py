"""For Lightning: `attach` has a module or data module augment batches on the device, after their transfer, in training only.

Lightning itself is not imported: the hook's name and arguments are all that is used of it.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

from pipefix.augment.module import Augment

HOOK = "on_after_batch_transfer"


def attach(owner: Any, augment: Augment) -> Any:
    """Give a LightningModule or a LightningDataModule the hook that augments; its own hook is called after it."""
    before = getattr(owner, HOOK)

    def on_after_batch_transfer(self: Any, batch: Any, dataloader_idx: int) -> Any:
        trainer = getattr(self, "trainer", None)
        if trainer is None or trainer.training:
            batch = augment(batch)
        return before(batch, dataloader_idx)

    object.__setattr__(owner, HOOK, MethodType(on_after_batch_transfer, owner))
    return owner
