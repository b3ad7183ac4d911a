"""Times making batches by stage: of a few batches, where they are made, in forked workers or in this process.

That is done by the pipefix that the program's own Python finds; where it finds none, stages stay unknown. So they do in workers
that are not forked, and in this process where the program's own watch looks already; in workers its looks serve both. To begin
costs some tenths of a second once, most of it imports: so a program is left alone until it has run for a while, and so is a worker.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import mmap
import sys
import weakref
from collections.abc import Mapping
from importlib import import_module
from time import perf_counter as clock
from typing import Any

from .inside import is_importable
from .lines import without_this_frame

_FETCHERS = "torch.utils.data._utils.fetch"
STAGES = ("storage", "decode", "augment", "own", "collate")
"""Fields of a look, in nanoseconds a batch."""
AFTER = 20.0
"""Seconds of the program before anything is looked at."""
WORKER_AFTER = 2.0
"""Seconds of a worker."""
LOOKING_WORKERS = 2
"""Workers that look; the others do the same."""


class Looks:
    def __init__(self, asked: Mapping[str, str]) -> None:
        self.due = clock() + float(asked.get("look_after") or AFTER)
        self.possible = "blind" not in asked and is_importable()
        self._here: weakref.WeakKeyDictionary[Any, LooksHere] = weakref.WeakKeyDictionary()
        """Of loaders whose batches are made in this process."""
        self._free: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
        """By loader: records of workers that have ended. Those in their place go on from what looks have cost by then."""

    def before(self, loader: Any) -> Any:
        """Called before a loader makes an iterator: workers that start now look later. What `after` is to be given."""
        held = vars(loader)
        workers, own_init = int(held.get("num_workers") or 0), held.get("worker_init_fn")
        if workers and type(own_init).__module__ == "pipefix.loader.metering.stage_clock":
            return own_init.record.beside, own_init  # of the program's own watch, which looks already
        if not self._can_look(loader, own_init) or not workers or held.get("_iterator") is not None:
            return None
        if import_module("pipefix.system.forks").start_method_of(loader) != "fork":
            return None
        if clock() > self.due:
            import_module("pipefix.loader.metering.stage_clock").preload()  # forked workers find it then
        free = self._free.get(loader)
        record = free.pop() if free else _record(min(workers, LOOKING_WORKERS), functools.partial(mmap.mmap, -1))
        held["worker_init_fn"] = LooksLater(record, own_init, self.due, _makes_batches(loader))
        return record, own_init

    def after(self, loader: Any, before: Any) -> Any:
        """The record that workers write to which were started since `before`."""
        record, vars(loader)["worker_init_fn"] = before
        return record

    def follow(self, loader: Any, iterator: Any, record: Any) -> None:
        """Whose workers write to ``record``."""
        if "_pipefix_watch" in vars(loader):
            return  # it is the watch that gives its record to those that come after them
        weakref.finalize(iterator, self._free.setdefault(loader, []).append, record).atexit = False

    def forget(self) -> None:
        """In a process forked from this one, whose workers may not write where those of this one do."""
        self._free.clear()

    def here(self, loader: Any, iterator: Any) -> Any:
        """Once the time has come, have batches that ``iterator`` makes in this process looked at; what tells of these looks."""
        fetcher = getattr(iterator, "__dict__", {}).get("_dataset_fetcher")
        if fetcher is None or "fetch" in vars(fetcher) or clock() < self.due or not self._can_look(loader, None):
            return None
        if type(fetcher) not in import_module("pipefix.hooks.torch_internals").fetchers():
            return None  # of a probe that the program makes itself
        here = self._here.get(loader)
        if here is None:
            import_module("pipefix.loader.metering.stage_clock").preload()  # now, and not while a batch is waited for
            here = self._here[loader] = LooksHere(_makes_batches(loader))
        vars(fetcher)["fetch"] = functools.partial(here.clock.timed(type(fetcher).fetch), weakref.proxy(fetcher))
        return here

    def _can_look(self, loader: Any, own_init: Any) -> bool:
        ours = type(own_init).__module__.startswith("pipefix.") or isinstance(own_init, LooksLater)
        watched = ours or "_pipefix_watch" in vars(loader) or hasattr(type(loader), "explain")  # a FastLoader
        return self.possible and not watched

    def cost_s(self) -> float:
        """Seconds that looks took in this process."""
        return sum(here.cost_s() for here in self._here.values())


class LooksHere:
    """Looks at batches of a loader that are made in this process."""

    def __init__(self, batched: bool) -> None:
        self._record = _record(1, bytearray)
        self.clock = _begun(self._record, 0, batched)
        """By which their fetchers are timed."""

    def looks(self) -> Any:
        return self._record.looks()

    def cost_s(self) -> float:
        return float(self._record.totals().cost_ns) / 1e9


class LooksLater:
    """A ``worker_init_fn``: it calls the user's own, and has fetchers look when the time has come."""

    def __init__(self, record: Any, own_init: Any, due: float, batched: bool) -> None:
        self._record, self._given, self._due, self._batched = record, own_init, due, batched

    def __call__(self, worker: int) -> None:
        if self._given is not None:
            self._given(worker)
        if worker < LOOKING_WORKERS:
            begin = functools.partial(_begun, self._record, worker, self._batched)
            # Nothing is imported before a look is due.
            for kind in getattr(sys.modules.get(_FETCHERS), "__dict__", {}).values():
                if isinstance(kind, type) and hasattr(kind, "fetch"):
                    kind.fetch = _timed_later(kind.fetch, max(self._due, clock() + WORKER_AFTER), begin)


def _timed_later(fetch: Any, due: float, begin: Any) -> Any:
    """``fetch`` of a fetcher, timed from a moment on by the clock that ``begin`` gives: also in the middle of a long epoch."""
    timed = fetch

    def fetched(fetcher: Any, order: Any) -> Any:
        nonlocal timed, due
        try:
            if clock() >= due:
                due = float("inf")  # once, whatever becomes of it
                gc.freeze()  # garbage of the program, such as memory of its device, cannot be freed here; importing collects some
                with contextlib.suppress(Exception):  # stages stay unknown, and the program goes on
                    timed = begin().timed(fetch)
            return timed(fetcher, order)
        except BaseException as error:
            without_this_frame(error)
            raise

    return fetched


def _record(pages: int, memory: Any) -> Any:
    return import_module("pipefix.loader.metering.cost_record").CostRecord(pages, memory=memory)


def _begun(record: Any, worker: int, batched: bool) -> Any:
    stage_clock = import_module("pipefix.loader.metering.stage_clock").StageClock(record, batched=batched, a_sample=float("inf"))
    stage_clock.begin(worker)
    return stage_clock


def _makes_batches(loader: Any) -> bool:
    """Whether what comes out holds several samples."""
    return getattr(loader, "batch_sampler", None) is not None or hasattr(getattr(loader, "sampler", None), "batch_size")


def summed(records: Any) -> dict[str, Any]:
    """What was looked at since this was last asked: batches, and seconds by stage; empty where there was nothing."""
    looks = [look for record in records for look in record.looks()]
    if not looks:
        return {}
    seconds = {name: round(sum(getattr(look, name) for look in looks) / 1e9, 7) for name in (*STAGES, "cpu", "made")}
    return {"batches": len(looks), **seconds}
