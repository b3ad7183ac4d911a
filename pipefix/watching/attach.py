"""Puts a meter on a loader that the user made, and takes it off without a trace.

A DataLoader becomes an object of a subclass of its class, whose only difference is what it does on ``iter()``. Copies and pickles
of it are of the user's own class. Iterators stay what they are; the step's two moments are taken where torch's own ``__next__``
calls ``_next_data``. Whatever else can be iterated gets an iterator around its own.
"""

from __future__ import annotations

import copyreg
import functools
import weakref
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from pipefix.hooks.torch_internals import kept_iterator, processes_of
from pipefix.loader.metering.meter import Course, Meter, Metered, makes_batches, size_of
from pipefix.loader.metering.stage_clock import StageClock, preload
from pipefix.vocabulary.held_loaders import is_dataloader

_MARK = "_pipefix_watch"


class Attachment:
    def __init__(self, loader: Any, meter: Meter, *, stages: bool = True) -> None:
        self.loader, self.meter, self.stages = loader, meter, stages
        self._class: type | None = None
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        """Those with the meter on."""
        self.processes: list[Any] = []
        """The worker processes of the iterator that was made last, also when it is gone."""
        self._clock: StageClock | None = None
        """Of batches made in this process."""
        self.running: weakref.ref[Any] | None = None
        """The iterator that was made last."""

    def attach(self) -> None:
        """From the next ``iter()`` on. A loader that cannot be taught is left alone: then `around` is what counts."""
        kind = _unwatched(self.loader)
        known = is_dataloader(kind)
        if not known:
            self.meter.declined = "only a DataLoader lets its workers be looked into"
            if not hasattr(kind, "__iter__") or not hasattr(self.loader, "__dict__"):
                return
        if _MARK in vars(self.loader):
            self.meter.declined = "another watch looks into its workers"
            return
        try:
            self.loader.__class__ = _watched(kind)
        except TypeError:
            if known:
                self.meter.declined = "its class lets nobody inherit"
            return  # made in C, or of a class that lets nobody inherit: then the watch itself is to be iterated
        self._class = kind
        vars(self.loader)[_MARK] = self

    def detach(self) -> None:
        for iterator in list(self._iterators):
            vars(iterator).pop("_next_data", None)
            fetcher = getattr(iterator, "_dataset_fetcher", None)
            if fetcher is not None:
                vars(fetcher).pop("fetch", None)
        if self._clock is not None:
            self._clock.close()
            self._clock = None
        if self._class is not None:
            vars(self.loader).pop(_MARK, None)
            self.loader.__class__ = self._class
            self._class = None

    def around(self) -> Iterator[Any]:
        """An iterator of the loader, with the meter on it."""
        if self._class is not None:
            return iter(self.loader)
        return Metered(iter(self.loader), self.meter, size_of(self.loader))

    def adopt(self, iterator: Any) -> None:
        """An iterator of this loader that was made before: its steps are seen, and its stages where it makes batches here."""
        if self._class is None or not hasattr(iterator, "_next_data") or iterator in self._iterators:
            return
        if hasattr(iterator, "_dataset_fetcher"):
            self._in_process(lambda: iterator)
        else:
            self.meter.declined = "its workers were running before the watch began"
            self._hook(iterator)

    def begin(self, make: Callable[[], Any]) -> Any:
        """``make()`` is the loader's own ``__iter__``."""
        loader, meter = self.loader, self.meter
        if self._class is None or not is_dataloader(self._class):
            return Metered(iter(make()), meter, size_of(loader))
        begun = meter.clock()
        known = kept_iterator(loader)
        workers = int(loader.num_workers)
        meter.workers = workers > 0
        if known is not None:
            if known not in self._iterators:
                meter.declined = "its workers were running before the watch began"
            iterator = self._hook(make())
        elif workers:
            iterator = self._with_workers(make, workers)
        else:
            iterator = self._in_process(make)
        meter.started(meter.clock() - begun)
        return iterator

    def _with_workers(self, make: Callable[[], Any], workers: int) -> Any:
        loader, meter = self.loader, self.meter
        own, context = vars(loader), getattr(loader, "multiprocessing_context", None)
        try:
            record = meter.record(workers, context.get_start_method() if context is not None else None)
        except OSError as error:
            meter.declined = f"there is no shared memory for its workers' figures: {error.strerror or error}"
            return self._hook(make())
        before = own["worker_init_fn"]
        if self.stages:
            preload()
            # What torch imports for packing is loaded before workers are forked: each would read it beside its second batch, while
            # that is looked at, and its bytes would be those of samples.
            ForkingPickler.dumps(torch.empty(0, device="cpu"))
        own["worker_init_fn"] = StageClock(record, before, stages=self.stages, batched=makes_batches(loader))
        try:
            iterator = make()
        finally:
            own["worker_init_fn"] = before
        hooked = self._hook(iterator)
        if hooked is iterator:
            meter.declined = None if self.processes else "threads make batches by fused calls, which have no stages"
            meter.follow(record, self.running)
        return hooked

    def _in_process(self, make: Callable[[], Any]) -> Any:
        iterator = make()
        hooked = self._hook(iterator)
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        if fetcher is not None:
            if self._clock is None:
                record = self.meter.record(0)
                self.meter.follow(record, None)
                self._clock = StageClock(record, stages=self.stages, batched=makes_batches(self.loader))
                self._clock.begin()
            self.meter.declined = None
            held, fetch = weakref.ref(fetcher), self._clock.timed(type(fetcher).fetch)
            vars(fetcher)["fetch"] = lambda order: fetch(held(), order)
        return hooked

    def _hook(self, iterator: Any) -> Any:
        if not hasattr(iterator, "_next_data") or not hasattr(iterator, "__dict__"):
            self.meter.declined = "its class makes iterators of its own"
            return Metered(iterator, self.meter, size_of(self.loader))
        self.running = weakref.ref(iterator)
        self.processes = processes_of(iterator)
        self.meter.workers = bool(self.processes)
        if iterator not in self._iterators:
            if getattr(iterator, "meter", None) is not self.meter:
                # By a weak reference: an iterator that is dropped ends its workers at once, as it does unwatched.
                taking = functools.partial(_next_data, weakref.ref(iterator), Course(self.meter, 0, self.loader))
                vars(iterator)["_next_data"] = taking
            self._iterators.add(iterator)
        return iterator


