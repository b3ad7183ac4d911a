"""`LoaderSettings`: the arguments of a DataLoader that change its speed, as plain values for reports and plans."""

from __future__ import annotations

import msgspec


class LoaderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The DataLoader arguments that change its speed, as found or as proposed."""

    batch_size: int | None = 1
    """Samples a batch; None where a batch sampler or the dataset itself decides."""
    mean_batch: float | None = None
    """Samples a batch on average, where a batch sampler decides."""
    num_workers: int = 0
    prefetch_factor: int | None = None
    """Batches in flight a worker; None with no workers."""
    pin_memory: bool = False
    persistent_workers: bool = False
    start_method: str | None = None
    """fork, forkserver or spawn; None for the platform's default."""
    in_order: bool = True
    drop_last: bool = False
    shuffle: bool = False
    sampler: str = "sequential"
    """The sampler's class name."""
    collate: str = "default_collate"
    """The collate function's qualified name."""
    collate_library: str = ""
    """The package that has it; empty where that is torch, or the user's own code."""
    dataset: str = ""
    """The dataset's class name."""
    kind: str = "map"
    """map, batched (``__getitems__``) or iterable."""
    length: int | None = None
    """Samples that the dataset holds; None where it has no length."""
    drawn: int | None = None
    """Samples an epoch, where the sampler draws more or fewer than the dataset holds; None: as many."""

    @property
    def samples_a_batch(self) -> float:
        """As an epoch or the batch sampler gives on average, or as set; 1 where samples are passed on as they are."""
        if self.batch_size and self.epoch and not self.drop_last and self.kind != "iterable":
            return self.epoch / -(-self.epoch // self.batch_size)  # the last one holds what is left
        return self.batch_size or self.mean_batch or 1

    @property
    def epoch(self) -> int | None:
        """Samples an epoch; None where nobody can tell."""
        return self.length if self.drawn is None else self.drawn
