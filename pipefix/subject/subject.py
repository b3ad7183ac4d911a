"""The pipeline under test, as it was found: never changed, only run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from pipefix.vocabulary.settings import LoaderSettings


@dataclass(frozen=True)
class Subject:
    """A loader as the user configured it, and what consumes its batches."""

    target: str
    """What the user named."""
    loader: DataLoader[Any]
    """Theirs, or one built around their dataset with the settings stated in `assumed`."""
    assumed: tuple[str, ...] = ()
    """Settings that nobody gave."""
    consumer: Callable[[Any], object] | None = None
    """``train_step(batch)`` of the target's file."""
    model: Any = None
    """An ``nn.Module`` of the target's file, where there is no ``train_step``."""
    load_seconds: float = 0.0
    source_file: str | None = None
    extras: dict[str, Any] = field(default_factory=dict)
    """Other names of the target's file that a consumer may use: criterion, optimizer."""

    @property
    def dataset(self) -> Any:
        return self.loader.dataset

    @property
    def iterable(self) -> bool:
        return isinstance(self.loader.dataset, IterableDataset)

    @property
    def auto_collation(self) -> bool:
        """Whether the loader makes lists of samples and collates them, or passes single samples on."""
        return self.loader.batch_sampler is not None

    @property
    def batched_fetch(self) -> bool:
        return bool(getattr(self.loader.dataset, "__getitems__", None)) and self.auto_collation and not self.iterable

    @property
    def settings(self) -> LoaderSettings:
        loader = self.loader
        context = loader.multiprocessing_context
        dataset = loader.dataset
        length = len(dataset) if hasattr(dataset, "__len__") else None
        sampler = type(loader.sampler).__name__
        return LoaderSettings(
            batch_size=loader.batch_size,
            num_workers=loader.num_workers,
            prefetch_factor=loader.prefetch_factor,
            pin_memory=loader.pin_memory,
            persistent_workers=loader.persistent_workers,
            start_method=context.get_start_method() if context is not None else None,
            in_order=loader.in_order,
            drop_last=loader.drop_last,
            shuffle=sampler == "RandomSampler",
            sampler=sampler,
            collate=getattr(loader.collate_fn, "__qualname__", type(loader.collate_fn).__name__),
            dataset=type(dataset).__name__,
            kind="iterable" if self.iterable else "batched" if self.batched_fetch else "map",
            length=length,
        )

    def orders(self) -> Iterator[Any]:
        """What the loader would ask its workers for, epoch after epoch, in the user's own order.

        A list of indices, a single index (no auto-collation), or how many samples to draw from a stream.
        """
        if self.iterable:
            while True:
                yield self.loader.batch_size or 1
        source = self.loader.batch_sampler if self.auto_collation else self.loader.sampler
        while True:
            empty = True
            for order in source:  # type: ignore[union-attr]
                empty = False
                yield list(order) if self.auto_collation else order
            if empty:
                return
