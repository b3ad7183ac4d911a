"""The settings of a loader that a search may change, and the values that it may try. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pipefix.vocabulary.quantity import counted

FEW_PREFETCHED = 2
"""Torch's own default: batches in flight a worker."""


class Settings(msgspec.Struct, frozen=True, rename={"workers": "num_workers", "prefetch": "prefetch_factor"}):
    """One way to run a loader. Written down, its fields have the names of the loader's arguments."""

    workers: int
    prefetch: int = FEW_PREFETCHED
    """Batches in flight a worker."""
    in_order: bool = True
    pin_memory: bool = False
    worker_threads: int | None = None
    """Threads that native libraries may use in each worker; None leaves them alone."""
    engine: str | None = None
    """``processes``: FastLoader hands batches over, through reusable shared memory; None: as the loader does."""
    batch_size: int | None = None
    """None where it is not the tuner's to choose."""
    persistent_workers: bool = False

    def but(self, **changes: Any) -> Settings:
        """The same with some of them changed."""
        return msgspec.structs.replace(self, **changes)

    def normal(self) -> Settings:
        """The same without what means nothing: with no workers nothing is in flight and nobody comes late."""
        if self.workers:
            return self
        return self.but(prefetch=FEW_PREFETCHED, in_order=True, worker_threads=None, engine=None, persistent_workers=False)

    def arguments(self) -> dict[str, Any]:
        """As loaders and plans call them."""
        arguments: dict[str, Any] = msgspec.to_builtins(self)
        return arguments

    @property
    def in_flight(self) -> int:
        """Batches that lie ready, or are being made, at most."""
        return self.workers * self.prefetch

    def changes(self, other: Settings) -> dict[str, object]:
        """Arguments of the loader that ``other`` has otherwise."""
        own_arguments, other_arguments = self.normal().arguments(), other.normal().arguments()
        return {name: other_arguments[name] for name in own_arguments if own_arguments[name] != other_arguments[name]}


def said(settings: Settings) -> str:
    """``8 workers, prefetch 4``; what is as torch has it is left out."""
    threads = settings.worker_threads
    parts = {
        counted(settings.workers, "worker") if settings.workers else "no workers": True,
        f"prefetch {settings.prefetch}": settings.workers and settings.prefetch != FEW_PREFETCHED,
        "batches as they come": not settings.in_order,
        "pinned": settings.pin_memory,
        f"{counted(threads or 0, 'thread')} a worker": threads is not None,
        "reused memory": settings.engine is not None,
        f"batch {settings.batch_size}": settings.batch_size is not None,
    }
    return ", ".join(words for words, told in parts.items() if told)


@dataclass(frozen=True)
class Knob:
    """A setting beside the number of workers, with a value worth trying."""

    name: str
    value: object
    why: str
    workers: int | None = None
    """How many workers it is to be tried with, where not with as many as there are."""
    worth: float = 0.0
    """Share of the throughput that it is thought to gain, where what hints at it tells."""

    def turned(self, settings: Settings) -> Settings:
        turned = settings.but(**{self.name: self.value})
        return turned if self.workers is None else turned.but(workers=self.workers)


@dataclass(frozen=True)
class Space:
    """What may be tried here. Values that make no sense on this machine are declined, each with its reason."""

    most_workers: int
    cores: float
    """CPU seconds a second that can be had."""
    most_prefetch: int = 8
    reorder: bool = True
    """Batches may come in another order than the sampler's."""
    pin: bool = False
    """A device takes the batches from this process, so pinned memory can matter."""
    slots: bool = False
    """FastLoader may hand batches over."""
    declined: Mapping[str, str] | None = None
    open: bool = False
    """Nobody said how many workers there may be: a pipeline that waits more than it computes may have more."""

    def worker_counts(self) -> list[int]:
        """Every count while it is small, then ever wider steps: neighbours of large counts cannot be told apart."""
        counts: list[int] = []
        count = 0
        while count <= self.most_workers:
            counts.append(count)
            count += 1 if count < 16 else 2 if count < 32 else 4 if count < 64 else 8
        return counts


def most_workers(cores: float, now: int, computing: float = 1.0) -> int:
    """As many as may help: pipelines that compute end at the cores, those that wait (for storage, a service) go on far beyond."""
    return min(128, max(2 * now, 16, round(4 * cores / max(computing, 0.05))))