def _next_data(reference: Any, course: Course) -> Any:
    iterator, meter = reference(), course.meter
    meter.asked()
    try:
        batch = type(iterator)._next_data(iterator)
    except BaseException:
        meter.ended()
        raise
    course.got(batch, getattr(iterator, "_num_yielded", -2) + 1)
    return batch


_known: dict[type, type] = {}
"""One watched subclass a class."""


def _watched(kind: Any) -> type:
    """A subclass that answers for ``kind`` in every way but ``iter()``."""
    if kind in _known:
        return _known[kind]

    def __iter__(self: Any) -> Any:  # noqa: N807
        watching = vars(self).get(_MARK)
        if watching is None:  # made anew from this one's class, as Lightning does it
            self.__class__ = kind
            return iter(self)
        return watching.begin(functools.partial(kind.__iter__, self))

    def __reduce_ex__(self: Any, protocol: Any) -> Any:  # noqa: N807
        reduced: list[Any] = list(kind.__reduce_ex__(self, protocol))
        if reduced[0] is copyreg.__newobj__:  # type: ignore[attr-defined]
            reduced[:2] = _remake, (kind, *reduced[1][1:])  # pickle insists that what `copyreg` remakes be of the very class
        if len(reduced) > 2 and isinstance(reduced[2], dict):
            reduced[2] = {name: value for name, value in reduced[2].items() if name != _MARK}
        return tuple(reduced)

    attributes = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    _known[kind] = type(kind.__name__, (kind,), {**attributes, "__iter__": __iter__, "__reduce_ex__": __reduce_ex__})
    return _known[kind]


def _unwatched(loader: Any) -> type:
    """The class of a loader; one that was made anew from a watched loader's class gets its own back."""
    own = next((kind for kind, taught in _known.items() if taught is type(loader)), None)
    if own is not None and _MARK not in vars(loader):
        loader.__class__ = own
    return type(loader)


def _remake(kind: type, *arguments: Any) -> Any:
    return kind.__new__(kind, *arguments)
