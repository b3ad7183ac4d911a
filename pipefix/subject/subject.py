"""`Subject`: the pipeline under test, as it was found: never changed, only run."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch.utils import data
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from pipefix.hooks.torch_internals import hands_out_of_one, in_order
from pipefix.subject.candidates import parts
from pipefix.vocabulary.attributes import attributes
from pipefix.vocabulary.generators import generators, untouched
from pipefix.vocabulary.quantity import counted
from pipefix.vocabulary.settings import LoaderSettings
from pipefix.vocabulary.user_modules import is_users

LOOKED_AT = 32
"""Batches of a batch sampler whose sizes are counted: samplers that group by length begin with any of them."""


@dataclass(frozen=True)
class Subject:
    """A loader as the user configured it, and what consumes its batches."""

    target: str
    """What the user named."""
    loader: DataLoader[Any]
    """Theirs, or one built around their dataset with the settings stated in `assumed`."""
    assumed: tuple[str, ...] = ()
    """Settings that nobody gave."""
    choice: str = ""
    """What else the target's file holds, and how to name it, where the user named none of it."""
    wrapper: str = ""
    """What lies between the loader and what the user named, in words."""
    consumer: Callable[[Any], object] | None = None
    """``train_step(batch)`` of the target's file."""
    model: Any = None
    """An ``nn.Module`` of the target's file, where there is no ``train_step``."""
    load_seconds: float = 0.0
    package: str = ""
    """The installed package that the target named: what it holds is the user's own."""
    program: tuple[str, ...] = ()
    """The program and its arguments, where the loader is one inside a program."""
    criterion: Any = None
    """What the target's file has a model's loss computed by."""
    launch_seconds: float | None = None
    """In which the CPU hands a step of the program's to its device, where the loader is one inside a program."""
    given: dict[str, int] = field(default_factory=dict, compare=False)
    """What was given in place of the loader's own: batch_size, workers."""

    @property
    def plan_target(self) -> str:
        """What a plan says that it is for. Objects of Python have no name that tells one from another: their datasets are told."""
        if not self.target.endswith(" object>"):
            return self.target
        length = length_of(self.dataset)
        return f"{type(self.dataset).__name__} of {'samples' if length is None else counted(length, 'sample')} in a {self.target}"

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
        return self.auto_collation and not self.iterable and _fetches_batches(self.loader.dataset)

    @property
    def groups_samples(self) -> bool:
        """Whether a batch sampler of the user's own chooses which samples make a batch: by length, say."""
        own = self.auto_collation and type(self.loader.batch_sampler) is not BatchSampler
        return own and not (self.iterable or self.batched_fetch)

    @property
    def settings(self) -> LoaderSettings:
        loader = self.loader
        context = loader.multiprocessing_context
        dataset = loader.dataset
        sampler = type(loader.sampler).__name__
        names = ("batch_size", "num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "drop_last")
        return LoaderSettings(
            **{name: getattr(loader, name) for name in names},
            mean_batch=self._mean_batch, in_order=in_order(loader), shuffle=sampler == "RandomSampler", sampler=sampler,
            start_method=context.get_start_method() if context is not None else None,
            collate=getattr(loader.collate_fn, "__qualname__", type(loader.collate_fn).__name__),
            collate_library=_library(loader.collate_fn), dataset=type(dataset).__name__,
            kind="iterable" if self.iterable else "batched" if self.batched_fetch else "map",
            length=length_of(dataset), drawn=self._drawn,
        )  # fmt: skip

    @property
    def epoch(self) -> int | None:
        """Samples an epoch; None where nobody can tell."""
        return self.settings.epoch

    @cached_property
    def _mean_batch(self) -> float | None:
        """Samples a batch, where the loader names no batch size and its sampler gives lists of indices."""
        sampler = self.loader.batch_sampler if self.auto_collation else self.loader.sampler
        if self.iterable or self.loader.batch_size is not None or not (self.auto_collation or isinstance(sampler, BatchSampler)):
            return None
        if type(sampler) is BatchSampler:
            return float(sampler.batch_size)
        try:
            with untouched(self.loader):
                sizes = [len(order) for order in itertools.islice(self.orders(), LOOKED_AT) if len(order)]
        except Exception:  # noqa: BLE001 - the user's own sampler; where it fails, running the loader tells
            return None
        return sum(sizes) / len(sizes) if sizes else None

    @property
    def _drawn(self) -> int | None:
        """Samples an epoch, where a sampler of single indices draws more or fewer than the dataset holds."""
        loader, held = self.loader, length_of(self.loader.dataset)
        if self.iterable or type(loader.batch_sampler) not in (BatchSampler, type(None)):
            return None
        # With batch_size=None a sampler may give lists of indices, for a dataset that makes whole batches.
        sampler = loader.sampler.sampler if type(loader.sampler) is BatchSampler else loader.sampler
        drawn = length_of(sampler)
        return None if drawn == held else drawn

    def orders(self) -> Iterator[Any]:
        """What the loader would ask its workers for, epoch after epoch, in the user's own order.

        A list of indices, a single index (no auto-collation), or how many samples to draw from a stream.
        """
        if self.iterable:
            while True:
                yield self.loader.batch_size or 1
        source = own_sampler(self.loader.batch_sampler if self.auto_collation else self.loader.sampler, self.loader)
        while True:
            empty = True
            for order in source:
                empty = False
                yield list(order) if self.auto_collation else order
            if empty:
                return

    def loader_to_run(self) -> DataLoader[Any]:
        """The user's loader as it is, but with samplers and an iterator of its own, so that running it leaves theirs alone. What it
        does to batches on their way to the caller belongs to their consumer, and samples that cannot be read are noted nowhere."""
        loader = copy.copy(self.loader)
        if hands_out_of_one(loader):
            loader.__class__ = DataLoader  # its own __iter__ would hand out what the iterator of theirs makes
        own = vars(loader)
        if hasattr(loader, "on_its_way"):
            own.update(device=None, augment=None, quarantine=None, max_bad=1.0)
        own["_iterator"] = None
        if not self.iterable:
            own["sampler"] = own_sampler(self.loader.sampler, self.loader)
            own["batch_sampler"] = own_sampler(self.loader.batch_sampler, self.loader)
        return loader


def length_of(dataset: Any) -> int | None:
    """Its length, or None where it has none that can be told."""
    with suppress(Exception):  # a stream's __len__ may raise whatever it likes; a map-style one was asked before
        return len(dataset) if hasattr(type(dataset), "__len__") else None
    return None


def _fetches_batches(dataset: Any) -> bool:
    """Whether ``__getitems__`` does more than ask for one sample after the other, which is all that a Subset's own does."""
    if type(dataset) is data.Subset:
        return _fetches_batches(dataset.dataset)
    return bool(getattr(dataset, "__getitems__", None))


_STATELESS = (data.SequentialSampler, data.RandomSampler, data.SubsetRandomSampler, data.WeightedRandomSampler)
"""Samplers whose only state is their generator's, which is put back after a probe."""


def own_sampler(sampler: Any, loader: DataLoader[Any]) -> Any:
    """A sampler that gives the same order as ``sampler`` and whose use leaves that one's epochs and counters alone.

    Generators and the dataset are shared with it; what cannot be copied is used as it is.
    """
    if sampler is None or type(sampler) in _STATELESS:
        return sampler
    if type(sampler) is BatchSampler:
        return BatchSampler(own_sampler(sampler.sampler, loader), sampler.batch_size, sampler.drop_last)
    datasets = parts(loader.dataset)
    shared = [*datasets, *(value for dataset in datasets for value in attributes(dataset).values()), loader.generator]
    shared += [generator for generator in generators(sampler) if isinstance(generator, torch.Generator)]
    with suppress(Exception):  # open files, locks, generators: whatever the sampler holds
        return copy.deepcopy(sampler, {id(value): value for value in shared if value is not None})
    return sampler


def _library(function: Any) -> str:
    """The package that a function, or an object that is called, comes from; empty for torch and for the user's own."""
    module = getattr(function, "__module__", None) or type(function).__module__
    root = str(module).partition(".")[0]
    return "" if root in ("torch", "builtins", "pipefix") or is_users(module) else root
