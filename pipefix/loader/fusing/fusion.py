"""Decides whether a loader's batches are made by fused calls, and says why not."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset, IterDataPipe, MapDataPipe, default_collate

from pipefix.kernels.reused import Memory
from pipefix.loader.fusing.errors import NotFused
from pipefix.loader.metering.stage_clock import StageClock
from pipefix.loader.slots.portable import Portable
from pipefix.loader.workers.start import FirstInWorker
from pipefix.system.resources import cores

if TYPE_CHECKING:  # it imports torchvision
    from pipefix.kernels.kernel import Kernel
    from pipefix.loader.fusing.in_part import ReadInPart

MODES = ("close", "exact")


@dataclass
class Fusion:
    """Fused calls, by threads of this process or by worker processes."""

    source: Any
    threads: int
    memory: Memory
    why_processes: str | None = None

    @property
    def by_threads(self) -> bool:
        """Whether threads of this process make the batches."""
        return self.why_processes is None

    def explain(self) -> str:
        if self.why_processes is not None:
            who = f"Worker processes ({self.why_processes}) make" if self.threads else "This process makes"
        else:
            who = f"{self.threads} threads of this process make" if self.threads > 1 else "A thread of this process makes"
        sentence = f"{who} batches by fused calls. {self.source.explain()} Random numbers belong to samples, as under rng='sample'."
        if self.threads and self.why_processes is not None:
            sentence += " How many samples went another way is known to the workers alone."
        return sentence


class Fusing:
    """A loader's ``fuse`` option. What was compiled is kept as long as the transforms are the same."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.memory = Memory()
        self._known: dict[Any, Any] = {}

    def decide(self, loader: Any, reads: Any, *, moved: bool) -> Fusion | ReadInPart:
        """How batches of the next epoch are made. ``moved``: a plan does transforms to whole batches. Raises `NotFused`."""
        why = _unfit(loader, moved=moved)
        if why is not None:
            raise NotFused(why)
        from pipefix.loader.fusing.source import compiled

        try:
            source = compiled(reads, self.mode, self._known)
        except NotFused as error:
            # The user's own code runs, in worker processes: threads would take turns at it.
            from pipefix.loader.fusing.in_part import ReadInPart, in_part

            part = in_part(reads, self._known, str(error))
            if isinstance(part, ReadInPart):
                return part
            return Fusion(part, loader.num_workers, self.memory, "your own transforms run in them")
        difference = source.fused.difference
        if difference is not None and difference.max and "told" not in self._known:
            # What `close` means here, said before it is used.
            self._known["told"] = True
            told = f"fuse={self.mode!r}: {difference.sentence()}. fuse='exact' takes only what is equal to the bit."
            warnings.warn(told, UserWarning, stacklevel=5)
        if not loader.num_workers:
            return Fusion(source, max(1, int(cores())), self.memory)
        return Fusion(source, loader.num_workers, self.memory, _for_processes(loader, source.fused.kernel))


def _unfit(loader: Any, *, moved: bool) -> str | None:
    stream = isinstance(loader.dataset, (IterableDataset, IterDataPipe, MapDataPipe))
    reasons = (
        (stream, "the dataset is a stream, or made of data pipes: its samples are not asked for by index"),
        (loader._engine == "torch", "engine='torch' asks for another way"),
        (moved, "the plan moves transforms to whole batches"),
        (loader.batch_sampler is None, "batch_size=None puts no samples into batches"),
        (loader.sample_timeout and not loader.num_workers, "without workers sample_timeout would have to interrupt threads"),
    )
    return next((why for unfit, why in reasons if unfit), None)


def users_init(loader: Any) -> Any:
    """The user's own ``worker_init_fn``, without what is put around it here."""
    init = loader.worker_init_fn
    while isinstance(init, (StageClock, FirstInWorker)):
        init = init.then
    return init


def _for_processes(loader: Any, kernel: Kernel) -> str | None:
    """Why workers make the batches rather than threads; None: threads do."""
    collate = loader.collate_fn.collate_fn if isinstance(loader.collate_fn, Portable) else loader.collate_fn
    reasons = (
        (loader._engine == "processes", "engine='processes'"),
        (collate is not default_collate, "collate_fn is your own"),
        (users_init(loader) is not None, "worker_init_fn is called in them"),
        (loader.sample_timeout, "sample_timeout interrupts them"),
        # Its dozen calls a sample each take up the interpreter's lock again: two threads make some 0.7 of what two processes do.
        (kernel.name == "twin" and loader.num_workers > 1, "without the native kernel threads take turns"),
    )
    return next((why for so, why in reasons if so), None)
