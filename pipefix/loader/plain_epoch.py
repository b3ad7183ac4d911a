"""An epoch made by plain `DataLoader`: for a torch whose private interface is not what the own iterators need.

Nothing here goes beyond torch's public interface. Batches are `DataLoader`'s; a plan's dataset is read, an epoch is gone on
with, and batches are brought to their device and augmented. What only the own iterators can do is said in a warning.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from torch.utils.data import DataLoader

from pipefix.hooks.torch_internals import why_plain
from pipefix.loader import resume
from pipefix.loader.metering.meter import Course
from pipefix.loader.planning import planned
from pipefix.loader.ranks import RemainingOrder
from pipefix.loader.resume import EpochPosition, EpochStart
from pipefix.loader.workers.deaths import lies_behind
from pipefix.vocabulary.worker_exit import is_worker_death

log = logging.getLogger("pipefix.loader")
_WITHOUT = {"on_bad": "raise", "sample_timeout": 0, "rng": "torch"}
"""Options that need the loader's own iterators, and their values that ask for nothing."""


class PlainEpoch:
    def __init__(self, loader: Any, begin: EpochStart, *, why: str | None = None) -> None:
        """``why``: the epoch is not made by the loader's own iterators; as torch's insides have it where it is None."""
        refused = [f"{name}={getattr(loader, name)!r}" for name, nothing in _WITHOUT.items() if getattr(loader, name) != nothing]
        if refused:
            warnings.warn(f"{', '.join(refused)} cannot be had: {why or why_plain()}.", RuntimeWarning, stacklevel=4)
        self.standing, self.meter = EpochPosition(begin, begin.passed, begin.missed), loader.meter
        rest = RemainingOrder(loader, begin.dealt_from) if begin.dealt_from else None
        self.course = Course(self.meter, begin.epoch, loader, rest)
        module = loader._planned.module
        self._steps = [step for step in (module, loader.augment) if step is not None]
        resume.begin_augmenting(self._steps, begin)
        self._carrier = loader._carrier_to_device()
        twin = copy.copy(loader)
        twin.__class__ = DataLoader
        vars(twin)["dataset"] = loader._reads
        if module is not None:
            vars(twin)["collate_fn"] = planned.collated(loader.collate_fn, loader._planned.plan)
        if rest is not None:
            vars(twin)["sampler" if twin.batch_sampler is None else "batch_sampler"] = rest
        if begin.redealt:
            resume.set_sampler_epoch(loader, begin.generators)
        with resume.generators_restored(loader, begin.generators) if begin.again and not begin.redealt else nullcontext():
            self._batches = self._begun(twin, begin.passed)

    def _begun(self, twin: Any, passed: int) -> Iterator[Any]:
        """The batches of a plain loader like this one, after the first ``passed``."""
        batches: Iterator[Any] = iter(twin)
        resume.pass_over(batches, passed, self.standing.missed)
        return batches

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __next__(self) -> Any:
        self.meter.asked()
        try:
            batch = next(self._batches)
        except BaseException as error:
            self.meter.ended()
            self.standing.ended = isinstance(error, StopIteration)
            if self.standing.ended:
                log.info("%s", self.course.stats())
            behind = lies_behind(error) and not (self.standing.ended or is_worker_death(error))
            self.standing.batches += behind
            self.standing.missed += behind
            raise
        self.standing.batches += 1
        if self._carrier is not None:
            batch = self._carrier.end(self._carrier.begin(batch))
        for step in self._steps:
            batch = step(batch)
        self.course.got(batch, self.standing.batches)
        return batch
