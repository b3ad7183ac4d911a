"""`prepare`: the hand-over through reused memory for any `DataLoader`, as its collate function.

    loader = pipefix.prepare(loader)                        # then accelerator.prepare(loader)
    trainer = Trainer(..., data_collator=pipefix.prepare(collator))

Frameworks that build a plain `DataLoader` anew keep its dataset and its collate function. So here nothing else is needed: a worker
makes slots of its own, its first batch brings their descriptor along, and each batch opens itself where it arrives.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable
from multiprocessing import current_process, util
from typing import Any

import psutil
from torch.utils.data import DataLoader, default_collate

from pipefix.hooks.torch_internals import hands_out_of_one
from pipefix.loader.slots.arena import Arena, room
from pipefix.loader.slots.batch_in_slot import Arrival, Assembler, Sent
from pipefix.vocabulary.attributes import own
from pipefix.vocabulary.held_loaders import held_loader

SLOTS_EACH = 8
_OWN = ("collate_fn", "arena", "_looks", "_asked")
"""Attributes of a `Portable`; others are its collate function's."""
_known: dict[str, tuple[int, Arena]] = {}
"""Arenas of workers that send to this process, with the worker's number, by key."""


class Portable(Assembler):
    """A collate function that hands its batch over through slots, in a worker; elsewhere it is the one that was given."""

    def __init__(self, collate_fn: Callable[[Any], Any]) -> None:
        super().__init__(collate_fn)
        self._asked: int | None = None
        """The process that tried to make an arena."""

    def _arena_here(self, workers: int) -> Arena | None:
        if not current_process().daemon:
            return None  # the worker is a thread of this process, as MONAI's may be: what it makes is here, and is not sent
        if self._asked != os.getpid():
            self._asked, self.arena = os.getpid(), None
            with contextlib.suppress(AttributeError, OSError, ValueError):  # this system has no memory for it
                self.arena = Arena(1, SLOTS_EACH, room(workers * SLOTS_EACH), receives=False)
                util.Finalize(None, self.arena.writer_ends, exitpriority=0)  # when this worker ends
        return self.arena

    def _sent(self, arena: Arena, slot: int, payload: bytes) -> Sent:
        # The receiver marks the arena once it has it; until then each batch brings it along.
        return Sent(delivered, os.getpid(), None if arena.arrived else arena, arena.key, slot, payload)

    def __reduce__(self) -> Any:
        return Portable, (self.collate_fn,)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For ``isinstance``: timm switches its mixup off in a `FastCollateMixup` alone."""
        kind = type(self.collate_fn)
        return Portable if kind.__module__ == "builtins" else kind  # no function, and no class

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            super().__setattr__(name, value)
        else:
            setattr(self.collate_fn, name, value)

    def __getattr__(self, name: str) -> Any:
        # Collators have settings that trainers look at, and that callbacks set while it trains.
        if name == "collate_fn":
            raise AttributeError(name)
        return getattr(self.collate_fn, name)


def delivered(pid: int, arena: Arena | None, key: str, slot: int, payload: bytes) -> Any:
    if key not in _known:
        if arena is None:
            raise RuntimeError(f"A batch of worker {pid} arrived whose memory is not known here. Make the loader's iterator anew.")
        for other, (worker, _) in list(_known.items()):
            if not psutil.pid_exists(worker):
                _known.pop(other, None)
        arena.receive()
        _known[key] = pid, arena
    return Arrival(_known[key][1], slot, payload).open()


def prepare(what: Any = None) -> Any:
    """A `DataLoader`, or a collate function, whose batches come from workers through reusable shared memory.

    What is made of it (by Accelerate, by a Trainer) keeps its speed.

    Args:
        what: a loader, a collate function, or None for `default_collate`.

    Returns:
        A copy of the loader with the same dataset, sampler and settings; or a collate function to use in the given one's place.

    Raises:
        ValueError: the loader is a `FastLoader` with options that nothing built of its dataset and collate function would have.
    """
    if isinstance(what, DataLoader):
        if hands_out_of_one(what):
            raise ValueError(
                f"prepare cannot change this {type(what).__name__}: the one iterator that it has for all epochs was made with it, "
                "and collates as it was told then. Make the loader with collate_fn=pipefix.prepare(collate_fn)."
            )
        lost = _lost(what)
        if lost:
            raise ValueError(
                f"prepare cannot carry {', '.join(lost)} of this {type(what).__name__}: a framework that builds it anew makes a "
                "plain DataLoader of its dataset and its collate function, and these would be gone. Leave them out, or pass the "
                "loader on without prepare where nothing builds it anew (a loop of your own, Lightning)."
            )
        loader = copy.copy(what)
        loader._iterator = None
        loader.collate_fn = prepare(what.collate_fn)
        inner = own(what, "base_dataloader")
        if inner is not None:
            loader.base_dataloader = prepare(inner)  # Accelerate's loaders are one, and iterate another
        return loader
    if what is None:
        return Portable(default_collate)
    if not callable(what):
        within = held_loader(what) is not None
        advice = " Make the DataLoader in it with collate_fn=pipefix.prepare(collate_fn), or prepare it first." if within else ""
        raise TypeError(f"prepare takes a DataLoader or a collate function, not a {type(what).__name__}.{advice}")
    return what if isinstance(what, Portable) else Portable(what)


def _lost(loader: Any) -> list[str]:
    """Options of a `FastLoader` that a loader with its dataset, sampler and collate function would be without."""
    held = vars(loader)
    if "_planned" not in held:
        return []
    usual = {"engine": ("auto", "processes"), "on_bad": ("raise",), "rng": ("torch",), "fuse": (None,)}
    lost = [f"{name}={held[name]!r}" for name, values in usual.items() if held[name] not in values]
    without = {"sample_timeout": 0, "threads_per_worker": 1, "augment": None, "device": None}
    lost += [f"{name}=" for name, value in without.items() if held[name] != value]
    # Of a plan's changes those that are no arguments of a `DataLoader`.
    plan, beyond = held["_planned"].plan, ("worker_threads", "fuse", "engine")
    lost += [f"the plan's {name}" for name in ("cache", "augmentation") if getattr(plan, name) is not None]
    settings = held["_planned"].settings
    return lost + [f"the plan's {name}" for name in beyond if getattr(settings, name) not in (None, "auto", "processes")]
