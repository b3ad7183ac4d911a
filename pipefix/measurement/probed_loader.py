"""Makes the loader that is measured: like the user's, with their dataset and settings, an endless order, and a worker probe."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

from pipefix.hooks import torch_internals
from pipefix.measurement.probe_task import ProbeOptions, ProbeTask
from pipefix.measurement.worker_probe import WorkerProbe, called
from pipefix.subject.subject import Subject
from pipefix.system.forks import start_method_of

ORDERS_KEPT = 64


def probed_loader(subject: Subject, probe: WorkerProbe, known: list[Any] | None = None) -> DataLoader[Any]:
    """``known``: samples that were read before, which it gives in place of the sampler's."""
    loader = subject.loader
    settings = torch_internals.loader_arguments(loader, num_workers=probe.task.options.workers) | {
        "collate_fn": called,
        "persistent_workers": False,  # there is one epoch, without end
        "pin_memory": loader.pin_memory and torch.cuda.is_available(),
        "worker_init_fn": probe,
    }
    if loader.generator is not None:
        settings["generator"] = torch.Generator(loader.generator.device)
        settings["generator"].set_state(loader.generator.get_state())
    if not subject.iterable:
        for name in ("batch_size", "drop_last", "sampler", "batch_sampler"):
            settings.pop(name, None)
        orders = SampleOrders(subject, known)
        settings |= {"batch_sampler": orders} if subject.auto_collation else {"sampler": orders, "batch_size": None}
    # A loader that hands batches over in a way of its own brings what makes another that does.
    make: Any = getattr(loader, "another", DataLoader)
    probed: DataLoader[Any] = make(loader.dataset, **settings)
    vars(probed)["dataset"] = loader.dataset  # a data pipe is wrapped by each loader
    return probed


def probe_of(subject: Subject, switch: torch.Tensor, options: ProbeOptions) -> WorkerProbe:
    """Of the subject's loader."""
    loader = subject.loader
    kind = "stream" if subject.iterable else "batched" if subject.batched_fetch else "map" if subject.auto_collation else "single"
    task = ProbeTask(loader.collate_fn, switch, options, kind, whole_batches=subject.groups_samples)
    return WorkerProbe(task, loader.worker_init_fn, forked=start_method_of(loader) == "fork")


class SampleOrders(Sampler[Any]):
    """The user's own sampler order, epoch after epoch; or samples that were read before, in batches of the user's size (or, where
    a batch sampler of theirs chooses which samples go together, in its own batches)."""

    def __init__(self, subject: Subject, known: list[Any] | None = None) -> None:
        self._subject = subject
        self._known = known or []
        self.spent_ns = 0
        """Nanoseconds that the user's sampler took so far. It runs where the batches are taken, in the training process."""
        self.recorded = False
        """Latest orders are given again, and the sampler is not asked."""
        self._latest: deque[Any] = deque(maxlen=ORDERS_KEPT)

    def __iter__(self) -> Iterator[Any]:
        orders = iter(self._orders())
        while True:
            if self.recorded and self._latest:
                self._latest.rotate(-1)
                yield self._latest[-1]
                continue
            begun = perf_counter_ns()
            try:
                order = next(orders)
            except StopIteration:
                return
            finally:
                self.spent_ns += perf_counter_ns() - begun
            self._latest.append(order)
            yield order

    def _orders(self) -> Iterator[Any]:
        if not self._known:
            return self._subject.orders()
        if self._subject.batched_fetch or self._subject.groups_samples or not self._subject.auto_collation:
            # The sampler is asked all the same: what it takes belongs to the settings that are tried.
            return (known for known, _ in zip(itertools.cycle(self._known), self._subject.orders(), strict=False))
        known = itertools.cycle(self._known)
        return (list(itertools.islice(known, len(order))) for order in self._subject.orders())
